"""A broker that comes back in an earlier version is named by the others."""

import random
from dataclasses import replace

import pytest

from odradek.broker.cluster.acl_keys import acl_key, pack_entries
from odradek.broker.cluster.image import BrokerImage, ClusterImage
from odradek.broker.cluster.quota_keys import pack_values
from odradek.broker.cluster.store import broker_key, pack_broker
from odradek.broker.cluster.unaware_brokers import UnawareWatch
from odradek.broker.security.acls import (
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)
from tests.broker.cluster.members import metadata_of
from tests.fakes.meta_store import FakeMetaStore

TOPIC = ResourcePattern(ResourceKind.TOPIC, PatternType.LITERAL, "t")
ENTRY = AclEntry("User:bob", "*", AclOperation.READ, Permission.DENY)
EARLIER = BrokerImage(node_id=7, host="h", port=1, peer_host="h", peer_port=2, epoch=1)
OURS = replace(EARLIER, knows_acls=True, knows_quotas=True, knows_users=True)


async def image_with(broker: BrokerImage, *, has_security: bool) -> ClusterImage:
    store = FakeMetaStore()
    security = {
        acl_key(TOPIC): pack_entries([ENTRY]),
        "/quotas/user/alice/": pack_values({"producer_byte_rate": 1.0}),
    }
    store.put({broker_key(7): pack_broker(broker, "d"), **(security if has_security else {})})
    return (await metadata_of(store, random.Random(1))).image


async def test_a_broker_that_would_enforce_nothing_is_named_once_each_time_that_it_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = UnawareWatch()
    earlier = await image_with(EARLIER, has_security=True)
    ours = await image_with(OURS, has_security=True)
    for image, expected in (
        (ours, []),
        (earlier, ["does not enforce ACLs", "does not enforce quotas"]),
        (earlier, []),
        (ours, []),
        (earlier, ["does not enforce ACLs", "does not enforce quotas"]),
    ):
        caplog.clear()
        watch.look(image)
        assert [line.split(", and this")[0] for line in caplog.messages] == [
            f"broker 7 is of a version that {words}" for words in expected
        ]


async def test_a_cluster_without_entries_and_quotas_takes_brokers_of_earlier_versions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    UnawareWatch().look(await image_with(EARLIER, has_security=False))
    assert caplog.messages == []
