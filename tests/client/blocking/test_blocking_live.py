"""The client without an event loop, on a real broker: ours, and with --peers Apache Kafka."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from typing import Any

import pytest

from odradek.client.blocking import (
    Aborted,
    Admin,
    Closed,
    Consumer,
    ConsumerRecord,
    Delivery,
    Fenced,
    Producer,
    Refused,
    TimedOut,
    TopicPartition,
)
from odradek.protocol.record import Record, encode_batch
from tests.client.live import WAIT_MS, name_of


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = name_of("topic")
    with Admin(bootstrap) as admin:
        admin.create_topic(name, partitions=2)
    return name


def read(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    with Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        deadline = time.monotonic() + WAIT_MS / 1000
        while len(records) < count and time.monotonic() < deadline:
            records += consumer.poll(500)
    return records


def readable(bootstrap: str, place: TopicPartition, end: int) -> list[ConsumerRecord]:
    """What readers of committed records see before `end`, once all of that is decided."""
    records: list[ConsumerRecord] = []
    with Consumer(bootstrap) as consumer:
        consumer.assign([place])
        deadline = time.monotonic() + WAIT_MS / 1000
        while consumer.position(place) < end:
            assert time.monotonic() < deadline, "it stays undecided"
            records += consumer.poll(500)
    return records


def test_records_go_and_come_back(bootstrap: str, topic: str) -> None:
    told: list[int] = []
    with Producer(bootstrap) as producer:
        deliveries = [
            producer.send(topic, b"%d" % number, partition=0, headers=[("n", b"x")])
            for number in range(30_000)
        ]
        producer.send(
            topic,
            b"last",
            partition=0,
            on_delivery=lambda metadata, _: told.append(metadata.offset if metadata else -1),
        )
        assert deliveries[5].result().offset == 5
        assert deliveries[-2].result(float("inf")).offset == 29_998
        assert deliveries[-1].result(WAIT_MS).offset == 29_999
        producer.flush()
        assert all(delivery.is_done for delivery in deliveries)
    assert told == [30_000]
    records = read(bootstrap, topic, 30_001)
    assert [record.offset for record in records] == list(range(30_001))


def test_send_and_wait_returns_where_the_record_is(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        sent = producer.send_and_wait(topic, b"x", partition=1)
    assert (sent.topic, sent.partition, sent.offset) == (topic, 1, 0)


def test_transactions(bootstrap: str, topic: str) -> None:
    place, group = TopicPartition(topic, 0), name_of("group")
    with Producer(bootstrap, transactional_id=name_of("id")) as producer:
        with pytest.raises(Refused, match="no transaction"):
            producer.send(topic, b"outside")
        with producer.transaction() as transaction:
            for number in range(100):
                transaction.send(topic, b"%d" % number, partition=0)
            transaction.send_offsets({place: 4}, group)
        assert transaction.state == "committed"
        with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:
            transaction.send(topic, b"aborted", partition=0).result()
            raise ZeroDivisionError
        assert "aborted" in repr(transaction)
        ended = transaction
        with producer.transaction() as transaction:
            encoded = encode_batch([Record(None, b"x"), Record(None, b"y")])
            transaction.send_batch(topic, 1, encoded)
            with pytest.raises(Refused, match="begin another one"):
                ended.send(topic, b"into another one")
            with pytest.raises(Refused, match="begin another one"):
                ended.send_batch(topic, 1, encoded)
    values = [record.value or b"" for record in read(bootstrap, topic, 102)]
    assert sorted(values) == sorted([*(b"%d" % number for number in range(100)), b"x", b"y"])
    with Consumer(bootstrap, group_id=group) as consumer:
        assert consumer.committed([place])[place].offset == 4


def test_a_record_that_cannot_be_sent_makes_the_commit_impossible(
    bootstrap: str, topic: str
) -> None:
    options = {"transactional_id": name_of("id"), "max_block_ms": WAIT_MS}
    with Producer(bootstrap, **options) as producer:  # type: ignore[arg-type]
        with pytest.raises(Refused, match="not one of them"), producer.transaction() as transaction:
            transaction.send(topic, b"good", partition=0)
            transaction.send(topic, b"bad", partition=7)
        with producer.transaction() as transaction:
            transaction.send(topic, b"after", partition=0)
    assert [record.value for record in read(bootstrap, topic, 1)] == [b"after"]


@pytest.mark.parametrize("wrong", [{"value": "text"}, {"topic": b"bytes"}, {"topic": "\ud800"}])
def test_a_record_that_is_none_harms_nothing_but_its_own_delivery(
    bootstrap: str, topic: str, wrong: dict[str, Any]
) -> None:
    with Producer(bootstrap, max_block_ms=WAIT_MS) as producer:
        bad = producer.send(**{"topic": topic, "value": b"a", "partition": 0, **wrong})
        with pytest.raises(Refused):
            bad.result(WAIT_MS)
        producer.flush()  # does not raise it again: its delivery was read
        assert producer.send(topic, b"after", partition=0).result(WAIT_MS).offset == 0


def test_a_zombie_is_fenced(bootstrap: str, topic: str) -> None:
    transactional_id = name_of("id")
    with (
        Producer(bootstrap, transactional_id=transactional_id) as zombie,
        pytest.raises(Fenced),
        zombie.transaction() as transaction,
    ):
        transaction.send(topic, b"zombie", partition=0).result()
        with Producer(bootstrap, transactional_id=transactional_id):
            pass
    with Admin(bootstrap) as admin:
        place = TopicPartition(topic, 0)
        (end,) = admin.list_offsets({place: "latest"}, isolation_level="read_uncommitted").values()
    assert end.offset > 0
    assert readable(bootstrap, place, end.offset) == []


def test_iteration_and_its_position(bootstrap: str, topic: str) -> None:
    place, group = TopicPartition(topic, 0), name_of("group")
    with Producer(bootstrap) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=0)
    with Consumer(bootstrap, group_id=group) as consumer:
        consumer.assign([place])
        for record in consumer:
            assert consumer.position(place) == record.offset + 1
            assert consumer.positions() == {place: record.offset + 1}
            if record.offset == 6:
                break
        consumer.commit()
        assert consumer.committed([place])[place].offset == 7
        assert [record.offset for record in consumer.poll(WAIT_MS)] == list(range(7, 20))
        consumer.seek(place, 18)
        assert next(iter(consumer)).offset == 18
        consumer.pause(place)
        consumer.resume(place)
        assert next(iter(consumer)).offset == 19


def test_objects_are_made_anew_after_a_fork(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send(topic, b"parent", partition=0).result()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.raises(Closed, match="fork"):
                    producer.flush()
                with Producer(bootstrap) as own:
                    own.send(topic, b"child", partition=0).result(WAIT_MS)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        producer.send(topic, b"parent again", partition=0).result()
    values = [record.value for record in read(bootstrap, topic, 3)]
    assert values == [b"parent", b"child", b"parent again"]


def test_bytes_that_change_after_send_are_sent_as_they_were(bootstrap: str, topic: str) -> None:
    """A program, or its serializer, that used one buffer again sent the last record many times."""
    buffer: Any = bytearray(6)
    key: Any = bytearray(6)
    headers: list[tuple[str, bytes | None]] = []
    with Producer(bootstrap, value_serializer=lambda _: buffer) as producer:
        for number in range(100):
            buffer[:] = key[:] = b"%06d" % number
            headers[:] = [("name", key)]
            producer.send(topic, b"", key=key, headers=headers, partition=0)
    records = read(bootstrap, topic, 100)
    sent = [b"%06d" % number for number in range(100)]
    assert [record.value for record in records] == sent
    assert [record.key for record in records] == sent
    assert [record.headers for record in records] == [(("name", each),) for each in sent]


def test_several_threads_share_a_producer(bootstrap: str, topic: str) -> None:
    deliveries: list[Delivery] = []

    def send(producer: Producer, name: int) -> None:
        for number in range(500):
            deliveries.append(producer.send(topic, b"%d-%d" % (name, number), partition=0))

    with Producer(bootstrap) as producer:
        threads = [threading.Thread(target=send, args=(producer, name)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({delivery.result().offset for delivery in deliveries}) == 2_000
    # However many objects there were before, all of them live in one thread.
    assert [thread.name for thread in threading.enumerate()].count("odradek-client") == 1


# A shell's background job has Ctrl-C ignored from the start, and so has what this process starts.
INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from odradek.client.blocking import Consumer, Producer
bootstrap, topic, transactional_id = sys.argv[1:]
with Producer(bootstrap, transactional_id=transactional_id) as producer:
    with Consumer(bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        with producer.transaction() as transaction:
            transaction.send(topic, b"interrupted", partition=1).result()
            print("waiting", flush=True)
            consumer.poll(24 * 3600 * 1000)
"""


def test_ctrl_c_interrupts_a_call_and_aborts_the_transaction(bootstrap: str, topic: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, bootstrap, topic, name_of("id")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stdout, process.stderr:
        try:
            assert process.stdout.readline() == b"waiting\n"
            process.send_signal(signal.SIGINT)
            process.wait(timeout=WAIT_MS / 1000)  # the poll that it interrupts takes a day
            assert b"KeyboardInterrupt" in process.stderr.read()
        finally:
            process.kill()
    assert readable(bootstrap, TopicPartition(topic, 1), 2) == []  # a record, its abort's marker


def test_wrong_options_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Producer("nowhere")
    with pytest.raises(ValueError, match="isolation_level"):
        Consumer("127.0.0.1:9092", isolation_level="serializable")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="lingerms"):
        Producer("127.0.0.1:9092", lingerms=3)  # type: ignore[call-arg]


def test_a_closed_object_says_so(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.list_topics()
    with pytest.raises(Closed):
        admin.list_topics()


def test_nobody_there_is_told_in_time() -> None:
    with (
        pytest.raises(TimedOut, match=r"127\.0\.0\.1:1"),
        Producer("127.0.0.1:1", max_block_ms=300) as producer,
    ):
        producer.send("t", b"x").result()


def test_a_dropped_record_of_an_aborted_transaction_says_so(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=name_of("id"), linger_ms=60_000) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:
            delivery = transaction.send(topic, b"a", partition=0)
            raise ZeroDivisionError
        with pytest.raises(Aborted):
            delivery.result()


def test_a_repr_tells_what_waits(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap)
    assert "not used yet" in repr(producer)
    with producer:
        producer.send(topic, b"a").result()
        assert "0 bytes to be acknowledged, 0 records queued" in repr(producer)


def test_without_a_with_block_close_ends_it(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap)
    producer.send(topic, b"a", partition=0)
    producer.close()
    producer.close()
    assert [record.value for record in read(bootstrap, topic, 1)] == [b"a"]
    with pytest.raises(Closed):
        producer.send(topic, b"b")
