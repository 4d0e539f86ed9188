"""The metrics of one page: sources add samples to families, which keep their order.

A sample becomes its line of text at once: no object is made for it. A family without a sample is on
the page, too, where its source declares it: a query for it then finds no series, and not a name
that is unknown.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.metrics_core import Metric

from odradek.broker.environment.turns import Turns
from odradek.broker.values.histogram import Histogram

INFINITY: Final = "+Inf"
GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"
LINES_PER_STEP: Final = 50
"""The lines that are joined in the time of one step."""


class Family:
    """The samples of one name, as lines of text."""

    __slots__ = ("_about", "_kind", "_name", "_of_samples", "lines")

    def __init__(self, name: str, about: str, kind: str) -> None:
        self._name = name
        self._about = about
        self._kind = kind
        self._of_samples = f"{name}_total" if kind == COUNTER else name
        self.lines: list[str] = []

    def add(self, labels: str, value: float) -> None:
        """Add a sample. `labels` are those that `text_of` returns."""
        self.lines.append(f"{self._of_samples}{labels} {value}\n")

    def add_histogram(self, labels: dict[str, str], seconds: Histogram) -> None:
        """Add the samples of a histogram."""
        names = [*(f"{bound:g}" for bound in seconds.bounds), INFINITY]
        for bound, count in zip(names, accumulate(seconds.counts), strict=True):
            of_bucket = text_of(**labels, le=bound)
            self.lines.append(f"{self._name}_bucket{of_bucket} {count}\n")
        text = text_of(**labels)
        self.lines.append(f"{self._name}_count{text} {seconds.count}\n")
        self.lines.append(f"{self._name}_sum{text} {seconds.sum_seconds}\n")

    def text(self, *, is_open: bool) -> str:
        """Return the family in the format of OpenMetrics, or in that of Prometheus."""
        name = self._name if is_open else self._of_samples
        head = f"# HELP {name} {self._about}\n# TYPE {name} {self._kind}\n"
        return head + "".join(self.lines)


class Families:
    """The families of one scrape."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    async def text(self, turns: Turns, *, is_open: bool) -> bytes:
        """Return the page in the format of OpenMetrics, or in that of Prometheus."""
        parts = []
        for family in self._families.values():
            await turns.take(1 + len(family.lines) // LINES_PER_STEP)
            parts.append(family.text(is_open=is_open).encode())
        if is_open:
            parts.append(b"# EOF\n")
        return b"".join(parts)

    def take(self, metrics: Sequence[Metric]) -> None:
        """Add gauges and counters of `prometheus_client`."""
        for metric in metrics:
            family = self._family(metric.name, metric.documentation, metric.type)
            for sample in metric.samples:
                family.add(text_of(**sample.labels), sample.value)

    def gauge(self, name: str, about: str, value: float | None = None, **labels: str) -> Family:
        """Add a sample of what goes up and down. Without a value only the family is declared."""
        return self._with_sample(self._family(name, about, GAUGE), value, labels)

    def counter(self, name: str, about: str, value: float | None = None, **labels: str) -> Family:
        """Add a sample of what only grows. On the page `_total` is added to `name`."""
        return self._with_sample(self._family(name, about, COUNTER), value, labels)

    def histogram(
        self,
        name: str,
        about: str,
        seconds: Histogram | None = None,
        **labels: str,
    ) -> None:
        """Add a histogram. Without one only the family is declared."""
        family = self._family(name, about, HISTOGRAM)
        if seconds is not None:
            family.add_histogram(labels, seconds)

    def _family(self, name: str, about: str, kind: str) -> Family:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, about, kind)
        return family

    def _with_sample(self, family: Family, value: float | None, labels: dict[str, str]) -> Family:
        if value is not None:
            family.add(text_of(**labels), value)
        return family


def text_of(**labels: str) -> str:
    """Return labels as they stand behind a name, in the order of their names."""
    if not labels:
        return ""
    inside = ",".join([f'{name}="{_to_text(labels[name])}"' for name in sorted(labels)])
    return f"{{{inside}}}"


def _to_text(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
