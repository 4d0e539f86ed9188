"""scripts/deploy: the dashboard and the alerts, by a Prometheus that scrapes a broker under load.

Debian's package prometheus has the programs; CONTRIBUTING.md says how to get them. There is no
Grafana here: the queries of its panels are asked as it asks them.
"""

import contextlib
import json
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.testing import RunningBroker
from odradek.client.blocking import Admin, Consumer, Producer
from odradek.client.errors import OdradekError
from odradek.client.types import TopicPartition
from tests.broker.api.test_alter_client_quotas import altered
from tests.broker.asks import batch, produce
from tests.broker.metrics.scraping import observed
from tests.broker.raw import RawClient
from tests.deploy.prometheus import ALERTS, DEPLOY, SECONDS, alerts, needs_prometheus, scraping

ROOT: Final = Path(__file__).parents[2]
DASHBOARD: Final = DEPLOY / "grafana" / "dashboards" / "odradek.json"
OF_OTHERS: Final = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
NAME: Final = re.compile(r"\b((?:kafka|odradek|process)_\w+|up)\b(?=[{\[\s)]|$)")
PARTS: Final = re.compile(r"_(bucket|sum|count)$")


def panels() -> list[tuple[str, str, str]]:
    """Return the title, the query and the legend of each line of each panel."""
    dashboard = json.loads(DASHBOARD.read_text())
    return [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def test_all_names_of_the_dashboard_and_the_alerts_are_on_the_page_of_metrics() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    known = set(re.findall(r"`((?:kafka|odradek)_\w+)(?:\{[\w,]*\})?`", page)) | OF_OTHERS
    queries = [*(query for _, query, _ in panels()), *alerts().values()]
    for query in queries:
        names = NAME.findall(query)
        assert names, query
        assert not [name for name in names if not {name, PARTS.sub("", name)} & known], query


def test_panels_have_different_titles_and_do_not_cover_each_other() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert len(titles) == len(set(titles))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@needs_prometheus
@pytest.mark.parametrize("what", ["rules", "config"])
def test_promtool_finds_nothing_wrong(what: str) -> None:
    file = ALERTS if what == "rules" else ALERTS.with_name("prometheus.yml")
    done = subprocess.run(["promtool", "check", what, file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


GOOD_MINUTES, BAD_MINUTES = 20, 40
Series = tuple[str, float, float]
"""A series, and its value in good times and during a fault. That of a counter is per minute."""


def histogram(name: str) -> list[Series]:
    """Return the buckets of something that takes 0.1 s at most, and a second during a fault."""
    bounds = (("0.1", 0), ("1", 100), ("+Inf", 100))
    return [(f'{name}{{instance="b", le="{bound}"}}', 100, bad) for bound, bad in bounds]


FAULTS: Final[dict[str, list[Series]]] = {
    "OdradekBrokerDown": [('up{job="odradek", instance="b"}', 1, 0)],
    "OdradekNoController": [("kafka_controller_kafkacontroller_activecontrollercount", 1, 0)],
    "OdradekPartitionsWithoutLeader": [
        ("kafka_controller_kafkacontroller_offlinepartitionscount", 0, 2)
    ],
    "OdradekLogsOffline": [("odradek_partitions_offline", 0, 1)],
    "OdradekTooFewReplicas": [("kafka_server_replicamanager_underminisrpartitioncount", 0, 1)],
    "OdradekUnderReplicated": [("kafka_server_replicamanager_underreplicatedpartitions", 0, 3)],
    "OdradekUncleanElection": [
        ("kafka_controller_controllerstats_uncleanleaderelections_total", 0, 1)
    ],
    "OdradekDiskFull": [("odradek_disk_free_bytes", 50, 5), ("odradek_disk_bytes", 100, 100)],
    "OdradekLoopSlow": histogram("odradek_loop_lag_seconds_bucket"),
    "OdradekFsyncSlow": histogram("odradek_fsync_seconds_bucket"),
    "OdradekOldTransaction": [("odradek_txn_oldest_open_seconds", 0, 1_000)],
    "OdradekMarkersOwed": [("odradek_txn_markers_owed", 0, 2)],
    "OdradekGroupBehind": [('odradek_group_lag_seconds{consumergroup="g", topic="t"}', 3, 700)],
    "OdradekCertificateExpires": [
        ("odradek_tls_certificate_expiry_timestamp_seconds", 30 * 86_400, 86_400)
    ],
    "OdradekFailedLogins": [
        (
            'kafka_server_socket_server_metrics_failed_authentication_total{of="clients"}',
            0,
            50,
        )
    ],
}


def values(series: Series) -> str:
    """Return the samples of good times, a fault, and good times again, one for each minute."""
    name, good, bad = series
    each = [good] * GOOD_MINUTES + [bad] * BAD_MINUTES + [good] * 60
    if not ("_total" in name or "_bucket" in name):
        return " ".join(f"{value:g}" for value in each)
    total, sums = 0.0, []
    for value in each:
        total += value
        sums.append(f"{total:.0f}")
    return " ".join(sums)


@needs_prometheus
def test_each_alert_fires_during_its_fault_and_ends_after_it(tmp_path: Path) -> None:
    assert list(FAULTS) == list(alerts())
    moments = (
        (f"{GOOD_MINUTES - 1}m", False),
        (f"{GOOD_MINUTES + BAD_MINUTES - 1}m", True),
        (f"{GOOD_MINUTES + BAD_MINUTES + 50}m", False),
    )
    tests = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "name": alert,
                "interval": "1m",
                "input_series": [{"series": each[0], "values": values(each)} for each in fault],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})',
                        "eval_time": moment,
                        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                    }
                    for moment, fires in moments
                ],
            }
            for alert, fault in FAULTS.items()
        ],
    }
    file = tmp_path / "alerts_test.yml"
    file.write_text(json.dumps(tests))  # JSON is YAML, too
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


class Undone(Exception):
    """Ends a transaction by an abort."""


def fence(broker: RunningBroker) -> None:
    """Take over from the producer whose transaction is open."""
    with Producer(broker.address, transactional_id="teller") as second, second.transaction():
        second.send("t", b"4").result()


def load(broker: RunningBroker) -> None:
    """Do what the panels show: transactions of all ends, a group, a refusal, a quota."""
    with Admin(broker.address) as admin:
        admin.create_topic("t", partitions=2)
    with RawClient(broker) as client:
        produce(client, "t", b"")  # which is refused
        altered(client, (("client-id", "greedy"),), ("producer_byte_rate", 1_000.0))
    with RawClient(broker, client_id="greedy") as client:
        produce(client, "t", batch(b"a" * 20_000))
    with Producer(broker.address, transactional_id="teller") as producer:
        for _ in range(3):
            with producer.transaction():
                producer.send("t", b"1").result()
        with contextlib.suppress(Undone), producer.transaction():
            producer.send("t", b"2").result()
            raise Undone
        with contextlib.suppress(OdradekError), producer.transaction():
            producer.send("t", b"3").result()
            fence(broker)
    with Consumer(broker.address, group_id="g") as consumer:
        consumer.subscribe("t")
        while not consumer.poll(1_000):
            pass
        consumer.commit()
    with Admin(broker.address) as admin:
        admin.set_group_offsets("g", {TopicPartition("t", 0): 0})


@needs_prometheus
@pytest.mark.slow
def test_each_panel_shows_series_with_the_labels_of_its_legend(tmp_path: Path) -> None:
    with (
        observed() as (broker, page),
        scraping([page.address.removeprefix("http://")], tmp_path) as prometheus,
        Admin(broker.address) as open_client,
    ):
        load(broker)
        open_client.list_topics()
        until = time.monotonic() + SECONDS
        for title, query, legend in panels():
            wanted = set(re.findall(r"\{\{(\w+)\}\}", legend))
            while not (found := prometheus.labels_of(query)):
                assert time.monotonic() < until, f"{title}: {query} has no series"
                time.sleep(0.2)
            assert all(wanted <= labels.keys() for labels in found), (title, found)
        rules = prometheus.ask("/api/v1/rules", type="alert")["groups"][0]["rules"]
        assert {rule["name"]: rule["health"] for rule in rules} == dict.fromkeys(alerts(), "ok")


@needs_prometheus
@pytest.mark.slow
def test_the_alert_of_a_broker_that_was_killed_is_pending_and_ends_when_it_is_back(
    tmp_path: Path,
) -> None:
    down = 'ALERTS{alertname="OdradekBrokerDown"}'
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        observed(metrics_listen=listen) as (broker, _),
        scraping([listen], tmp_path) as prometheus,
    ):
        broker.kill()
        until = time.monotonic() + SECONDS
        while not prometheus.labels_of(down):
            assert time.monotonic() < until
            time.sleep(0.2)
        broker.start()
        while prometheus.labels_of(down):
            assert time.monotonic() < until
            time.sleep(0.2)
