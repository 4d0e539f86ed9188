"""Outcomes of records: callbacks, and the errors that no program has read yet.

Every record that was given to `send` has one outcome: it is stored, or it is lost with an error.
`on_delivery` is called with the outcome exactly once.

An error counts as *read* for a record when `on_delivery` was called with it, or when a program
waits for the record's `Delivery` or asks it for its result. Waiting is enough: a `flush` in another
task or thread that ends at the same moment must not raise an error that the waiting program
receives. The next `flush` or `close` raises an error that no program has read, once (`Failures`).
"""

from typing import Final, Protocol

from odradek.client.errors import Closed, OdradekError, Refused
from odradek.client.journal import LOGGER, loggable, records_were
from odradek.client.types import OnDelivery, RecordMetadata

FAILURES_KEPT: Final = 1_000
"""The failed batches whose read errors are counted exactly. Older ones count as not read."""


class Unread(Protocol):
    """One or several lost records, of which some errors may not be read yet."""

    error: OdradekError | None

    @property
    def unread(self) -> int: ...


# invariant client 1
class Failures:
    """Lost records whose error no program has read, the oldest first."""

    def __init__(self) -> None:
        self._lost: dict[Unread, None] = {}
        self._forgotten: OdradekError | None = None
        self._forgotten_count = 0

    def add(self, lost: Unread) -> None:
        if not lost.unread:
            return
        self._lost[lost] = None
        if len(self._lost) > FAILURES_KEPT:
            self._fold()

    def _fold(self) -> None:
        """Forget the failures that were read, and fold the oldest others into a number."""
        unread = [lost for lost in list(self._lost) if lost.unread]
        for lost in unread[: -FAILURES_KEPT // 2]:
            self._forgotten = self._forgotten or lost.error
            self._forgotten_count += lost.unread
        self._lost = dict.fromkeys(unread[-FAILURES_KEPT // 2 :])

    @property
    def unread(self) -> int:
        """The number of lost records whose error no program has read."""
        return self._forgotten_count + sum(lost.unread for lost in list(self._lost))

    def take(self) -> OdradekError | None:
        """Return the first error that no program has read. Then all of them count as read."""
        count = self.unread
        first = self._forgotten or next(
            (lost.error for lost in list(self._lost) if lost.unread and lost.error is not None),
            None,
        )
        self._lost, self._forgotten, self._forgotten_count = {}, None, 0
        if first is None:
            return None
        error = first.copy()
        if count > 1:
            error.add_note(f"{count} records were lost whose errors were not read.")
        return error

    def log_unread(self) -> None:
        """Log the lost records whose errors no program has read. Then they count as read."""
        count = self.unread
        error = self.take()
        if error is not None:
            LOGGER.warning(
                "%s lost because the producer was left without flush: %s",
                records_were(count),
                loggable(error),
            )


def call_back(
    on_delivery: OnDelivery, metadata: RecordMetadata | None, error: OdradekError | None
) -> None:
    """Call a program's callback, and log what it raises. Only Ctrl-C is raised again."""
    try:
        on_delivery(metadata, error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        # The caller is a task that all records of the client need. `sys.exit` and test frameworks
        # (`pytest.fail`) raise exceptions that are not an `Exception`.
        LOGGER.exception("the callback of a delivery failed")


def known_error(error: BaseException) -> OdradekError:
    """Return the error for the delivery of a record that was not sent because of `error`."""
    if isinstance(error, OdradekError):
        return error
    if isinstance(error, Exception):
        known: OdradekError = Refused(f"{type(error).__name__}: {error}")
    else:
        known = Closed("the call was interrupted before the record was taken: it is not sent")
    known.__cause__ = error
    return known
