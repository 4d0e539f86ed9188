"""What must hold inside the brokers at any time: looked at on a timer, and in the end.

`glances.py` has what can be seen without reading a log.

- log start <= last stable offset <= high watermark <= log end; the high watermark never falls while
  a replica lives.
- What was acknowledged is on disk: a power loss of all machines right now would lose nothing below
  the high watermark of a leader on any in-sync replica (`log.flush=ack`).
- A broker knows of each producer and open transaction what its log says.
- The last stable offset is at or below the start of every transaction whose marker is not below the
  high watermark.
- At rest, all replicas have the same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import trio

from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.config import FlushPolicy
from odradek.broker.topic_partition import TopicPartition
from odradek.protocol.batch import BatchHeader, crc_is_good, read_header
from odradek.protocol.errors import ProtocolError
from tests.simulation.glances import Glances
from tests.simulation.machine import DIRECTORY, Machine
from tests.simulation.world import World

LOOK_SECONDS = 0.25
WATCHED_TOPICS = ("orders", "copies")
"""Topics whose logs are read. Compaction does not change them."""


@dataclass
class Watch:
    """The judge of one world."""

    world: World
    violations: list[str]
    highest: dict[Partition, int] = field(default_factory=dict)

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
        for machine, partition in _replicas(self.world):
            self.violations += _wrong_marks(partition, self.highest.get(partition, 0))
            self.highest[partition] = partition.high_watermark
            where = TopicPartition(partition.topic, partition.index)
            if partition.topic in WATCHED_TOPICS and partition.log.failure is None:
                if (machine.node_id, where) not in damaged:
                    self.violations += _wrong_producers(machine, partition)
                    self.violations += _wrong_stable_offset(machine, partition)
                if partition.lead is not None:
                    self.violations += _not_on_disk(self.world, partition)


def judge_at_rest(world: World) -> Iterator[str]:
    """Yield what is wrong when all is at rest."""
    contents: dict[TopicPartition, bytes] = {}
    for machine, partition in _replicas(world):
        yield from _wrong_marks(partition, 0)
        if partition.topic not in WATCHED_TOPICS:
            continue
        yield from _wrong_producers(machine, partition)
        where = TopicPartition(partition.topic, partition.index)
        here = b"".join(machine.disk.files(f"{DIRECTORY}/{where}", ".log").values())
        if contents.setdefault(where, here) != here:
            yield f"replicas: {where} on broker {machine.node_id} differs from another replica"


def _replicas(world: World) -> Iterator[tuple[Machine, Partition]]:
    for machine in world.machines.values():
        if machine.core is not None and machine.is_up:
            for partition in machine.core.partitions.all():
                yield machine, partition


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


def _not_on_disk(world: World, partition: Partition) -> Iterator[str]:
    """Yield each in-sync replica that would lose acknowledged records without power."""
    if partition.log.config.flush is FlushPolicy.OS:
        return
    where = TopicPartition(partition.topic, partition.index)
    image = world.image().partition(*where)
    if image is None or image.leader_epoch != partition.leader_epoch:
        return
    damaged = [node for node, there in world.damaged() if there == where]
    for node in (node for node in image.isr if node not in damaged):
        files = world.machines[node].disk.files(f"{DIRECTORY}/{where}", ".log", durable=True)
        *_, end = (0, *(header.next_offset for header in _headers(b"".join(files.values()))))
        if end < partition.high_watermark:
            yield f"durability: {partition!r}, but on the disk of broker {node} it ends at {end}"


def _wrong_producers(machine: Machine, partition: Partition) -> Iterator[str]:
    """Yield what a broker knows of producers and transactions and its log does not say."""
    directory = f"{DIRECTORY}/{partition.topic}-{partition.index}"
    log = b"".join(machine.disk.files(directory, ".log").values())
    begun: dict[int, int] = {}
    epochs: dict[int, int] = {}
    for header in _headers(log):
        if header.producer_id < 0:
            continue
        epochs[header.producer_id] = header.producer_epoch
        if header.is_control:
            begun.pop(header.producer_id, None)
        elif header.is_transactional:
            begun.setdefault(header.producer_id, header.base_offset)
    known = {each.producer_id: each.first_offset for each in partition.open_transactions()}
    if known != begun:
        yield f"transactions: {partition!r} knows as open {known}, its log has {begun}"
    known_epochs = {each.producer_id: each.epoch for each in partition.producers()}
    if known_epochs != epochs:
        yield f"producers: {partition!r} knows epochs {known_epochs}, its log has {epochs}"


def _wrong_stable_offset(machine: Machine, partition: Partition) -> Iterator[str]:
    """Yield a last stable offset that is above the start of an open transaction."""
    directory = f"{DIRECTORY}/{partition.topic}-{partition.index}"
    log = b"".join(machine.disk.files(directory, ".log").values())
    begun: dict[int, int] = {}
    for header in _headers(log):
        if header.base_offset >= partition.high_watermark:
            break
        if header.is_control:
            begun.pop(header.producer_id, None)
        elif header.is_transactional:
            begun.setdefault(header.producer_id, header.base_offset)
    if begun and min(begun.values()) < partition.last_stable_offset:
        yield f"stable: {partition!r}, and below the high watermark are open {begun}"


def _headers(log: bytes) -> Iterator[BatchHeader]:
    """Yield the headers of the whole batches at the start of a log."""
    position = 0
    view = memoryview(log)
    while True:
        try:
            header = read_header(view, position)
        except ProtocolError:
            return
        batch = view[position : position + header.size_bytes]
        if header.batch_length <= 0 or not crc_is_good(batch, header):
            return
        yield header
        position += header.size_bytes
