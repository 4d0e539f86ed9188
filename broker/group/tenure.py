"""The groups and offsets of one tenure (`coordination/tenure.py`), and how they change.

`replay` is the only way: it applies what `group_log.py` has written, and what `loading.py` reads.
Both do so in log order, so a restart leads to the same groups and offsets. There may be millions of
offsets, so for each of them `loading.py` calls the part of it that is in `stored_offsets.py`.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Final
from uuid import UUID

import trio

from odradek.broker.coordination.state_partition import StatePartition
from odradek.broker.environment.work import Work, whole
from odradek.broker.group.changes import (
    Change,
    ClassicBegun,
    ClassicStored,
    ConsumerChanged,
    ConsumerEnded,
    OffsetsPending,
    OffsetsStored,
    Removed,
    TransactionEnded,
)
from odradek.broker.group.classic_group import ClassicGroup
from odradek.broker.group.consumer.state import ConsumerEvent
from odradek.broker.group.group_log import GroupLog, Surroundings
from odradek.broker.group.live_classic_group import LiveClassicGroup
from odradek.broker.group.live_consumer_group import LiveConsumerGroup
from odradek.broker.group.loading import GroupReader
from odradek.broker.group.offset_expiry import expired_offsets
from odradek.broker.group.state import GroupEvent, GroupState
from odradek.broker.group.store import GroupEntry, OffsetEntry, PartitionOffset
from odradek.broker.group.stored_offsets import Offsets
from odradek.protocol.schema import ZERO_UUID

log: Final = logging.getLogger(__name__)

LiveGroup = LiveClassicGroup | LiveConsumerGroup

GROUPS_AT_A_TIME: Final = 500
"""The number of groups that are made between two checkpoints."""

EXPIRED_AT_A_TIME: Final = 1_000
"""The number of offsets that are looked at between two checkpoints, about 5 ms if all expire."""


class GroupTenure(GroupLog):
    def __init__(self, partition: StatePartition, name: str, around: Surroundings) -> None:
        super().__init__(partition, name, around)
        self.groups: Final[dict[str, LiveGroup]] = {}
        """The groups of both protocols. One that has only offsets is a classic group."""
        self.beginning: Final[dict[str, LiveConsumerGroup]] = {}
        """Groups of the new protocol whose first request is being decided."""
        self.offsets: Final = Offsets()

    def classic(self, group_id: str) -> LiveClassicGroup | None:
        """Return a group if it is a classic one."""
        live = self.groups.get(group_id)
        return live if isinstance(live, LiveClassicGroup) else None

    def consumer(self, group_id: str) -> LiveConsumerGroup | None:
        """Return a group if it is one of the new protocol."""
        live = self.groups.get(group_id)
        return live if isinstance(live, LiveConsumerGroup) else None

    def begin_classic(self, group_id: str) -> LiveClassicGroup:
        """Return a new classic group without members."""
        now_ms = self.around.clock.wall_ms()
        live = LiveClassicGroup(ClassicGroup(group_id=group_id, state_since_ms=now_ms), self)
        self.groups[group_id] = live
        return live

    def begin_consumer(self, group_id: str) -> LiveConsumerGroup:
        """Return a group of the new protocol that is not there before its first member has joined.

        All that join meanwhile get the same one, and so wait for each other.
        """
        live = self.beginning.get(group_id)
        if live is None:
            live = self.beginning[group_id] = LiveConsumerGroup(group_id, self)
        return live

    def discard_if_blank(self, live: LiveClassicGroup) -> None:
        """Remove a group that was made for a request which was then refused."""
        group = live.group
        has_members = bool(group.members or group.promised)
        is_blank = group.state is GroupState.EMPTY and not has_members and not live.end_offset
        is_here = self.groups.get(group.group_id) is live
        if is_here and is_blank and not self.offsets.has_any(group.group_id):
            del self.groups[group.group_id]

    # what records change

    def replay(self, change: Change, base_offset: int) -> Work[None]:
        yield 1
        match change:
            case OffsetsStored(group_id, offsets):
                self._expect_group(group_id)
                self.offsets.store(group_id, offsets, base_offset)
            case OffsetsPending(producer_id, group_id, offsets):
                self._expect_group(group_id)
                self.offsets.add_pending(producer_id, group_id, offsets, base_offset)
            case TransactionEnded(producer_id, committed):
                self.offsets.end_transaction(
                    producer_id, committed=committed, marker_offset=base_offset
                )
            case Removed(entries):
                for log_offset, entry in enumerate(entries, base_offset):
                    yield 1
                    self._remove(entry, log_offset)
            case ClassicBegun(group, must_rebalance):
                # invariant consumer-groups 4
                self._begin_classic(group, base_offset, must_rebalance=must_rebalance)
            case ClassicStored(group):
                live = self.classic(group.group_id)
                if live is not None:
                    live.on_stored(group)
            case ConsumerChanged(group):
                self._consumer_of(group.group_id).take(group)
            case ConsumerEnded(group_id, event):
                self._end_consumer(group_id, event)

    def _expect_group(self, group_id: str) -> None:
        """Make a group for an offset, unless there is one, of either protocol."""
        if group_id not in self.groups:
            self.begin_classic(group_id)

    def _remove(self, entry: OffsetEntry | GroupEntry, log_offset: int) -> None:
        """Apply a tombstone. A group stays if a member has joined it since that was written."""
        if isinstance(entry, OffsetEntry):
            self.offsets.apply(entry, log_offset)
            return
        live = self.classic(entry.group_id)
        if live is None or live.group.state is not GroupState.EMPTY:
            return
        if live.end_offset <= log_offset and not self.offsets.has_any(entry.group_id):
            live.close(GroupEvent.EXPIRE)
            del self.groups[entry.group_id]

    def _begin_classic(
        self, group: ClassicGroup, base_offset: int, *, must_rebalance: bool
    ) -> None:
        consumer = self.consumer(group.group_id)
        if consumer is not None:
            consumer.close(ConsumerEvent.DOWNGRADE)
        live = self.groups[group.group_id] = LiveClassicGroup(group, self)
        live.resume(base_offset + 1)
        if must_rebalance:
            live.rebalance()

    def _consumer_of(self, group_id: str) -> LiveConsumerGroup:
        """Return a group of the new protocol, which may take the place of a classic one."""
        live = self.groups.get(group_id)
        if isinstance(live, LiveConsumerGroup):
            return live
        if live is not None:
            live.close(GroupEvent.UPGRADE)
        begun = self.beginning.pop(group_id, None) or LiveConsumerGroup(group_id, self)
        self.groups[group_id] = begun
        return begun

    def _end_consumer(self, group_id: str, event: ConsumerEvent) -> None:
        live = self.groups.pop(group_id)
        assert isinstance(live, LiveConsumerGroup), group_id
        live.close(event)

    def storing(self) -> Iterator[tuple[str, PartitionOffset]]:
        """Yield the offsets in the log that have not taken effect, with their groups.

        They must not be removed for what is stored before them: a tombstone would stand behind
        them, and remove an offset that is acknowledged.
        """
        for change in self.uncommitted():
            if isinstance(change, OffsetsStored):
                for offset in change.offsets:
                    yield change.group_id, offset

    async def expire(self, retention_ms: int) -> None:
        """Remove expired offsets, and groups without members and offsets. Raises KafkaError."""
        next_offset = 0
        for group_ids in self._some_at_a_time():
            # One piece from the check to the append. Other tasks run between two parts.
            next_offset = self._expire(group_ids, retention_ms) or next_offset
            await trio.lowlevel.checkpoint()
        if next_offset:
            await self.wait_committed(next_offset)

    def _some_at_a_time(self) -> Iterator[list[str]]:
        """Yield the ids of all groups, in parts that have about EXPIRED_AT_A_TIME offsets."""
        group_ids: list[str] = []
        count = 0
        for group_id in list(self.groups):
            group_ids.append(group_id)
            count += 1 + self.offsets.count(group_id)
            if count >= EXPIRED_AT_A_TIME:
                yield group_ids
                group_ids, count = [], 0
        yield group_ids

    def _expire(self, group_ids: Iterable[str], retention_ms: int) -> int:
        """Expire what is in these groups. Return the offset after it in the log, 0 for nothing."""
        now_ms = self.around.clock.wall_ms()
        storing = {group_id for group_id, _ in self.storing()}
        tombstones: list[OffsetEntry | GroupEntry] = []
        over = []
        for group_id in group_ids:
            live = self.groups.get(group_id)
            if live is None or group_id in storing:
                continue
            gone, is_over = expired_offsets(
                live.group, self.offsets, now_ms=now_ms, retention_ms=retention_ms
            )
            tombstones += gone
            if is_over and isinstance(live, LiveConsumerGroup):
                over.append(live)
            elif is_over:
                tombstones.append(GroupEntry(group_id, None))
        next_offset = self.append_tombstones(tombstones)
        for live in over:
            live.bury(ConsumerEvent.EXPIRE)
            next_offset = live.end_offset
        return next_offset

    async def forget_topic(self, topic: str, topic_id: UUID) -> None:
        """Remove every group's offsets of a topic that has been deleted. Raises KafkaError."""
        # By id: while the coordinator waits for another partition, the topic may be made anew, and
        # groups may store offsets for it here.
        newer = {
            (group_id, partition)
            for group_id, (partition, stored) in self.storing()
            if stored.topic_id not in (ZERO_UUID, topic_id)
        }
        tombstones = [
            OffsetEntry(*each, None)
            for each in self.offsets.partitions_of_topic(topic, topic_id)
            if each not in newer
        ]
        if tombstones:
            next_offset = self.append_tombstones(tombstones)
            if self.is_loaded:
                await self.wait_committed(next_offset)
            else:
                await self.wait_noted(next_offset)

    # beginning and end

    async def read(self, check_places: Callable[[Iterable[str]], Awaitable[None]]) -> None:
        """Read the whole partition. Raises KafkaError if it cannot be read.

        `check_places` raises it for a group that another partition keeps.
        """
        started = trio.current_time()
        reader = GroupReader(self.offsets, self.name)
        async with aclosing(self.partition.runs()) as runs:
            await reader.read(runs)
        # invariant tenures 4
        await check_places(reader.group_ids())
        # Cancelling takes effect at a checkpoint only. A tenure that ended after the last read must
        # not start the timers of its groups.
        if self.is_over:
            return
        for change, base_offset in reader.groups_found():
            whole(self.replay(change, base_offset))
        for count, group_id in enumerate(self.offsets.group_ids(), 1):
            self._expect_group(group_id)
            if count % GROUPS_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
        self.replay_committed()
        seconds = trio.current_time() - started
        if self.groups:
            log.info("%s: %d groups in %.2f s", self.name, len(self.groups), seconds)

    def end(self) -> None:
        super().end()
        for live in self.groups.values():
            live.unload()
        for beginning in self.beginning.values():
            beginning.unload()
        self.groups.clear()
        self.beginning.clear()
