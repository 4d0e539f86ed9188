"""The refusal of a batch, and errors of which Spark shows the sentence first.

Spark sends an error as text from the Python process to the JVM, as Python prints it: the cause, the
frames, and the error last. So what is needed most would stand below frames of Spark.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

OURS: Final = "odradek."
"""The beginning of the modules whose errors have a sentence for the user."""


class CommitRefused(RuntimeError):
    """A batch cannot be written or committed. The message states why and what to do."""


def sentence_first(method: Callable[P, R]) -> Callable[P, R]:
    """Make a method that Spark calls raise errors of this project with the sentence as their cause.

    Python prints a cause before the frames. The frames below the method are left out. Other errors
    are mistakes, and keep them.
    """
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def generate(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
            try:
                yield from method(*args, **kwargs)
            except Exception as error:
                if not _has_sentence(error):
                    raise
                raise error.with_traceback(None) from _printed_alike(error)

        return generate  # type: ignore[return-value]  # R is an iterator here

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            if not _has_sentence(error):
                raise
            raise error.with_traceback(None) from _printed_alike(error)

    return call


def _has_sentence(error: Exception) -> bool:
    return type(error).__module__.startswith(OURS)


def _printed_alike(error: Exception) -> BaseException:
    kind = type(error)
    printed = kind.__new__(kind, *error.args)
    printed.__dict__.update(vars(error))
    return printed
