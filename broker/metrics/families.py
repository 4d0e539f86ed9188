"""The metrics of one page: sources add samples to families, which keep their order.

A family is one of `prometheus_client`, made when its first sample comes. A family without a sample
is on the page, too, where its source declares it: a query for it then finds no series, and not a
name that is unknown.
"""

from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from odradek.broker.values.histogram import Histogram

INFINITY = "+Inf"


class Families:
    """The families of one scrape."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def collect(self) -> list[Metric]:
        """Return all families, as `prometheus_client` wants to have it."""
        return [*self._families.values()]

    def take(self, families: Sequence[Metric]) -> None:
        """Add whole families."""
        for family in families:
            self._families[family.name] = family

    def gauge(self, name: str, about: str, value: float | None = None, **labels: str) -> None:
        """Add a sample of what goes up and down. Without a value only the family is declared."""
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = GaugeMetricFamily(name, about)
        if value is not None:
            family.add_sample(name, labels, value)

    def counter(self, name: str, about: str, value: float | None = None, **labels: str) -> None:
        """Add a sample of what only grows. On the page `_total` is added to `name`."""
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = CounterMetricFamily(name, about)
        if value is not None:
            family.add_sample(f"{name}_total", labels, value)

    def histogram(
        self,
        name: str,
        about: str,
        seconds: Histogram | None = None,
        **labels: str,
    ) -> None:
        """Add a histogram. Without one only the family is declared."""
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = HistogramMetricFamily(name, about)
        if seconds is None:
            return
        names = [*(f"{bound:g}" for bound in seconds.bounds), INFINITY]
        for bound, count in zip(names, accumulate(seconds.counts), strict=True):
            family.add_sample(f"{name}_bucket", {**labels, "le": bound}, count)
        family.add_sample(f"{name}_count", labels, seconds.count)
        family.add_sample(f"{name}_sum", labels, seconds.sum_seconds)
