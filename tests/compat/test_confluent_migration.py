"""confluent-kafka (librdkafka): an application goes to the new group protocol, and back again."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Consumer, ConsumerGroupType
from confluent_kafka.admin import AdminClient

from tests.compat.confluent import Received, consumer, deliver, poll_until, producer, values
from tests.compat.conftest import DEADLINE_SECONDS, CreateTopic
from tests.stories.looking import eventually

CLASSIC: dict[str, object] = {"session_timeout_ms": 10_000}
NEW: dict[str, object] = {"group_protocol": "consumer"}


@contextmanager
def member(bootstrap: str, group: str, topic: str, **settings: object) -> Iterator[Consumer]:
    with consumer(bootstrap, group, **settings) as made:
        made.subscribe([topic])
        yield made


def becomes(admin: AdminClient, group: str, expected: ConsumerGroupType) -> None:
    def look() -> ConsumerGroupType:
        listed = admin.list_consumer_groups().result(DEADLINE_SECONDS)
        unknown = ConsumerGroupType.UNKNOWN
        return next((each.type for each in listed.valid if each.group_id == group), unknown)

    eventually(look, expected)


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_an_application_changes_its_protocol_one_process_after_another(
    bootstrap: str,
    admin: AdminClient,
    create_topic: CreateTopic,
    unique: Callable[[str], str],
    strategy: str,
) -> None:
    """Each record is read once: offsets are stored before a member goes.

    Neither broker converts a group of librdkafka's cooperative-sticky, which has user data.
    """
    topic, group = create_topic(partitions=4), unique("group")
    sender, received = producer(bootstrap), list[Received]()
    classic: dict[str, object] = {**CLASSIC, "partition_assignment_strategy": strategy}
    sent: list[bytes] = []

    def share(*members: Consumer) -> None:
        """Wait until the members share the partitions, and read what is written then."""
        sizes = [4 // len(members)] * len(members)
        poll_until(
            lambda: [len(each.assignment()) for each in members] == sizes,
            *members,
            collect=received,
        )
        for partition in range(4):
            values_ = [b"%d-%d" % (len(sent), number) for number in range(5)]
            deliver(sender, topic, values_, partition=partition)
            sent.extend(values_)
        poll_until(lambda: len(received) >= len(sent), *members, collect=received)
        for each in members:
            each.commit(asynchronous=False)

    with ExitStack() as stack:
        first = stack.enter_context(member(bootstrap, group, topic, **classic))
        with member(bootstrap, group, topic, **classic) as second:
            share(first, second)
        share(first)
        becomes(admin, group, ConsumerGroupType.CLASSIC)
        with member(bootstrap, group, topic, **NEW) as new:
            share(first, new)
            becomes(admin, group, ConsumerGroupType.CONSUMER)
        share(first)
        becomes(admin, group, ConsumerGroupType.CLASSIC)
        new = stack.enter_context(member(bootstrap, group, topic, **NEW))
        share(first, new)
        first.close()
        share(new)
        becomes(admin, group, ConsumerGroupType.CONSUMER)

    assert sorted(values(received)) == sorted(sent)
