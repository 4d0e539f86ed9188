"""Settings of consumer groups (KIP-848): codes as Kafka's, effects at once, kept for good."""

from collections.abc import Iterator
from typing import Final

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.configs import (
    DESCRIBE_CONFIGS,
    LIST_CONFIG_RESOURCES,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
    ResourceType,
)
from odradek.protocol.errors import ErrorCode as E
from tests.broker.api.altering import (
    APPEND,
    DELETE,
    SET,
    Entry,
    alter,
    described,
    replace_all,
    shown,
)
from tests.broker.group.wire import WireClient
from tests.broker.raw import RawClient
from tests.client.live import name_of

GROUP: Final = ResourceType.GROUP
SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT: Final = "consumer.assignment.interval.ms"


@pytest.mark.parametrize(
    ("entries", "code", "phrase"),
    [
        ([(SESSION, SET, "20000")], E.NONE, None),
        (
            [(SESSION, SET, "abc")],
            E.INVALID_CONFIG,
            "Invalid value abc for configuration",
        ),
        ([(SESSION, SET, "0")], E.INVALID_CONFIG, f"Invalid value 0 for configuration {SESSION}"),
        ([(SESSION, SET, "999")], E.INVALID_CONFIG, f"{SESSION} must be greater than or equal to"),
        ([(SESSION, SET, "60001")], E.INVALID_CONFIG, f"{SESSION} must be less than or equal to "),
        ([(HEARTBEAT, SET, "15001")], E.INVALID_CONFIG, f"{HEARTBEAT} must be less than or equal"),
        ([(ASSIGNMENT, SET, "15001")], E.INVALID_CONFIG, f"{ASSIGNMENT} must be less than or equ"),
        (
            [(SESSION, SET, "5000"), (HEARTBEAT, SET, "5000")],
            E.INVALID_CONFIG,
            f"{SESSION} must be greater than {HEARTBEAT}",
        ),
        ([("nosuch", SET, "1")], E.INVALID_CONFIG, "Unknown group config name: nosuch"),
        ([("nosuch", DELETE, None)], E.NONE, None),
        ([(SESSION, APPEND, "1")], E.INVALID_CONFIG, f"Can't APPEND to key {SESSION} because its"),
        ([(SESSION, SET, None)], E.INVALID_REQUEST, f"Null value not supported for : {SESSION}"),
    ],
)
def test_changes_are_taken_and_refused_as_by_kafka(
    either: RawClient, entries: list[Entry], code: E, phrase: str | None
) -> None:
    for validate_only in (True, False):
        answer = alter(either, GROUP, name_of("group"), *entries, validate_only=validate_only)
        assert answer.error_code == code, answer
        assert (answer.error_message or "").startswith(phrase or "")


def test_a_group_without_a_name_has_no_settings(either: RawClient) -> None:
    answer = alter(either, GROUP, "", (SESSION, SET, "20000"))
    assert answer.error_code == E.INVALID_REQUEST
    asked = DescribeConfigsResource(resource_type=GROUP, resource_name="", configuration_keys=None)
    (result,) = either.ask(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=(asked,))).results
    assert result.error_code == E.INVALID_REQUEST


def test_a_setting_of_a_group_has_those_of_the_broker_below_it(either: RawClient) -> None:
    group = name_of("group")
    assert described(either, GROUP, group, SESSION)[SESSION].value == "10000"
    assert alter(either, GROUP, group, (SESSION, SET, "20000")).error_code == E.NONE
    sources = (ConfigSource.GROUP, ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT)
    found = shown(either, GROUP, group, SESSION, *sources)
    assert (found.value, found.config_source) == ("20000", ConfigSource.GROUP)
    assert [(each.name, each.value) for each in found.synonyms] == [
        (SESSION, "20000"),
        (f"group.{SESSION}", "10000"),
        (f"group.{SESSION}", "45000"),
    ]
    assert alter(either, GROUP, group, (SESSION, DELETE, None)).error_code == E.NONE
    assert shown(either, GROUP, group, SESSION, *sources[1:]).value == "10000"


def listed(client: RawClient) -> list[str]:
    request = ListConfigResourcesRequest(resource_types=(GROUP,))
    answer = client.ask(LIST_CONFIG_RESOURCES, 1, request)
    assert answer.error_code == E.NONE
    return [each.resource_name for each in answer.config_resources]


def test_groups_that_have_settings_are_listed(either: RawClient) -> None:
    group = name_of("group")
    assert group not in listed(either)
    assert alter(either, GROUP, group, (SESSION, SET, "20000")).error_code == E.NONE
    while group not in listed(either):  # a real Kafka answers before a change counts
        pass
    assert replace_all(either, GROUP, group).error_code == E.NONE
    while group in listed(either):
        pass


# ours


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    settings = {"group.consumer.min.heartbeat.interval.ms": "100"}
    with run_broker(config=settings) as running:
        yield running


def test_a_setting_of_a_group_counts_at_once_for_that_group_only(broker: RunningBroker) -> None:
    with WireClient(broker.address) as client:
        client.create_topic("t")
        client.coordinator_of("g")
        joined = client.heartbeat_of_consumer("g", "m", topics=["t"])
        assert joined.heartbeat_interval_ms == 5_000
        assert alter(client, GROUP, "g", (HEARTBEAT, SET, "200")).error_code == E.NONE
        beaten = client.heartbeat_of_consumer("g", "m", joined.member_epoch)
        assert beaten.heartbeat_interval_ms == 200
        assert client.heartbeat_of_consumer("h", "m", topics=["t"]).heartbeat_interval_ms == 5_000


def test_settings_of_a_group_outlive_a_restart(broker: RunningBroker) -> None:
    with WireClient(broker.address) as client:
        assert alter(client, GROUP, "g", (HEARTBEAT, SET, "200")).error_code == E.NONE
    broker.restart()
    with WireClient(broker.address) as client:
        assert described(client, GROUP, "g", HEARTBEAT)[HEARTBEAT].value == "200"
        assert listed(client) == ["g"]
