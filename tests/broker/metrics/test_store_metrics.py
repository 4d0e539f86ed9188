"""The disk, the metadata store and the loop of a running broker."""

import pytest

from tests.broker.asks import batch, create_topic, produce
from tests.broker.metrics.scraping import observed
from tests.broker.raw import RawClient

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("flush", ["ack", "journal"])
def test_each_acknowledged_batch_has_waited_for_an_fsync(flush: str) -> None:
    with observed(log_flush=flush) as (broker, page), RawClient(broker) as client:
        create_topic(client, "t")
        before = page.value("odradek_fsync_seconds_count")
        for _ in range(5):
            produce(client, "t", batch(b"a"))
        assert page.value("odradek_fsync_seconds_count") >= before + 5


def test_a_broker_without_an_etcd_writes_to_its_store_and_is_never_behind_it() -> None:
    with observed() as (broker, page), RawClient(broker) as client:
        before = page.value("odradek_metastore_seconds_count", op="txn")
        create_topic(client, "t")
        assert page.value("odradek_metastore_seconds_count", op="txn") > before
        assert page.value("odradek_metastore_watch_age_seconds") == 0
        assert 0 < page.value("odradek_loop_busy_ratio") <= 1
