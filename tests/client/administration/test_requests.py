"""What is asked about transactions when brokers move, are slow, old, or answer in part."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import trio

from odradek.client.administration import requests
from odradek.client.administration.descriptions import TransactionDescription
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.connection import ApiRange, BrokerConnection
from odradek.client.cluster.metadata import Node
from odradek.client.config import ClientConfig
from odradek.client.errors import Disconnected, Refused, Retriable, TimedOut
from odradek.client.types import TopicPartition
from odradek.protocol.api import Api
from odradek.protocol.apis.transactions import (
    LIST_TRANSACTIONS,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsResponse,
    TransactionState,
)
from odradek.protocol.errors import ErrorCode

Reply = Callable[[int, Any], Any]


class Scripted(Cluster):
    """Two brokers whose answers a test writes. An id's first letter names its coordinator."""

    def __init__(self, reply: Reply) -> None:
        super().__init__("broker:9092", ClientConfig(max_block_ms=5_000, first_connect_ms=None))
        self.metadata.nodes = {number: Node(number, "broker", 9092) for number in (1, 2)}
        self.reply = reply
        self.asked: list[tuple[int, Any]] = []
        self.forgotten: list[str] = []

    async def ask(self, node_id: int | None, api: Api[Any, Any], request: Any, **_: Any) -> Any:
        assert node_id is not None
        self.asked.append((node_id, request))
        answer = self.reply(node_id, request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def refresh(
        self, topics: Iterable[str] | None = (), *, auto_create: bool = False
    ) -> None:
        return

    async def learn_coordinators(self, kind: int, keys: Iterable[str]) -> None:
        return

    async def coordinator(self, kind: int, key: str) -> int:
        if key == "":
            raise Refused("an empty key", code=ErrorCode.INVALID_REQUEST)
        return 1 if key < "m" else 2

    def forget_coordinator(self, kind: int, key: str) -> None:
        self.forgotten.append(key)

    async def leaders(
        self, partitions: Iterable[TopicPartition], *, some_are_enough: bool = False
    ) -> dict[int, list[TopicPartition]]:
        raise Retriable("none is there", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def a_state(transactional_id: str, code: ErrorCode = ErrorCode.NONE) -> TransactionState:
    return TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="Empty",
        transaction_timeout_ms=1,
        transaction_start_time_ms=-1,
        producer_id=4,
        producer_epoch=0,
        topics=(),
    )


def states(request: DescribeTransactionsRequest, *codes: ErrorCode) -> DescribeTransactionsResponse:
    named = zip(request.transactional_ids, codes or [ErrorCode.NONE] * 9_999, strict=False)
    return DescribeTransactionsResponse(
        transaction_states=tuple(a_state(*named_state) for named_state in named)
    )


async def test_each_coordinator_is_asked_about_its_own() -> None:
    cluster = Scripted(lambda node_id, request: states(request))
    found = await requests.describe_transactions(cluster, ["b", "x", "a", "b"])
    assert sorted((node_id, request.transactional_ids) for node_id, request in cluster.asked) == [
        (1, ("b", "a")),
        (2, ("x",)),
    ]
    assert list(found) == ["b", "x", "a"]
    assert [description.coordinator_id for description in map(described, found.values())] == [
        1,
        2,
        1,
    ]


def described(found: object) -> TransactionDescription:
    assert isinstance(found, TransactionDescription)
    return found


async def test_many_are_asked_about_in_several_requests() -> None:
    cluster = Scripted(lambda node_id, request: states(request))
    names = [f"a{number}" for number in range(2_500)]
    found = await requests.describe_transactions(cluster, names)
    assert list(found) == names
    sizes = [len(request.transactional_ids) for _, request in cluster.asked]
    assert sorted(sizes) == [500, 1_000, 1_000]


async def test_only_what_has_moved_is_asked_again(autojump_clock: trio.abc.Clock) -> None:
    def reply(node_id: int, request: Any) -> Any:
        if request.transactional_ids == ("a", "b"):
            return states(request, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
        return states(request)

    cluster = Scripted(reply)
    found = await requests.describe_transactions(cluster, ["a", "b"])
    assert [request.transactional_ids for _, request in cluster.asked] == [("a", "b"), ("b",)]
    assert cluster.forgotten == ["b"]
    assert all(isinstance(answer, TransactionDescription) for answer in found.values())


async def test_one_lost_broker_costs_only_what_it_knew(autojump_clock: trio.abc.Clock) -> None:
    def reply(node_id: int, request: Any) -> Any:
        return Disconnected("it is gone") if node_id == 2 else states(request)

    found = await requests.describe_transactions(Scripted(reply), ["a", "x", ""])
    assert isinstance(found["a"], TransactionDescription)
    assert isinstance(found["x"], TimedOut)
    assert "it is gone" in str(found["x"])
    assert isinstance(found[""], Refused)


async def test_an_answer_that_is_missing_is_no_answer(autojump_clock: trio.abc.Clock) -> None:
    def reply(node_id: int, request: Any) -> Any:
        return DescribeTransactionsResponse(transaction_states=(a_state("a"),))

    found = await requests.describe_transactions(Scripted(reply), ["a", "b"])
    assert isinstance(found["a"], TransactionDescription)
    assert isinstance(found["b"], TimedOut)


async def test_a_topic_that_is_not_there_is_no_reason_to_wait() -> None:
    place = TopicPartition("absent", 0)
    found = await requests.describe_producers(Scripted(lambda *_: None), [place])
    error = found[place]
    assert isinstance(error, Refused)
    assert str(error) == "there is no topic 'absent'"


class OldConnection(BrokerConnection):
    """To a broker that serves the first versions only."""

    def __init__(self, node_id: int, newest: int) -> None:
        self.node_id = node_id
        self.peer = "broker:9092"
        self.versions = {LIST_TRANSACTIONS.key: ApiRange(0, newest)}

    async def request(self, *_: Any, **__: Any) -> Any:
        listed = ListedTransaction(
            transactional_id=f"id-{3 - self.node_id}", producer_id=1, transaction_state="Empty"
        )
        return ListTransactionsResponse(
            error_code=0, unknown_state_filters=(), transaction_states=(listed,)
        )


class Old(Scripted):
    newest = 0

    async def connection(self, node_id: int | None, purpose: str = "") -> BrokerConnection:
        assert node_id is not None
        return OldConnection(node_id, self.newest)


def listing(cluster: Cluster, **filters: Any) -> Any:
    given = {"states": (), "producer_ids": (), "older_than_ms": None, "pattern": None}
    return requests.list_transactions(cluster, **given | filters)


async def test_every_broker_is_asked_and_the_ids_are_sorted() -> None:
    found = await listing(Old(lambda *_: None))
    assert [(listing.transactional_id, listing.coordinator_id) for listing in found] == [
        ("id-1", 2),
        ("id-2", 1),
    ]


@pytest.mark.parametrize(
    ("newest", "filters", "said"),
    [
        (0, {"older_than_ms": 5}, "by duration"),
        (0, {"pattern": "x"}, "by pattern"),
        (1, {"pattern": "x"}, "by pattern"),
    ],
)
async def test_a_broker_that_would_ignore_a_filter_is_not_asked(
    newest: int, filters: dict[str, Any], said: str
) -> None:
    cluster = Old(lambda *_: None)
    cluster.newest = newest
    with pytest.raises(Refused, match=said):
        await listing(cluster, **filters)


async def test_a_broker_that_knows_the_filter_is_asked() -> None:
    cluster = Old(lambda *_: None)
    cluster.newest = 1
    assert len(await listing(cluster, older_than_ms=5)) == 2
