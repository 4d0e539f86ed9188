"""What the page says is what clients have counted, also over a kill of the broker."""

import time

import pytest

from odradek.client.administration.descriptions import TransactionDescription
from odradek.client.blocking import Admin, Consumer, Producer
from odradek.client.types import TopicPartition
from odradek.protocol.batch import iter_batches
from tests.broker.asks import fetch
from tests.broker.metrics.scraping import Page, observed
from tests.broker.raw import RawClient

pytestmark = pytest.mark.slow

TRAFFIC = "kafka_server_brokertopicmetrics_"
PARTITIONS = 3


def send(producer: Producer, count: int) -> None:
    """Send records to all partitions, and wait until they are acknowledged."""
    waiting = [
        producer.send("t", b"%d" % number, partition=number % PARTITIONS) for number in range(count)
    ]
    for each in waiting:
        each.result()


def whole(page: Page, name: str) -> float:
    return page.total(name, topic="t")


def test_records_and_bytes_are_those_of_the_clients_before_and_after_a_kill() -> None:
    with observed(metrics_partitions="true") as (broker, page):
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=PARTITIONS)
        with Producer(broker.address) as producer:
            send(producer, 1_000)
            assert whole(page, f"{TRAFFIC}messagesin_total") == 1_000
            size_bytes = whole(page, "kafka_log_log_size")
            assert whole(page, f"{TRAFFIC}bytesin_total") == size_bytes
            broker.kill()
            broker.start()
            page = Page(broker)
            assert whole(page, "kafka_log_log_logendoffset") == 1_000
            assert whole(page, f"{TRAFFIC}messagesin_total") == 0, "a start counts from 0"
            send(producer, 700)
        assert whole(page, f"{TRAFFIC}messagesin_total") == 700
        assert whole(page, "kafka_log_log_logendoffset") == 1_700
        now_bytes = whole(page, "kafka_log_log_size")
        assert whole(page, f"{TRAFFIC}bytesin_total") == now_bytes - size_bytes
        read_bytes = 0
        with RawClient(broker) as client:
            for partition in range(PARTITIONS):
                at, end = 0, 0
                while at < 1_700 // PARTITIONS:
                    records = fetch(client, "t", at, partition=partition).records
                    read_bytes += len(records)
                    *_, (last, _) = iter_batches(records)
                    at = end = last.next_offset
                assert end >= 1_700 // PARTITIONS
        assert read_bytes == now_bytes
        assert whole(page, f"{TRAFFIC}bytesout_total") == read_bytes


def test_the_lag_is_the_number_of_records_that_a_reader_then_gets() -> None:
    with observed() as (broker, page):
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=PARTITIONS)
            with Producer(broker.address) as producer:
                send(producer, 1_000)
            stored = {TopicPartition("t", 0): 17, TopicPartition("t", 1): 0}
            admin.set_group_offsets("g", {**stored, TopicPartition("t", 2): 300})
        lag = page.value("kafka_consumergroup_lag_sum", consumergroup="g", topic="t")
        count = 0
        with Consumer(broker.address, group_id="g") as consumer:
            consumer.subscribe("t")
            while count < lag:
                count += len(consumer.poll(1_000))
            assert not consumer.poll(200)
            consumer.commit()
        assert count == lag == 1_000 - 17 - 300
        assert page.value("kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 0


def test_the_oldest_transaction_is_that_of_the_coordinator() -> None:
    with observed() as (broker, page), Admin(broker.address) as admin:
        admin.create_topic("t", partitions=PARTITIONS)
        with (
            Producer(broker.address, transactional_id="first") as first,
            Producer(broker.address, transactional_id="second") as second,
            first.transaction(),
        ):
            first.send("t", b"1").result()
            with second.transaction():
                second.send("t", b"2").result()
                oldest_ms = min(
                    found.started_ms
                    for found in admin.describe_transactions("first", "second").values()
                    if isinstance(found, TransactionDescription) and found.started_ms is not None
                )
                before = time.time()
                age = page.value("odradek_txn_oldest_open_seconds")
                after = time.time()
                # Both clocks are this machine's, and times of records have milliseconds.
                assert before - oldest_ms / 1000 - 0.002 <= age <= after - oldest_ms / 1000 + 0.002
