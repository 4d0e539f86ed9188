"""Random lives of a consumer group (KIP-848): no partition ever has two owners, and each has one.

hypothesis draws what happens: members join, leave, die, are silent, lose answers; topics grow;
the broker is killed, with and without a record that was on its way. After each step what the
clients believe to own is compared. In the end all of them send heartbeats until nothing moves.
"""

from dataclasses import dataclass, field, replace
from typing import Final

import pytest
import trio
import trio.testing

from odradek.broker.group.consumer.consumer_group import state_of
from odradek.broker.group.consumer.state import ConsumerState
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.consuming import Consumer, id_of, newest, topics
from tests.broker.group.world import ONE_PARTITION, World
from tests.drawing import given, st

NAMES: Final = ("a", "b", "c", "d")
REJOIN: Final = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
}
STATIC: Final = {"c": "i"}
SESSION_SECONDS: Final = 45

Step = tuple[str, str, int]
KINDS: Final = (
    *("beat", "beat", "beat", "hold", "hold", "leave", "away", "die", "lose", "read"),
    *("wait", "grow", "crash", "crash while beating", "refuse"),
)
steps: Final = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(NAMES), st.integers(0, 3)),
    min_size=8,
    max_size=40,
)


@dataclass
class Model:
    world: World
    assignor: str
    counts: dict[str, int] = field(default_factory=lambda: {"t": 3, "u": 2})
    alive: dict[str, Consumer] = field(default_factory=dict)
    heard: dict[str, float] = field(default_factory=dict)
    born: int = 0

    def show_topics(self) -> None:
        self.world.shapes = topics(**self.counts)

    async def take(self, step: Step) -> None:
        what, name, number = step
        member = self.alive.get(name)
        if what == "grow":
            self.counts["tu"[number % 2]] += 1
            self.show_topics()
        elif what == "wait":
            await trio.sleep((1, 6, 20, 50)[number])
            self.forget_silent()
        elif what == "crash":
            await self.world.crash(keep=number % 2)
        elif member is None:
            self.join(name, number)
            await self.beat(name)
        else:
            await self.take_of_member(what, name, member, number)

    def join(self, name: str, number: int) -> None:
        self.born += 1
        self.alive[name] = Consumer(
            world=self.world,
            member_id=f"{name}-{self.born}",
            instance=STATIC.get(name),
            names=(("t",), ("u",), ("t", "u"), None)[number],
            regex="[tu]" if number == 3 else None,
            assignor=self.assignor,
        )

    async def take_of_member(self, what: str, name: str, member: Consumer, number: int) -> None:
        if what == "beat":
            await self.beat(name)
        elif what == "hold":
            member.keeps = not member.keeps
        elif what == "read" and member.names is not None:
            member.names = (("t",), ("u",), ("t", "u"), ())[number]
            await self.beat(name)
        elif what == "die":
            del self.alive[name]
        elif what in ("leave", "away"):
            del self.alive[name]
            member.owned = {}
            epoch = -2 if what == "away" and member.instance is not None else -1
            await self.try_(member, member_epoch=epoch)
        elif what == "lose":
            before = dict(member.owned), member.epoch
            await self.try_(member)
            member.owned, member.epoch = before
        elif what == "refuse":
            self.world.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
            await self.beat(name)
            self.world.log.append_errors = []
        elif what == "crash while beating":
            self.world.log.hold()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.beat, name)
                await trio.testing.wait_all_tasks_blocked()
                await self.world.crash(keep=number % 2)

    def forget_silent(self) -> None:
        """Let members that were silent for a session stop, as clients do."""
        for name in [*self.alive]:
            if trio.current_time() - self.heard.get(name, 0) >= SESSION_SECONDS:
                self.alive[name].owned = {}
                self.alive[name].epoch = 0

    async def beat(self, name: str) -> None:
        member = self.alive[name]
        code = await self.try_(member)
        if code is ErrorCode.NONE:
            self.heard[name] = trio.current_time()
        elif code in REJOIN:
            member.owned, member.epoch = {}, 0

    async def try_(self, member: Consumer, **changes: object) -> ErrorCode:
        try:
            await member.beat(**changes)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def check(self) -> None:
        owned = [
            (topic_id, index)
            for member in self.alive.values()
            for topic_id, indexes in member.owned.items()
            for index in indexes
        ]
        assert len(owned) == len(set(owned)), "a partition has two owners"

    async def check_the_end(self) -> None:
        for member in self.alive.values():
            member.keeps = False
        await trio.sleep(SESSION_SECONDS + 1)  # the dead are missed
        self.forget_silent()
        for _ in range(12):
            for name in self.alive:
                await self.beat(name)
            self.check()
            await trio.sleep(1)
        group = newest(self.world) if self.alive else None
        if group is None:
            return
        assert state_of(group) is ConsumerState.STABLE
        for name, count in self.counts.items():
            reads = [m for m in self.alive.values() if m.names is None or name in m.names]
            owned = sorted(index for member in reads for index in member.has(name))
            assert owned == (list(range(count)) if reads else [])
            assert {key for m in self.alive.values() for key in m.owned} <= {*map(id_of, "tu")}


async def play(drawn: list[Step], assignor: str, interval_ms: int) -> None:
    async with trio.open_nursery() as nursery:
        config = replace(ONE_PARTITION, group_consumer_assignment_interval_ms=interval_ms)
        world = World(nursery, config)
        await world.start()
        model = Model(world, assignor)
        model.show_topics()
        for step in drawn:
            await model.take(step)
            model.check()
        await model.check_the_end()
        before = {name: member.owned for name, member in model.alive.items()}
        await world.crash()
        for name in model.alive:
            await model.beat(name)
        assert {name: member.owned for name, member in model.alive.items()} == before
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize("interval_ms", [0, 1_000])
def test_a_partition_never_has_two_owners_and_has_one_in_the_end(
    assignor: str, interval_ms: int
) -> None:
    @given(drawn=steps)
    def check(drawn: list[Step]) -> None:
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(play, drawn, assignor, interval_ms, clock=clock)

    check()
