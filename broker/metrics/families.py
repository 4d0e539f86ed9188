"""The metrics of one page: sources add samples to families, which keep their order.

A family is one of `prometheus_client`, made when it is first named. A family without a sample is on
the page, too, where its source declares it: a query for it then finds no series, and not a name
that is unknown.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from odradek.broker.values.histogram import Histogram

INFINITY: Final = "+Inf"


class Family:
    """The samples of one name. Whoever adds many of them asks for the family once."""

    __slots__ = ("_add_sample", "_name", "metric")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._add_sample = metric.add_sample
        self._name = f"{metric.name}_total" if metric.type == "counter" else metric.name

    def add(self, labels: dict[str, str], value: float) -> None:
        """Add a sample. Samples may share their labels, which are not changed."""
        self._add_sample(self._name, labels, value)


class Families:
    """The families of one scrape."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def collect(self) -> Iterator[Metric]:
        """Return all families, as `prometheus_client` wants to have it."""
        return (family.metric for family in self._families.values())

    def take(self, metrics: Sequence[Metric]) -> None:
        """Add whole families."""
        for metric in metrics:
            self._families[metric.name] = Family(metric)

    def gauge(self, name: str, about: str, value: float | None = None, **labels: str) -> Family:
        """Add a sample of what goes up and down. Without a value only the family is declared."""
        return self._with_sample(self._family(GaugeMetricFamily, name, about), value, labels)

    def counter(self, name: str, about: str, value: float | None = None, **labels: str) -> Family:
        """Add a sample of what only grows. On the page `_total` is added to `name`."""
        return self._with_sample(self._family(CounterMetricFamily, name, about), value, labels)

    def histogram(
        self,
        name: str,
        about: str,
        seconds: Histogram | None = None,
        **labels: str,
    ) -> None:
        """Add a histogram. Without one only the family is declared."""
        metric = self._family(HistogramMetricFamily, name, about).metric
        if seconds is None:
            return
        names = [*(f"{bound:g}" for bound in seconds.bounds), INFINITY]
        for bound, count in zip(names, accumulate(seconds.counts), strict=True):
            metric.add_sample(f"{name}_bucket", {**labels, "le": bound}, count)
        metric.add_sample(f"{name}_count", labels, seconds.count)
        metric.add_sample(f"{name}_sum", labels, seconds.sum_seconds)

    def _family(self, kind: Callable[[str, str], Metric], name: str, about: str) -> Family:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(kind(name, about))
        return family

    def _with_sample(self, family: Family, value: float | None, labels: dict[str, str]) -> Family:
        if value is not None:
            family.add(labels, value)
        return family
