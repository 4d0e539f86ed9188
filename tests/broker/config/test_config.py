"""Settings: Kafka's names, checked once, and refused in one sentence with the nearest right one."""

from pathlib import Path

import pytest

from odradek.broker.config.broker import (
    BrokerConfig,
    broker_settings,
)
from odradek.broker.config.properties import read_properties
from odradek.broker.config.settings import ConfigError, text_of
from odradek.broker.config.settling import COARSER, RENAMED, settle
from odradek.broker.config.together import check_one_broker
from odradek.broker.config.topic import (
    TOPIC_SETTINGS,
    check_topic_configs,
    state_topic_configs,
    topic_value,
)
from odradek.broker.storage.config import LogConfig
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import INTERNAL_TOPICS
from tests.broker.config.configured import from_properties


def test_without_settings_everything_is_the_default() -> None:
    assert from_properties({}) == BrokerConfig()


def test_every_default_is_a_value_that_may_be_given() -> None:
    defaults = {name: text_of(setting.default) for name, setting in broker_settings().items()}
    given = {name: text for name, text in defaults.items() if text}  # some are unset by default
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


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"session.timeout.ms": "1000"},
            r"session.timeout.ms cannot be 1000: group.consumer.min.session.timeout.ms is 45000",
        ),
        ({"heartbeat.interval.ms": "20000"}, r"max.heartbeat.interval.ms 15000"),
        (
            {"max.heartbeat.interval.ms": "60000", "heartbeat.interval.ms": "45000"},
            r"heartbeat.interval.ms must be less than group.consumer.session.timeout.ms",
        ),
        ({"assignors": "sticky"}, r"group.consumer.assignors is uniform,range or"),
    ],
)
def test_settings_of_consumer_groups_keep_to_their_bounds(
    given: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        from_properties({f"group.consumer.{name}": text for name, text in given.items()})


def test_other_names_lead_to_settings_that_there_are() -> None:
    assert {name for name, _ in COARSER.values()} <= set(broker_settings())
    assert set(RENAMED.values()) <= set(broker_settings())


@pytest.mark.parametrize(
    ("name", "text", "rest"),
    [
        ("num.partition", "1", "is not a setting of the broker. Did you mean num.partitions?"),
        ("zzz", "1", "is not a setting of the broker."),
        ("num.partitions", "0", "cannot be 0; the nearest is 1."),
        ("num.partitions", "many", "is a whole number, not 'many'."),
        ("log.flush", "Ack", "is journal or ack or os, not 'Ack'. Did you mean ack?"),
        ("auto.create.topics.enable", "yes", "is true or false, not 'yes'; say true."),
        ("log.retention.hours", "x", "is a whole number, not 'x'."),
        ("log.segment.bytes", str(2**31), "cannot be 2147483648; the nearest is 2147483647."),
        ("broker.id", "-1", "cannot be -1; the nearest is 0."),
        ("num.partitions", "1_000", "is a whole number, not '1_000'."),
        ("num.partitions", "٣", "is a whole number, not '٣'."),
        ("num.partitions", "9" * 5000, "cannot be a number of 5000 digits."),
        ("num.partitions", "x" * 5000, f"is a whole number, not '{'x' * 60}...'."),
        (
            "offsets.topic.num.partitions",
            str(2**31 - 1),
            "cannot be 2147483647; the nearest is 10000.",
        ),
        ("log.retention.hours", "9" * 19, f"cannot be {'9' * 19}; the nearest is 2562047788015."),
        ("log.roll.hours", "0", "cannot be 0; the nearest is 1."),
        ("log.cleaner.min.cleanable.ratio", "1e400", "cannot be 1e400; the nearest is 1."),
        ("log.cleaner.min.cleanable.ratio", "nan", "is a number, not 'nan'."),
        ("log.cleaner.min.cleanable.ratio", "0_0.5", "is a number, not '0_0.5'."),
        ("log.dirs", "", "is empty; give it a value, or leave it out."),
        ("socket.send.buffer.bytes", "8", "is not a setting of the broker."),
    ],
)
def test_a_wrong_setting_is_one_sentence(name: str, text: str, rest: str) -> None:
    with pytest.raises(ConfigError) as refused:
        from_properties({name: text})
    assert str(refused.value) == f"{name} {rest}"


def pairs(text: str) -> list[tuple[str, str]]:
    return [(given.name, given.text) for given in read_properties(text, source="x")]


def test_a_properties_file_has_comments_and_spaces() -> None:
    text = "# a comment\n! another\n\n num.partitions = 3 \nlog.dirs=/a=b\n"
    assert pairs(text) == [("num.partitions", "3"), ("log.dirs", "/a=b")]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("log.dirs:/a", "/a"),
        ("log.dirs /a", "/a"),
        ("log.dirs\t:  /a:b", "/a:b"),
        ("log.dirs=/a\\\n    b", "/ab"),
        ("log.dirs=/a\\\r\n  \\\r\n  b\r\n", "/ab"),
        ("log.dirs=/a\\\n", "/a"),
        ("log.dirs=/a\\\\\nnum.partitions=1", "/a\\"),
        ("log.dirs=/a\\\n#b", "/a#b"),
        ("log.dirs=/\\u00e4\\tb\\:\\=\\z", "/\u00e4\tb:=z"),
        ("log.dirs=/\\ud83d\\ude00", "/\U0001f600"),  # a surrogate pair, as native2ascii writes it
        ("log.dirs=/\\ud83d", "/\ufffd"),
        ("log\\.dirs=/a", "/a"),
        ("log.dirs=/a # no comment", "/a # no comment"),
    ],
)
def test_a_properties_file_reads_as_in_java(text: str, value: str) -> None:
    assert pairs(text)[0] == ("log.dirs", value)


@pytest.mark.parametrize("line", ["num.partitions", "num.partitions=", "=3", ":", "="])
def test_a_line_that_is_no_setting_is_named(line: str) -> None:
    with pytest.raises(ConfigError, match=r"^server.properties, line 2: .* is not name=value\.$"):
        read_properties(f"log.dirs=3\n{line}\n", source="server.properties")


def test_a_name_that_is_given_twice_in_a_file_is_refused_with_both_lines() -> None:
    with pytest.raises(ConfigError) as refused:
        read_properties("num.partitions=3\n\nnum.partitions=4\n", source="f")
    assert str(refused.value) == "f, line 3: num.partitions is in line 1 already; keep one of them."


@pytest.mark.parametrize(
    "text",
    ["log.retention.ms=5\nlog.retention.hours=1", "log.retention.hours=1\nlog.retention.ms=5"],
)
def test_of_two_units_of_a_setting_the_finer_counts_and_not_the_last(text: str) -> None:
    assert settle(read_properties(text, source="f")).config.log_retention_ms == 5


def test_the_command_line_overrules_a_finer_unit_in_the_file() -> None:
    file = read_properties("log.retention.ms=5", source="f")
    settled = settle(file, read_properties("log.retention.minutes=1", source="--set"))
    assert settled.config.log_retention_ms == 60_000


STOCK = (Path(__file__).parent / "stock.properties").read_text()
NOT_OURS = {
    "process.roles": 6,
    "controller.quorum.bootstrap.servers": 12,
    "controller.listener.names": 28,
    "socket.send.buffer.bytes": 40,
    "socket.receive.buffer.bytes": 43,
    "share.coordinator.state.topic.replication.factor": 61,
    "share.coordinator.state.topic.min.isr": 62,
}


def test_kafkas_own_file_lists_all_that_is_unknown_at_once_with_its_lines() -> None:
    with pytest.raises(ConfigError) as refused:
        settle(read_properties(STOCK, source="server.properties"))
    assert str(refused.value).splitlines() == [
        "7 settings are none of the broker's:",
        *(f"  server.properties, line {line}: {name}" for name, line in NOT_OURS.items()),
        "Remove them, or go on without them by --ignore-unknown.",
    ]


def test_kafkas_own_file_serves_when_the_unknown_is_ignored() -> None:
    settled = settle(read_properties(STOCK, source="server.properties"), ignore_unknown=True)
    assert settled.ignored == tuple(NOT_OURS)
    assert settled.config.num_partitions == 1


def test_everything_that_is_wrong_is_listed_at_once() -> None:
    text = "num.partitions=0\nlog.flush=now\nnum.partition=3"
    with pytest.raises(ConfigError) as refused:
        settle(read_properties(text, source="f"))
    assert str(refused.value).splitlines() == [
        "f, line 1: num.partitions cannot be 0; the nearest is 1.",
        "f, line 2: log.flush is journal or ack or os, not 'now'.",
        "f, line 3: num.partition is not a setting of the broker. Did you mean num.partitions? "
        "Remove it, or go on without it by --ignore-unknown.",
    ]


# topics


def test_a_topic_falls_back_to_the_broker_and_the_broker_to_the_default() -> None:
    broker = from_properties({"log.retention.ms": "5"})
    assert topic_value("retention.ms", {"retention.ms": "7"}, broker) == 7
    assert topic_value("retention.ms", {}, broker) == 5
    assert topic_value("cleanup.policy", {}, broker) == "delete"


def test_the_defaults_of_topics_brokers_and_logs_are_the_same() -> None:
    for name, known in TOPIC_SETTINGS.items():
        if known.broker_name is not None:
            assert broker_settings()[known.broker_name].default == known.setting.default, name
        default = getattr(LogConfig(), name.replace(".", "_"), None)
        if isinstance(default, int) and name != "message.timestamp.type":
            assert known.setting.default == default, name


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "cleanup.policy",
            "compcat",
            "Invalid value compcat for configuration cleanup.policy: cleanup.policy is delete or "
            "compact or compact,delete or delete,compact, not 'compcat'. Did you mean compact?",
        ),
        (
            "min.cleanable.dirty.ratio",
            "1.5",
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: "
            "min.cleanable.dirty.ratio cannot be 1.5; the nearest is 1. Allowed is 0 to 1.",
        ),
        (
            "compression.type",
            "zstt",
            "Invalid value zstt for configuration compression.type: compression.type is producer "
            "or uncompressed or zstd or lz4 or snappy or gzip, not 'zstt'. Did you mean zstd?",
        ),
        (
            "retention.mss",
            "1",
            "Unknown topic config name: retention.mss. Did you mean retention.ms?",
        ),
        (
            "retention.ms",
            "-2",
            "Invalid value -2 for configuration retention.ms: retention.ms cannot be -2; the "
            "nearest is -1. Allowed is -1 to 9223372036854775807.",
        ),
        (
            "retention.ms",
            None,
            "Null value not supported for topic configs: retention.ms. Give it a value.",
        ),
        (
            "unclean.leader.election.enable",
            "true",
            "Invalid value true for configuration unclean.leader.election.enable: "
            "unclean.leader.election.enable is false, not 'true': it would lose committed "
            "transactions.",
        ),
    ],
)
def test_what_a_topic_cannot_have_is_refused_in_kafkas_words_and_then_ours(
    name: str, text: str | None, sentence: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        check_topic_configs([("retention.bytes", "1"), (name, text)])
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.message == sentence


def test_nothing_in_a_state_topic_is_ever_too_old() -> None:
    for topic in INTERNAL_TOPICS:
        configs = state_topic_configs(topic, BrokerConfig())
        assert check_topic_configs(list(configs.items())) == configs
        assert configs["retention.ms"] == configs["retention.bytes"] == "-1"
        assert configs["segment.bytes"] == str(100 * 1024 * 1024)


def test_a_broker_that_is_alone_has_one_replica_of_everything() -> None:
    check_one_broker(BrokerConfig())
    with pytest.raises(ConfigError) as refused:
        check_one_broker(from_properties({"default.replication.factor": "3"}))
    assert str(refused.value) == (
        "default.replication.factor cannot be 3: there is one broker; the nearest is 1."
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"etcd.endpoints": "localhost:2379"}, "etcd.endpoints is a list of http://HOST:PORT or "),
        ({"etcd.endpoints": "http://a:1,,http://b:1"}, "etcd.endpoints is a list of "),
        ({"etcd.endpoints": "http://a:1/"}, "etcd.endpoints is a list of "),
        ({"etcd.user": "ada"}, "etcd.user is set without etcd.password: set both, or neither."),
        ({"etcd.password": "x"}, "etcd.password is set without etcd.user: set both, or neither."),
        ({"etcd.tls.key": "k"}, "etcd.tls.key is set without etcd.tls.cert: set both, or neither."),
        (
            {"etcd.endpoints": "https://a:1,http://b:1", "etcd.tls.ca": "ca.pem"},
            "etcd.tls.ca is set, and etcd.endpoints has http://b:1: say https://.",
        ),
        ({"etcd.key.prefix": "odradek"}, "etcd.key.prefix begins with a slash and does not "),
        ({"etcd.key.prefix": "/odradek/"}, "etcd.key.prefix begins with a slash and does not "),
    ],
)
def test_settings_of_etcd_that_do_not_fit_are_refused(
    settings: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        from_properties(settings)
    assert str(refused.value).startswith(sentence)


def test_settings_of_etcd_that_fit_are_taken() -> None:
    settings = {
        "etcd.endpoints": "https://etcd-1.example:2379, https://10.0.0.1:2379,https://[::1]:2379",
        **{"etcd.user": "ada", "etcd.password": "very secret"},
        **{"etcd.tls.ca": "ca.pem", "etcd.tls.cert": "c.pem", "etcd.tls.key": "k.pem"},
    }
    config = from_properties(settings)
    assert config.etcd_endpoints.count(",") == 2
    assert config.etcd_key_prefix == "/odradek"
    assert "very secret" not in repr(config)


@pytest.mark.parametrize(
    ("name", "text", "provider"),
    [
        ("etcd.password", "${vault:kafka:etcd}", "vault"),
        (
            "listener.name.internal.plain.sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_alice="${file:/etc/secrets:alice}";',
            "file",
        ),
    ],
)
def test_a_config_provider_of_kafka_is_no_password(name: str, text: str, provider: str) -> None:
    """The text itself was the password, for whoever knows the file."""
    with pytest.raises(ConfigError) as refused:
        from_properties({name: text})
    assert str(refused.value) == (
        f"{name} has ${{{provider}:...}}, which a config provider of Kafka replaces; the broker "
        "has none: write the value itself, into a file that only its user may read."
    )
