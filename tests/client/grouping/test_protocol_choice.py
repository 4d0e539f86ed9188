"""The choice between the two protocols of groups, and the options that belong to one of them."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.client import (
    Consumer,
    Refused,
    SubscriptionPattern,
)
from odradek.client.grouping.kip848_member import Kip848Member
from odradek.client.grouping.member import ClassicMember
from odradek.protocol.apis.group import JOIN_GROUP
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_HEARTBEAT,
)
from odradek.protocol.errors import ErrorCode
from tests.client.fake_broker import (
    ADDRESS,
    refused,
)
from tests.client.fake_consumer_group import FakeConsumerGroup
from tests.client.grouping.joining import ONE, ZERO, joined, new_group


@pytest.fixture
def group(nursery: trio.Nursery) -> FakeConsumerGroup:
    return new_group(nursery)


def member_of(consumer: Consumer) -> object:
    assert consumer._membership is not None
    return consumer._membership.member


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, Kip848Member),
        ({"group_protocol": "consumer"}, Kip848Member),
        ({"group_remote_assignor": "uniform"}, Kip848Member),
        ({"group_protocol": "classic"}, ClassicMember),
        ({"partition_assignors": ["range"]}, ClassicMember),
        ({"session_timeout_ms": 45_000}, ClassicMember),
        ({"heartbeat_interval_ms": 3_000}, ClassicMember),
    ],
    ids=str,
)
async def test_the_new_protocol_is_the_default_and_classic_options_ask_for_the_classic_one(
    autojump_clock: MockClock, group: FakeConsumerGroup, options: dict[str, Any], kind: type
) -> None:
    async with joined(group, **options) as (consumer, _):
        assert isinstance(member_of(consumer), kind)


@pytest.mark.parametrize("lacks", ["the feature", "the level", "the request"])
async def test_a_broker_without_the_new_protocol_has_classic_members(
    autojump_clock: MockClock,
    group: FakeConsumerGroup,
    lacks: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if lacks == "the request":
        served = [api for api in group.served() if api is not CONSUMER_GROUP_HEARTBEAT]
        monkeypatch.setattr(group, "served", lambda: tuple(served))
    else:
        group.more_features = {} if lacks == "the feature" else {"group.version": 0}
    async with joined(group) as (consumer, _):
        assert isinstance(member_of(consumer), ClassicMember)
    with pytest.raises(Refused, match="does not have the consumer group protocol"):
        async with joined(group, group_protocol="consumer"):
            pass
    with pytest.raises(Refused, match=r"give re\.compile\('t\.\*'\)"):
        async with joined(group, SubscriptionPattern("t.*")):
            pass


@pytest.mark.parametrize("code", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION])
async def test_a_group_that_stays_classic_is_joined_with_the_classic_protocol(
    autojump_clock: MockClock, group: FakeConsumerGroup, code: ErrorCode
) -> None:
    """Members of an earlier version of the program run, and the broker keeps the group classic."""
    group.next(CONSUMER_GROUP_HEARTBEAT, refused(code))
    async with joined(group) as (consumer, told):
        assert isinstance(member_of(consumer), ClassicMember)
        assert told == [("assigned", [ZERO, ONE])]
    assert group.said()[:2] == ["join", JOIN_GROUP.name]


async def test_a_poll_ends_in_time_while_no_broker_can_be_asked_for_its_protocols(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    group.is_down = True
    async with Consumer(ADDRESS, group_id="g", connect=group.connect) as consumer:
        consumer.subscribe("t")
        before = trio.current_time()
        assert await consumer.poll(700) == []
        assert trio.current_time() - before <= 0.8
        group.is_down = False
        while not consumer.assignment():
            await consumer.poll(100)


def test_options_of_the_other_protocol_are_refused_with_what_to_do() -> None:
    new: Any = {"group_id": "g", "group_protocol": "consumer"}
    for options, words in (
        ({**new, "partition_assignors": ["range"]}, r"group\.consumer\.assignors"),
        ({**new, "session_timeout_ms": 1_000}, r"group\.consumer\.session\.timeout\.ms"),
        ({**new, "heartbeat_interval_ms": 10}, r"group\.consumer\.heartbeat\.interval\.ms"),
        (
            {"group_remote_assignor": "range", "session_timeout_ms": 9_000},
            'session_timeout_ms belongs to group_protocol="classic"',
        ),
        (
            {"group_protocol": "classic", "group_remote_assignor": "range"},
            "group_remote_assignor belongs to",
        ),
        ({"group_protocol": "new"}, "group_protocol is one of 'consumer', 'classic', None"),
        ({"group_remote_assignor": ""}, "group_remote_assignor is a name"),
    ):
        with pytest.raises(ValueError, match=words):
            Consumer(ADDRESS, **options)
