"""kafka-python's administrator asks what transactions are doing, and ends one by hand."""

from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from kafka.admin import AbortTransactionSpec, KafkaAdminClient

from odradek.client.blocking import Admin, Consumer, GroupLag, TopicPartition
from odradek.protocol.errors import ErrorCode
from tests.broker.api.conftest import HostAndPort
from tests.broker.api.producing import Writer, until
from tests.broker.asks import fetch
from tests.broker.raw import RawClient
from tests.client.live import name_of


@pytest.fixture
def writer(bootstrap: str) -> Iterator[Writer]:
    host, _, port = bootstrap.rpartition(":")
    with RawClient(HostAndPort(host, int(port)), client_id="worker-7") as client:
        yield Writer(client)


@pytest.fixture
def administrator(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def test_transactions_are_listed_and_described(writer: Writer, administrator: Any) -> None:
    writer.write()
    filters = {"state_filters": ["Ongoing"], "transactional_id_pattern": f"{writer.id[:-1]}."}
    (found,) = administrator.list_transactions(duration_filter_ms=0, **filters).values()
    assert [(t.transactional_id, t.producer_id) for t in found] == [(writer.id, writer.producer[0])]
    described = administrator.describe_transactions([writer.id])[writer.id]
    assert (described.producer_id, described.producer_epoch) == writer.producer
    assert described.transaction_timeout_ms == 60_000
    partitions = [(p.topic, p.partition) for p in described.topic_partitions]
    assert partitions == [(writer.topic, 0)]
    grace_ms = 5 * 60 * 1000  # it adds this to what it is told
    until(
        lambda: administrator.find_hanging_transactions(max_transaction_timeout_ms=1 - grace_ms),
        lambda hanging: writer.id in [each["transactional_id"] for each in hanging],
    )
    writer.end()


def test_a_partitions_producers_are_described_and_one_is_ended(
    writer: Writer, administrator: Any
) -> None:
    writer.write()
    where = kafka.TopicPartition(writer.topic, 0)
    (producer,) = administrator.describe_producers([where])[where].active_producers
    assert (producer.producer_id, producer.producer_epoch) == writer.producer
    assert producer.current_transaction_start_offset == 0
    spec = AbortTransactionSpec(where, producer.producer_id, producer.producer_epoch)
    administrator.abort_transaction(spec)
    answer = fetch(writer.client, writer.topic, 0, isolation_level=1)
    assert answer.error_code == ErrorCode.NONE
    assert [a.first_offset for a in answer.aborted_transactions] == [0]
    # The coordinator was not asked and does not know: the producer's own end is a second marker.
    assert writer.described().transaction_state == "Ongoing"
    writer.end()
    assert fetch(writer.client, writer.topic, 0, isolation_level=1).last_stable_offset == 3


def test_a_negative_offset_that_a_foreign_client_stored_is_none_to_ours(
    bootstrap: str, administrator: Any
) -> None:
    """Brokers store it, Kafka too. Our client asked for the group's offsets until its time-out."""
    topic, group = name_of("negative"), name_of("group")
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=1)
        where = kafka.TopicPartition(topic, 0)
        administrator.alter_group_offsets(group, {where: kafka.OffsetAndMetadata(-3, "", -1)})
        assert admin.committed(group) == {}
        assert admin.group_lag(group, [TopicPartition(topic, 0)]) == {
            TopicPartition(topic, 0): GroupLag(None, 0)
        }


def test_our_client_stores_no_negative_offset(bootstrap: str) -> None:
    where = TopicPartition(name_of("negative"), 0)
    with Admin(bootstrap) as admin, Consumer(bootstrap, group_id=name_of("group")) as consumer:
        with pytest.raises(ValueError, match=f"the offset of {where} is -3: it is negative"):
            consumer.commit({where: -3})
        with pytest.raises(ValueError, match="it is negative"):
            admin.set_group_offsets(name_of("group"), {where: -1})
