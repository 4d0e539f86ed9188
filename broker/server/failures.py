"""Questions about an exception: who is to blame, where it was raised, what it keeps in memory."""

import logging
from traceback import clear_frames, walk_tb
from typing import Final

from odradek.protocol.connection import Request
from odradek.protocol.errors import ProtocolError

LOGGER: Final = logging.getLogger(__name__)

# invariant bounds 4: An error that is our own closes one connection, with a traceback in the log. A
# failed assertion in these modules stops the broker: what it knows cannot be trusted any more.
# tests/broker/test_broken_invariant.py
INVARIANTS: Final = (
    "odradek.broker.cluster.",
    "odradek.broker.coordination.",
    "odradek.broker.group.",
    "odradek.broker.partitions.",
    "odradek.broker.storage.",
    "odradek.broker.txn.",
)
"""Modules in which a failed assertion means that the state of the broker may be wrong."""


def failed_in(error: BaseException) -> str:
    """Return the name of the module that raised an exception."""
    module = ""
    for frame, _ in walk_tb(error.__traceback__):
        module = frame.f_globals["__name__"]
    return module


def let_go(error: BaseException) -> None:
    """Forget the frames of an exception with their local variables, an answer for example.

    A nursery leaves the exception in a reference cycle, which may stay in memory for long.
    """
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            let_go(each)
    clear_frames(error.__traceback__)
    error.__traceback__ = None


def first(group: BaseExceptionGroup[ProtocolError]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def raised_at(error: BaseException) -> str:
    """Return the line that raised an exception: log lines are counted by it, not by their text."""
    where = ""
    for frame, line in walk_tb(error.__traceback__):
        where = f"{frame.f_code.co_filename}:{line}"
    return where


def breaks_invariant(error: Exception) -> bool:
    """Return True, and log it, if what the broker keeps may be wrong: the broker must stop."""
    is_broken = isinstance(error, AssertionError) and failed_in(error).startswith(INVARIANTS)
    if is_broken:
        LOGGER.critical("an invariant is broken, and the broker stops: %s", error)
    return is_broken


def blame(peer: str, request: Request, error: Exception) -> None:
    """Log an error of serving a request that the client did not cause, and raise `OurBug`.

    Return if the caller must raise the error itself.
    """
    what = f"{request.api.name} v{request.version} of client {request.client_id!r}"
    blame_for(peer, what, error)


def blame_for(peer: str, what: str, error: Exception) -> None:
    """Do the same as `blame` for an error that is not of one request that is known."""
    if isinstance(error, ProtocolError):
        return
    # The caller raises it, and it ends the process: what the broker keeps may be wrong.
    if breaks_invariant(error):
        return
    LOGGER.error(
        "a bug in the broker: %s at %s failed; its connection is closed",
        what,
        peer,
        exc_info=error,
    )
    raise OurBug from error


class OurBug(Exception):
    """A bug that has been logged with its traceback. It ends the connection, and nothing else."""
