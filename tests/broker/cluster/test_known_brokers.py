"""Brokers that are away stay known, until they are forgotten."""

from collections.abc import Awaitable, Callable
from random import Random
from uuid import UUID

import pytest
from trio.testing import MockClock

from odradek.broker.cluster.image import BrokerImage, PartitionImage, TopicImage
from odradek.broker.cluster.known_brokers import KnownBrokers
from odradek.broker.cluster.session import Session
from odradek.broker.cluster.store import broker_key, known_broker_key, topic_puts
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.cluster.members import ReadMetadata, has_nothing_to_leave, metadata_of
from tests.fakes.meta_store import FakeMetaStore


async def registered(store: FakeMetaStore, node_id: int, *, peer_port: int = 9093) -> Session:
    session = Session(
        store=store,
        metadata=await metadata_of(store, Random(1)),
        directory_id=f"d{node_id}",
        timeout_seconds=3,
        before_registering=has_nothing_to_leave,
    )
    await session.register(
        BrokerImage(
            node_id=node_id,
            host=f"h{node_id}",
            port=9092,
            peer_host=f"h{node_id}",
            peer_port=peer_port,
            rack="west",
        )
    )
    return session


async def looked_at(store: FakeMetaStore) -> tuple[ReadMetadata, KnownBrokers]:
    metadata = await metadata_of(store, Random(1))
    return metadata, KnownBrokers(store, metadata)


async def refusal(call: Callable[[], Awaitable[None]]) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as refused:
        await call()
    assert refused.value.message is not None
    return refused.value.code, refused.value.message


async def test_a_broker_that_is_away_is_known_until_it_is_forgotten(
    autojump_clock: MockClock,
) -> None:
    """It was gone from every answer as soon as its lease had ended."""
    store = FakeMetaStore()
    await registered(store, 1)
    second = await registered(store, 2)
    await second.close()
    metadata, known = await looked_at(store)
    assert [broker.node_id for broker in metadata.image.brokers] == [1]
    (away,) = metadata.image.away
    assert (away.node_id, away.host, away.rack) == (2, "h2", "west")
    await known.forget(2)
    assert metadata.image.away == ()
    code, text = await refusal(lambda: known.forget(2))
    assert code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "Broker ID 2 is not currently registered" in text


async def test_a_broker_that_comes_back_is_not_away(autojump_clock: MockClock) -> None:
    store = FakeMetaStore()
    first = await registered(store, 1)
    await first.close()
    await registered(store, 1)
    metadata, known = await looked_at(store)
    assert metadata.image.away == ()
    code, text = await refusal(lambda: known.forget(1))
    assert code is ErrorCode.INVALID_REQUEST
    assert "Broker 1 is alive" in text
    assert known_broker_key(1) in store.values


async def test_a_broker_that_comes_back_at_that_moment_is_not_forgotten(
    autojump_clock: MockClock,
) -> None:
    store = FakeMetaStore()
    await registered(store, 1)
    second = await registered(store, 2)
    value = store.values[known_broker_key(2)].value
    await second.close()
    _, known = await looked_at(store)

    def come_back() -> None:
        store.before_txn = lambda: None
        store.server.keys.apply({broker_key(2): value})

    store.before_txn = come_back
    code, text = await refusal(lambda: known.forget(2))
    assert code is ErrorCode.INVALID_REQUEST
    assert "Broker 2 is alive" in text
    assert known_broker_key(2) in store.values


async def test_a_broker_that_has_a_replica_is_not_forgotten(autojump_clock: MockClock) -> None:
    store = FakeMetaStore()
    session = await registered(store, 2)
    partition = PartitionImage(leader=1, leader_epoch=0, replicas=(1, 2), isr=(1,))
    topic = TopicImage(name="ledger", topic_id=UUID(int=1), configs={}, partitions=(partition,) * 3)
    await store.txn([], topic_puts(topic))
    await session.close()
    metadata, known = await looked_at(store)
    code, text = await refusal(lambda: known.forget(2))
    assert code is ErrorCode.INVALID_REQUEST
    assert "Broker 2 has a replica of ledger-0 and 2 more" in text
    assert [broker.node_id for broker in metadata.image.away] == [2]


async def test_a_broker_that_is_alone_writes_nothing_lasting_when_it_starts(
    autojump_clock: MockClock,
) -> None:
    store = FakeMetaStore()
    session = await registered(store, 1, peer_port=0)
    await session.close()
    metadata, _ = await looked_at(store)
    assert metadata.image.away == ()
