"""What an exception says about itself: where it was raised, and what it holds."""

from traceback import clear_frames, walk_tb

from odradek.protocol.errors import ProtocolError


def failed_in(error: BaseException) -> str:
    """The module in which an exception was raised."""
    module = ""
    for frame, _ in walk_tb(error.__traceback__):
        module = frame.f_globals["__name__"]
    return module


def let_go(error: BaseException) -> None:
    """Forget what the functions had in hand that it went through: an answer, say.

    A nursery leaves an error in a cycle, which may stay until long after.
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
    """The place in the program where an exception was raised: one cause, whatever it names."""
    where = ""
    for frame, line in walk_tb(error.__traceback__):
        where = f"{frame.f_code.co_filename}:{line}"
    return where
