"""Every setting of a topic that Kafka 4.3 has: accepted, kept and described."""

from collections.abc import Iterator

import pytest

from odradek.broker.config.settings import ConfigType
from odradek.broker.config.topic import INTERNAL_SETTING
from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.configs import ConfigSource
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC
from tests.broker.api.altering import BROKER, DELETE, SET, TOPIC, alter, described
from tests.broker.api.kafkas_topic_settings import TOPIC_SETTINGS_OF_KAFKA
from tests.broker.asks import create_topic, topic_metadata
from tests.broker.raw import RawClient
from tests.client.live import name_of
from tests.conftest import BROKER_SETTINGS

KNOWN = TOPIC_SETTINGS_OF_KAFKA


@pytest.fixture
def topic(either: RawClient) -> str:
    name = name_of("settings")
    assert create_topic(either, name).error_code in (E.NONE, E.TOPIC_ALREADY_EXISTS)
    return name


def test_a_topic_has_kafkas_settings_with_their_types_and_defaults(
    either: RawClient, topic: str
) -> None:
    shown = described(either, TOPIC, topic)
    assert sorted(set(shown) - {INTERNAL_SETTING}) == sorted(KNOWN)
    given = {"retention.ms": BROKER_SETTINGS["log.retention.ms"]}
    for name, known in KNOWN.items():
        default = given.get(name, known.default)
        assert (shown[name].config_type, shown[name].value) == (known.type, default), name


@pytest.mark.parametrize("name", KNOWN)
def test_a_topic_is_created_with_every_value_that_kafka_accepts(
    either: RawClient, topic: str, name: str
) -> None:
    for number, text in enumerate(KNOWN[name].accepted):
        made = f"{topic}-{number}"
        answer = create_topic(either, made, configs={name: text})
        assert answer.error_code == 0, (text, answer.error_message)
        (found,) = described(either, TOPIC, made, name).values()
        assert found.value.lower() == text.lower() or KNOWN[name].type is ConfigType.DOUBLE
        assert found.config_source == ConfigSource.TOPIC


@pytest.mark.parametrize("name", KNOWN)
def test_a_change_to_what_kafka_refuses_is_refused(
    either: RawClient, topic: str, name: str
) -> None:
    for text in KNOWN[name].refused:
        answer = alter(either, TOPIC, topic, (name, SET, text), validate_only=True)
        assert answer.error_code == E.INVALID_CONFIG, text
    for text in KNOWN[name].accepted:
        answer = alter(either, TOPIC, topic, (name, SET, text), validate_only=True)
        assert answer.error_code == 0, (text, answer.error_message)


# ours only


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with run_broker(config={"num.io.threads": "16", "log.retention.check.interval.ms": "50"}) as it:
        yield it


COPIED = {
    "cleanup.policy": "compact",
    "file.delete.delay.ms": "1000",
    "flush.messages": "1",
    "preallocate": "true",
    "follower.replication.throttled.replicas": "*",
}


def test_a_copied_topic_keeps_all_of_its_settings_and_the_log_says_once_what_has_no_effect(
    broker: RunningBroker,
) -> None:
    with RawClient(broker) as client:
        for topic in ("copied", "copied-too"):
            assert create_topic(client, topic, configs=COPIED).error_code == 0
            shown = described(client, TOPIC, topic, *COPIED)
            assert {name: found.value for name, found in shown.items()} == COPIED
        assert "No effect here: segments grow" in shown["preallocate"].documentation
    for name in COPIED:
        assert broker.log.count(f"{name} is kept, and has no effect: ") == (
            name != "cleanup.policy"
        )


@pytest.mark.parametrize("name", ["remote.storage.enable", "unclean.leader.election.enable"])
def test_a_promise_that_is_not_kept_is_refused(broker: RunningBroker, name: str) -> None:
    with RawClient(broker) as client:
        answer = create_topic(client, "promised", configs={name: "true"})
        assert answer.error_code == E.INVALID_CONFIG
        assert name in answer.error_message


def test_a_throttled_move_is_not_refused_by_a_state_topic_or_a_broker(
    broker: RunningBroker,
) -> None:
    """kafka-reassign-partitions sets these before it moves anything."""
    with RawClient(broker) as client:
        topic_metadata(client, CONSUMER_OFFSETS_TOPIC, may_create=True)
        replicas = ("leader.replication.throttled.replicas", SET, "0:1,1:1")
        assert alter(client, TOPIC, CONSUMER_OFFSETS_TOPIC, replicas).error_code == 0
        for side in ("leader", "follower"):
            rate = f"{side}.replication.throttled.rate"
            assert alter(client, BROKER, "1", (rate, SET, "1000")).error_code == 0
            (found,) = described(client, BROKER, "1", rate).values()
            assert (found.value, found.config_source) == ("1000", ConfigSource.DYNAMIC_BROKER)
            assert alter(client, BROKER, "1", (rate, DELETE, None)).error_code == 0
            assert f"{rate} is kept, and has no effect: replication is not" in broker.log


def test_a_setting_of_the_file_that_has_no_effect_is_described_and_logged(
    broker: RunningBroker,
) -> None:
    with RawClient(broker) as client:
        (found,) = described(client, BROKER, "1", "num.io.threads").values()
    assert (found.value, found.config_source) == ("16", ConfigSource.STATIC_BROKER)
    assert broker.log.count("num.io.threads is kept, and has no effect: ") == 1
