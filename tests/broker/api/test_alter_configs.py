"""Settings that change while a broker runs: codes as Kafka's, effects at once, kept for good."""

import contextlib
from collections.abc import Iterator
from typing import Final

import pytest

from odradek.broker.server.server import LOCAL_RESERVE
from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.configs import (
    LIST_CONFIG_RESOURCES,
    ConfigSource,
    ListConfigResourcesRequest,
)
from odradek.protocol.apis.metadata import METADATA, MetadataRequest
from odradek.protocol.errors import ErrorCode as E
from tests.broker.api.altering import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    Entry,
    alter,
    alter_all,
    described,
    replace_all,
    resource,
    shown,
)
from tests.broker.api.producing import until
from tests.broker.asks import batch, create_topic, produce
from tests.broker.raw import RawClient
from tests.client.live import name_of

pytestmark = pytest.mark.slow

RETENTION = "log.retention.ms"
ANY_TOPIC: Final = MetadataRequest(topics=(), allow_auto_topic_creation=False)


@pytest.fixture
def topic(either: RawClient) -> str:
    name = name_of("altered")
    assert create_topic(either, name).error_code in (E.NONE, E.TOPIC_ALREADY_EXISTS)
    return name


@pytest.mark.parametrize(
    ("entries", "code", "phrase"),
    [
        ([("retention.ms", SET, "1000")], E.NONE, None),
        ([("retention.ms", SET, "abc")], E.INVALID_CONFIG, "Invalid value abc for configuration r"),
        ([("retention.ms", SET, "-5")], E.INVALID_CONFIG, "Invalid value -5 for configuration ret"),
        ([("preallocate", SET, "maybe")], E.INVALID_CONFIG, "Invalid value maybe for configuratio"),
        ([("segment.bytes", SET, "10")], E.INVALID_CONFIG, "Invalid value 10 for configuration se"),
        ([("nosuch", SET, "1")], E.INVALID_CONFIG, "Unknown topic config name: nosuch"),
        ([("nosuch", DELETE, None)], E.NONE, None),
        ([("nosuch", APPEND, "1")], E.INVALID_CONFIG, "Can't APPEND to key nosuch because its typ"),
        ([("segment.ms", SUBTRACT, "1")], E.INVALID_CONFIG, "Can't SUBTRACT to key segment.ms bec"),
        ([("cleanup.policy", APPEND, "compact")], E.NONE, None),
        ([("retention.ms", SET, None)], E.INVALID_REQUEST, "Null value not supported for : retent"),
        ([("retention.ms", DELETE, "5")], E.NONE, None),
        (
            [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)],
            E.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            [("min.compaction.lag.ms", SET, "50"), ("max.compaction.lag.ms", SET, "20")],
            E.INVALID_CONFIG,
            "conflict topic config setting min.compaction.lag.ms (50) > max.compaction.lag.ms (20)",
        ),
        ([], E.NONE, None),
    ],
)
def test_a_change_of_a_topic_is_answered_as_by_kafka(
    either: RawClient, topic: str, entries: list[Entry], code: E, phrase: str | None
) -> None:
    answer = alter(either, TOPIC, topic, *entries)
    assert answer.error_code == code
    assert (answer.error_message or "").startswith(phrase or "")
    assert (answer.error_message is None) == (code is E.NONE)


@pytest.mark.parametrize(
    ("kind", "name", "entry", "code", "phrase"),
    [
        (TOPIC, "nobody", ("retention.ms", SET, "5"), 3, "The topic 'nobody' does not exist."),
        (TOPIC, "nobody", ("retention.ms", SET, "-9"), 40, "Invalid value -9 for configuration re"),
        (TOPIC, "", ("retention.ms", SET, "5"), 42, "Default topic resources are not allowed."),
        (TOPIC, "a b", ("retention.ms", SET, "5"), 17, "Topic name is invalid: 'a b' contains one"),
        (99, "t", ("retention.ms", SET, "5"), 42, "Unknown resource type 99"),
        (BROKER, "2", (RETENTION, SET, "5"), 42, "Unexpected broker id, expected 1, but received"),
        (BROKER, "x", (RETENTION, SET, "5"), 42, "Node id must be an integer, but it is: "),
        (BROKER, "1", ("node.id", SET, "5"), 42, "Cannot update these configs dynamically: [node."),
        (BROKER, "", ("num.partitions", SET, "5"), 42, "Cannot update these configs dynamically: "),
        (BROKER, "1", (RETENTION, SET, "abc"), 42, "Invalid value abc for configuration log.reten"),
        (BROKER, "1", (RETENTION, 9, "abc"), 42, "Unknown operations type 9"),
        (BROKER, "", (RETENTION, APPEND, "5"), 40, "Config value append is not allowed for config"),
        (BROKER, "", ("nosuch", APPEND, "5"), 40, "Unknown config name: nosuch"),
        (BROKER, "1", ("min.insync.replicas", SET, "1"), 40, "Broker-level min.insync.replicas ca"),
        (BROKER, "1", ("nosuch", DELETE, None), 0, ""),
    ],
)
def test_what_cannot_be_changed_is_refused_as_by_kafka(
    either: RawClient, kind: int, name: str, entry: Entry, code: int, phrase: str
) -> None:
    answer = alter(either, kind, name, entry)
    assert answer.error_code == code
    assert (answer.error_message or "").startswith(phrase)


def test_a_resource_that_is_named_twice_fails_each_time(either: RawClient, topic: str) -> None:
    twice = resource(TOPIC, topic, ("retention.ms", SET, "5"))
    answers = alter_all(either, twice, resource(BROKER, "1"), twice)
    assert [answer.error_code for answer in answers] == [E.INVALID_REQUEST, 0, E.INVALID_REQUEST]
    assert answers[0].error_message.startswith("Each resource must appear at most once.")


def test_a_value_says_where_it_comes_from(either: RawClient, topic: str) -> None:
    name, broker_name = "segment.bytes", "log.segment.bytes"
    before = shown(either, TOPIC, topic, name, ConfigSource.DEFAULT)
    assert before.config_source == ConfigSource.DEFAULT
    assert not before.read_only
    assert before.documentation
    for where, value in (("", "2000000"), ("1", "3000000")):
        assert alter(either, BROKER, where, (broker_name, SET, value)).error_code == 0
    assert alter(either, TOPIC, topic, (name, SET, "4000000")).error_code == 0
    found = shown(either, TOPIC, topic, name, 1, 2, 3, 5)
    assert (found.value, found.config_source) == ("4000000", ConfigSource.TOPIC)
    assert shown(either, BROKER, "", broker_name, 3).value == "2000000"
    of_broker = shown(either, BROKER, "1", broker_name, 2, 3, 5)
    assert of_broker.value == "3000000"
    assert not of_broker.read_only
    assert described(either, BROKER, "1", "node.id")["node.id"].read_only
    assert alter(either, TOPIC, topic, (name, DELETE, None)).error_code == 0
    found = shown(either, TOPIC, topic, name, 2, 3, 5)
    assert (found.value, found.config_source) == ("3000000", ConfigSource.DYNAMIC_BROKER)
    for where in ("", "1"):
        assert alter(either, BROKER, where, (broker_name, DELETE, None)).error_code == 0
    assert shown(either, TOPIC, topic, name, 5).config_source == ConfigSource.DEFAULT


def test_nothing_is_changed_when_only_a_check_is_asked_for(either: RawClient, topic: str) -> None:
    name = "retention.ms"
    assert alter(either, TOPIC, topic, (name, SET, "77"), validate_only=True).error_code == 0
    assert alter(either, BROKER, "1", (RETENTION, SET, "77"), validate_only=True).error_code == 0
    assert described(either, TOPIC, topic, name)[name].value != "77"
    wrong = alter(either, TOPIC, topic, (name, SET, "x"), validate_only=True)
    assert wrong.error_code == E.INVALID_CONFIG
    missing = alter(either, TOPIC, "nobody", (name, SET, "5"), validate_only=True)
    assert missing.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_alter_configs_replaces_all_settings(either: RawClient, topic: str) -> None:
    assert (
        replace_all(either, TOPIC, topic, retention_ms="5", segment_bytes="2000000").error_code == 0
    )
    assert replace_all(either, TOPIC, topic, retention_ms="7").error_code == 0
    assert shown(either, TOPIC, topic, "segment.bytes", 5).config_source == ConfigSource.DEFAULT
    until(
        lambda: described(either, TOPIC, topic, "retention.ms")["retention.ms"].value,
        lambda value: value == "7",
    )
    assert replace_all(either, TOPIC, topic, True).error_code == 0
    assert described(either, TOPIC, topic, "retention.ms")["retention.ms"].value == "7"
    assert replace_all(either, TOPIC, topic, retention_ms=None).error_code == E.INVALID_REQUEST
    assert replace_all(either, TOPIC, topic, nosuch="1").error_code == E.INVALID_CONFIG
    assert replace_all(either, TOPIC, "nobody").error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert replace_all(either, BROKER, "1", node_id="5").error_code == E.INVALID_REQUEST


def test_topics_and_brokers_are_listed_by_type(either: RawClient, topic: str) -> None:
    def listed(*kinds: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
        request = ListConfigResourcesRequest(resource_types=kinds if version else ())
        answer = either.ask(LIST_CONFIG_RESOURCES, version, request)
        found = [(found.resource_type, found.resource_name) for found in answer.config_resources]
        return answer.error_code, found

    assert listed(BROKER) == (0, [(BROKER, "1")])
    assert (TOPIC, topic) in listed(TOPIC)[1]
    code, everything = listed()
    assert code == 0
    assert {(TOPIC, topic), (BROKER, "1")} <= set(everything)
    assert listed(version=0) == (0, [])
    assert listed(99) == (E.UNSUPPORTED_VERSION, [])


# ours only: what changes take effect, and how long they last


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with run_broker(config={"log.retention.check.interval.ms": "50"}) as broker:
        yield broker
        assert "Traceback" not in broker.log, broker.log


def test_a_smaller_batch_limit_counts_at_once_and_after_a_restart(broker: RunningBroker) -> None:
    with RawClient(broker) as client:
        for name in ("small", "inherits"):
            assert create_topic(client, name).error_code == 0
            assert produce(client, name, batch(b"x" * 500)).error_code == 0
        assert alter(client, TOPIC, "small", ("max.message.bytes", SET, "200")).error_code == 0
        assert alter(client, BROKER, "", ("message.max.bytes", SET, "300")).error_code == 0
        assert alter(client, BROKER, "1", ("max.connections", SET, "77")).error_code == 0
        for name in ("small", "inherits"):
            refused = produce(client, name, batch(b"x" * 500))
            assert refused.error_code == E.MESSAGE_TOO_LARGE
        assert produce(client, "inherits", batch(b"x" * 180)).error_code == 0
        assert produce(client, "small", batch(b"x" * 180)).error_code == E.MESSAGE_TOO_LARGE
    broker.restart()
    with RawClient(broker) as client:
        for name in ("small", "inherits"):
            refused = produce(client, name, batch(b"x" * 500))
            assert refused.error_code == E.MESSAGE_TOO_LARGE
        own = described(client, BROKER, "1", "max.connections")["max.connections"]
        assert (own.value, own.config_source) == ("77", ConfigSource.DYNAMIC_BROKER)
        assert replace_all(client, BROKER, "").error_code == 0
        assert alter(client, TOPIC, "small", ("max.message.bytes", DELETE, None)).error_code == 0
        for name in ("small", "inherits"):
            assert produce(client, name, batch(b"x" * 500)).error_code == 0


def test_a_topic_becomes_compacted_while_it_is_written_to(broker: RunningBroker) -> None:
    with RawClient(broker) as client:
        assert create_topic(client, "compacting").error_code == 0
        assert produce(client, "compacting", batch(b"no key")).error_code == 0
        change = ("cleanup.policy", SET, "compact")
        assert alter(client, TOPIC, "compacting", change).error_code == 0
        refused = produce(client, "compacting", batch(b"no key"))
        assert refused.error_code == E.INVALID_RECORD


def test_no_more_connections_than_now_allowed_are_served(broker: RunningBroker) -> None:
    with RawClient(broker) as client:
        assert alter(client, BROKER, "1", ("max.connections", SET, "1")).error_code == 0
        with contextlib.ExitStack() as stack:
            for _ in range(LOCAL_RESERVE):
                stack.enter_context(RawClient(broker)).ask(METADATA, 12, ANY_TOPIC)
            with RawClient(broker) as other:
                assert other.receive(1) == b"", "the connection is closed"
        assert alter(client, BROKER, "1", ("max.connections", DELETE, None)).error_code == 0
        with RawClient(broker) as other:
            assert create_topic(other, "served").error_code == 0


def test_ten_thousand_resources_are_each_answered(broker: RunningBroker) -> None:
    resources = [
        resource(TOPIC, f"nobody-{number}", ("retention.ms", SET, "1")) for number in range(10_000)
    ]
    with RawClient(broker) as client:
        answers = alter_all(client, *resources)
    assert {answer.error_code for answer in answers} == {E.UNKNOWN_TOPIC_OR_PARTITION}
    assert [answer.resource_name for answer in answers] == [r.resource_name for r in resources]
