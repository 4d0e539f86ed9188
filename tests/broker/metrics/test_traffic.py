"""What clients write and read is counted, to the record and the byte."""

import pytest

from odradek.protocol.errors import ErrorCode
from tests.broker.asks import batch, create_topic, fetch, produce
from tests.broker.metrics.scraping import Page, observed
from tests.broker.raw import RawClient

pytestmark = pytest.mark.slow

NAMES = ("messagesin", "bytesin", "bytesout", "totalproducerequests", "totalfetchrequests")
FAILED = ("failedproducerequests", "failedfetchrequests")


def counts(page: Page, topic: str, *names: str) -> list[float]:
    prefix = "kafka_server_brokertopicmetrics_"
    return [page.value(f"{prefix}{name}_total", topic=topic) for name in names]


def test_a_batch_and_a_read_of_it_count_for_their_topic_and_no_other() -> None:
    with observed() as (broker, page), RawClient(broker) as client:
        for topic in ("t", "other"):
            create_topic(client, topic)
        sent = batch(b"a", b"b", b"c")
        assert produce(client, "t", sent).error_code == ErrorCode.NONE
        assert counts(page, "t", *NAMES) == [3, len(sent), 0, 1, 0]
        assert len(fetch(client, "t", 0).records) == len(sent)
        assert not fetch(client, "t", 3, max_wait_ms=10).records
        assert counts(page, "t", *NAMES) == [3, len(sent), len(sent), 1, 2]
        assert counts(page, "t", *FAILED) == [0, 0]
        assert counts(page, "other", *NAMES, *FAILED) == [0] * 7


def test_a_refusal_counts_unless_the_client_repeats_the_request_elsewhere() -> None:
    with observed() as (broker, page), RawClient(broker) as client:
        create_topic(client, "t")
        assert produce(client, "t", b"").error_code == ErrorCode.INVALID_RECORD
        broken = batch(b"a")
        broken[-1] ^= 1
        assert produce(client, "t", broken).error_code == ErrorCode.CORRUPT_MESSAGE
        assert fetch(client, "t", 7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert fetch(client, "no-topic", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert counts(page, "t", *NAMES) == [0, 0, 0, 2, 1]
        assert counts(page, "t", *FAILED) == [1, 0]
        assert "no-topic" not in page.get("/metrics")[1], "a client does not make series"
