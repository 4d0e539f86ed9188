"""What an import of users, entries and quotas refuses, and the order in which it writes."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from odradek.broker.cluster.acl_keys import acl_key, closing_puts, pack_entries
from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.quota_keys import pack_values
from odradek.broker.cluster.security_keys import (
    AT_ONCE,
    CannotImport,
    SecurityDocument,
    export_security,
    import_security,
    read_document,
)
from odradek.broker.cluster.store import CLUSTER, broker_key, known_broker_key, pack, pack_broker
from odradek.broker.cluster.user_keys import CLUSTER_SECRET, pack_secret, user_key
from odradek.broker.security.acls import (
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)
from tests.fakes.meta_store import FakeMetaStore

DENY = pack_entries([AclEntry("User:bob", "*", AclOperation.READ, Permission.DENY)])
ALICE = user_key("alice")
QUOTA = "/quotas/user/alice/"


def topic_key(name: str) -> str:
    return acl_key(ResourcePattern(ResourceKind.TOPIC, PatternType.LITERAL, name))


async def store_of(**values: bytes) -> FakeMetaStore:
    store = FakeMetaStore()
    await store.txn([], {CLUSTER: pack({"id": "c"}), **values})
    return store


async def stored(store: FakeMetaStore) -> dict[str, bytes]:
    found, _ = await store.range("")
    return {key: each.value for key, each in found.items() if key != CLUSTER}


def document(keys: Mapping[str, Any], **others: Any) -> str:
    return json.dumps({"odradek": "security", "version": 1, "cluster": "c", "keys": keys, **others})


def broker(*, unaware_of: str = "") -> bytes:
    image = BrokerImage(
        node_id=7,
        host="h",
        port=1,
        knows_acls=unaware_of != "ACL entries",
        knows_users=unaware_of != "users",
        knows_quotas=unaware_of != "quotas",
    )
    return pack_broker(image, "d")


async def test_an_export_is_read_again() -> None:
    keys = {
        topic_key("a/b"): DENY,
        QUOTA: pack_values({"producer_byte_rate": 5.0}),
        CLUSTER_SECRET: pack_secret(b"s" * 32),
    }
    text, count = await export_security(await store_of(**keys))
    assert count == 3
    assert read_document(text) == SecurityDocument(cluster="c", keys=keys)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (topic_key("a"), {}),
        (topic_key("a"), {"entries": [["User:bob", "*", 3]]}),
        (topic_key("a"), {"entries": [["User:bob", "*", 99, 2]]}),
        ("/acls/topic/literal/a%2fb/", {"entries": []}),
        (ALICE, {"SCRAM-SHA-256": {"salt": {"base64": ""}}}),
        ("/users/al%69ce/", {}),
        (QUOTA, {"producer_byte_rate": -1}),
        ("/quotas/color/blue/", {"producer_byte_rate": 1}),
        (CLUSTER_SECRET, {"secret": {"base64": "AAAA"}}),
        (CLUSTER_SECRET, 5),
    ],
)
def test_a_value_that_no_broker_writes_is_refused(key: str, value: Any) -> None:
    """After such an import a broker would close the topic, or would not know the user."""
    with pytest.raises(CannotImport, match="or it is damaged: no broker writes the key") as refused:
        read_document(document({key: value}))
    assert key in str(refused.value)


async def test_a_document_of_another_cluster_is_refused_unless_it_is_wanted() -> None:
    store = await store_of()
    other = SecurityDocument(cluster="d", keys={topic_key("a"): DENY})
    with pytest.raises(CannotImport, match="is of the cluster d, and the metadata store is of c"):
        await import_security(store, other)
    assert await stored(store) == {}
    assert await import_security(store, other, takes_other_cluster=True) == 1
    assert await stored(store) == other.keys


async def test_nothing_is_imported_where_no_broker_has_been() -> None:
    with pytest.raises(CannotImport, match="There is no cluster in this metadata store"):
        await import_security(FakeMetaStore(), SecurityDocument(cluster="c", keys={}))


@pytest.mark.parametrize("place", [broker_key(7), known_broker_key(7)])
@pytest.mark.parametrize(
    ("key", "what"), [(topic_key("a"), "ACL entries"), (ALICE, "users"), (QUOTA, "quotas")]
)
async def test_a_broker_that_would_not_know_them_refuses_them(
    place: str, key: str, what: str
) -> None:
    """As the requests do that make them; also if that broker is away."""
    store = await store_of(**{place: broker(unaware_of=what)})
    before = await stored(store)
    wanted = SecurityDocument(cluster="c", keys={key: b"x"})
    with pytest.raises(CannotImport, match=f"The brokers 7 are of a version.* not know {what}"):
        await import_security(store, wanted)
    assert await stored(store) == before
    await store.txn([], {broker_key(7): broker()})
    assert await import_security(store, wanted) == 1


async def test_everything_is_written_before_anything_is_deleted() -> None:
    """Another entry may deny what the deleted one has denied."""
    old = {topic_key(f"a{each}"): DENY for each in range(AT_ONCE)}
    new = {topic_key(f"z{each}"): DENY for each in range(AT_ONCE)}
    store = await store_of(**old)
    seen: list[dict[str, bytes]] = []
    store.before_txn = lambda: seen.append(
        {key: each.value for key, each in store.server.keys.values.items() if key != CLUSTER}
    )
    count = await import_security(store, SecurityDocument(cluster="c", keys=new), replaces=True)
    assert count == 2 * AT_ONCE
    assert seen == [old, {**old, **new}]
    assert await stored(store) == new


async def test_a_closed_store_is_opened_last() -> None:
    closing = {key: value for key, value in closing_puts().items() if value is not None}
    wanted = {topic_key(f"z{each:03}"): DENY for each in range(AT_ONCE)} | {topic_key("*"): DENY}
    store = await store_of(**closing)
    seen: list[set[str]] = []
    store.before_txn = lambda: seen.append(set(store.server.keys.values) - {CLUSTER})
    document = SecurityDocument(cluster="c", keys=wanted)
    assert await import_security(store, document) == AT_ONCE + len(closing)
    assert seen == [set(closing), set(closing) | set(wanted)]
    assert await stored(store) == wanted
