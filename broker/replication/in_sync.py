"""The in-sync sets of the partitions that this broker leads.

A leader changes the set by a compare-and-set on the partition's key in the metadata store, guarded
by its own registration and by those of the followers that join (KIP-903): a follower that has
restarted meanwhile does not get in with what its earlier run had on disk (KAFKA-15221).

Changes that are due at the same time are written together, as one broker's return changes every
partition of which it has a replica. If that write is refused, the next ones are written one by one.

A broker may lead thousands of partitions, of which most are idle. So a partition is looked at only
when there is news of it (its log has grown, its settings, replicas or in-sync set have changed),
when a broker comes or goes, and when its first follower might have to leave, as that was not heard
of since. A fetch of the follower that does not list the partition moves that time on.

While the outcome of a change is unknown, the larger of both sets counts (`InSyncView.proposed`). A
lost answer is no refusal (KAFKA-14144): the image shows in the end which set there is.
"""

import logging
import math
from collections.abc import Sequence
from typing import Final

import trio

from odradek.broker.cluster.election import with_isr
from odradek.broker.cluster.guarded_write import guarded_write
from odradek.broker.cluster.image import BrokerImage, PartitionImage
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.session import Session
from odradek.broker.cluster.store import broker_key, in_steps, pack_partition, partition_key
from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.environment.env import Compare, MetaStore
from odradek.broker.partitions.early import joining
from odradek.broker.partitions.leader import Leader
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
CHECK_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 0.2
AT_ONCE: Final = 50
"""The most changes that are written together. Fewer if their guards need the room."""


@dataclass(frozen=True, slots=True)
class Change:
    """One in-sync set as it should be."""

    leader: Leader
    before: PartitionImage
    isr: Sequence[int]

    def joining(self) -> list[int]:
        """Return the followers that come in."""
        return [node for node in self.isr if node not in self.leader.view.isr]


class _Watch:
    """Reports the news of one lead."""

    __slots__ = ("_in_sync", "_leader")

    def __init__(self, in_sync: "InSync", leader: Leader) -> None:
        self._in_sync = in_sync
        self._leader = leader

    def notify(self) -> None:
        self._in_sync.note_news(self._leader)


class InSync:
    """Brings followers into the in-sync sets, and takes out those that lag or are gone."""

    def __init__(
        self,
        *,
        store: MetaStore,
        metadata: ClusterMetadata,
        session: Session,
        max_lag_seconds: float,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._session = session
        self._max_lag_seconds = max_lag_seconds
        self._watches: dict[Leader, _Watch] = {}
        self._news: dict[Leader, None] = {}
        """The leads to look at next."""
        self._lags = Deadlines(self._leaves_at)
        self._due: dict[Leader, None] = {}
        self._is_due = trio.Event()
        self.shrink_count = 0
        """The changes by which followers have left."""
        self.expand_count = 0
        """The changes by which followers have joined."""
        self._singly = 0
        """The number of changes that are written by themselves, as a write of many was refused."""

    async def run(self) -> None:
        """Look for followers that lag, and write what changes, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_changes)
            nursery.start_soon(self._note_lags)
            brokers: tuple[BrokerImage, ...] = ()
            while True:
                if brokers != self._metadata.image.brokers:
                    brokers = self._metadata.image.brokers
                    for leader in self._watches:
                        self.note_news(leader)
                self._look()
                with trio.move_on_after(CHECK_SECONDS):
                    while brokers == self._metadata.image.brokers:
                        await self._metadata.next_step()

    def watch(self, leader: Leader) -> None:
        """Look after the in-sync set of a lead that begins, until it is over."""
        watch = self._watches[leader] = _Watch(self, leader)
        leader.marks.followers.watches[watch] = None
        leader.view.end_at_look = leader.log.log_end_offset
        self.note_news(leader)

    def note_news(self, leader: Leader) -> None:
        """Look at a lead soon. Called at every append: quick, and quicker the second time."""
        if leader not in self._news:
            leader.view.note_news()
            self._news[leader] = None

    def _look(self) -> None:
        """Look at the leads of which there is news."""
        news, self._news = self._news, {}
        for leader in news:
            if _is_over(leader):
                self._forget(leader)
                continue
            leader.view.end_at_look = leader.log.log_end_offset
            self.consider(leader)
            self._lags.watch(leader)

    def _forget(self, leader: Leader) -> None:
        watch = self._watches.pop(leader, None)
        if watch is not None:
            leader.marks.followers.watches.pop(watch, None)
        self._lags.forget(leader)

    def _leaves_at(self, leader: Leader) -> float:
        return leader.view.leaves_at(leader.log.log_end_offset, self._max_lag_seconds)

    async def _note_lags(self) -> None:
        """Look at a lead when its first follower may have to leave."""
        while True:
            for leader in await self._lags.wait():
                self.note_news(leader)

    def consider(self, leader: Leader) -> None:
        """Change the in-sync set of a partition if a follower should join or leave."""
        if _is_over(leader) or leader.view.is_alone or leader in self._due:
            return
        if self._wanted(leader) is not None:
            self._due[leader] = None
            self._is_due.set()

    def _wanted(self, leader: Leader) -> Sequence[int] | None:
        """Return the in-sync set as it should be; None if it is so already.

        The same set is written again if min.insync.replicas was lowered to its size: the write
        removes the eligible leader replicas, for which the high watermark waits
        (`in_sync_view.py`).
        """
        view = leader.view
        image = self._metadata.image
        leaving = view.leaving(
            leader.log.log_end_offset, trio.current_time(), self._max_lag_seconds
        )
        for node in view.isr:
            broker = image.broker(node)
            is_going = broker is None or broker.is_leaving
            if is_going and node != view.node_id and node not in leaving:
                leaving.append(node)
        may_join = [
            node
            for node in joining(leader)
            if self._may_join(node, view.followers[node].broker_epoch)
        ]
        if not leaving and not may_join:
            is_enough_now = view.has_enough(leader.log.config.min_insync_replicas)
            # invariant settings 1
            return view.isr if view.elr and is_enough_now else None
        return [n for n in view.replicas if n in (*view.isr, *may_join) and n not in leaving]

    def _may_join(self, node: int, broker_epoch: int) -> bool:
        broker = self._metadata.image.broker(node)
        return broker is not None and broker.epoch == broker_epoch and not broker.is_leaving

    async def _write_changes(self) -> None:
        while True:
            changes = self._next_changes()
            if not changes:
                self._is_due = trio.Event()
                # What the image does not show yet is due again after a while.
                with trio.move_on_after(RETRY_SECONDS if self._due else math.inf):
                    await self._is_due.wait()
                continue
            self._singly = max(0, self._singly - 1)
            try:
                if not await self._write(changes) and len(changes) > 1:
                    self._singly = len(changes)
            except KafkaError as error:
                LOGGER.warning("in-sync sets were not changed: %s", error)
                await trio.sleep(RETRY_SECONDS)
            for change in changes:
                self._settle(change.leader)
                self.consider(change.leader)

    def _settle(self, leader: Leader) -> None:
        """Take out a lead for which nothing is due any more. Its followers may lag again."""
        self._due.pop(leader, None)
        self.note_news(leader)

    def _next_changes(self) -> list[Change]:
        """Return the changes that are due and can be written now.

        A follower that joins counts from here on (`_write`): nothing may be awaited in between.
        """
        at_once = 1 if self._singly else AT_ONCE
        changes: dict[TopicPartition, Change] = {}
        for leader in tuple(self._due):
            isr = None if _is_over(leader) else self._wanted(leader)
            if isr is None:
                self._settle(leader)
                continue
            where = leader.by_id.by_name
            image = self._metadata.image.partition(*where)
            # Otherwise the role of the partition follows soon.
            if image is not None and image.epoch == leader.view.partition_epoch:
                changes[where] = Change(leader, image, isr)
                if len(changes) == at_once:
                    break
        steps = in_steps(changes, self._store.max_operations, Change.joining)
        return list(next(steps, {}).values())

    async def _write(self, changes: Sequence[Change]) -> bool:
        """Write in-sync sets, and wait until the image has them or others. Raises KafkaError."""
        compares = [self._session.guard]
        joining: dict[int, int] = {}
        puts: dict[str, bytes | None] = {}
        for change in changes:
            leader, view = change.leader, change.leader.view
            key = partition_key(*leader.by_id.by_name)
            compares.append(Compare(key=key, mod_revision=change.before.epoch))
            for node in change.joining():
                joining[node] = view.followers[node].broker_epoch
            min_isr = leader.log.config.min_insync_replicas
            puts[key] = pack_partition(with_isr(change.before, change.isr, min_isr))
            view.proposed = change.isr
        for node, epoch in joining.items():
            compares.append(Compare(key=broker_key(node), create_revision=epoch))
        is_written, revision = await guarded_write(self._store, compares, puts)
        await self._metadata.wait_reached(revision)
        for change in changes:
            if is_written:
                isr, before = set(change.isr), set(change.before.isr)
                self.shrink_count += bool(before - isr)
                self.expand_count += bool(isr - before)
                LOGGER.info(
                    "%s: in sync are %s, before %s",
                    change.leader.by_id.by_name,
                    list(change.isr),
                    list(change.before.isr),
                )
            else:
                change.leader.view.proposed = None
        return is_written


def _is_over(leader: Leader) -> bool:
    """Return True if another lead has begun, or none is left as the topic was deleted."""
    return leader.is_over or leader.log.is_deleted
