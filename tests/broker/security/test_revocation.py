"""A right that is taken away stops what is under way: sessions, long polls, joins, the lane."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.api.context import Allowance, RequestContext
from odradek.broker.api.fetch import fetch
from odradek.broker.security.acls import AclFilter
from odradek.broker.security.principal import ANONYMOUS, Principal
from odradek.broker.security.rights import READ_GROUP, READ_TOPIC, WRITE_ID, WRITE_TOPIC
from odradek.protocol.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.protocol.apis.group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from odradek.protocol.apis.txn import (
    END_TXN,
    INIT_PRODUCER_ID,
    EndTxnMember,
    EndTxnRequest,
    InitProducerIdRequest,
)
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.record import Record, encode_batch
from tests.broker.security.secured import Asker, Secured, secured

TOPIC_REFUSED, GROUP_REFUSED, ID_REFUSED, NO_SESSION = 29, 30, 53, 70
NAMES: Final = ("t", "u")


async def make_topics(broker: Secured) -> tuple[UUID, ...]:
    topics = tuple(
        CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        for name in NAMES
    )
    made = await broker.connect().ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
    return tuple(topic.topic_id for topic in made.topics)


def fetch_of(
    *names: str, session: tuple[int, int] = (0, -1), wait_ms: int = 0, offset: int = 0
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=tuple(
            FetchTopic(
                topic=name,
                partitions=(
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000),
                ),
            )
            for name in names
        ),
    )


def produce_to(name: str) -> ProduceRequest:
    data = PartitionProduceData(
        index=0, records=bytes(encode_batch([Record(key=None, value=b"v")]))
    )
    return ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name=name, partition_data=(data,)),),
    )


def codes(answer: FetchResponse) -> dict[str, int]:
    return {topic.topic: topic.partitions[0].error_code for topic in answer.responses}


async def produced(asker: Asker, name: str) -> int:
    answer: Any = await asker.ask(PRODUCE, 9, produce_to(name))
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


async def test_a_fetch_session_does_not_keep_a_permission() -> None:
    async with secured() as broker:
        await make_topics(broker)
        await broker.permit(READ_TOPIC, "t")
        await broker.permit(READ_TOPIC, "u")
        await broker.permit(WRITE_TOPIC, "t")
        broker.switch_on()
        reader, writer = broker.connect(), broker.connect()
        first = await reader.ask(FETCH, 12, fetch_of("t", "u", session=(0, 0)))
        assert codes(first) == {"t": 0, "u": 0}
        session = first.session_id
        assert session
        await broker.core.acls.delete([AclFilter(name="t")])
        await broker.permit(WRITE_TOPIC, "t")
        assert await produced(writer, "t") == 0
        # neither the partition with news nor the idle one, at the next fetch already
        answer = await reader.ask(FETCH, 12, fetch_of(session=(session, 1)))
        assert codes(answer) == {"t": TOPIC_REFUSED}
        await broker.revoke_all()
        answer = await reader.ask(FETCH, 12, fetch_of(session=(session, 2)))
        assert codes(answer) == {"t": TOPIC_REFUSED, "u": TOPIC_REFUSED}
        await broker.permit(READ_TOPIC, "t")
        answer = await reader.ask(FETCH, 12, fetch_of(session=(session, 3)))
        assert codes(answer) == {"t": 0, "u": TOPIC_REFUSED}
        assert answer.responses[0].partitions[0].records


async def test_a_long_poll_does_not_return_what_may_not_be_read_any_more() -> None:
    async with secured() as broker:
        await make_topics(broker)
        await broker.permit(READ_TOPIC, "t")
        await broker.permit(WRITE_TOPIC, "t")
        broker.switch_on()
        reader, writer = broker.connect(), broker.connect()
        reader.send(FETCH, 12, fetch_of("t", wait_ms=30_000))
        await trio.testing.wait_all_tasks_blocked()
        await broker.revoke_all()
        await broker.permit(WRITE_TOPIC, "t")
        assert await produced(writer, "t") == 0
        answer = await reader.answer()
        assert codes(answer) == {"t": TOPIC_REFUSED}
        assert not answer.responses[0].partitions[0].records


class Crowded(Allowance):
    """A memory that has no room for an answer until a test makes it."""

    def __init__(self) -> None:
        self.has_room = trio.Event()

    @asynccontextmanager
    async def reading(self, max_bytes: int, least_bytes: int = 0) -> AsyncIterator[int]:
        await self.has_room.wait()
        yield max_bytes


@pytest.mark.parametrize("in_session", [True, False])
async def test_a_fetch_that_has_waited_for_memory_asks_for_its_right_again(
    in_session: bool,
) -> None:
    async with secured() as broker:
        await make_topics(broker)
        await broker.permit(READ_TOPIC, "t")
        await broker.permit(WRITE_TOPIC, "t")
        broker.switch_on()
        assert await produced(broker.connect(), "t") == 0
        access = broker.core.authorizer.access_of(ANONYMOUS, "10.0.0.1")
        context = RequestContext(
            core=broker.core, api_version=12, client_id="", host="10.0.0.1", access=access
        )
        request = fetch_of("t")
        if in_session:
            begun = await fetch(context, fetch_of("t", session=(0, 0)))
            request = fetch_of(session=(begun.session_id, 1))
        crowded = Crowded()
        answers = []

        async def ask() -> None:
            answers.append(await fetch(replace(context, allowance=crowded), request))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            await broker.revoke_all()
            crowded.has_room.set()
        assert codes(answers[0]) == {"t": TOPIC_REFUSED}
        assert not answers[0].responses[0].partitions[0].records


async def test_another_principal_cannot_go_on_with_a_fetch_session() -> None:
    async with secured() as broker:
        await make_topics(broker)
        reader = broker.connect()
        first = await reader.ask(FETCH, 12, fetch_of("t", session=(0, 0)))
        sessions = broker.core.fetch_sessions
        with pytest.raises(Exception, match="FETCH_SESSION_ID_NOT_FOUND"):
            sessions.go_on(first.session_id, 1, by_id=False, owner=str(Principal("User", "eve")))
        sessions.end_own(first.session_id, "User:eve")
        answer = await reader.ask(FETCH, 12, fetch_of(session=(first.session_id, 1)))
        assert answer.error_code == 0


async def test_a_produce_is_refused_after_its_right_has_gone() -> None:
    async with secured() as broker:
        await make_topics(broker)
        await broker.permit(WRITE_TOPIC, "t")
        broker.switch_on()
        writer = broker.connect()
        for _ in range(3):  # the lane takes the later ones
            assert await produced(writer, "t") == 0
        await broker.revoke_all()
        assert await produced(writer, "t") == TOPIC_REFUSED


async def test_a_member_that_waits_for_others_is_refused_when_its_right_has_gone() -> None:
    def join(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="g",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        )

    async with secured() as broker:
        await broker.permit(READ_GROUP, "g")
        broker.switch_on()
        first, second, third = (broker.connect() for _ in range(3))
        joined = await first.ask(JOIN_GROUP, 3, join(""))
        assert joined.error_code == 0
        second.send(JOIN_GROUP, 3, join(""))  # waits for the first to join again
        await trio.testing.wait_all_tasks_blocked()
        await broker.revoke_all()
        assert (await third.ask(JOIN_GROUP, 3, join(""))).error_code == GROUP_REFUSED
        await broker.core.groups.leave_group("g", [claim_of(joined.member_id)])
        answer = await second.answer()
        assert answer.error_code == GROUP_REFUSED
        assert not answer.member_id
        assert not answer.members


def claim_of(member_id: str) -> Any:
    from odradek.broker.group.member_requests import Claim

    return Claim(member_id=member_id, group_instance_id=None)


async def test_who_ends_a_transaction_group_may_use_the_id_of_every_member() -> None:
    ids = ("{g}.a", "{g}.b")
    async with secured() as broker:
        owner = broker.connect()
        producers = [
            await owner.ask(
                INIT_PRODUCER_ID,
                4,
                InitProducerIdRequest(transactional_id=each, transaction_timeout_ms=60_000),
            )
            for each in ids
        ]
        await broker.permit(WRITE_ID, ids[0])
        broker.switch_on()
        request = EndTxnRequest(
            transactional_id=ids[0],
            producer_id=-1,
            producer_epoch=-1,
            committed=True,
            members=tuple(
                EndTxnMember(
                    transactional_id=each,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                )
                for each, producer in zip(ids, producers, strict=True)
            ),
        )
        answer = await broker.connect().ask(END_TXN, 5, request)
        assert answer.error_code == ID_REFUSED
        await broker.permit(WRITE_ID, ids[1])
        answer = await broker.connect().ask(END_TXN, 5, request)
        assert answer.error_code != ID_REFUSED


async def test_a_broker_without_its_metadata_store_closes_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with secured() as broker:
        await make_topics(broker)
        await broker.permit(READ_TOPIC, "t")
        broker.switch_on()
        reader = broker.connect()
        assert codes(await reader.ask(FETCH, 12, fetch_of("t"))) == {"t": 0}
        monkeypatch.setattr(broker.core.authorizer, "_is_current", lambda: False)
        assert await reader.ask(FETCH, 12, fetch_of("t")) is None
        # which needs no right
        software = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        assert (await broker.connect().ask(API_VERSIONS, 3, software)).error_code == 0
        monkeypatch.setattr(broker.core.authorizer, "_is_current", lambda: True)
        assert codes(await broker.connect().ask(FETCH, 12, fetch_of("t"))) == {"t": 0}
