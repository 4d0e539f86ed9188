"""What a Prometheus and an orchestrator get from a running broker."""

import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.testing import BrokerDidNotStart, run_broker
from odradek.client.blocking import Producer
from tests.broker.asks import create_topic
from tests.broker.metrics.scraping import Page, observed
from tests.broker.raw import RawClient

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
OPEN_METRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


def test_both_formats_can_be_read_and_each_series_is_there_once() -> None:
    with observed() as (broker, page):
        with RawClient(broker) as client:
            create_topic(client, "t", partitions=3)
        for families, headers in (
            (text_string_to_metric_families, {}),
            (open_families, OPEN_METRICS),
        ):
            status, text = page.get("/metrics", **headers)
            assert status == 200
            series = [
                (sample.name, *sorted(sample.labels.items()))
                for family in families(text)
                for sample in family.samples
            ]
            assert len(series) == len(set(series)) > 40
        assert page.value("kafka_log_log_numlogsegments", topic="t") == 3


def test_partitions_have_series_of_their_own_only_if_that_is_set() -> None:
    with observed(metrics_partitions="true") as (broker, page):
        with RawClient(broker) as client:
            create_topic(client, "t", partitions=2)
        assert page.value("kafka_log_log_logendoffset", topic="t", partition="1") == 0
    with observed() as (broker, page):
        with RawClient(broker) as client:
            create_topic(client, "t", partitions=2)
        assert "partition=" not in page.get("/metrics")[1]


def test_a_data_directory_that_cannot_be_asked_takes_nothing_else_from_the_page(
    tmp_path: Path,
) -> None:
    config = {"metrics.listen": "127.0.0.1:0"}
    with run_broker(data_dir=tmp_path / "data", config=config) as broker:
        page = Page(broker)
        assert page.value("odradek_disk_free_bytes") > 0
        (tmp_path / "data").rename(tmp_path / "moved")
        assert page.get("/metrics")[0] == 200
        assert not page.values("odradek_disk_free_bytes")
        assert page.value("kafka_brokers") == 1
        (tmp_path / "moved").rename(tmp_path / "data")


def test_an_open_transaction_is_seen_until_its_end() -> None:
    with (
        observed() as (broker, page),
        Producer(broker.address, transactional_id="teller") as producer,
    ):
        assert page.value("odradek_txn_open", state="Ongoing") == 0
        with producer.transaction():
            producer.send("t", b"x").result()
            assert page.value("odradek_txn_open", state="Ongoing") == 1
            assert page.value("odradek_txn_oldest_open_seconds") > 0
            assert page.value("kafka_cluster_partition_laststableoffsetlag", topic="t") == 1
        while page.value("odradek_txn_open", state="PrepareCommit"):
            pass
        assert page.value("odradek_txn_open", state="Ongoing") == 0
        assert page.value("odradek_txn_oldest_open_seconds") == 0
        assert page.value("odradek_txn_ids") == 1


def test_a_broker_says_that_it_lives_and_is_ready_also_after_a_kill() -> None:
    with observed() as (broker, page):
        broker.kill()
        broker.start()
        page = Page(broker)
        while page.get("/ready")[0] != 200:  # its coordinators read their state
            pass
        assert page.get("/live") == (200, "live\n")
        assert '"offline_partitions": []' in page.get("/health")[1]


def test_a_header_that_prefers_what_is_no_version_gets_the_usual_format() -> None:
    """It was a bug in the broker, as the log said at each scrape."""
    with observed() as (_, page):
        status, text = page.get("/metrics", Accept="text/plain; version=latest")
        assert status == 200
        assert "\nodradek_build_info{" in text


def test_an_address_that_is_taken_or_none_is_one_sentence() -> None:
    with observed() as (_, page):
        taken = page.address.removeprefix("http://")
        with (
            pytest.raises(BrokerDidNotStart, match=r"metrics\.listen: .* cannot be listened on"),
            run_broker(config={"metrics.listen": taken}),
        ):
            pass
    with (
        pytest.raises(BrokerDidNotStart, match=r"metrics\.listen is HOST:PORT"),
        run_broker(config={"metrics.listen": "9100"}),
    ):
        pass


def test_the_page_of_the_documentation_has_the_names_of_all_metrics_and_no_others() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    names = re.findall(r"`((?:kafka|odradek)_\w+)(?:\{[\w,]*\})?`", text)
    settings = {"metrics_partitions": "true"}
    with observed(**settings) as (broker, page), RawClient(broker) as client:
        create_topic(client, "t", partitions=1)
        found = set()
        for family in text_string_to_metric_families(page.get("/metrics")[1]):
            is_counter = family.type == "counter"
            found.add(f"{family.name}_total" if is_counter else family.name)
    own = {name for name in found if name.startswith(("kafka_", "odradek_"))}
    assert own | {"odradek_groups"} == set(names)
