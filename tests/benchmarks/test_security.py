"""The rows about security: their arithmetic, the entries, and the steps of tasks."""

import time
from pathlib import Path

import pytest
import trio
import trio.testing

from scripts.benchmarks import authorizer, security
from scripts.benchmarks.__main__ import FAMILIES, FAMILIES_IN_TURN, _families
from scripts.benchmarks.figures import at_least
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.security import Cost, absolute, of_plain
from scripts.benchmarks.task_steps import Steps, longest_ms

BUSY_NS = 20_000_000


def test_security_stands_for_its_families_among_others() -> None:
    assert _families("security, small") == [*security.FAMILIES, "small"]
    assert set(security.FAMILIES) <= {*FAMILIES, *FAMILIES_IN_TURN}


def test_a_part_of_plain_is_the_median_of_the_ratios_of_the_rounds() -> None:
    rounds = {
        "plain": [Cost(100, 2), Cost(10, 20), Cost(100, 2)],
        "guarded": [Cost(90, 3), Cost(8, 40), Cost(50, 2)],
    }

    part, cost = of_plain("f", "produce", rounds, "guarded", "plain", at_least(0.9))

    assert (part.name, part.value) == ("produce, of plain", 0.8)
    assert part.floor is not None
    assert part.floor.holds(part.value, None) is False
    assert (cost.name, cost.value) == ("CPU per record, produce, of plain", 1.5)


def test_rates_are_those_of_bytes() -> None:
    rate, cost = absolute("f", "produce", [Cost(1_000, 7)], record_bytes=1_000)

    assert (rate.value, rate.unit, rate.floor) == (1.0, "MB/s", None)
    assert (cost.value, cost.unit) == (7, "us")


@pytest.mark.parametrize("count", authorizer.ENTRIES)
def test_so_many_entries_of_which_one_allows_the_benchmark(count: int) -> None:
    entries = list(authorizer.all_entries(count))

    assert len(set(entries)) == count
    allowing = [each for each in entries if authorizer.TOPICS.startswith(each.name)]
    assert allowing == entries[:1]


def test_the_topics_of_a_benchmark_are_those_that_the_entry_allows(bootstrap: str) -> None:
    assert new_topic(bootstrap, "x").startswith(authorizer.TOPICS)


async def test_the_longest_step_of_a_task_is_that_between_two_waits() -> None:
    async def connection(busy_ns: int) -> None:
        await trio.lowlevel.checkpoint()
        ends = time.perf_counter_ns() + busy_ns
        while time.perf_counter_ns() < ends:
            pass
        await trio.lowlevel.checkpoint()

    async def other() -> None:
        await trio.lowlevel.checkpoint()

    steps = Steps(connection.__code__)
    trio.lowlevel.add_instrument(steps)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection, BUSY_NS)
        nursery.start_soon(other)
    trio.lowlevel.remove_instrument(steps)

    (longest_ns,) = steps.ended_ns
    assert longest_ns >= BUSY_NS


def test_steps_are_read_in_milliseconds(tmp_path: Path) -> None:
    (tmp_path / "steps").write_text("1500000\n250000\n")

    assert longest_ms(tmp_path / "steps") == [1.5, 0.25]
