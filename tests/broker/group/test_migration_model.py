"""Random lives of a group with members of both protocols (KIP-848): it changes to and fro.

hypothesis draws what happens: members of either protocol join, leave, die, are silent, store
offsets; the broker is killed, with and without a record that was on its way. These rules hold:

- At no time may two members, dead ones among them, store the offset of one partition.
- The epochs of the owners of a partition do not go back while the group has members.
- A member that has given up a partition may not store its offset with the epoch that it had.
- A group that becomes a classic one keeps its members, and always its offsets.
- A restart changes nothing that was durable.
- In the end each partition has one owner.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import pytest
import trio
import trio.testing

from odradek.broker.group.classic_group import ClassicGroup
from odradek.broker.group.consumer.consumer_group import ConsumerGroup
from odradek.broker.group.member_requests import Claim, Committing
from odradek.broker.group.state import GroupState
from odradek.broker.group.store import StoredOffset
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.consumer_protocol import NO_GENERATION
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.consuming import Consumer, id_of, topics
from tests.broker.group.migrating import ClassicConsumer
from tests.broker.group.world import GROUP, ONE_PARTITION, World
from tests.drawing import given, st

CLASSIC: Final = ("a", "b", "s")
MODERN: Final = ("x", "y", "t")
INSTANCE: Final = {"s": "i", "t": "i"}
"""Members of either protocol that are one instance: each takes the place of the other."""
COUNT_MAX: Final = 6
SESSION_SECONDS: Final = 50

Member = ClassicConsumer | Consumer
Step = tuple[str, str, int]
KINDS: Final = (
    *("beat", "beat", "beat", "beat", "leave", "die", "wait"),
    *("store", "grow", "crash", "crash while beating", "refuse"),
)
steps: Final = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(CLASSIC + MODERN), st.integers(0, 3)),
    min_size=8,
    max_size=40,
)


@dataclass
class Model:
    world: World
    nursery: trio.Nursery
    count: int = 4
    alive: dict[str, Member] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    """Members whose request is not answered yet."""
    born: int = 0
    claims: dict[Claim, frozenset[int]] = field(default_factory=dict)
    """What each member owned last in each of its epochs, since the group has members."""
    epochs: dict[int, int] = field(default_factory=dict)
    """The epoch of the last owner of each partition, since the group has members."""
    stored: dict[TopicPartition, int] = field(default_factory=dict)

    async def take(self, step: Step) -> None:
        what, name, number = step
        if what == "grow":
            self.count = min(self.count + 1, COUNT_MAX)
            self.show_topics()
        elif what == "wait":
            await trio.sleep((1, 4, 12, SESSION_SECONDS)[number])
        elif what == "crash":
            await self.crash(keep=number % 2)
        elif what == "crash while beating":
            self.world.log.hold()
            self.beat(name)
            await trio.testing.wait_all_tasks_blocked()
            await self.world.crash(keep=number % 2)
        elif what == "refuse":
            self.world.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
            self.beat(name)
            await trio.testing.wait_all_tasks_blocked()
            self.world.log.append_errors = []
        elif what == "beat":
            self.beat(name)
        elif name in self.alive and name not in self.busy:
            await self.take_of_member(what, name)
        await trio.testing.wait_all_tasks_blocked()

    async def take_of_member(self, what: str, name: str) -> None:
        if what == "store":
            await self.store(self.alive[name])
            return
        member = self.alive.pop(name)
        if what == "leave":
            before, claim = self.group, member.claim
            self.start(name, member.leave)
            await trio.testing.wait_all_tasks_blocked()
            self.check_the_way_back(before, claim)

    async def store(self, member: Member) -> None:
        self.born += 1
        with suppress(KafkaError):
            now_ms = self.world.clock.wall_ms()
            await self.world.groups.commit_offsets(
                committing(member.claim, member.has(), now_ms, self.born)
            )
            self.stored |= {TopicPartition("t", index): self.born for index in member.has()}

    async def crash(self, *, keep: int) -> None:
        """Kill the broker. What was durable is there after its restart."""
        is_durable = self.world.log.durable_offset == self.world.log.end_offset
        before = self.group
        await self.world.crash(keep=keep)
        after = self.group
        if not is_durable:
            return
        if isinstance(before, ConsumerGroup):
            assert after == before
        elif before is not None and before.state is GroupState.STABLE:
            assert isinstance(after, ClassicGroup)
            assert after.generation_id == before.generation_id
            assert (after.leader_id, after.members) == (before.leader_id, before.members)

    @property
    def group(self) -> ConsumerGroup | ClassicGroup | None:
        (tenure,) = self.world.groups._tenures
        live = tenure.groups.get(GROUP)
        return None if live is None else live.group

    def show_topics(self) -> None:
        self.world.shapes = topics(t=self.count)
        for member in self.alive.values():
            if isinstance(member, ClassicConsumer):
                member.counts = {"t": self.count}

    def beat(self, name: str) -> None:
        """Let a member send its next request, unless it waits for an answer."""
        if name in self.busy:
            return
        if name not in self.alive:
            self.alive[name] = self.new(name)
        self.start(name, self.alive[name].beat)

    def new(self, name: str) -> Member:
        self.born += 1
        instance = INSTANCE.get(name)
        for other, holds in INSTANCE.items():
            if holds == instance and other != name:
                self.alive.pop(other, None)  # one instance is one process
        if name in CLASSIC:
            return ClassicConsumer(
                world=self.world, name=name, counts={"t": self.count}, instance=instance
            )
        return Consumer(world=self.world, member_id=f"{name}-{self.born}", instance=instance)

    def start(self, name: str, call: Callable[[], Awaitable[object]]) -> None:
        self.busy.add(name)
        self.nursery.start_soon(self.run, name, self.alive.get(name), call)

    async def run(
        self, name: str, member: Member | None, call: Callable[[], Awaitable[object]]
    ) -> None:
        try:
            await call()
        except KafkaError:
            # Each error that a member gets here ends what it owns, or is one that it retries.
            if isinstance(member, ClassicConsumer):
                member.owned, member.member_id, member.generation = {}, "", NO_GENERATION
            elif member is not None:
                member.owned, member.epoch = {}, 0
        finally:
            self.busy.discard(name)

    def check(self) -> None:
        assert self.world.stored() == self.stored
        group = self.group
        if group is None or not group.members:
            self.claims, self.epochs = {}, {}
        if isinstance(group, ConsumerGroup):
            check_owners(group)
        for member in self.alive.values():
            self.claims[member.claim] = frozenset(member.has())
        for index in range(self.count):
            self.check_writers(index)
        for member in self.alive.values():
            self.check_epochs(member)

    def check_writers(self, index: int) -> None:
        """Check that one member at most may store the offset of a partition, with any epoch."""
        writers = {
            claim.member_id
            for claim, indexes in self.claims.items()
            if index in indexes and self.may_store(claim, index)
        }
        assert len(writers) < 2, (index, writers)

    def check_epochs(self, member: Member) -> None:
        claim, owned = member.claim, member.has()
        for index in owned:
            if self.may_store(claim, index):
                assert claim.generation_id >= self.epochs.get(index, -1), (index, claim)
                self.epochs[index] = claim.generation_id
        for stale, indexes in self.claims.items():
            is_older = stale.generation_id < claim.generation_id
            if owned and is_older and stale.member_id == claim.member_id:
                for index in indexes.difference(owned, self.revoking(claim.member_id)):
                    assert not self.may_store(stale, index), (index, stale)

    def revoking(self, member_id: str) -> Collection[int]:
        """Return the partitions of which a member has not yet reported that it has revoked them."""
        group = self.group
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            return ()
        return group.members[member_id].revoking.get(id_of("t"), {}).keys()

    def may_store(self, claim: Claim, index: int) -> bool:
        try:
            # The check of a commit in a transaction does not begin the member's session anew.
            asked = committing(claim, [index], self.world.clock.wall_ms())
            self.world.groups._check_commit(asked, in_transaction=True)
        except KafkaError:
            return False
        return True

    def check_the_way_back(self, before: ConsumerGroup | ClassicGroup | None, left: Claim) -> None:
        """Check that a group which has become a classic one has kept its members."""
        after = self.group
        if not isinstance(before, ConsumerGroup) or not isinstance(after, ClassicGroup):
            return
        assert after.generation_id >= before.epoch
        kept = {
            key: each
            for key, each in before.members.items()
            if key != left.member_id
            and (each.instance_id is None or each.instance_id != left.group_instance_id)
        }
        assert after.members.keys() == kept.keys()
        for key, member in after.members.items():
            classic = kept[key].classic
            assert classic is not None
            assert member.protocols == classic.protocols
            assert member.session_timeout_ms == classic.session_timeout_ms
            assert member.group_instance_id == kept[key].instance_id

    async def check_the_end(self) -> None:
        await trio.sleep(2 * SESSION_SECONDS)  # the dead are missed
        self.check()
        for _ in range(16):
            for name in [*self.alive]:
                self.beat(name)
            await trio.testing.wait_all_tasks_blocked()
            self.check()
            await trio.sleep(1.5)
        owned = sorted(index for member in self.alive.values() for index in member.has())
        assert owned == (list(range(self.count)) if self.alive else [])


def committing(claim: Claim, indexes: Iterable[int], now_ms: int, number: int = 1) -> Committing:
    offset = StoredOffset(offset=number, topic_id=id_of("t"), commit_timestamp_ms=now_ms)
    offsets = {TopicPartition("t", index): offset for index in indexes}
    return Committing(group_id=GROUP, claim=claim, offsets=offsets)


def check_owners(group: ConsumerGroup) -> None:
    """Check that the coordinator itself has one owner for a partition at most."""
    owned = [
        (topic_id, index)
        for member in group.members.values()
        for epochs in (member.assigned, member.revoking)
        for topic_id, indexes in epochs.items()
        for index in indexes
    ]
    assert len(owned) == len(set(owned)), owned


async def play(drawn: list[Step], interval_ms: int) -> None:
    async with trio.open_nursery() as nursery:
        config = replace(ONE_PARTITION, group_consumer_assignment_interval_ms=interval_ms)
        world = World(nursery, config)
        await world.start()
        model = Model(world, nursery)
        model.show_topics()
        for step in drawn:
            await model.take(step)
            model.check()
        await model.check_the_end()
        before = {name: member.has() for name, member in model.alive.items()}
        await model.crash(keep=0)
        for name in model.alive:
            model.beat(name)
        await trio.testing.wait_all_tasks_blocked()
        model.check()
        assert {name: member.has() for name, member in model.alive.items()} == before
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("interval_ms", [0, 1_000])
def test_a_partition_of_a_mixed_group_never_has_two_owners_and_has_one_in_the_end(
    interval_ms: int,
) -> None:
    @given(drawn=steps)
    def check(drawn: list[Step]) -> None:
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(play, drawn, interval_ms, clock=clock)

    check()
