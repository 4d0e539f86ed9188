"""Work that several tasks may wait for: connections being opened, metadata being requested."""

import trio

from odradek.client.cluster.connection import BrokerConnection
from odradek.client.errors import OdradekError


class Link:
    """The connection to one node for one purpose, or the attempt to open it."""

    def __init__(self) -> None:
        self.connection: BrokerConnection | None = None
        self.attempt: trio.Event | None = None
        self.error: OdradekError | None = None

    def close(self, why: OdradekError) -> None:
        """Close the connection, and fail the tasks that wait for the attempt to open it."""
        if self.connection is not None:
            self.connection.close(why)
        if self.attempt is not None:
            self.error = why
            self.attempt.set()


class Refresh:
    """A metadata request under way, for other tasks that need the same."""

    def __init__(self) -> None:
        self.is_over = trio.Event()
        self.error: OdradekError | None = None


def first_cause(error: Exception) -> str:
    """Return the text of the first cause of a failed `trio.open_tcp_stream`.

    trio tries several addresses and raises one error for all of them.
    """
    cause = error.__cause__
    first = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else error
    said = getattr(first, "strerror", None) or str(first)
    return said.rpartition(": ")[2]
