"""The lag of groups against what their members read, and the ends of transactions."""

from contextlib import suppress
from typing import Literal

import pytest

from odradek.broker.testing import RunningBroker
from odradek.client.blocking import Admin, Consumer, Producer
from odradek.client.errors import OdradekError
from odradek.client.types import TopicPartition
from tests.broker.asks import create_topic
from tests.broker.metrics.scraping import Page, observed
from tests.broker.raw import RawClient

pytestmark = pytest.mark.slow

LAG = "kafka_consumergroup_lag"


class Undone(Exception):
    """Ends a transaction by an abort."""


def abort(producer: Producer, *values: bytes) -> None:
    with suppress(Undone), producer.transaction():
        for value in values:
            producer.send("t", value, partition=0).result()
        raise Undone


def commit(producer: Producer, *values: bytes) -> None:
    with producer.transaction():
        for value in values:
            producer.send("t", value, partition=0)


def read_all(broker: RunningBroker, group: str, count: int) -> None:
    """Read that many records as a member of a group, and commit."""
    with Consumer(broker.address, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        found = 0
        while found < count:
            found += len(consumer.poll(1_000))
        consumer.commit()
        assert found == count


def ended(page: Page, how: str) -> float:
    return page.value("odradek_txn_ended_total", how=how)


def test_a_group_that_has_read_everything_has_no_lag_behind_aborted_records() -> None:
    """Some clients stay behind the last record; ours go on to the end of the log."""
    labels = {"consumergroup": "g", "topic": "t"}
    with observed(metrics_partitions="true") as (broker, page), Admin(broker.address) as admin:
        admin.create_topic("t", partitions=1)
        with Producer(broker.address, transactional_id="teller") as producer:
            commit(producer, b"1", b"2")  # and a marker at 2
            abort(producer, b"3", b"4", b"5")  # and a marker at 6
            read_all(broker, "g", 2)
            assert page.value(LAG, **labels) == 0
            admin.set_group_offsets("g", {TopicPartition("t", 0): 2})
            assert page.value("kafka_consumergroup_current_offset", **labels) == 2
            assert page.value("kafka_topic_partition_current_offset", topic="t") == 7
            assert page.value(LAG, **labels) == 0
            assert page.value("kafka_consumergroup_lag_sum", **labels) == 0
            assert page.value("odradek_group_lag_seconds", **labels) == 0
            with producer.transaction():
                producer.send("t", b"6", partition=0).result()
                assert page.value(LAG, **labels) == 0, "nobody can read it yet"
            while page.value(LAG, **labels) == 0:
                pass
            assert page.value(LAG, **labels) == 8 - 2, "the record at 7, and what is before it"
            assert page.value("odradek_group_lag_seconds", **labels) > 0
        read_all(broker, "g", 1)
        assert page.value(LAG, **labels) == 0


def test_the_ends_of_transactions_are_counted_by_how_they_ended() -> None:
    with observed() as (broker, page):
        with Producer(broker.address, transactional_id="teller") as producer:
            for _ in range(3):
                commit(producer, b"1")
            abort(producer, b"2")
            while ended(page, "commit") < 3:
                pass
            with suppress(OdradekError), producer.transaction():  # which is fenced
                producer.send("t", b"3", partition=0).result()
                with Producer(broker.address, transactional_id="teller") as second:
                    commit(second, b"4")
            while ended(page, "commit") < 4:
                pass
        assert ended(page, "abort") == 1
        assert ended(page, "new instance") == 1
        assert page.value("odradek_txn_fences_total", cause="new instance") == 1
        assert page.value("odradek_txn_seconds_count") == 6
        assert page.value("odradek_txn_marker_seconds_count") == 6


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_rebalance_has_its_cause(protocol: Literal["classic", "consumer"]) -> None:
    with observed() as (broker, page):
        with RawClient(broker) as client:
            create_topic(client, "t")
        with Producer(broker.address) as producer:
            producer.send("t", b"1").result()
        with Consumer(
            broker.address, group_id="g", auto_offset_reset="earliest", group_protocol=protocol
        ) as consumer:
            consumer.subscribe("t")
            while not consumer.poll(1_000):
                pass
            assert page.value("kafka_consumergroup_members", consumergroup="g") == 1
            assert page.value("odradek_group_rebalances_total", cause="join") == 1
        while page.value("kafka_consumergroup_members", consumergroup="g"):
            pass
        assert page.value("odradek_group_rebalances_total", cause="leave") == 1
