"""The counters of a producer. An event costs an addition or two for each batch, not each record."""

from odradek.client.cluster.counting import ErrorCounts, Latencies


class ProducerCounters:
    """The counted part of `ProducerStatistics`."""

    def __init__(self) -> None:
        self.records_sent = 0
        self.bytes_sent = 0
        self.batches_sent = 0
        self.records_failed = 0
        self.retries = 0
        self.errors = ErrorCounts()
        self.deliveries = Latencies()
        self.requests = Latencies()
