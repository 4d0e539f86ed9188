"""A real Prometheus for tests: Debian's package prometheus has it. CONTRIBUTING.md has more."""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.programs import running

DEPLOY: Final = Path(__file__).parents[2] / "scripts" / "deploy"
ALERTS: Final = DEPLOY / "prometheus" / "alerts.yml"
SECONDS: Final = 120.0

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus and promtool come with Debian's package prometheus",
)


def alerts() -> dict[str, str]:
    """Return the expression of each alert."""
    found = re.findall(r"- alert: (\w+)\n +expr: (.+)\n", ALERTS.read_text())
    assert len(found) == ALERTS.read_text().count("alert:")
    return dict(found)


class Prometheus:
    """A Prometheus that scrapes brokers each second."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **fields: str) -> Any:
        query = urllib.parse.urlencode(fields)
        with urllib.request.urlopen(f"{self._address}{path}?{query}", timeout=SECONDS) as answer:
            return json.load(answer)["data"]

    def labels_of(self, query: str) -> list[dict[str, str]]:
        """Return the labels of each series of a query's answer."""
        found = self.ask("/api/v1/query", query=query.replace("$__rate_interval", "1m"))["result"]
        return [each["metric"] for each in found]


@contextlib.contextmanager
def scraping(targets: Sequence[str], folder: Path, rules: Path = ALERTS) -> Iterator[Prometheus]:
    """Run a Prometheus with these rules, which scrapes all targets when the block begins."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "prometheus.yml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [
                    {"job_name": "odradek", "static_configs": [{"targets": [*targets]}]}
                ],
            }
        )
    )
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with running(command, stderr=subprocess.DEVNULL):
        prometheus = Prometheus(port)
        until = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(OSError):
                if len(prometheus.labels_of("up == 1")) == len(targets):
                    break
            assert time.monotonic() < until, "Prometheus did not start, or scrapes nothing"
            time.sleep(0.1)
        yield prometheus
