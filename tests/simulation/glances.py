"""What must hold inside the brokers at any time, looked at every few milliseconds.

Nothing here reads a disk. `judges.py` does, and looks less often.

- Every replica that may be elected has what any replica has shown as below the high watermark.
- A follower joins the in-sync set with all that the leader had when its epoch began (KAFKA-7128).
- A leader counts what a follower has fetched in the leader's own epoch (KIP-320), and in the run in
  which the follower is registered (KAFKA-15221).
- A coordinator knows only decisions that are replicated.
- A producer id has one owner.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

import trio

from odradek.broker.api.context import Core
from odradek.broker.cluster.image import ClusterImage
from odradek.broker.partitions.in_sync_view import UNKNOWN_OFFSET, InSyncView
from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.config import FlushPolicy
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.simulation.machine import Machine
from tests.simulation.world import World

GLANCE_SECONDS: Final = 0.005
NO_EPOCH: Final = -1


class Heard(NamedTuple):
    """What a leader had heard of a follower."""

    view: InSyncView
    fetch_number: int
    registered: int
    """The broker epoch of the follower in the leader's image."""
    is_in_sync: bool


@dataclass
class Glances:
    """What was seen so far in one world."""

    world: World
    violations: list[str]
    _shown: dict[tuple[UUID, int], int] = field(default_factory=dict)
    """The highest high watermark of each partition that any replica has shown."""
    _heard: dict[tuple[Partition, int], Heard] = field(default_factory=dict)
    _born: dict[int, tuple[Core, int]] = field(default_factory=dict)
    """The run of each broker, and the revision of the metadata store when it was seen first."""
    _first: dict[tuple[int, UUID, int], tuple[Core, Partition]] = field(default_factory=dict)
    """The last run of each broker that had a partition, and its first log of it in that run."""
    _owners: dict[int, str] = field(default_factory=dict)
    _image: ClusterImage | None = None

    async def run(self) -> None:
        """Look at every running broker, until cancelled. All are registered at the beginning."""
        for machine in self.world.machines.values():
            if machine.core is not None:
                self._born[machine.node_id] = machine.core, 0
        while not self.world.is_alone:
            await trio.sleep(GLANCE_SECONDS)
            found = dict.fromkeys(self._found())
            self.violations += [each for each in found if each not in self.violations]

    def _found(self) -> Iterator[str]:
        image = self._image_now()
        cores = [(machine, machine.core) for machine in self.world.machines.values()]
        for machine, core in cores:
            if core is not None:
                if self._born.get(machine.node_id, (None, 0))[0] is not core:
                    self._born[machine.node_id] = core, image.revision
                if machine.is_up:
                    self._note_shown(core)
        for machine, core in cores:
            if core is not None and machine.is_up:
                for partition in core.partitions.all():
                    self._note_first(machine.node_id, core, partition)
                    yield from self._not_here(machine, partition, image)
                    if partition.leading is not None:
                        yield from self._wrongly_counted(core, partition, partition.leading.view)
                yield from _not_replicated(machine, core)
                yield from self._owned_twice(core)

    def _image_now(self) -> ClusterImage:
        revision = self.world.store.keys.revision
        if self._image is None or self._image.revision != revision:
            self._image = self.world.image()
        return self._image

    def _note_shown(self, core: Core) -> None:
        for partition in core.partitions.all():
            key = (partition.topic_id, partition.index)
            self._shown[key] = max(self._shown.get(key, 0), partition.high_watermark)

    def _not_here(
        self, machine: Machine, partition: Partition, image: ClusterImage
    ) -> Iterator[str]:
        """Yield a replica that may be elected and lacks acknowledged records."""
        log = partition.log
        topic = image.topics.get(partition.topic)
        placed = image.partition(partition.topic, partition.index)
        if topic is None or topic.topic_id != partition.topic_id:
            return  # of a topic that was deleted, or made anew
        if placed is None or log.failure is not None or log.is_deleted:
            return
        if log.config.flush is FlushPolicy.OS:
            return
        shown = self._shown.get((partition.topic_id, partition.index), 0)
        if machine.node_id in (*placed.isr, *placed.elr) and partition.log_end_offset < shown:
            yield (
                f"eligible: {partition!r} of broker {machine.node_id} may be elected, and {shown} "
                "was shown as the high watermark"
            )

    def _wrongly_counted(self, core: Core, partition: Partition, view: InSyncView) -> Iterator[str]:
        where = f"{partition!r} in epoch {view.leader_epoch}"
        for node, progress in view.followers.items():
            broker = core.cluster.image.broker(node)
            now = Heard(
                view,
                progress.fetch_number,
                NO_EPOCH if broker is None else broker.epoch,
                node in view.isr,
            )
            last = self._heard.get((partition, node))
            self._heard[partition, node] = now
            is_known = progress.next_offset != UNKNOWN_OFFSET
            if is_known and self._is_of_other_epoch(partition, view, node):
                yield f"fetches: {where} counts what broker {node} had in an earlier epoch"
            if last is None or last.view is not view:
                continue
            has_fetched = now.fetch_number != last.fetch_number
            is_registered = last.registered == now.registered == progress.broker_epoch
            if has_fetched and last.registered == now.registered and not is_registered:
                yield f"fetches: {where} counts what another run of broker {node} has sent"
            joins = node in (view.proposed or ()) and not now.is_in_sync
            joined = now.is_in_sync and not last.is_in_sync
            if (joins or joined) and is_known and progress.next_offset < view.start_offset:
                yield (
                    f"in sync: {where} began at {view.start_offset}, and broker {node} joins with "
                    f"{progress.next_offset}"
                )

    def _is_of_other_epoch(self, partition: Partition, view: InSyncView, node: int) -> bool:
        """Return True if a follower cannot have fetched in the leader's epoch yet."""
        machine = self.world.machines[node]
        if machine.core is None or not machine.is_up:
            return False
        # A run that has begun since may be registered as the one before.
        if view.followers[node].broker_epoch <= self._born[node][1]:
            return False
        there = machine.core.partitions.find(TopicPartition(partition.topic, partition.index))
        if there is None or there.topic_id != partition.topic_id:
            return False
        # A damaged log is set aside while the broker runs, and an empty one begins. The leader has
        # heard of neither yet.
        run, first = self._first.get((node, there.topic_id, there.index), (None, None))
        if run is machine.core and first is not there:
            return False
        return there.leader_epoch < view.leader_epoch

    def _note_first(self, node: int, core: Core, partition: Partition) -> None:
        key = (node, partition.topic_id, partition.index)
        if key not in self._first or self._first[key][0] is not core:
            self._first[key] = core, partition

    def _owned_twice(self, core: Core) -> Iterator[str]:
        for view in core.transactions.transactions():
            producer_id, name = view.transaction.producer_id, view.transactional_id
            owner = self._owners.setdefault(producer_id, name)
            if owner != name:
                yield f"producer id {producer_id} belongs to {owner} and to {name}"


def _not_replicated(machine: Machine, core: Core) -> Iterator[str]:
    """Yield a coordinator that knows what its partition's followers may not have yet."""
    for view in core.transactions.transactions():
        index = core.transactions.partition_for(view.transactional_id)
        partition = core.partitions.find(TopicPartition(TRANSACTION_STATE_TOPIC, index))
        leader = None if partition is None else partition.leading
        if partition is None or leader is None or leader.leader_epoch != view.coordinator_epoch:
            continue
        if partition.high_watermark < leader.view.start_offset:
            yield (
                f"decisions: broker {machine.node_id} acts on {partition!r}, which began at "
                f"{leader.view.start_offset}"
            )
