"""The broker's log: no cause fills it, and nothing that happened once is lost in it."""

import io
import logging
import re
import weakref
from pathlib import Path

import pytest
import trio
import trio.testing

from odradek.broker.environment.log_lines import LINES, SECONDS, TICK_SECONDS, LimitedHandler
from odradek.broker.testing import run_broker
from tests.broker.raw import RawClient

FLOOD = 500
WITHHELD = re.compile(r"and ([0-9,]+) more like this in the last 10 s")


class Log:
    """A handler on a clock and a stream of the test's own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.written = io.StringIO()
        self.handler = LimitedHandler(self.written, now=lambda: self.now)
        self.logger = logging.Logger("test")
        self.logger.addHandler(self.handler)

    @property
    def lines(self) -> list[str]:
        return self.written.getvalue().splitlines()


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_cause_that_repeats_is_written_a_few_times_and_then_counted(log: Log) -> None:
    for number in range(5_000):
        log.logger.warning("connection of %s closed: %s", number, "nonsense")
    assert log.lines == [f"connection of {n} closed: nonsense" for n in range(LINES)]
    log.now = SECONDS
    log.logger.warning("connection of %s closed: %s", 5_000, "nonsense")
    assert log.lines[LINES:] == [
        "connection of 4999 closed: nonsense (and 4,979 more like this in the last 10 s)"
    ]


def test_a_single_line_that_was_withheld_is_written_as_it_is(log: Log) -> None:
    for number in range(LINES + 1):
        log.logger.warning("%d", number)
    log.handler.close()
    assert log.lines[LINES:] == [str(LINES)]


def test_a_flood_does_not_hide_another_cause(log: Log) -> None:
    for number in range(100):
        log.logger.warning("noise %d", number)
        log.logger.info("noise %d", number)
    log.logger.warning("a log is offline")
    assert log.lines[-1] == "a log is offline"
    assert len(log.lines) == 2 * LINES + 1


def test_what_is_critical_is_always_written(log: Log) -> None:
    for _ in range(2 * LINES):
        log.logger.critical("an invariant is broken")
    assert len(log.lines) == 2 * LINES


def test_causes_that_share_a_text_are_told_apart_if_they_say_so(log: Log) -> None:
    for number in range(LINES):
        log.logger.warning("%s", number, extra={"cause": "one"})
    log.logger.warning("%s", "other", extra={"cause": "other"})
    assert log.lines[-1] == "other"


def test_a_flood_keeps_a_traceback_of_each_of_the_first_and_nothing_alive(log: Log) -> None:
    """An error holds the frames that it went through, and those an answer of 50 MB."""

    class Held:
        """Something large in the hands of a function that failed."""

    held = None
    for _ in range(LINES + 1):
        answer = Held()
        held = weakref.ref(answer)
        try:
            raise ValueError("of ours")
        except ValueError as error:
            log.logger.exception("a bug: %s", error)
    assert len([line for line in log.lines if line.startswith("Traceback")]) == LINES
    del answer
    assert held is not None
    assert held() is None


async def test_what_was_withheld_is_told_when_its_time_is_over(
    log: Log, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.handler.run)
        for number in range(LINES + 2):
            log.logger.warning("line %d", number)
        log.now = SECONDS
        await trio.sleep(2 * TICK_SECONDS)
        assert log.lines[LINES:] == ["line 21 (and 1 more like this in the last 10 s)"]
        nursery.cancel_scope.cancel()


def test_malformed_requests_do_not_fill_the_log_of_a_broker(tmp_path: Path) -> None:
    """Seen: a line for each, by the hundred a second."""
    with run_broker(data_dir=tmp_path) as broker:
        for _ in range(FLOOD):
            with RawClient(broker) as client:
                client.send(b"GET / HTTP/1.1\r\n\r\n")
                assert client.is_closed_by_broker()
        broker.stop()
        lines = [line for line in broker.log.splitlines() if "a frame length of" in line]
    counts = [int(found[1].replace(",", "")) for found in map(WITHHELD.search, lines) if found]
    assert len(lines) - len(counts) == LINES
    assert len(lines) + sum(counts) == FLOOD
