"""Stories of a log that a crash may end at any disk operation, and the expected contents after it.

The expected contents are computed from the written batches, without the broker's recovery.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

import pytest

from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.aborted import AbortedEntry, AbortedIndex
from odradek.broker.storage.producer_entry import ProducerEntry
from odradek.broker.storage.producers import Producers
from odradek.protocol.batch import iter_batches, read_header
from odradek.protocol.control import read_marker
from tests.broker.storage.keyed import KeyedClient
from tests.broker.storage.samples import Client, Machine
from tests.fakes.disk import FakeDisk, PowerOff, until_power_off


@dataclass
class Story:
    """The written batches in order, and how many of them were acknowledged."""

    machine: Machine
    written: list[bytes] = field(default_factory=list)
    acknowledged_offset: int = 0

    def send(self, client: Client | KeyedClient, *what: Any) -> None:
        try:
            client.send(*what)
        finally:
            self._tell(client.partition)

    def end(self, client: Client | KeyedClient, **how: Any) -> None:
        try:
            client.end(**how)
        finally:
            self._tell(client.partition)

    def _tell(self, partition: Partition) -> None:
        """Note the last batch, with the offset that it got.

        The power may have gone off before it was written, or while the journal got it.
        """
        found = self.machine.disk.bytes_of(partition.log.active.path())
        last = [bytes(batch) for _, batch in iter_batches(found)][-1:]
        if last != self.written[-1:]:
            self.written += last

    async def acknowledge(self, partition: Partition) -> None:
        end = partition.log_end_offset
        await partition.leader().wait_committed(end)
        self.acknowledged_offset = end


S = TypeVar("S", bound=Story)
Workload = Callable[[S], Awaitable[None]]
Check = Callable[[S, Partition], Awaitable[object]]

KEEPING: Final = ("nothing", "something", "something else", "all")
"""The fates of writes that were not flushed."""
at_every: Final = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.minutes)])
"""In CI the power goes off before every third operation, beginning with another for each fate."""


async def told(story: S, workload: Workload[S], *, until: int) -> S:
    """Play the story until the power goes off before a given disk operation."""
    story.machine.disk.power_off_at(until)
    with until_power_off():
        await workload(story)
    return story


def crash(disk: FakeDisk, keeping: str, operation: int) -> None:
    if keeping == "all":
        disk.kill()
    else:
        disk.crash(None if keeping == "nothing" else Random(f"{keeping} {operation}"))


async def crash_again(
    begin: Callable[[], S],
    workload: Workload[S],
    check: Check[S],
    *,
    first_crash: int,
    operations: Iterable[int],
    random: Random,
) -> None:
    """Crash a second time, at each of these operations of the recovery from the first crash.

    In every third case only the broker is killed the first time, and the page cache has names that
    are not on disk.
    """
    for operation in operations:
        story = await told(begin(), workload, until=first_crash)
        disk = story.machine.disk
        if operation % 3:
            disk.crash(Random(first_crash))
        else:
            disk.kill()
        disk.power_off_at(disk.operations + operation)
        try:
            await story.machine.start()
        except PowerOff:
            # In every second case only the broker is killed the second time.
            if operation % 2:
                disk.kill()
            else:
                disk.crash(random)
            await check(story, await story.machine.start())
        else:
            return
    raise AssertionError("recovery has more operations than that")


def recompute(written: list[bytes]) -> tuple[Producers, AbortedIndex]:
    """Return producers and aborted transactions of these batches, without our recovery."""
    producers, aborted = Producers(), AbortedIndex()
    for data in written:
        header = read_header(data)
        if not header.is_control:
            producers.add_batch(header, header.base_offset, header.max_timestamp, 0)
            continue
        marker = read_marker(data)
        ended = producers.add_marker(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            offset=header.base_offset,
            timestamp_ms=header.max_timestamp,
            now_ms=0,
        )
        if ended is not None and not marker.committed:
            aborted.append(AbortedEntry(*ended))
    return producers, aborted


def facts(entry: ProducerEntry) -> tuple[object, ...]:
    """Return everything of a producer except the time of its last append."""
    return (
        entry.producer_id,
        entry.epoch,
        entry.coordinator_epoch,
        entry.first_offset,
        entry.last_marker_offset,
        entry.last_timestamp_ms,
        list(entry.batches),
    )


def by_id(producers: Producers) -> list[tuple[object, ...]]:
    entries = producers.entries.values()
    return [facts(entry) for entry in sorted(entries, key=lambda entry: entry.producer_id)]
