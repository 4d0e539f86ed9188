"""The counters of a consumer. A fetch costs a few additions, a record none."""

from odradek.client.cluster.counting import ErrorCounts, Latencies


class ConsumerCounters:
    """The counted part of `ConsumerStatistics`."""

    def __init__(self) -> None:
        self.bytes_fetched = 0
        self.fetches = 0
        self.rebalances = 0
        self.polled_at: float | None = None
        self.errors = ErrorCounts()
        self.latencies = Latencies()

    def note_fetched(self, since: float, now: float) -> None:
        self.fetches += 1
        self.latencies.note(since, now)

    def note_rebalanced(self) -> None:
        self.rebalances += 1
