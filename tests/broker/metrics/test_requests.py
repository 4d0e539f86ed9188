"""Requests are counted one by one, whatever part of the broker has served them."""

import pytest

from odradek.broker.testing import run_broker
from odradek.protocol.apis.fetch import FETCH
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.errors import ErrorCode
from tests.broker.api.test_alter_client_quotas import altered
from tests.broker.asks import BY_NAME, batch, create_topic, fetch, produce, produce_request
from tests.broker.metrics.scraping import Page, observed
from tests.broker.raw import RawClient

pytestmark = pytest.mark.slow

REQUESTS = "kafka_network_requestmetrics_requests_total"
ERRORS = "kafka_network_requestmetrics_errors_total"
WAITS = "odradek_request_wait_seconds"


@pytest.mark.parametrize("without_lane", ["", "1"])
def test_each_request_counts_once_in_the_lane_and_without_it(without_lane: str) -> None:
    environment = {"ODRADEK_WITHOUT_LANE": without_lane} if without_lane else {}
    config = {"metrics.listen": "127.0.0.1:0"}
    with run_broker(config=config, environment=environment) as broker:
        page = Page(broker)
        with RawClient(broker) as client:
            create_topic(client, "t", partitions=2)
            for _ in range(20):
                assert produce(client, "t", batch(b"a")).error_code == ErrorCode.NONE
            for acks in (1, -1):
                produce(client, "t", batch(b"a"), acks=acks, partition=1)
            client.request(PRODUCE, BY_NAME, produce_request("t", batch(b"a"), acks=0))
            assert produce(client, "t", b"").error_code == ErrorCode.INVALID_RECORD
            assert fetch(client, "t", 0).records
        of = {"of": "clients"}
        assert page.value(REQUESTS, request=PRODUCE.name, **of) == 24
        assert page.value(ERRORS, request=PRODUCE.name, **of) == 1
        assert page.value("odradek_request_seconds_count", request=PRODUCE.name, **of) == 24
        assert page.value(REQUESTS, request=FETCH.name, **of) == 1
        assert page.value(ERRORS, request=FETCH.name, **of) == 0
        assert page.value(f"{WAITS}_count", cause="flush", **of) == 22


def test_a_fetch_that_finds_nothing_has_waited_for_records() -> None:
    with observed() as (broker, page), RawClient(broker) as client:
        create_topic(client, "t")
        assert page.value(f"{WAITS}_count", cause="poll", of="clients") == 0
        assert not fetch(client, "t", 0, max_wait_ms=200).records
        assert page.value(f"{WAITS}_count", cause="poll", of="clients") == 1
        assert page.value(f"{WAITS}_sum", cause="poll", of="clients") > 0
        assert page.value("odradek_request_seconds_sum", request=FETCH.name, of="clients") >= 0.2


def test_a_client_over_its_quota_is_seen_to_wait() -> None:
    with observed() as (broker, page), RawClient(broker) as client:
        create_topic(client, "t")
        altered(client, (("client-id", None),), ("producer_byte_rate", 2_000.0))
        produce(client, "t", batch(b"a" * 30_000))
        produce(client, "t", batch(b"a"))
        assert page.value(f"{WAITS}_count", cause="throttle", of="clients") == 1
