"""Settings: Kafka's names, checked once, and refused in one sentence with the nearest right one."""

import pytest

from odradek.broker.config import (
    COARSER,
    KEPT_ANYWAY,
    RENAMED,
    BrokerConfig,
    broker_settings,
    from_properties,
    read_properties,
)
from odradek.broker.settings import ConfigError, text_of
from odradek.broker.storage.config import LogConfig
from odradek.broker.topic_config import (
    TOPIC_SETTINGS,
    check_topic_configs,
    has_broker_value,
    state_topic_configs,
    topic_value,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import INTERNAL_TOPICS


def test_without_settings_everything_is_the_default() -> None:
    assert from_properties({}) == BrokerConfig()


def test_every_default_is_a_value_that_may_be_given() -> None:
    given = {name: text_of(setting.default) for name, setting in broker_settings().items()}
    assert from_properties(given) == BrokerConfig()


def test_names_are_kafkas() -> None:
    config = from_properties(
        {"num.partitions": "7", "auto.create.topics.enable": "FALSE", "log.flush": "os"}
    )
    assert config.num_partitions == 7
    assert config.auto_create_topics_enable is False
    assert config.log_flush == "os"


@pytest.mark.parametrize(
    ("name", "text", "milliseconds"),
    [
        ("log.retention.hours", "2", 7_200_000),
        ("log.retention.minutes", "3", 180_000),
        ("log.retention.hours", "-1", -1),
    ],
)
def test_kafkas_coarser_spellings_mean_the_same(name: str, text: str, milliseconds: int) -> None:
    assert from_properties({name: text}).log_retention_ms == milliseconds


def test_other_names_lead_to_settings_that_there_are() -> None:
    assert {name for name, _ in COARSER.values()} <= set(broker_settings())
    assert set(RENAMED.values()) <= set(broker_settings())
    assert from_properties(dict.fromkeys(KEPT_ANYWAY, "200")) == BrokerConfig()


@pytest.mark.parametrize(
    ("name", "text", "rest"),
    [
        ("num.partition", "1", "is not a setting of the broker. Did you mean num.partitions?"),
        ("zzz", "1", "is not a setting of the broker."),
        ("num.partitions", "0", "cannot be 0; the nearest is 1."),
        ("num.partitions", "many", "is a whole number, not 'many'."),
        ("log.flush", "Ack", "is ack or os, not 'Ack'. Did you mean ack?"),
        ("auto.create.topics.enable", "yes", "is true or false, not 'yes'; say true."),
        ("default.replication.factor", "3", "cannot be 3: there is one broker; the nearest is 1."),
        ("log.retention.hours", "x", "is a whole number, not 'x'."),
        ("log.segment.bytes", str(2**31), "cannot be 2147483648; the nearest is 2147483647."),
        ("broker.id", "-1", "cannot be -1; the nearest is 0."),
    ],
)
def test_a_wrong_setting_is_one_sentence(name: str, text: str, rest: str) -> None:
    with pytest.raises(ConfigError) as refused:
        from_properties({name: text})
    assert str(refused.value) == f"{name} {rest}"


def test_a_properties_file_has_comments_and_spaces() -> None:
    text = "# a comment\n! another\n\n num.partitions = 3 \nlog.dirs=/a=b\n"
    assert read_properties(text, source="x") == {"num.partitions": "3", "log.dirs": "/a=b"}


@pytest.mark.parametrize("line", ["num.partitions 3", "=3"])
def test_a_line_that_is_no_setting_is_named(line: str) -> None:
    with pytest.raises(ConfigError, match=r"^server.properties, line 2: .* is not name=value\.$"):
        read_properties(f"num.partitions=3\n{line}\n", source="server.properties")


# topics


def test_a_topic_falls_back_to_the_broker_and_the_broker_to_the_default() -> None:
    broker = from_properties({"log.retention.ms": "5"})
    assert topic_value("retention.ms", {"retention.ms": "7"}, broker) == 7
    assert topic_value("retention.ms", {}, broker) == 5
    assert has_broker_value("retention.ms", broker)
    assert not has_broker_value("retention.ms", BrokerConfig())
    assert topic_value("cleanup.policy", {}, broker) == "delete"


def test_the_defaults_of_topics_brokers_and_logs_are_the_same() -> None:
    for name, known in TOPIC_SETTINGS.items():
        if known.broker_name is not None:
            assert broker_settings()[known.broker_name].default == known.setting.default, name
        default = getattr(LogConfig(), name.replace(".", "_"), None)
        if isinstance(default, int) and name != "message.timestamp.type":
            assert known.setting.default == default, name


@pytest.mark.parametrize(
    ("name", "text", "rest"),
    [
        (
            "cleanup.policy",
            "compcat",
            "is delete or compact or compact,delete or delete,compact, not 'compcat'. "
            "Did you mean compact?",
        ),
        ("min.cleanable.dirty.ratio", "1.5", "cannot be 1.5; the nearest is 1."),
        ("min.cleanable.dirty.ratio", "half", "is a number, not 'half'."),
        (
            "compression.type",
            "zstd",
            "is producer, not 'zstd': the broker keeps the bytes that the producer sent.",
        ),
        ("retention.mss", "1", "is not a setting of a topic. Did you mean retention.ms?"),
        ("retention.ms", "-2", "cannot be -2; the nearest is -1."),
        ("retention.ms", None, "has no value."),
        ("preallocate", "true", "is false, not 'true': segments grow as they are written."),
        (
            "unclean.leader.election.enable",
            "true",
            "is false, not 'true': it would lose committed transactions.",
        ),
    ],
)
def test_what_a_topic_cannot_have_is_refused_in_words(
    name: str, text: str | None, rest: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        check_topic_configs([("retention.bytes", "1"), (name, text)])
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.message == f"{name} {rest}"


def test_nothing_in_a_state_topic_is_ever_too_old() -> None:
    for topic in INTERNAL_TOPICS:
        configs = state_topic_configs(topic, BrokerConfig())
        assert check_topic_configs(list(configs.items())) == configs
        assert configs["retention.ms"] == configs["retention.bytes"] == "-1"
        assert configs["segment.bytes"] == str(100 * 1024 * 1024)
