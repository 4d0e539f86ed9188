"""Each alert fires when its fault is made, and ends when it is healed, with a real Prometheus.

The rules are those of `scripts/deploy/`, with shorter times (`shortened`): nobody waits five
minutes for a transaction to be old. Their own times are tested by promtool (`test_prometheus.py`).
"""

import contextlib
import re
import time
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.faults import OF_ONE_BROKER, Fault
from tests.deploy.faults_of_cluster import OF_A_CLUSTER
from tests.deploy.prometheus import (
    ALERTS,
    SECONDS,
    Prometheus,
    alerts,
    needs_prometheus,
    scraping,
)

RANGE: Final = "15s"
LIMITS: Final = {
    "odradek_txn_oldest_open_seconds > 300": "odradek_txn_oldest_open_seconds > 3",
    "(odradek_group_lag_seconds) > 600": "(odradek_group_lag_seconds) > 3",
    "[5m]) > 100": "[5m]) > 3",
}


def shortened() -> str:
    """Return the rules with seconds where they have minutes. What they compare is the same."""
    text = ALERTS.read_text()
    for limit, shorter in LIMITS.items():
        assert text.count(limit) == 1, limit
        text = text.replace(limit, shorter)
    text = re.sub(r"\[\d+m\]", f"[{RANGE}]", text)
    return re.sub(r"for: \d+m", "for: 2s", text)


def test_each_alert_has_a_real_fault() -> None:
    assert sorted([*OF_ONE_BROKER, *OF_A_CLUSTER]) == sorted(alerts())


@needs_prometheus
@pytest.mark.minutes
@pytest.mark.parametrize("alert", OF_ONE_BROKER)
def test_an_alert_of_one_broker_fires_and_ends(alert: str, tmp_path: Path) -> None:
    play(alert, OF_ONE_BROKER[alert], tmp_path)


@needs_prometheus
@pytest.mark.minutes
@pytest.mark.peers
@pytest.mark.parametrize("alert", OF_A_CLUSTER)
def test_an_alert_of_a_cluster_fires_and_ends(alert: str, tmp_path: Path) -> None:
    play(alert, OF_A_CLUSTER[alert], tmp_path)


def play(alert: str, fault: Fault, folder: Path) -> None:
    """Make the fault and heal it, and wait for the alert each time."""
    rules = folder / "alerts.yml"
    rules.write_text(shortened())
    firing = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    with contextlib.closing(fault(folder)) as scenes:
        targets = next(scenes)
        with scraping(targets, folder, rules) as prometheus:
            wait_for(prometheus, firing, fires=False)
            next(scenes)
            wait_for(prometheus, firing, fires=True)
            next(scenes)
            wait_for(prometheus, firing, fires=False)


def wait_for(prometheus: Prometheus, firing: str, *, fires: bool) -> None:
    until = time.monotonic() + SECONDS
    while bool(prometheus.labels_of(firing)) is not fires:
        state = "does not fire" if fires else "fires"
        assert time.monotonic() < until, f"{firing} {state} after {SECONDS:g} s"
        time.sleep(0.2)
