"""Changes of settings: what they make of those that are there, and what is refused."""

import pytest

from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.changes import (
    OF_BROKERS,
    Operation,
    SettingChange,
    Wording,
    broker_alteration,
    topic_alteration,
    topic_replacement,
)
from odradek.broker.config.live import ALL_BROKERS, DYNAMIC, LiveConfig
from odradek.broker.config.topic import TOPIC_SETTINGS
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC
from tests.broker.config.configured import from_properties

SET, DELETE, APPEND, SUBTRACT = Operation


def of_topic(*changes: SettingChange, topic: str = "t", **given: str) -> dict[str, str]:
    """What changes make of a topic's settings; `a_b="1"` is one that it has."""
    configs = {name.replace("_", "."): text for name, text in given.items()}
    return topic_alteration(topic, changes, BrokerConfig())(configs)


def of_broker(*changes: SettingChange, broker: str = "1", **given: str) -> dict[str, str]:
    configs = {name.replace("_", "."): text for name, text in given.items()}
    return broker_alteration(broker, changes)(configs)


def test_settings_are_set_and_deleted() -> None:
    assert of_topic(SettingChange("retention.ms", SET, " 5 "), segment_ms="7") == {
        "segment.ms": "7",
        "retention.ms": "5",
    }
    assert of_topic(SettingChange("retention.ms", DELETE), retention_ms="5") == {}
    assert of_topic(SettingChange("retention.ms", DELETE, "5")) == {}
    assert of_broker(SettingChange("log.retention.ms", SET, "5")) == {"log.retention.ms": "5"}
    assert of_broker(SettingChange("log.retention.ms", DELETE), log_retention_ms="5") == {}


@pytest.mark.parametrize(
    ("operation", "value", "before", "after"),
    [
        (APPEND, "compact", None, "delete,compact"),
        (APPEND, "compact", "compact", "compact"),
        (APPEND, "compact,delete", "compact", "compact,delete"),
        (SUBTRACT, "delete", "compact,delete", "compact"),
        (SUBTRACT, "compact", "delete", "delete"),
        (SUBTRACT, "compact", None, "delete"),
        (SET, "compact, compact", None, "compact"),
    ],
)
def test_lists_grow_and_shrink_from_what_counts_now(
    operation: int, value: str, before: str | None, after: str
) -> None:
    change = SettingChange("cleanup.policy", operation, value)
    given = {} if before is None else {"cleanup_policy": before}
    assert of_topic(change, **given) == {"cleanup.policy": after}


def test_a_list_of_the_broker_is_what_a_topic_appends_to() -> None:
    compacting = from_properties({"log.cleanup.policy": "compact"})
    alter = topic_alteration("t", [SettingChange("cleanup.policy", APPEND, "delete")], compacting)
    assert alter({}) == {"cleanup.policy": "compact,delete"}


def refusal_of_topic(*changes: SettingChange, **given: str) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as refused:
        of_topic(*changes, **given)
    return refused.value.code, refused.value.message


def test_a_wrong_value_of_a_topic_is_refused_with_its_range() -> None:
    code, message = refusal_of_topic(SettingChange("min.insync.replicas", SET, "many"))
    assert code is ErrorCode.INVALID_CONFIG
    assert message == (
        "Invalid value many for configuration min.insync.replicas: min.insync.replicas is a whole "
        "number, not 'many'. Allowed is 1 to 2147483647."
    )
    assert of_topic(SettingChange("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": ""}


def test_what_is_no_list_cannot_be_appended_to() -> None:
    assert refusal_of_topic(SettingChange("retention.ms", APPEND, "5")) == (
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key retention.ms because its type is not LIST. Set it.",
    )
    with pytest.raises(KafkaError, match="Config value subtract is not allowed for config key: lo"):
        of_broker(SettingChange("log.retention.ms", SUBTRACT, "5"))


def test_settings_of_a_topic_are_compared_with_those_that_it_keeps() -> None:
    code, message = refusal_of_topic(
        SettingChange("min.compaction.lag.ms", SET, "50"), max_compaction_lag_ms="20"
    )
    assert code is ErrorCode.INVALID_CONFIG
    assert message.startswith(
        "conflict topic config setting min.compaction.lag.ms (50) > max.compaction.lag.ms (20)"
    )
    broker = from_properties({"log.cleaner.max.compaction.lag.ms": "20"})
    with pytest.raises(KafkaError, match="conflict topic config"):
        topic_alteration("t", [SettingChange("min.compaction.lag.ms", SET, "50")], broker)({})


def test_what_decides_the_contents_of_a_state_topic_cannot_be_changed() -> None:
    def alter(*changes: SettingChange) -> dict[str, str]:
        return of_topic(*changes, topic=CONSUMER_OFFSETS_TOPIC, cleanup_policy="compact")

    with pytest.raises(KafkaError) as refused:
        alter(SettingChange("cleanup.policy", SET, "delete"))
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(KafkaError):
        alter(SettingChange("retention.ms", DELETE))
    changed = alter(SettingChange("segment.bytes", SET, "20000"))
    assert changed == {"cleanup.policy": "compact", "segment.bytes": "20000"}


def test_a_replacement_leaves_nothing_but_what_keeps_a_state_topic() -> None:
    change = SettingChange("segment.bytes", SET, "20000")
    of_plain = topic_replacement("t", [change], BrokerConfig())
    assert of_plain({"retention.ms": "5"}) == {"segment.bytes": "20000"}
    of_state = topic_replacement(CONSUMER_OFFSETS_TOPIC, [change], BrokerConfig())
    assert of_state({"cleanup.policy": "compact", "segment.ms": "9"}) == {
        "cleanup.policy": "compact",
        "segment.bytes": "20000",
    }


@pytest.mark.parametrize(
    ("name", "value", "code", "phrase"),
    [
        ("node.id", "3", ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [no"),
        ("log.roll.hours", "3", ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamica"),
        ("log.retentoin.ms", "3", ErrorCode.INVALID_CONFIG, "Unknown config name: log.retentoin."),
        ("max.connections.per.ip", "3", ErrorCode.INVALID_REQUEST, "Cannot update these configs d"),
        ("log.retention.ms", "x", ErrorCode.INVALID_REQUEST, "Invalid value x for configuration l"),
        ("min.insync.replicas", "2", ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas"),
    ],
)
def test_what_a_broker_cannot_have_while_it_runs_is_refused_by_name(
    name: str, value: str, code: ErrorCode, phrase: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        of_broker(SettingChange(name, SET, value))
    assert refused.value.code is code
    assert refused.value.message.startswith(phrase)


def test_all_brokers_may_get_another_number_of_replicas_in_sync() -> None:
    change = SettingChange("min.insync.replicas", SET, "2")
    assert of_broker(change, broker=ALL_BROKERS) == {"min.insync.replicas": "2"}


def worded(*changes: SettingChange) -> list[SettingChange]:
    wording = Wording(TOPIC_SETTINGS)
    for change in changes:
        wording.add(change)
    wording.check()
    return wording.changes


def test_an_unknown_name_is_refused_once_and_may_be_deleted() -> None:
    unknown = [SettingChange(f"nothing-{number}", SET, "1") for number in range(5)]
    assert worded(*unknown) == unknown[:1]
    assert worded(SettingChange("message.format.version", DELETE)) == []


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        (
            [SettingChange("retention.ms", SET, "1"), SettingChange("retention.ms", DELETE)],
            "Error due to duplicate config keys",
        ),
        ([SettingChange("retention.ms", SET, None)], "Null value not supported for : retention.ms"),
        ([SettingChange("retention.ms", 9, "1")], "Unknown operations type 9"),
        (
            [SettingChange(f"n{n}", SET, None) for n in range(50_000)],
            "Null value not supported for : n0",
        ),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(
    changes: list[SettingChange], phrase: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        worded(*changes)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.message.startswith(phrase)
    assert len(refused.value.message) < 2_000


def test_the_change_of_a_broker_counts_before_that_of_all_brokers() -> None:
    live = LiveConfig(from_properties({"log.retention.ms": "1"}))
    assert live.now.log_retention_ms == 1
    assert live.take({"": {"log.retention.ms": "2"}})
    assert live.now.log_retention_ms == 2
    assert live.take({"": {"log.retention.ms": "2"}, "1": {"log.retention.ms": "3"}})
    assert live.now.log_retention_ms == 3
    assert not live.take({"": {"log.retention.ms": "4"}, "1": {"log.retention.ms": "3"}})
    assert not live.take({"1": {"log.retention.ms": "3"}, "2": {"log.retention.ms": "5"}})
    assert live.take({})
    assert live.now.log_retention_ms == 1


def test_a_change_that_this_version_cannot_use_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    live = LiveConfig(BrokerConfig())
    seen: list[int] = []
    live.call_with_each(lambda config: seen.append(config.max_connections))
    changes = {"max.connections": "9", "log.retention.ms": "soon", "of.the.future": "1"}
    assert live.take({"1": changes})
    assert seen == [BrokerConfig().max_connections, 9]
    assert live.now.log_retention_ms == BrokerConfig().log_retention_ms
    assert "of.the.future" in caplog.text
    assert "soon" in caplog.text


def test_only_settings_that_exist_can_be_changed() -> None:
    assert [name for name in DYNAMIC if name not in OF_BROKERS] == []
    assert "no.such.setting" not in OF_BROKERS
    assert "listener.name.x.ssl.keystore.location" in OF_BROKERS
    assert "listener.name.x.num.partitions" not in OF_BROKERS
    assert BrokerConfig().__dataclass_fields__.keys() >= {n.replace(".", "_") for n in DYNAMIC}
