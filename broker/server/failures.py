"""Questions about an exception: where it was raised, and what it keeps in memory."""

from traceback import clear_frames, walk_tb

from odradek.protocol.errors import ProtocolError


def failed_in(error: BaseException) -> str:
    """Return the name of the module that raised an exception."""
    module = ""
    for frame, _ in walk_tb(error.__traceback__):
        module = frame.f_globals["__name__"]
    return module


def let_go(error: BaseException) -> None:
    """Clear the local variables of the frames of an exception, an answer for example.

    A nursery leaves the exception in a reference cycle, which may stay in memory for long.
    """
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            let_go(each)
    clear_frames(error.__traceback__)


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
