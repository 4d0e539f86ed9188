"""Fetch sessions between brokers: what a fetch lists, what its answer has, and who is in sync."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import trio

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.api.replica_fetch import replica_fetch
from odradek.broker.cluster.image import BrokerImage, ClusterImage, TopicImage
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.partitions.follower import Follower
from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.broker.partitions.partition import Partition
from odradek.broker.replication.follower_session import FollowerSession
from odradek.broker.replication.replica_sessions import ReplicaSessions
from odradek.broker.storage.config import LogConfig
from odradek.protocol.apis.fetch import FETCH, FetchRequest, FetchResponse
from odradek.protocol.errors import ErrorCode
from tests.broker.storage.samples import Machine, batch

LEADER, FOLLOWER, OTHER = 1, 2, 3
WAIT_MS = 500


def topic_id(number: int) -> UUID:
    return UUID(int=number + 1)


async def start(machine: Machine, count: int) -> list[Partition]:
    """Open partition 0 of several topics."""
    first = await machine.start(topic_id=topic_id(0))
    opened = [first]
    for number in range(1, count):
        opened.append(
            await machine.partitions.open(
                f"topic-{number}", topic_id(number), 0, machine.config, leader_epoch=0
            )
        )
    await machine.partitions.run_notes.on_all_open()
    return opened


@dataclass
class Pair:
    """A leader and a follower of the same partitions."""

    leading: list[Partition]
    leader: Machine
    followers: list[Follower]
    sessions: ReplicaSessions = field(default_factory=ReplicaSessions)
    session: FollowerSession = field(default_factory=lambda: FollowerSession(FOLLOWER, 1))
    listed: Sequence[int] = ()
    """The numbers of the partitions that the last fetch listed."""

    @classmethod
    async def start(cls, count: int, *, min_insync_replicas: int = 1) -> "Pair":
        config = LogConfig(min_insync_replicas=min_insync_replicas)
        leader, follower = Machine(config=config), Machine(config=config)
        leading, following = await start(leader, count), await start(follower, count)
        for partition in leading:
            partition.begin_lead(
                InSyncView.over(
                    node_id=LEADER,
                    leader_epoch=1,
                    replicas=(LEADER, FOLLOWER),
                    isr=(LEADER, FOLLOWER),
                    partition_epoch=1,
                    now=trio.current_time(),
                )
            )
        for partition in following:
            partition.end_lead(1)
        pair = cls(leading, leader, [Follower(partition) for partition in following])
        for each in pair.followers:
            pair.session.add(each)
        return pair

    async def ask(self, request: FetchRequest) -> FetchResponse:
        image = ClusterImage(
            cluster_id="c",
            brokers=(BrokerImage(node_id=FOLLOWER, host="h", port=1, epoch=1),),
        ).with_topics(
            [
                TopicImage(name=part.topic, topic_id=part.topic_id, configs={}, partitions=())
                for part in self.leading
            ]
        )
        core = SimpleNamespace(
            config=BrokerConfig(),
            cluster=SimpleNamespace(image=image),
            partitions=self.leader.partitions,
            in_sync=SimpleNamespace(consider=lambda partition: None),
            replica_sessions=self.sessions,
        )
        context = RequestContext(
            core=cast(Core, core), api_version=FETCH.max_version, client_id="", host=""
        )
        return await replica_fetch(context, request)

    async def fetch(self, *, max_bytes: int = 1_000_000) -> list[int]:
        """Fetch once, and take the answer. Return the numbers of the partitions that it has."""
        request = self.session.request(
            trio.current_time(), max_wait_ms=WAIT_MS, max_bytes=max_bytes
        )
        assert request is not None
        self.listed = [topic.topic_id.int - 1 for topic in request.topics]
        response = await self.ask(request)
        assert response.error_code == ErrorCode.NONE
        answered = self.session.answered(response)
        for follower, data in answered:
            if await follower.take(data, 0):
                await follower.flush()
            follower.learn(data)
        return [self.followers.index(follower) for follower, _ in answered]

    async def append(self, number: int, value: str = "a") -> None:
        partition = self.leading[number]
        partition.leader().append_from_client(batch(value))
        await partition.wait_flushed(partition.log_end_offset)


async def test_a_fetch_lists_what_is_new_and_what_was_answered() -> None:
    pair = await Pair.start(3)
    assert await pair.fetch() == [0, 1, 2]  # the marks, which the follower does not know yet
    assert pair.listed == [0, 1, 2]
    assert await pair.fetch() == []
    assert await pair.fetch() == []
    assert pair.listed == []
    await pair.append(1)
    assert await pair.fetch() == [1]
    assert pair.listed == []
    await pair.fetch()
    assert pair.listed == [1]
    assert pair.leading[1].high_watermark == 1


async def test_a_mark_that_moves_is_answered_when_the_wait_is_over() -> None:
    pair = await Pair.start(2)
    await pair.fetch()
    await pair.fetch()
    await pair.append(0)
    assert await pair.fetch() == [0]
    began = trio.current_time()
    assert await pair.fetch() == [0]
    assert trio.current_time() - began >= WAIT_MS / 1000
    assert pair.followers[0].partition.high_watermark == 1
    assert await pair.fetch() == []
    await pair.leading[1].maintenance.delete_before(0)
    assert await pair.fetch() == []
    await pair.leading[0].maintenance.delete_before(1)
    assert await pair.fetch() == [0]
    assert pair.followers[0].partition.log_start_offset == 1


async def test_a_batch_that_comes_during_the_wait_ends_it() -> None:
    pair = await Pair.start(2)
    await pair.fetch()
    await pair.fetch()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:

        async def append_later() -> None:
            await trio.sleep(0.1)
            await pair.append(1)

        nursery.start_soon(append_later)
        assert await pair.fetch() == [1]
    assert trio.current_time() - began < WAIT_MS / 1000


async def test_what_does_not_fit_comes_in_the_next_answer() -> None:
    pair = await Pair.start(3)
    await pair.fetch()
    for number in range(3):
        await pair.append(number, "x" * 100)
    for copied in ([1, 0, 0], [1, 1, 0], [1, 1, 1]):
        await pair.fetch(max_bytes=250)
        assert [follower.partition.log_end_offset for follower in pair.followers] == copied


async def test_a_partition_that_is_always_ahead_does_not_keep_others_waiting() -> None:
    pair = await Pair.start(2)
    await pair.fetch()
    await pair.append(1, "x" * 100)
    for _ in range(4):
        await pair.append(0, "x" * 100)
    answered = [await pair.fetch(max_bytes=1) for _ in range(3)]
    assert [1] in answered


async def test_an_idle_partition_keeps_its_followers() -> None:
    pair = await Pair.start(1)
    await pair.append(0)
    for _ in range(4):
        await pair.fetch()
    view = pair.leading[0].leader().view
    await trio.sleep(100)
    await pair.fetch()
    assert pair.listed == []
    assert view.leaving(1, trio.current_time(), max_lag_seconds=30) == []
    await trio.sleep(100)
    assert view.leaving(1, trio.current_time(), max_lag_seconds=30) == [FOLLOWER]


async def test_a_follower_that_forgets_a_partition_is_not_in_sync_for_ever() -> None:
    pair = await Pair.start(2)
    await pair.fetch()
    await pair.fetch()
    pair.session.remove(pair.followers[0])
    await pair.fetch()
    await pair.append(0)
    assert await pair.fetch() == []
    await trio.sleep(100)
    await pair.fetch()
    views = [partition.leader().view for partition in pair.leading]
    now = trio.current_time()
    gone = [view.leaving(0, now, max_lag_seconds=30) for view in views]
    assert gone == [[FOLLOWER], []]


async def test_a_copy_that_is_paused_leaves_the_session_and_comes_back() -> None:
    pair = await Pair.start(2)
    await pair.fetch()
    pair.followers[0].paused_until = trio.current_time() + 0.6
    await pair.append(0)
    await pair.fetch()
    assert pair.listed == [1]
    await pair.fetch()
    assert await pair.fetch() == [0]
    assert pair.listed == [0]
    assert pair.followers[0].partition.log_end_offset == 1


async def test_a_read_barrier_hears_of_a_follower_that_has_nothing_new() -> None:
    pair = await Pair.start(2, min_insync_replicas=2)
    await pair.fetch()
    await pair.fetch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.leading[1].leader().prove_lead)
        assert await pair.fetch() == [1]
        await pair.fetch()
        assert pair.listed == [1]


async def test_a_session_goes_on_only_where_it_was() -> None:
    pair = await Pair.start(1)
    first = pair.session.request(0.0, max_wait_ms=0, max_bytes=100)
    assert first is not None
    response = await pair.ask(first)
    pair.session.answered(response)
    second = pair.session.request(0.0, max_wait_ms=0, max_bytes=100)
    assert second is not None
    assert (await pair.ask(second)).error_code == ErrorCode.NONE
    assert (await pair.ask(second)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (await pair.ask(first)).session_id != response.session_id
    code = (await pair.ask(second)).error_code
    assert code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_the_partitions_of_a_new_lead_are_refused_until_they_are_listed_anew() -> None:
    pair = await Pair.start(1)
    await pair.fetch()
    await pair.fetch()
    partition = pair.leading[0]
    partition.begin_lead(
        InSyncView.over(
            node_id=LEADER,
            leader_epoch=2,
            replicas=(LEADER, FOLLOWER),
            isr=(LEADER, FOLLOWER),
            partition_epoch=2,
            now=trio.current_time(),
        )
    )
    assert await pair.fetch() == [0]
    assert pair.followers[0].paused_until > trio.current_time()  # NOT_LEADER_OR_FOLLOWER
    assert partition.leader().view.followers[FOLLOWER].next_offset == -1


async def test_a_session_that_ends_leaves_nothing_behind() -> None:
    pair = await Pair.start(2)
    await pair.fetch()
    pair.sessions.keep([OTHER])
    assert all(not partition.marks.followers.watches for partition in pair.leading)


async def test_a_fetch_lists_only_what_is_on_disk_whatever_the_role_was_before() -> None:
    """The leader would count it, and a power failure take it."""
    pair = await Pair.start(1)
    await pair.fetch()
    pair.leading[0].leader().append_from_client(batch("a"))
    request = pair.session.request(0.0, max_wait_ms=0, max_bytes=1_000_000)
    assert request is not None
    ((follower, data),) = pair.session.answered(await pair.ask(request))
    assert await follower.take(data, 0)
    pair.session.remove(follower)
    again = Follower(follower.partition)
    pair.session.add(again)
    assert pair.session.request(0.0, max_wait_ms=0, max_bytes=1_000_000) is None
    assert pair.session.unflushed() == [again]
    await again.flush()
    listed = pair.session.request(0.0, max_wait_ms=0, max_bytes=1_000_000)
    assert listed is not None
    assert listed.topics[0].partitions[0].fetch_offset == 1
