"""Members of a group in plain threads."""

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.testing import run_broker
from odradek.client.blocking import Admin, Consumer, Producer, TopicPartition
from tests.client.live import WAIT_MS, name_of
from tests.client.stay_and_end import HOUR_MS, options_of, settings
from tests.stories.looking import eventually


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_broker(config=settings(HOUR_MS)) as broker:
        yield broker.address


@pytest.fixture
def topic(address: str) -> str:
    return make_topic(address)


def make_topic(address: str) -> str:
    topic = name_of("groups")
    with Admin(address) as admin:
        admin.create_topic(topic, partitions=4)
    return topic


@pytest.fixture(params=["consumer", "classic"])
def protocol(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def fill(address: str, topic: str, count: int) -> None:
    with Producer(address) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 4)


def test_callbacks_run_in_the_thread_that_polls_and_may_use_the_consumer(
    address: str, topic: str, protocol: str
) -> None:
    fill(address, topic, 40)
    told: list[tuple[str, int]] = []

    def note(what: str, partitions: list[TopicPartition]) -> None:
        assert threading.current_thread() is threading.main_thread()
        told.append((what, len(partitions)))

    def assigned(partitions: list[TopicPartition]) -> None:
        note("assigned", partitions)
        for partition in partitions:
            consumer.seek(partition, 5)

    def revoked(partitions: list[TopicPartition]) -> None:
        note("revoked", partitions)
        consumer.commit()

    with Consumer(address, **options_of(topic, protocol)) as consumer:
        consumer.subscribe([topic], on_assigned=assigned, on_revoked=revoked)
        records = consumer.poll(WAIT_MS)
        assert {record.offset for record in records} >= {5}
        assert told == [("assigned", 4)]
    assert told == [("assigned", 4), ("revoked", 4)]
    with Consumer(address, group_id=topic) as consumer:
        stored = consumer.committed([TopicPartition(topic, number) for number in range(4)])
        assert max(place.offset for place in stored.values()) > 5


def test_an_exception_of_a_callback_leaves_the_poll(address: str, topic: str) -> None:
    def fails(partitions: list[TopicPartition]) -> None:
        raise SystemExit(7)

    with Consumer(address, group_id=topic) as consumer:
        consumer.subscribe(topic, on_assigned=fails)
        with pytest.raises(SystemExit):
            next(iter(consumer))


def test_an_iteration_shares_its_partitions_and_every_record_is_read_once(
    address: str, topic: str, protocol: str
) -> None:
    """The second member joins in the middle of a run of records that the first has fetched."""
    fill(address, topic, 4_000)
    seen: list[int] = []
    lock = threading.Lock()
    is_half, may_go_on = threading.Event(), threading.Event()

    def iterate(waits: bool) -> None:
        options: dict[str, Any] = {
            **options_of(topic, protocol),
            "enable_auto_commit": True,
            "max_block_ms": WAIT_MS,
        }
        with Consumer(address, **options) as consumer:
            consumer.subscribe(topic)
            for record in consumer:
                with lock:
                    seen.append(int(record.value or b""))
                    count = len(seen)
                if count == 500 and waits:
                    is_half.set()
                    may_go_on.wait(WAIT_MS / 1000)
                if int(record.value or b"") >= 3_996:  # the last record of its partition
                    ended.add(record.partition)
                if len(ended) == 4:
                    break
                if len(consumer.assignment()) == 2:
                    may_go_on.set()

    ended: set[int] = set()
    first = threading.Thread(target=iterate, args=(True,))
    first.start()
    assert is_half.wait(WAIT_MS / 1000)
    with Consumer(address, **options_of(topic, protocol)) as second:
        second.subscribe(topic)
        second.poll(100)  # it asks to join, and waits for the first one
        may_go_on.set()
        while len(second.assignment()) < 2:
            second.poll(100, max_records=1)
    first.join(WAIT_MS / 1000)
    assert not first.is_alive()
    assert sorted(set(seen)) == list(range(4_000))
    assert len(seen) == 4_000


def test_a_child_process_closes_its_parents_member_without_a_trace(
    address: str, topic: str
) -> None:
    """It must not leave the group for its parent."""
    with Consumer(address, group_id=topic) as consumer:
        consumer.subscribe(topic)
        eventually(lambda: (consumer.poll(50), len(consumer.assignment()))[1], 4)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                consumer.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        consumer.commit()  # which needs the membership
