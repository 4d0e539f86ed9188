"""A request may be cancelled at any checkpoint, as its client has gone: nothing stays half done."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from odradek.broker.server.connection import ClientConnection
from odradek.protocol.api import Api
from odradek.protocol.apis.group import DELETE_GROUPS, DeleteGroupsRequest
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.topics import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from odradek.protocol.apis.transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from odradek.protocol.apis.txn import (
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.schema import ZERO_UUID
from tests.broker.api.test_largest_requests import Asker, broker
from tests.broker.asks import BY_NAME, batch, produce_request

NAME = "t"
STEPS = 30
"""More than any of the requests takes."""


class AfterSteps(trio.abc.Instrument):
    """Ends a connection as if its client had gone, after so many steps of its request."""

    def __init__(self, connection: ClientConnection, steps: int) -> None:
        self._connection = connection
        self._left = steps

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= "FakeNetwork._serve" in task.name
        if not self._left:
            self._connection.abandon()


@asynccontextmanager
async def ended_after(steps: int, connections: list[ClientConnection]) -> AsyncIterator[None]:
    instrument = AfterSteps(connections[-1], steps)
    trio.lowlevel.add_instrument(instrument)
    try:
        yield
    finally:
        trio.lowlevel.remove_instrument(instrument)


def created() -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=NAME, num_partitions=2, replication_factor=1, assignments=(), configs=()
    )
    return CreateTopicsRequest(topics=(topic,))


def init() -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)


async def producer(asker: Asker) -> dict[str, int]:
    answer = await asker.ask(INIT_PRODUCER_ID, 4, init())
    assert answer.error_code == E.NONE
    return {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}


def produced(who: dict[str, Any]) -> Any:
    identity = (who["producer_id"], who["producer_epoch"])
    records = batch(b"v", producer=identity, base_sequence=0, is_transactional=True)
    return produce_request(NAME, records, transactional_id="x")


def offsets(who: dict[str, Any]) -> TxnOffsetCommitRequest:
    each = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=""
    )
    topic = TxnOffsetCommitRequestTopic(name=NAME, partitions=(each,))
    return TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", topics=(topic,), generation_id=-1, member_id="", **who
    )


def committed() -> OffsetCommitRequest:
    each = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=3, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name=NAME, partitions=(each,))
    return OffsetCommitRequest(group_id="g", topics=(topic,), member_id="")


def end(who: dict[str, Any]) -> EndTxnRequest:
    return EndTxnRequest(transactional_id="x", committed=True, **who)


def requests(who: dict[str, Any]) -> dict[str, tuple[Api[Any, Any], int, Any]]:
    grown = CreatePartitionsTopic(name=NAME, count=4, assignments=None)
    gone = DeleteTopicState(name=NAME, topic_id=ZERO_UUID)
    return {
        "CreateTopics": (CREATE_TOPICS, 7, created()),
        "CreatePartitions": (
            CREATE_PARTITIONS,
            3,
            CreatePartitionsRequest(topics=(grown,), timeout_ms=1000, validate_only=False),
        ),
        "DeleteTopics": (DELETE_TOPICS, 6, DeleteTopicsRequest(topics=(gone,), timeout_ms=1000)),
        "InitProducerId": (INIT_PRODUCER_ID, 4, init()),
        "Produce": (PRODUCE, BY_NAME, produced(who)),
        "TxnOffsetCommit": (TXN_OFFSET_COMMIT, 5, offsets(who)),
        "EndTxn": (END_TXN, 4, end(who)),
        "OffsetCommit": (OFFSET_COMMIT, 9, committed()),
        "DeleteGroups": (DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=("g",))),
    }


async def everything_goes_on(asker: Asker) -> None:
    """Make a topic if it is not there, and carry a whole transaction through."""
    made = await asker.ask(CREATE_TOPICS, 7, created())
    assert made.topics[0].error_code in (E.NONE, E.TOPIC_ALREADY_EXISTS)
    who = await producer(asker)
    answer = await asker.ask(PRODUCE, BY_NAME, produced(who))
    assert answer.responses[0].partition_responses[0].error_code == E.NONE
    stored = await asker.ask(TXN_OFFSET_COMMIT, 5, offsets(who))
    assert stored.topics[0].partitions[0].error_code == E.NONE
    assert (await asker.ask(END_TXN, 4, end(who))).error_code == E.NONE
    wanted = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id="g", topics=None),), require_stable=True
    )
    while True:
        (group,) = (await asker.ask(OFFSET_FETCH, 9, wanted)).groups
        offset = group.topics[0].partitions[0]
        if offset.error_code != E.UNSTABLE_OFFSET_COMMIT:
            break
        await trio.testing.wait_all_tasks_blocked()
    assert offset.committed_offset == 5
    listed = ListTransactionsRequest(state_filters=(), producer_id_filters=())
    (found,) = (await asker.ask(LIST_TRANSACTIONS, 1, listed)).transaction_states
    assert found.transaction_state == "CompleteCommit"


@pytest.mark.slow
@pytest.mark.parametrize("name", requests({"producer_id": 0, "producer_epoch": 0}))
async def test_a_request_that_is_cancelled_anywhere_leaves_nothing_half_done(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[ClientConnection] = []
    run = ClientConnection.run

    async def noted(self: ClientConnection) -> None:
        connections.append(self)
        await run(self)

    monkeypatch.setattr(ClientConnection, "run", noted)
    with trio.fail_after(100):
        for steps in range(1, STEPS):
            async with broker("ack") as connect:
                first = connect()
                if name not in ("CreateTopics", "InitProducerId"):
                    await first.ask(CREATE_TOPICS, 7, created())
                who = {"producer_id": 0, "producer_epoch": 0}
                if name != "InitProducerId":
                    who = await producer(first)
                if name in ("EndTxn", "DeleteGroups"):
                    await first.ask(PRODUCE, BY_NAME, produced(who))
                    await first.ask(OFFSET_COMMIT, 9, committed())
                asker = connect()
                await trio.testing.wait_all_tasks_blocked()
                async with ended_after(steps, connections):
                    await asker.ask(*requests(who)[name])
                await trio.testing.wait_all_tasks_blocked()
                assert connections[-1].held_bytes == 0
                await everything_goes_on(connect())
