"""Stories of a log that a crash may end at any operation of its disk, and what must be left of it.

What a log must say is computed from what was written, without our recovery.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.aborted import AbortedEntry, AbortedIndex
from odradek.broker.storage.producers import ProducerEntry, Producers
from odradek.protocol.batch import iter_batches, read_header
from odradek.protocol.control import read_marker
from tests.broker.storage.keyed import KeyedClient
from tests.broker.storage.samples import Client, Machine
from tests.fakes.disk import FakeDisk, PowerOff, until_power_off


@dataclass
class Story:
    """What was written in which order, and how much of it was acknowledged."""

    machine: Machine
    written: list[bytes] = field(default_factory=list)
    acknowledged_offset: int = 0

    def send(self, client: Client | KeyedClient, *what: Any) -> None:
        client.send(*what)
        self._tell(client.partition)

    def end(self, client: Client | KeyedClient, **how: Any) -> None:
        client.end(**how)
        self._tell(client.partition)

    def _tell(self, partition: Partition) -> None:
        """The last batch, with the offset that it was given."""
        *_, (_, last) = iter_batches(self.machine.disk.bytes_of(partition.log.active.path()))
        self.written.append(bytes(last))

    async def acknowledge(self, partition: Partition) -> None:
        end = partition.log_end_offset
        await partition.flushed(end)
        self.acknowledged_offset = end


S = TypeVar("S", bound=Story)
Workload = Callable[[S], Awaitable[None]]
Check = Callable[[S, Partition], Awaitable[object]]

KEEPING: Final = ("nothing", "something", "something else", "all")
"""What a disk may have kept of what was not flushed."""


async def told(story: S, workload: Workload[S], *, until: int) -> S:
    """The story up to where the power goes off: before that operation of its disk."""
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
    """The second crash comes at each of these operations of the recovery from the first."""
    for operation in operations:
        story = await told(begin(), workload, until=first_crash)
        disk = story.machine.disk
        disk.crash(Random(first_crash))
        disk.power_off_at(disk.operations + operation)
        try:
            await story.machine.start()
        except PowerOff:
            # The second time only the broker is killed, every other time.
            if operation % 2:
                disk.kill()
            else:
                disk.crash(random)
            await check(story, await story.machine.start())
        else:
            return
    raise AssertionError("recovery has more operations than that")


def recompute(written: list[bytes]) -> tuple[Producers, AbortedIndex]:
    """Producers and aborted transactions of a log with these batches, without our recovery."""
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
    """All of a producer but when it was last heard of."""
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
