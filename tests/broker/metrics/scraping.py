"""The listener of metrics of a broker process, as a Prometheus asks it."""

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.metrics.families import Families
from odradek.broker.testing import RunningBroker, run_broker
from tests.broker.raw import PATIENCE_SECONDS

AT = re.compile(r"metrics are at (http://[^/]+)/metrics")


class Scrape:
    """The samples of one answer of `/metrics`."""

    def __init__(self, text: str) -> None:
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def value(self, name: str, **labels: str) -> float:
        """Return the sample of that name with these labels, among others."""
        found = self.values(name, **labels)
        assert len(found) == 1, (name, labels, found)
        return found[0]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of all samples of that name with these labels, of which there are some."""
        found = self.values(name, **labels)
        assert found, (name, labels)
        return sum(found)

    def values(self, name: str, **labels: str) -> list[float]:
        """Return all samples of that name with these labels, among others."""
        return [
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]


def scraped(families: Families) -> Scrape:
    """Return the samples of families that no broker has served."""
    return Scrape(generate_latest(families).decode())


class Page:
    """The listener of metrics of a broker."""

    def __init__(self, broker: RunningBroker) -> None:
        found = AT.search(broker.log)
        assert found is not None, broker.log
        self.address = found[1]

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(f"{self.address}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def scrape(self) -> Scrape:
        """Return all samples as they are now."""
        return Scrape(self.get("/metrics")[1])

    def value(self, name: str, **labels: str) -> float:
        """Return the same as `Scrape.value`, of a scrape of its own. So do the next two."""
        return self.scrape().value(name, **labels)

    def total(self, name: str, **labels: str) -> float:
        return self.scrape().total(name, **labels)

    def values(self, name: str, **labels: str) -> list[float]:
        return self.scrape().values(name, **labels)


@contextmanager
def observed(**config: str) -> Iterator[tuple[RunningBroker, Page]]:
    settings = {name.replace("_", "."): text for name, text in config.items()}
    with run_broker(config={"metrics.listen": "127.0.0.1:0", **settings}) as broker:
        yield broker, Page(broker)
