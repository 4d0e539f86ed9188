"""Members of one consumer group of the new protocol (KIP-848), made of single requests.

Each joins, stores offsets of what it owns, is slow to revoke now and then, leaves or falls silent,
and comes back: as the same member, as one that joins again, or as a new one.
`tests/checker/members.py` judges what they were answered.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any, Final
from uuid import UUID

import trio

from odradek.client import Admin, TopicPartition
from odradek.protocol.api import Api
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.errors import ErrorCode
from tests.checker.history import Partition
from tests.checker.members import JOIN, LEAVE, Beat, Commit, MemberHistory, Read, Reply
from tests.simulation.raw import RawClient
from tests.simulation.world import SESSION_MS, World

GROUP: Final = "crowd"
TOPICS: Final = ("orders", "copies")
PARTITIONS: Final = 3
EVERYTHING: Final = frozenset((topic, n) for topic in TOPICS for n in range(PARTITIONS))
MEMBERS: Final = 3
REBALANCE_MS: Final = 3000
SESSION_SECONDS: Final = SESSION_MS / 1000
SETTLE_SECONDS: Final = 30.0
REFUSED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""The errors of the checks before anything is written."""


class Crowd:
    """The members of the group, and what they have done."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history = MemberHistory()
        self.is_over = False
        self.members: list[Member] = []
        self._last_offset = 0

    async def live(self, stop: trio.Event, process: str, rng: Random) -> None:
        """Let members come and go until `stop` is set, and come to rest then."""
        topic_ids = await self._topic_ids()
        self.members = [
            Member(self, f"{process}{number}", rng, topic_ids) for number in range(MEMBERS)
        ]
        async with trio.open_nursery() as nursery:
            for member in self.members:
                nursery.start_soon(member.run, stop)
            await stop.wait()
            with trio.move_on_after(SETTLE_SECONDS) as settling:
                await self._settle(GroupClient(self.world, f"{process}-watcher", rng))
            if settling.cancelled_caught:
                self.history.unsettled = f"after {SETTLE_SECONDS:.0f} s there are " + ", ".join(
                    str(each) for each in self.members
                )
            self.is_over = True

    async def _topic_ids(self) -> dict[UUID, str]:
        while self.world.is_alone and self.world.machines[1].core is None:  # noqa: ASYNC110
            await trio.sleep(0.05)  # it is being started again
        image = self.world.image()
        return {image.topics[name].topic_id: name for name in TOPICS}

    def next_offset(self) -> int:
        self._last_offset += 1
        return self._last_offset

    def _is_settled(self) -> bool:
        """Return True if every partition has one owner."""
        owned = [each for member in self.members for each in member.held]
        return (
            all(member.epoch > 0 for member in self.members)
            and all(member.held.keys() == member.assigned for member in self.members)
            and len(owned) == len(EVERYTHING)
            and EVERYTHING.issubset(owned)
        )

    async def _settle(self, client: "GroupClient") -> None:
        """Wait until the members and the coordinator say that the group has come to rest."""
        try:
            while not (self._is_settled() and await self._is_stable(client)):  # noqa: ASYNC110
                await trio.sleep(0.2)
        finally:
            with trio.CancelScope(shield=True):
                await client.close()

    async def _is_stable(self, client: "GroupClient") -> bool:
        request = ConsumerGroupDescribeRequest(
            group_ids=(GROUP,), include_authorized_operations=False
        )
        try:
            answer = await client.ask_group(CONSUMER_GROUP_DESCRIBE, 1, request)
        except OSError:
            client.coordinator = None
            return False
        [group] = answer.groups
        known = sorted(each.member_id for each in group.members)
        is_ours = known == sorted(member.member_id for member in self.members)
        if group.error_code:
            client.coordinator = None
        return bool(group.group_state == "Stable" and is_ours)

    async def read_final(self, admin: Admin) -> None:
        """Note what is stored in the end."""
        places = [TopicPartition(*each) for each in sorted(EVERYTHING)]
        stored = await admin.committed(GROUP, places)
        self.history.final = {
            (each.topic, each.partition): stored[each].offset if each in stored else None
            for each in places
        }


class GroupClient(RawClient):
    """Single requests to the group's coordinator."""

    coordinator: int | None = None
    """The broker that is asked; None if it must be found."""

    async def ask_group(self, api: Api[Any, Any], version: int, request: Any) -> Any:
        """Ask the coordinator once. Raises OSError if there is no answer."""
        return await self.ask(await self.find(), api, version, request)

    async def find(self) -> int:
        """Return the broker that coordinates the group. Raises OSError."""
        if self.coordinator is None:
            where = FindCoordinatorRequest(key=GROUP, key_type=0)
            node = self._rng.choice(list(self._world.machines))
            found = await self.ask(node, FIND_COORDINATOR, 2, where)
            if found.error_code:
                raise OSError("there is no coordinator")
            self.coordinator = int(found.node_id)
        return self.coordinator


class Member(GroupClient):
    """One machine, on which one member lives after the other."""

    def __init__(self, crowd: Crowd, name: str, rng: Random, topic_ids: dict[UUID, str]) -> None:
        super().__init__(crowd.world, name, Random(rng.getrandbits(64)))
        self.member_id = ""
        self.epoch = JOIN
        self.assigned: frozenset[Partition] = frozenset()
        self.held: dict[Partition, None] = {}
        """What it owns and has not revoked."""
        self._crowd = crowd
        self._history = crowd.history
        self._topic_ids = topic_ids
        self._lives = 0
        self._lost: list[tuple[Partition, int]] = []
        """What it owned, and its epoch then. Commits come late, when it is in a newer epoch."""
        self._must_say_all = True

    def __str__(self) -> str:
        return f"{self.member_id} in epoch {self.epoch} with {sorted(self.held)}"

    async def run(self, stop: trio.Event) -> None:
        self._begin_anew()
        try:
            while not self._crowd.is_over:
                until = trio.current_time() + self._rng.uniform(0.5, 4.0)
                while trio.current_time() < until or stop.is_set():
                    await self._turn()
                    if self._crowd.is_over:
                        return
                await self._be_gone()
        finally:
            with trio.CancelScope(shield=True):
                await self.close()

    def _begin_anew(self) -> None:
        self._lives += 1
        self.member_id = f"{self.name}-{self._lives}"
        self._forget()
        self._lost = []

    def _forget(self) -> None:
        self._lose(self.held)
        self.epoch, self.assigned, self.held = JOIN, frozenset(), {}

    def _lose(self, partitions: Iterable[Partition]) -> None:
        self._lost += [(each, self.epoch) for each in partitions]

    async def _turn(self) -> None:
        try:
            if self.held and self._rng.random() < 0.5:
                await self._commit(self._rng.choice(list(self.held)), self.epoch)
            late = [each for each in self._lost if each[1] < self.epoch]
            if late and self._rng.random() < 0.3:
                self._lost.remove(late[-1])
                await self._commit(*late[-1])
            revoked = [each for each in self.held if each not in self.assigned]
            if revoked and self._rng.random() < 0.5:
                self._lose(revoked)
                self.held = {each: None for each in self.held if each in self.assigned}
                self._must_say_all = True
            before = self.held.copy()
            await self._beat()
            for partition in [each for each in self.held if each not in before]:
                await self._read(partition)
        except OSError:
            self.coordinator = None
            await trio.sleep(0.05)
        await trio.sleep(self._rng.uniform(0.05, 0.3))

    async def _be_gone(self) -> None:
        """Leave, or be silent; then become the next member, or go on."""
        if self._rng.random() < 0.35:
            try:
                await self._ask_to_beat(LEAVE, frozenset())
            except OSError:
                self.coordinator = None
            self._begin_anew()
            return
        await trio.sleep(self._rng.uniform(0.2, 2.5) * SESSION_SECONDS)
        try:
            if self.held and self._rng.random() < 0.7:
                await self._commit(self._rng.choice(list(self.held)), self.epoch)
        except OSError:
            self.coordinator = None
        end = self._rng.random()
        if end < 0.4:
            self._begin_anew()
        elif end < 0.7:
            self._forget()

    # requests

    async def _beat(self) -> None:
        says_all = self._must_say_all or self.epoch == JOIN or self._rng.random() < 0.3
        self._must_say_all = True
        beat = await self._ask_to_beat(self.epoch, frozenset(self.held) if says_all else None)
        if beat.reply is Reply.REFUSED:
            self._world.reached("a member of a group was fenced")
            self._forget()
            return
        self._must_say_all = False
        self.epoch = beat.given
        if beat.assigned is not None:
            if self.held.keys() - beat.assigned:
                self._world.reached("a member of a group must revoke")
            self.assigned = beat.assigned
            self.held |= dict.fromkeys(sorted(beat.assigned))

    async def _ask_to_beat(self, epoch: int, owned: frozenset[Partition] | None) -> Beat:
        node = await self.find()
        beat = Beat(member=self.member_id, epoch=epoch, owned=owned, sent=trio.current_time())
        number = len(self._history.beats)
        self._history.beats.append(beat)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=-1 if owned is None else REBALANCE_MS,
            subscribed_topic_names=None if owned is None else TOPICS,
            topic_partitions=None if owned is None else tuple(self._listed(owned)),
        )
        answer = await self.ask(node, CONSUMER_GROUP_HEARTBEAT, 1, request)
        beat = replace(beat, reply=_reply(answer.error_code), answered=trio.current_time())
        if beat.reply is Reply.OK:
            shown = answer.assignment
            beat = replace(
                beat,
                given=answer.member_epoch,
                assigned=None if shown is None else frozenset(self._places(shown)),
            )
        self._history.beats[number] = beat
        self._world.trace("beat", _words(beat))
        if beat.reply is Reply.NONE:
            raise OSError(f"no heartbeat now: {ErrorCode(answer.error_code).name}")
        return beat

    def _listed(
        self, owned: Iterable[Partition]
    ) -> Iterable[ConsumerGroupHeartbeatRequestTopicPartitions]:
        for topic_id, name in self._topic_ids.items():
            indexes = tuple(sorted(index for topic, index in owned if topic == name))
            if indexes:
                yield ConsumerGroupHeartbeatRequestTopicPartitions(
                    topic_id=topic_id, partitions=indexes
                )

    def _places(self, assignment: Any) -> Iterable[Partition]:
        for each in assignment.topic_partitions:
            for index in each.partitions:
                yield self._topic_ids[each.topic_id], index

    async def _commit(self, partition: Partition, epoch: int) -> None:
        """Store an offset of a partition that the member owns, or has owned in this epoch."""
        node = await self.find()
        topic, index = partition
        commit = Commit(
            member=self.member_id,
            epoch=epoch,
            partition=partition,
            offset=self._crowd.next_offset(),
            sent=trio.current_time(),
        )
        number = len(self._history.commits)
        self._history.commits.append(commit)
        stored = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=commit.offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=epoch,
            member_id=self.member_id,
            topics=(OffsetCommitRequestTopic(name=topic, partitions=(stored,)),),
        )
        answer = await self.ask(node, OFFSET_COMMIT, 9, request)
        code = answer.topics[0].partitions[0].error_code
        commit = replace(commit, reply=_reply(code), answered=trio.current_time())
        self._history.commits[number] = commit
        self._world.trace(
            *("commit", commit.member, commit.epoch, partition, commit.offset, commit.reply.name)
        )
        if commit.reply is Reply.NONE:
            raise OSError(f"no commit now: {ErrorCode(code).name}")
        if commit.reply is Reply.REFUSED:
            self._world.reached("a commit of a member was refused")

    async def _read(self, partition: Partition) -> None:
        """Read the offset from which the member would go on."""
        topic, index = partition
        sent = trio.current_time()
        group = OffsetFetchRequestGroup(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            topics=(OffsetFetchRequestTopics(name=topic, partition_indexes=(index,)),),
        )
        answer = await self.ask_group(OFFSET_FETCH, 9, OffsetFetchRequest(groups=(group,)))
        found = answer.groups[0]
        if found.error_code or found.topics[0].partitions[0].error_code:
            return
        offset = found.topics[0].partitions[0].committed_offset
        self._history.reads.append(
            Read(
                member=self.member_id,
                partition=partition,
                offset=None if offset < 0 else offset,
                sent=sent,
            )
        )
        if offset >= 0:
            self._world.reached("a member of a group went on where another had been")


def _words(beat: Beat) -> str:
    """Return a heartbeat in words that are the same in every process."""
    owned, assigned = (
        None if each is None else sorted(each) for each in (beat.owned, beat.assigned)
    )
    answer = f"{beat.reply.name} {beat.given} with {assigned}"
    return f"{beat.member} in {beat.epoch} with {owned}: {answer}"


def _reply(code: int) -> Reply:
    if code == ErrorCode.NONE:
        return Reply.OK
    return Reply.REFUSED if code in REFUSED else Reply.NONE
