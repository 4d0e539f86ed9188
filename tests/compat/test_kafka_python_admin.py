"""kafka-python's administrator asks what transactions are doing, and ends one by hand."""

from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from kafka.admin import AbortTransactionSpec, KafkaAdminClient

from odradek.protocol.errors import ErrorCode
from tests.broker.api.conftest import HostAndPort
from tests.broker.api.producing import Writer, until
from tests.broker.asks import fetch
from tests.broker.raw import RawClient


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
