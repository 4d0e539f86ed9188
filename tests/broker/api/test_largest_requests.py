"""Requests that are as large as they may be do not hold the loop, and their answers are bounded.

Every array of every request is filled in turn, with the same thing again and again and with
different ones. A handler that loops over a request without `Turns` fails here without being named.
"""

import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import pytest
import trio

from odradek.broker.api import APIS, HANDLERS
from odradek.broker.broker import Address, serve
from odradek.broker.config.addresses import Listener
from odradek.broker.environment.env import Env
from odradek.protocol.api import Api
from odradek.protocol.apis.group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from odradek.protocol.apis.metadata import METADATA
from odradek.protocol.apis.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from odradek.protocol.apis.txn import INIT_PRODUCER_ID, InitProducerIdRequest
from odradek.protocol.connection import ClientProtocol
from odradek.protocol.schema import ZERO_UUID
from tests.broker.config.configured import from_properties
from tests.broker.largest import BIG, Full, Path, array_paths, largest_request
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk
from tests.fakes.meta_store import FakeMetaStore
from tests.fakes.net import FakeClient, FakeNetwork
from tests.fakes.turns import longest_turn

pytestmark = pytest.mark.slow

T = TypeVar("T")

ITEMS: Final = 4_000
CALLS_MAX: Final = 3_500
"""Between two checkpoints. A loop over all items without one makes at least one for each."""
STEPS: Final = {
    "odradek.broker.environment.turns.STEPS_PER_TURN": 50,
    "odradek.broker.environment.turns.STEPS_PER_TAKE": 10,
    "odradek.broker.server.messages.ITEMS_AT_ONCE": 100,
    "odradek.broker.api.produce.BATCHES_AT_ONCE": 10,
    "odradek.broker.partitions.request_batches.BATCHES_AT_ONCE": 10,
    "odradek.broker.api.offset_commit.OFFSETS_AT_ONCE": 10,
    "odradek.broker.api.fetched_offsets.OFFSETS_AT_ONCE": 10,
    "odradek.broker.environment.parallel.TASKS_MAX": 6,
}
"""A tenth of what they are in a broker, so that a tenth of its items does."""
SERVING: Final = ("tests.fakes.net.FakeNetwork._serve",)
"""What answers requests. What a partition holds is another matter: it may take long to save."""
ANSWER_MAX_BYTES: Final = 4 * 1024 * 1024
PARTITIONS: Final = 200
GROUP_SIZE: Final = 10
SECONDS: Final = 120
STRING_MAX_BYTES: Final = 2**15 - 1


async def in_thread(function: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(function)


class Asker:
    """A client of a broker in this process."""

    def __init__(self, client: FakeClient, client_id: str = "largest") -> None:
        self._client = client
        self._connection = ClientProtocol(client_id)
        self._count = 0

    async def ask(self, api: Api[Any, Any], version: int, message: Any) -> Any:
        """The answer; None if the broker has closed the connection."""
        _, parts = self._connection.request(api, version, message)
        self._client.send(b"".join(parts))
        self._count += 1
        frames = await self._client.frames(self._count)
        if len(frames) < self._count:
            return None
        assert len(frames[-1]) < 2 * ANSWER_MAX_BYTES
        return self._connection.response(frames[-1])[1]


@asynccontextmanager
async def broker(flush: str = "os") -> AsyncIterator[Callable[..., Asker]]:
    """Something that connects to a broker in this process."""
    network = FakeNetwork()
    config = {
        "num.partitions": str(PARTITIONS),
        "auto.create.topics.enable": "false",
        "log.flush": flush,
        # the lease runs in real time: a machine that stalls is not a broker that was given up
        "broker.session.timeout.ms": str(10 * SECONDS * 1000),
        "socket.response.max.bytes": str(ANSWER_MAX_BYTES),
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
    }
    env = Env(
        clock=FakeClock(),
        net=network,
        disk=FakeDisk(),
        meta=FakeMetaStore(),
        rng=random.Random(1),
        offload=in_thread,
    )
    started = trio.Event()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await serve(
                env,
                from_properties(config),
                directory="/data",
                address=Address(listeners=(Listener(host="127.0.0.1", port=9092),)),
                started=lambda _: started.set(),
                stop=trio.Event(),
            )

        nursery.start_soon(run)
        await started.wait()
        yield lambda *client_id: Asker(network.client(), *client_id)
        nursery.cancel_scope.cancel()


async def what_is_there(asker: Asker) -> dict[str, Any]:
    """Make a topic, a group's offset and a transaction; what requests must say to find them."""
    topic = CreatableTopic(
        name=BIG, num_partitions=PARTITIONS, replication_factor=1, assignments=(), configs=()
    )
    created = await asker.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(topic,)))
    assert created.topics[0].error_code == 0
    init = InitProducerIdRequest(transactional_id=BIG, transaction_timeout_ms=60_000)
    producer = await asker.ask(INIT_PRODUCER_ID, 4, init)
    assert producer.error_code == 0
    return {
        "topic_id": created.topics[0].topic_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }


def cases(api: Api[Any, Any]) -> list[tuple[int, Path, bool]]:
    """Version, array, and whether all its items are alike."""
    return [
        (version, path, are_alike)
        for version in sorted({api.min_version, api.max_version})
        for path in array_paths(api.request, version)
        for are_alike in (True, False)
    ]


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: APIS[key].name)
async def test_the_largest_request_does_not_hold_the_loop(
    key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = APIS[key]
    for name, steps in STEPS.items():
        module, _, constant = name.rpartition(".")
        monkeypatch.setattr(sys.modules[module], constant, steps)
    with trio.fail_after(SECONDS):
        async with broker() as connect:
            known = await what_is_there(connect())
            for version, path, are_alike in cases(api):
                named = known if are_alike else {}
                if api is METADATA and version >= 12:
                    named = {"topic_id": ZERO_UUID}
                full = Full(path=path, count=ITEMS, are_alike=are_alike, known=named)
                message = largest_request(api, version, full)
                with longest_turn(*SERVING) as longest:
                    await connect().ask(api, version, message)
                assert longest.calls < CALLS_MAX, (longest, version, path, are_alike)


async def test_strangers_that_are_removed_from_a_large_group_do_not_hold_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek.broker.api.group_members.MEMBERS_AT_ONCE", 10)
    monkeypatch.setattr("odradek.broker.environment.turns.STEPS_PER_TURN", 10)
    with trio.fail_after(SECONDS):
        async with broker() as connect:
            asker = connect()
            for number in range(GROUP_SIZE):
                joining = ConsumerGroupHeartbeatRequest(
                    group_id="g",
                    member_id=f"m{number}",
                    member_epoch=0,
                    instance_id=f"i{number}",
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_names=("t",),
                    topic_partitions=(),
                )
                assert (await asker.ask(CONSUMER_GROUP_HEARTBEAT, 1, joining)).error_code == 0
            strangers = tuple(
                MemberIdentity(member_id="", group_instance_id=f"stranger-{number}")
                for number in range(ITEMS)
            )
            leaving = LeaveGroupRequest(group_id="g", member_id="", members=strangers)
            with longest_turn(*SERVING) as longest:
                left = await asker.ask(LEAVE_GROUP, 5, leaving)
            assert len(left.members) == len(strangers)
            assert longest.calls < CALLS_MAX, longest


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: APIS[key].name)
async def test_names_as_long_as_the_wire_allows_are_no_bug_of_ours(
    key: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A sentence that quotes one outgrew the length of `error_message`, which has 16 bits."""
    api = APIS[key]
    with trio.fail_after(SECONDS):
        async with broker() as connect:
            for version in range(api.min_version, api.max_version + 1):
                for name in ("n" * STRING_MAX_BYTES, "é" * (STRING_MAX_BYTES // 2)):
                    full = Full(path=(), count=1, are_alike=True, known={}, name=name)
                    asker = connect(name)
                    await asker.ask(api, version, largest_request(api, version, full))
    assert "a bug in the broker" not in caplog.text
