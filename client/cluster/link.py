"""What a cluster has under way: connections that are being made, questions that are being asked."""

import trio

from odradek.client.cluster.connection import Connection
from odradek.client.errors import OdradekError


class Link:
    """The way to one node: its connection, or the attempt to make one."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.attempt: trio.Event | None = None
        self.error: OdradekError | None = None

    def close(self, why: OdradekError) -> None:
        """Close the connection, and fail those that wait for the attempt to make one."""
        if self.connection is not None:
            self.connection.close(why)
        if self.attempt is not None:
            self.error = why
            self.attempt.set()


class Refresh:
    """A question about the cluster that is under way, for those who would ask the same."""

    def __init__(self) -> None:
        self.is_over = trio.Event()
        self.error: OdradekError | None = None


def first_cause(error: Exception) -> str:
    """trio tries several addresses and raises one error for all of them."""
    cause = error.__cause__
    first = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else error
    said = getattr(first, "strerror", None) or str(first)
    return said.rpartition(": ")[2]
