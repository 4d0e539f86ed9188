"""The settings of topics: they reach the logs, are kept, and count at once."""

import trio

from odradek.broker.cluster.new_topic import WantedTopic
from odradek.broker.cluster.topic_logs import (
    log_config,
)
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.changes import (
    Operation,
    SettingChange,
    broker_alteration,
    topic_alteration,
)
from odradek.broker.storage.config import FlushPolicy
from odradek.protocol.batch import TimestampType
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.broker.cluster.test_topic_logs import Node
from tests.broker.config.configured import from_properties
from tests.fakes.disk import FakeDisk


async def test_the_settings_of_a_topic_reach_its_log() -> None:
    node = await Node.start(FakeDisk())
    topic = await node.cluster.create_topic(
        WantedTopic(
            name="t",
            configs=(("retention.ms", "7"), ("message.timestamp.type", "LogAppendTime")),
        )
    )
    config = log_config(topic, from_properties({"log.flush": "os", "log.retention.bytes": "9"}))
    assert (config.retention_ms, config.retention_bytes) == (7, 9)
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.flush is FlushPolicy.OS
    await trio.lowlevel.checkpoint()


async def changed(node: Node, name: str, value: str | None, topic: str = "t") -> None:
    operation = Operation.DELETE if value is None else Operation.SET
    change = SettingChange(name, operation, value)
    await node.cluster.alter_configs(topic, topic_alteration(topic, [change], BrokerConfig()))


async def changed_broker(node: Node, broker: str, name: str, value: str | None) -> None:
    operation = Operation.DELETE if value is None else Operation.SET
    await node.configs.alter(
        broker, broker_alteration(broker, [SettingChange(name, operation, value)])
    )


async def test_changed_settings_reach_the_logs_and_outlive_the_broker() -> None:
    disk = FakeDisk()
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=2))
    await node.cluster.create_topic(WantedTopic(name="u", partition_count=1))
    opened = node.partitions.get_replica("t", 1)
    await changed(node, "retention.ms", "7")
    await changed(node, "cleanup.policy", "compact")
    await changed_broker(node, "", "log.segment.bytes", "20000")
    await changed_broker(node, "1", "log.roll.ms", "9")
    for life in range(2):
        config = node.partitions.get_replica("t", 1).config
        assert (config.retention_ms, config.is_compacted, config.is_limited) == (7, True, False)
        assert (config.segment_bytes, config.segment_ms) == (20_000, 9)
        assert node.partitions.get_replica("u", 0).config.segment_bytes == 20_000
        assert node.partitions.get_replica("u", 0).config.retention_ms != 7
        if life == 0:
            assert node.partitions.get_replica("t", 1) is opened, "it was not opened anew"
            assert opened.log.reader.config is opened.log.config
            disk.crash()
            node = await Node.start(disk)
    await changed(node, "retention.ms", None)
    await changed_broker(node, "", "log.segment.bytes", None)
    config = node.partitions.get_replica("t", 1).config
    assert config.retention_ms == BrokerConfig().log_retention_ms
    assert config.segment_bytes == BrokerConfig().log_segment_bytes


async def test_a_changed_setting_of_a_topic_counts_at_once() -> None:
    node = await Node.start(FakeDisk())
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=2))
    await changed(node, "retention.ms", "7")
    assert [partition.config.retention_ms for partition in node.partitions] == [7, 7]


async def test_a_change_of_another_broker_s_settings_counts_there_only() -> None:
    node = await Node.start(FakeDisk())
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=1))
    await changed_broker(node, "2", "log.segment.bytes", "20000")
    assert (
        node.partitions.get_replica("t", 0).config.segment_bytes == BrokerConfig().log_segment_bytes
    )


async def test_state_topics_keep_their_own_defaults() -> None:
    node = await Node.start(FakeDisk())
    await node.cluster.ensure_state_topic(TRANSACTION_STATE_TOPIC)
    name = "segment.bytes"
    for value, expected in (("20000", 20_000), (None, 100 * 1024 * 1024)):
        await changed(node, name, value, TRANSACTION_STATE_TOPIC)
        config = node.partitions.get_replica(TRANSACTION_STATE_TOPIC, 0).config
        assert (config.segment_bytes, config.is_compacted) == (expected, True)
    await changed_broker(node, "", "min.insync.replicas", "3")
    for value, replicas in (("2", 2), (None, 1)):
        await changed(node, "min.insync.replicas", value, TRANSACTION_STATE_TOPIC)
        config = node.partitions.get_replica(TRANSACTION_STATE_TOPIC, 0).config
        assert config.min_insync_replicas == replicas


async def test_min_insync_replicas_is_kept_with_the_topic_when_it_changes() -> None:
    node = await Node.start(FakeDisk())
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=1))
    await changed(node, "min.insync.replicas", "2")
    assert node.cluster.image.topics["t"].min_insync_replicas == 2
    assert node.partitions.get_replica("t", 0).config.min_insync_replicas == 2
    await changed_broker(node, "", "min.insync.replicas", "3")
    assert node.partitions.get_replica("t", 0).config.min_insync_replicas == 2
    await changed(node, "min.insync.replicas", None)
    assert node.partitions.get_replica("t", 0).config.min_insync_replicas == 3
    made = await node.cluster.create_topic(WantedTopic(name="u", partition_count=1))
    assert made.min_insync_replicas == 3
