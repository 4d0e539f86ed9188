"""Settings that one broker changes: other brokers, other writers, and answers that are lost."""

from random import Random

import pytest

from odradek.broker.cluster.broker_configs import BrokerConfigs
from odradek.broker.cluster.topic_writer import TopicWriter
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.changes import (
    Alter,
    Operation,
    SettingChange,
    broker_alteration,
    group_alteration,
    topic_alteration,
)
from odradek.broker.config.live import LiveConfig
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.cluster.members import ReadMetadata, metadata_of
from tests.broker.cluster.test_requested import LED_BY_2, cluster_of
from tests.fakes.meta_store import FakeMetaStore


def setting(name: str, value: str) -> Alter:
    return broker_alteration("", [SettingChange(name, Operation.SET, value)])


async def test_every_broker_sees_what_one_has_changed() -> None:
    store = FakeMetaStore()
    here, there = await metadata_of(store, Random(1)), await metadata_of(store, Random(2))
    configs = BrokerConfigs(store, here, LiveConfig(BrokerConfig()))
    await configs.alter("", setting("log.roll.ms", "5"))
    await configs.alter("2", setting("log.roll.ms", "6"))
    await there.wait_reached(here.image.revision)
    assert there.image.broker_configs == {"": {"log.roll.ms": "5"}, "2": {"log.roll.ms": "6"}}
    assert there.image.broker_configs == (await metadata_of(store, Random(3))).image.broker_configs
    await configs.alter("", broker_alteration("", [], replaces=True))
    await there.wait_reached(here.image.revision)
    assert there.image.broker_configs == {"2": {"log.roll.ms": "6"}}


async def test_two_brokers_that_change_at_once_lose_neither_change() -> None:
    store = FakeMetaStore()
    here, there = [await metadata_of(store, Random(n)) for n in (1, 2)]
    first = BrokerConfigs(store, here, LiveConfig(BrokerConfig()))
    second = BrokerConfigs(store, there, LiveConfig(BrokerConfig()))
    await first.alter("", setting("log.roll.ms", "5"))
    await second.alter("", setting("max.connections", "6"))  # its image has not the first yet
    await first.alter("", setting("log.segment.bytes", "20000"))
    found = (await metadata_of(store, Random(3))).image.broker_configs[""]
    assert set(found) == {"log.roll.ms", "max.connections", "log.segment.bytes"}


class Meanwhile:
    """Alters, and has another broker change the same settings before the first write."""

    def __init__(self, alter: Alter, store: FakeMetaStore, key: str) -> None:
        self._alter, self._store, self._key = alter, store, key
        self.count = 0

    def __call__(self, configs: "dict[str, str]") -> dict[str, str]:
        self.count += 1
        if self.count == 2:  # the first is only a check
            self._store.put({self._key: self._store.values[self._key].value})
        return self._alter(configs)


async def test_a_change_is_made_again_on_what_another_broker_has_written() -> None:
    store = FakeMetaStore()
    metadata = await metadata_of(store, Random(1))
    configs = BrokerConfigs(store, metadata, LiveConfig(BrokerConfig()))
    await configs.alter("", setting("log.roll.ms", "5"))
    alter = Meanwhile(setting("max.connections", "6"), store, "/configs/brokers/")
    await configs.alter("", alter)  # type: ignore[arg-type]
    assert alter.count == 3
    assert metadata.image.broker_configs[""] == {"log.roll.ms": "5", "max.connections": "6"}


async def topic_of(store: FakeMetaStore) -> tuple[TopicWriter, ReadMetadata]:
    _, metadata = await cluster_of(store, LED_BY_2)
    return TopicWriter(store, 1), metadata


def retention(value: str) -> Alter:
    change = SettingChange("retention.ms", Operation.SET, value)
    return topic_alteration("t", [change], BrokerConfig())


async def test_a_change_of_a_topic_changes_nothing_else_of_it() -> None:
    store = FakeMetaStore()
    writer, metadata = await topic_of(store)
    before = metadata.image.topics["t"]
    revision = await writer.alter_configs(before, retention("5"), lambda _: 7)
    after = (await metadata.wait_reached(revision)).topics["t"]
    assert after.configs == {"retention.ms": "5"}
    assert (after.topic_id, after.partitions) == (before.topic_id, before.partitions)
    assert after.min_insync_replicas == before.min_insync_replicas == 2
    assert await writer.alter_configs(after, retention("5"), lambda _: 7) == revision, "no write"


async def test_a_topic_that_was_made_anew_meanwhile_is_not_changed() -> None:
    store = FakeMetaStore()
    writer, metadata = await topic_of(store)
    old = metadata.image.topics["t"]
    await writer.delete(old, ())
    with pytest.raises(KafkaError) as refused:
        await writer.alter_configs(old, retention("5"), lambda _: 1)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_change_of_a_topic_is_made_again_on_what_another_has_written() -> None:
    store = FakeMetaStore()
    writer, metadata = await topic_of(store)
    other = TopicWriter(store, 2)
    topic = metadata.image.topics["t"]
    await writer.alter_configs(topic, retention("5"), lambda _: 1)
    change = topic_alteration(
        "t", [SettingChange("segment.ms", Operation.SET, "6")], BrokerConfig()
    )
    alter = Meanwhile(change, store, "/topics/t")
    alter.count = 1  # nothing is checked before
    revision = await other.alter_configs(topic, alter, lambda _: 1)  # type: ignore[arg-type]
    found = (await metadata.wait_reached(revision)).topics["t"]
    assert found.configs == {"retention.ms": "5", "segment.ms": "6"}
    assert alter.count == 3


async def test_every_broker_sees_the_settings_of_groups() -> None:
    store = FakeMetaStore()
    here, there = await metadata_of(store, Random(1)), await metadata_of(store, Random(2))
    configs = BrokerConfigs(store, here, LiveConfig(BrokerConfig()))
    own = {"consumer.session.timeout.ms": "50000"}
    change = SettingChange("consumer.session.timeout.ms", Operation.SET, "50000")
    await configs.alter_group("a/b", group_alteration([change], BrokerConfig()))
    await there.wait_reached(here.image.revision)
    assert there.image.group_configs == {"a/b": own}
    assert (await metadata_of(store, Random(3))).image.group_configs == {"a/b": own}
    await configs.alter_group("a/b", group_alteration([], BrokerConfig(), replaces=True))
    await there.wait_reached(here.image.revision)
    assert there.image.group_configs == {}


async def test_the_number_of_groups_with_settings_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek.broker.cluster.broker_configs.GROUPS_MAX", 1)
    store = FakeMetaStore()
    here = await metadata_of(store, Random(1))
    configs = BrokerConfigs(store, here, LiveConfig(BrokerConfig()))
    change = SettingChange("consumer.session.timeout.ms", Operation.SET, "50000")
    alteration = group_alteration([change], BrokerConfig())
    for _ in range(2):
        await configs.alter_group("a", alteration)
    for group_id, code in (
        ("b", ErrorCode.POLICY_VIOLATION),
        ("x" * 1025, ErrorCode.INVALID_REQUEST),
        ("", ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(KafkaError) as refused:
            await configs.alter_group(group_id, alteration, validate_only=True)
        assert refused.value.code is code
