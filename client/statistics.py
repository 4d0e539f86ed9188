"""Statistics of producers and consumers: `producer.statistics()`, `consumer.statistics()`.

Numbers that count events go on from the opening of the client; a program that wants rates takes the
difference of two of them. Others say what is so now. Times are milliseconds, sizes bytes.
"""

from collections.abc import Callable, Mapping

from odradek.client.types import TopicPartition
from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyStatistics:
    """Durations of the last minute, of the last 1,000 of them if there were more."""

    count: int
    """How many durations the others are of."""
    p50_ms: float | None
    """The median; None if there was no duration."""
    p99_ms: float | None
    max_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStatistics:
    """The connection to a broker for one purpose."""

    node_id: int
    """The id of the broker; a negative number stands for an address of `bootstrap`."""
    address: str
    """`host:port`."""
    purpose: str
    """"produce", "fetch", or "" for everything else."""
    state: str
    """"open", "connecting", "silent" (open, and a request has waited for a second), "closed"."""
    in_flight: int
    """The requests that wait for their answer."""
    opened: int
    """How often it was opened: more than once after it was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStatistics:
    """The counters of a producer, and its state now."""

    client_id: str
    transactional_id: str | None
    time_ms: int
    """When this was counted, since 1970."""
    records_sent: int
    """Records that are stored; with acks=0, those that were handed to the network."""
    bytes_sent: int
    """The bytes of their batches, compressed, with headers."""
    batches_sent: int
    records_failed: int
    """Records that were given up with an error."""
    records_waiting: int
    """Records that were given to `send` and have no outcome yet."""
    bytes_waiting: int
    """Their bytes in the buffer (`buffer_bytes`)."""
    batches_in_flight: int
    retries: int
    """Batches that were put back to be sent again."""
    errors: Mapping[str, int]
    """Failed attempts of batches, by Kafka's name of the error code, or the exception's name."""
    delivery: LatencyStatistics
    """From the first record of a batch until it is stored, with `linger_ms` and retries."""
    requests: LatencyStatistics
    """From a Produce request until its answer."""
    connections: tuple[ConnectionStatistics, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatistics:
    """A partition that a consumer reads."""

    position: int | None
    """The offset that is read next; None until it was looked up."""
    lag: int | None
    """As in `Consumer.lags`; None until a fetch was answered."""
    bytes_waiting: int
    """What was fetched of it, and not read yet."""
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatistics:
    """The counters of a consumer, and its state now."""

    client_id: str
    group_id: str | None
    time_ms: int
    """When this was counted, since 1970."""
    records: int
    """Records that the program has got, or `on_error` has skipped."""
    bytes_fetched: int
    """The bytes of batches in answers, compressed, also of those that were not returned."""
    fetches: int
    """Fetch requests that were answered."""
    fetch: LatencyStatistics
    """From a Fetch request until its answer: up to `fetch_max_wait_ms` if there is no record."""
    errors: Mapping[str, int]
    """Failed fetches, of partitions or as a whole, named as in `ProducerStatistics`."""
    partitions: Mapping[TopicPartition, PartitionStatistics]
    rebalances: int
    """How often the member has taken an assignment of its group, the first one with it."""
    last_poll_age_ms: int | None
    """Since the program has asked for records that were not taken yet; None before the first."""
    connections: tuple[ConnectionStatistics, ...]


OnProducerStatistics = Callable[[ProducerStatistics], object]
OnConsumerStatistics = Callable[[ConsumerStatistics], object]
