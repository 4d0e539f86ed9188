"""Members of a group on a real broker: ours, and with --peers Apache Kafka."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import trio

from odradek.client import Admin, Consumer, Producer, Refused, SubscriptionPattern
from odradek.client.types import ASSIGNOR_NAMES, Topics
from odradek.protocol.errors import ErrorCode
from tests.client.live import WAIT_MS, name_of
from tests.client.producing.test_producer_live import make_topic

QUICK: dict[str, Any] = {"heartbeat_interval_ms": 100}
"""A member learns of a rebalance by its next heartbeat."""


async def poll_until(is_done: Callable[[], bool], *consumers: Consumer) -> list[Any]:
    """Poll the consumers in turn, as one task does, until a condition holds."""
    found = []
    with trio.fail_after(WAIT_MS / 1000):
        while not is_done():
            for consumer in consumers:
                found += await consumer.poll(20)
    return found


def sizes(*consumers: Consumer) -> list[int]:
    return [len(consumer.assignment()) for consumer in consumers]


WAYS: dict[str, dict[str, Any]] = {
    "uniform": {"group_remote_assignor": "uniform"},
    "remote range": {"group_remote_assignor": "range"},
    **{name: {**QUICK, "partition_assignors": [name]} for name in ASSIGNOR_NAMES},
}
"""Both protocols, with all their assignors."""


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_members_share_the_partitions_and_one_takes_over(bootstrap: str, way: str) -> None:
    topic, group = await make_topic(bootstrap, 4), name_of("group")
    options = {**WAYS[way], "group_id": group}
    async with Consumer(bootstrap, **options) as first:
        first.subscribe(topic)
        await poll_until(lambda: sizes(first) == [4], first)
        async with Consumer(bootstrap, **options) as second:
            second.subscribe(topic)
            await poll_until(lambda: sizes(first, second) == [2, 2], first, second)
            assert not set(first.assignment()) & set(second.assignment())
            async with Producer(bootstrap) as producer:
                for number in range(100):
                    await producer.send(topic, b"%d" % number, partition=number % 4)
            found: list[Any] = []
            with trio.fail_after(WAIT_MS / 1000):
                while len(found) < 100:
                    found += await first.poll(50)
                    found += await second.poll(50)
            assert sorted(int(record.value) for record in found) == list(range(100))
        await poll_until(lambda: sizes(first) == [4], first)


@pytest.mark.slow
async def test_the_broker_knows_the_racks_of_members_of_both_protocols(bootstrap: str) -> None:
    """A member of the classic protocol in a group of the new one sends it in its subscription."""
    topic, group = await make_topic(bootstrap, 2), name_of("group")
    async with (
        Consumer(bootstrap, group_id=group, client_rack="a", group_protocol="consumer") as new,
        Consumer(bootstrap, group_id=group, client_rack="b", **QUICK) as classic,
        Admin(bootstrap) as admin,
    ):
        new.subscribe(topic)
        await poll_until(lambda: sizes(new) == [2], new)
        classic.subscribe(topic)
        await poll_until(lambda: sizes(new, classic) == [1, 1], new, classic)
        found = await admin.describe_group(group)
        assert {(member.is_classic, member.rack) for member in found.members} == {
            (False, "a"),
            (True, "b"),
        }


async def test_a_pattern_is_matched_by_the_broker_or_by_the_client(bootstrap: str) -> None:
    """RE2 has no looking around, and Python's `re` has no classes such as [[:alpha:]]."""
    topic = await make_topic(bootstrap, 3)
    patterns: tuple[Topics, ...] = (
        SubscriptionPattern(f"[[:alpha:]]{topic[1:]}"),
        re.compile(f"(?=c){topic}"),
    )
    for pattern in patterns:
        async with Consumer(
            bootstrap, group_id=name_of("group"), group_protocol="consumer"
        ) as consumer:
            consumer.subscribe(pattern)
            await poll_until(lambda: sizes(consumer) == [3], consumer)
    async with Consumer(bootstrap, group_id=name_of("group")) as consumer:
        consumer.subscribe(SubscriptionPattern("(?=c)x"))
        with pytest.raises(Refused, match="as RE2 does") as refused:
            await consumer.poll(WAIT_MS)
        assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.slow
async def test_a_static_member_comes_back_to_its_partitions_and_has_no_double(
    bootstrap: str,
) -> None:
    topic, group = await make_topic(bootstrap, 4), name_of("group")
    here: dict[str, Any] = {"group_id": group, "group_instance_id": "a"}
    there: dict[str, Any] = {"group_id": group, "group_instance_id": "b"}
    async with Consumer(bootstrap, **there) as stays:
        stays.subscribe(topic)
        async with Consumer(bootstrap, **here) as leaves:
            leaves.subscribe(topic)
            await poll_until(lambda: sizes(stays, leaves) == [2, 2], stays, leaves)
            before = leaves.assignment()
            async with Consumer(bootstrap, **here) as double:
                double.subscribe(topic)
                with pytest.raises(Refused, match="a member has this group_instance_id"):
                    await double.poll(WAIT_MS)
        async with Consumer(bootstrap, **here) as returns:
            returns.subscribe(topic)
            await poll_until(lambda: sizes(returns) != [0], returns)
            assert returns.assignment() == before
            assert sizes(stays) == [2]


async def test_an_assignor_that_the_broker_lacks_is_a_sentence(bootstrap: str) -> None:
    topic = await make_topic(bootstrap, 1)
    options: dict[str, Any] = {"group_id": name_of("group"), "group_remote_assignor": "none such"}
    async with Consumer(bootstrap, **options) as consumer:
        consumer.subscribe(topic)
        with pytest.raises(Refused, match="uniform") as refused:
            await consumer.poll(WAIT_MS)
        assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


@pytest.mark.slow
async def test_a_program_is_upgraded_to_the_new_protocol_one_process_at_a_time(
    bootstrap: str,
) -> None:
    """A broker that lets the group change does; otherwise the new process stays classic, too."""
    topic, group = await make_topic(bootstrap, 4), name_of("group")
    old: dict[str, Any] = {"group_id": group, "group_protocol": "classic", **QUICK}
    async with Consumer(bootstrap, **old) as first:
        first.subscribe(topic)
        await poll_until(lambda: sizes(first) == [4], first)
        async with Consumer(bootstrap, group_id=group) as second:
            second.subscribe(topic)
            await poll_until(lambda: sizes(first, second) == [2, 2], first, second)
            assert not set(first.assignment()) & set(second.assignment())
            await first.commit()
            await second.commit()
            await first.unsubscribe()
            await poll_until(lambda: sizes(second) == [4], second)
            async with Consumer(bootstrap, group_id=group) as third:
                third.subscribe(topic)
                await poll_until(lambda: sizes(second, third) == [2, 2], second, third)
