"""What must hold inside the brokers at any time: looked at on a timer, and in the end.

`glances.py` has what can be seen without reading a log.

- log start <= last stable offset <= high watermark <= log end; the high watermark never falls while
  a replica lives.
- A leader epoch of a partition has one leader. Whoever leads next has everything below the high
  watermark that any leader has shown.
- What was acknowledged is on disk: a power loss of all machines right now would lose nothing below
  the high watermark of a leader on any in-sync replica, with its journal. All in-sync replicas have
  the same batches there, and these batches never change.
- A broker knows of each producer, open and aborted transaction what its log says.
- The last stable offset is at or below the start of every transaction whose marker is not below the
  high watermark.
- At rest, all replicas have the same bytes, and the high watermark is where it was or further.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

import trio

from odradek.broker.cluster.image import ClusterImage
from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.config import FlushPolicy
from odradek.broker.values.topic_partition import TopicPartition
from tests.simulation.glances import Glances
from tests.simulation.logs import Batch, Logs
from tests.simulation.machine import DIRECTORY, Machine
from tests.simulation.recomputed import Recomputation, wrong_indexes
from tests.simulation.world import World

LOOK_SECONDS = 0.25
WATCHED_TOPICS = ("orders", "copies")
"""Topics whose logs are read. Compaction does not change them."""
Identity = tuple[int, int, int, int]
"""Of a batch: first offset, next offset, leader epoch, CRC."""


@dataclass
class Watch:
    """The judge of one world."""

    world: World
    violations: list[str]
    highest: dict[Partition, int] = field(default_factory=dict)
    """The high watermark of each replica since its broker has started."""
    shown: dict[TopicPartition, int] = field(default_factory=dict)
    """The highest high watermark that a leader has shown."""
    agreed: dict[TopicPartition, list[Identity]] = field(default_factory=dict)
    """The batches below that."""
    leaders: dict[tuple[UUID, int, int], int] = field(default_factory=dict)
    """By topic, partition and leader epoch."""
    logs: Logs = field(default_factory=Logs)
    recomputation: Recomputation = field(init=False)

    def __post_init__(self) -> None:
        self.recomputation = Recomputation(self.logs)

    async def run(
        self, task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Look at every running broker now and then, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Glances(self.world, self.violations).run)
            task_status.started(nursery.cancel_scope)
            while True:
                await trio.sleep(LOOK_SECONDS)
                self.look()

    def look(self) -> None:
        damaged = self.world.damaged()
        self.violations += self._elected()
        for machine, partition in _replicas(self.world):
            self.violations += _wrong_marks(partition, self.highest.get(partition, 0))
            self.highest[partition] = partition.high_watermark
            if partition.leading is not None:
                self.violations += self._leads(
                    partition.topic_id, partition.index, partition.leader_epoch, machine.node_id
                )
            where = TopicPartition(partition.topic, partition.index)
            if partition.topic not in WATCHED_TOPICS or partition.log.failure is not None:
                continue
            if (machine.node_id, where) not in damaged:
                self.violations += self.recomputation.wrong(machine, partition)
                batches = self.logs.batches(machine, where)
                self.violations += _wrong_stable_offset(batches, partition)
                if partition.leading is not None:
                    self.violations += self._in_sync(machine, partition, where)

    def at_rest(self) -> Iterator[str]:
        """Yield what is wrong when all is at rest."""
        self.look()
        contents: dict[TopicPartition, bytes] = {}
        for machine, partition in _replicas(self.world):
            if partition.topic not in WATCHED_TOPICS:
                continue
            yield from wrong_indexes(machine, partition, self.logs)
            where = TopicPartition(partition.topic, partition.index)
            here = b"".join(machine.disk.files(f"{DIRECTORY}/{where}", ".log").values())
            if contents.setdefault(where, here) != here:
                yield f"replicas: {where} on broker {machine.node_id} differs from another replica"
            if partition.leading is not None and partition.high_watermark < self.shown.get(
                where, 0
            ):
                yield f"high watermark: {partition!r} was at {self.shown[where]}"

    def _elected(self) -> Iterator[str]:
        """Note the leaders in the metadata store."""
        for topic in _image(self.world).topics.values():
            for index, partition in enumerate(topic.partitions):
                if partition.leader >= 0:
                    yield from self._leads(
                        topic.topic_id, index, partition.leader_epoch, partition.leader
                    )

    def _leads(self, topic: UUID, index: int, epoch: int, node: int) -> Iterator[str]:
        other = self.leaders.setdefault((topic, index, epoch), node)
        if other != node:
            yield f"leaders: {topic}-{index} is led by {other} and by {node} in epoch {epoch}"

    def _in_sync(
        self, machine: Machine, partition: Partition, where: TopicPartition
    ) -> Iterator[str]:
        """Yield what acknowledged records a replica lacks or has otherwise."""
        image = _image(self.world).partition(*where)
        if image is None or image.leader_epoch != partition.leader_epoch:
            return
        shown = self.shown.setdefault(where, 0)
        if partition.log_end_offset < shown:
            yield f"high watermark: {partition!r} is led, and {shown} was shown"
            return
        high_watermark = partition.high_watermark
        self.shown[where] = max(shown, high_watermark)
        agreed = self.agreed.setdefault(where, [])
        mine = _below(self.logs.batches(machine, where), high_watermark)
        if mine[: len(agreed)] != agreed[: len(mine)]:
            yield f"agreed: {partition!r} has other batches than an earlier leader"
        if len(mine) > len(agreed):
            self.agreed[where] = mine
        damaged = [node for node, there in self.world.damaged() if there == where]
        for node in (node for node in image.isr if node not in damaged):
            other, flush = self.world.machines[node], partition.log.config.flush
            if flush is FlushPolicy.JOURNAL:
                if other.core is None:
                    continue  # it may be restoring what its files lack
                batches = self.logs.restored(other, where, partition.topic_id)
            else:
                batches = self.logs.batches(other, where, durable=flush is FlushPolicy.ACK)
            theirs = _below(batches, high_watermark)
            if flush is FlushPolicy.OS and node in self.world.went_down and set(theirs) < set(mine):
                continue  # what it lacks was in its page cache
            if len(theirs) < len(mine) and theirs == mine[: len(theirs)]:
                end = theirs[-1][1] if theirs else 0
                yield f"durability: {partition!r}, but on broker {node} it ends at {end}"
            elif theirs != mine:
                yield f"replicas: {partition!r} differs on broker {node}"


def _image(world: World) -> ClusterImage:
    """Return what is in the metadata store; of a broker alone that is down, nothing."""
    is_down = world.is_alone and world.machines[1].core is None
    return ClusterImage(cluster_id="") if is_down else world.image()


def _replicas(world: World) -> Iterator[tuple[Machine, Partition]]:
    for machine in world.machines.values():
        if machine.core is not None and machine.is_up:
            for partition in machine.core.partitions.all():
                yield machine, partition


def _wrong_stable_offset(batches: list[Batch], partition: Partition) -> Iterator[str]:
    """Yield a last stable offset that is above the start of an open transaction."""
    begun: dict[int, int] = {}
    for header, _, _ in batches:
        if header.base_offset >= partition.high_watermark:
            break
        if header.is_control:
            begun.pop(header.producer_id, None)
        elif header.is_transactional:
            begun.setdefault(header.producer_id, header.base_offset)
    if begun and min(begun.values()) < partition.last_stable_offset:
        yield f"stable: {partition!r}, and below the high watermark are open {begun}"


def _below(batches: list[Batch], offset: int) -> list[Identity]:
    return [
        (header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)
        for header, _, _ in batches
        if header.next_offset <= offset
    ]


def _wrong_marks(partition: Partition, highest: int) -> Iterator[str]:
    marks = (
        partition.log_start_offset,
        partition.last_stable_offset,
        partition.high_watermark,
        partition.log_end_offset,
    )
    if list(marks) != sorted(marks):
        yield f"marks: {partition!r}"
    if partition.high_watermark < highest:
        yield f"high watermark: {partition!r} has fallen from {highest}"
