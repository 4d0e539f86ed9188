"""Quotas that one broker changes: other brokers, other writers, and values that cannot be read."""

from random import Random

import pytest

from odradek.broker.cluster import client_quotas as module
from odradek.broker.cluster.client_quotas import Changes, ClientQuotas
from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.quota_keys import entity_of_key, pack_values, quota_key
from odradek.broker.cluster.store import known_broker_key, pack, pack_broker
from odradek.broker.config.live import LiveConfig
from odradek.broker.environment.env import Unreadable
from odradek.broker.quotas.entities import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    TYPES,
    USER,
    Entity,
    entity_of,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.cluster.members import ReadMetadata, metadata_of
from tests.broker.config.configured import from_properties
from tests.drawing import given, st
from tests.fakes.meta_store import FakeMetaStore

ALICE: Entity = ((USER, "alice"),)
BOTH: Entity = ((USER, "alice"), (CLIENT_ID, None))


def quotas(store: FakeMetaStore, metadata: ReadMetadata) -> ClientQuotas:
    return ClientQuotas(store, metadata, LiveConfig(from_properties({})))


async def test_what_one_broker_sets_every_broker_has() -> None:
    store = FakeMetaStore()
    here, there = [await metadata_of(store, Random(n)) for n in (1, 2)]
    changed = quotas(store, here)
    await changed.alter({ALICE: {PRODUCER_BYTE_RATE: 10.0, CONSUMER_BYTE_RATE: 20.0}})
    await changed.alter({ALICE: {PRODUCER_BYTE_RATE: None}, BOTH: {CONSUMER_BYTE_RATE: 5.0}})
    expected = {ALICE: {CONSUMER_BYTE_RATE: 20.0}, BOTH: {CONSUMER_BYTE_RATE: 5.0}}
    assert here.image.quotas.of == expected
    await there.wait_reached(here.image.revision)
    assert there.image.quotas.of == expected
    table = there.image.quotas
    await changed.alter({ALICE: {CONSUMER_BYTE_RATE: None}, BOTH: {CONSUMER_BYTE_RATE: None}})
    await there.wait_reached(here.image.revision)
    assert there.image.quotas.of == {}
    assert there.image.quotas is not table
    assert (await store.range("/quotas/"))[0] == {}


async def test_two_brokers_that_change_one_entity_lose_neither_change() -> None:
    store = FakeMetaStore()
    here = await metadata_of(store, Random(1))

    def meanwhile() -> None:
        store.before_txn = lambda: None
        store.put({quota_key(ALICE): pack_values({PRODUCER_BYTE_RATE: 1.0})})

    store.before_txn = meanwhile
    await quotas(store, here).alter({ALICE: {CONSUMER_BYTE_RATE: 2.0}})
    assert here.image.quotas.of == {ALICE: {PRODUCER_BYTE_RATE: 1.0, CONSUMER_BYTE_RATE: 2.0}}


async def test_quotas_wait_for_brokers_that_would_not_enforce_them() -> None:
    store = FakeMetaStore()
    old = BrokerImage(node_id=7, host="h", port=1)
    store.put({known_broker_key(7): pack_broker(old, "d")})
    here = await metadata_of(store, Random(1))
    with pytest.raises(KafkaError, match="The brokers 7 are of a version") as caught:
        await quotas(store, here).alter({ALICE: {PRODUCER_BYTE_RATE: 1.0}})
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    await quotas(store, here).alter({ALICE: {PRODUCER_BYTE_RATE: None}})  # removing is allowed


async def test_the_number_of_entities_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTITIES_MAX", 120)
    store = FakeMetaStore()
    here = await metadata_of(store, Random(1))
    changed = quotas(store, here)
    of_users: dict[Entity, Changes] = {
        ((USER, str(n)),): {PRODUCER_BYTE_RATE: 1.0} for n in range(120)
    }
    await changed.alter(of_users)
    assert len(here.image.quotas.of) == 120
    with pytest.raises(KafkaError, match="quotas of 121 entities") as caught:
        await changed.alter({ALICE: {PRODUCER_BYTE_RATE: 1.0}})
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    await changed.alter(
        {((USER, "0"),): {PRODUCER_BYTE_RATE: None}, ALICE: {PRODUCER_BYTE_RATE: 1}}
    )
    assert len(here.image.quotas.of) == 120


async def test_values_that_cannot_be_read_change_nothing_and_can_be_replaced() -> None:
    store = FakeMetaStore()
    store.put({quota_key(ALICE): pack_values({PRODUCER_BYTE_RATE: 1.0})})
    here = await metadata_of(store, Random(1))
    for value in (b"\xc1", pack([]), pack({PRODUCER_BYTE_RATE: 0}), pack({"x": "y"})):
        store.put({quota_key(ALICE): value, "/quotas/user/": b"", "/quotas/host/h/": pack({})})
        await here.wait_reached(here.image.revision + 1)
        assert here.image.quotas.of == {}
        await quotas(store, here).alter({ALICE: {CONSUMER_BYTE_RATE: 2.0}})
        assert here.image.quotas.of == {ALICE: {CONSUMER_BYTE_RATE: 2.0}}


@pytest.mark.parametrize("value", [b"\xc1", pack([]), pack({PRODUCER_BYTE_RATE: 0}), pack({})])
async def test_values_that_cannot_be_read_can_be_removed(value: bytes) -> None:
    store = FakeMetaStore()
    store.put({quota_key(ALICE): value})
    here = await metadata_of(store, Random(1))
    await quotas(store, here).alter({ALICE: {PRODUCER_BYTE_RATE: None}})
    assert (await store.range("/quotas/"))[0] == {}


NAMES = st.none() | st.text(min_size=1, max_size=6) | st.sampled_from(["*", "a/b", "%2A", "+"])


@given(st.dictionaries(st.sampled_from(TYPES), NAMES, min_size=1), st.data())
def test_any_name_has_a_key_of_its_own_that_begins_no_other(
    parts: dict[str, str | None], data: st.DataObject
) -> None:
    entity = entity_of(parts)
    key = quota_key(entity)
    assert entity_of_key(key) == entity
    other = entity_of(data.draw(st.dictionaries(st.sampled_from(TYPES), NAMES, min_size=1)))
    assert other == entity or not quota_key(other).startswith(key)


@pytest.mark.parametrize("key", ["/quotas/", "/quotas/user/a", "/quotas/user//", "/quotas/x/a/"])
def test_the_key_of_no_entity_is_refused(key: str) -> None:
    with pytest.raises(Unreadable):
        entity_of_key(key)


def test_the_keys_are_readable() -> None:
    assert quota_key(BOTH) == "/quotas/user+client-id/alice/*/"
    assert quota_key(((IP, "10.0.0.1"),)) == "/quotas/ip/10.0.0.1/"
