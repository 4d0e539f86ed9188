"""Spark gets errors whose sentence stands first, and with few frames."""

import traceback
from collections.abc import Callable, Iterator

import pytest

from odradek.client.errors import TimedOut
from odradek.client.spark.errors import CommitRefused, sentence_first
from odradek.protocol.errors import ErrorCode, KafkaError


@sentence_first
def plan(error: Exception) -> list[int]:
    return [deep_inside(error)]


@sentence_first
def read(error: Exception) -> Iterator[int]:
    yield deep_inside(error)


def deep_inside(error: Exception) -> int:
    try:
        raise OSError("the reason, which the sentence has already")
    except OSError as reason:
        raise error from reason


def printed_by(call: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever it is, it is printed
        call()
    # Without the frame of this test.
    frames = caught.value.__traceback__
    assert frames is not None
    return "".join(traceback.format_exception(type(caught.value), caught.value, frames.tb_next))


@pytest.mark.parametrize(
    "error",
    [
        CommitRefused("nothing is written: stop one of them."),
        TimedOut("no answer came in time", code=ErrorCode.REQUEST_TIMED_OUT),
        KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch is damaged"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("call", [plan, lambda error: list(read(error))], ids=["plan", "read"])
def test_a_sentence_stands_before_the_frames_and_those_inside_are_left_out(
    call: Callable[[Exception], object], error: Exception
) -> None:
    printed = printed_by(lambda: call(error))
    name = f"{type(error).__module__}.{type(error).__name__}"
    assert printed.splitlines()[0] == printed.splitlines()[-1] == f"{name}: {error}"
    assert "deep_inside" not in printed
    assert "the reason" not in printed


def test_an_error_that_is_no_sentence_keeps_its_frames_and_its_cause() -> None:
    printed = printed_by(lambda: plan(AssertionError("position 3 behind end 2")))
    assert "deep_inside" in printed
    assert "the reason" in printed
