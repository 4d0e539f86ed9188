"""The identity of a producer and its statistics: what it shows of itself."""

from collections.abc import Sized

from odradek.client.cluster.cluster import Cluster
from odradek.client.config import ProducerConfig
from odradek.client.producing.accumulator import Accumulator
from odradek.client.producing.sender import Sender
from odradek.client.producing.session import ProducerSession
from odradek.client.producing.transactional_session import TransactionalSession
from odradek.client.statistics import ProducerStatistics


class ProducerView:
    """The part of a producer that changes nothing; `Producer` adds the rest."""

    _config: ProducerConfig
    _cluster: Cluster
    _accumulator: Accumulator
    _session: ProducerSession
    _sender: Sender
    _transactions: TransactionalSession | None
    _queue_outside: Sized = ()
    """The records that a blocking or asyncio program has queued, and that are not taken yet."""

    def __repr__(self) -> str:
        name = f" {self.transactional_id!r}" if self.transactional_id else ""
        waiting = self._accumulator.buffered_bytes
        return f"<Producer{name}: id {self.producer_id}, {waiting} bytes to be acknowledged>"

    @property
    def unacknowledged(self) -> int:
        """The number of records without an outcome yet."""
        return sum(batch.count for batch in list(self._accumulator.incomplete))

    @property
    def transactional_id(self) -> str | None:
        """The name under which this producer has transactions; None without transactions."""
        return self._config.transactional_id

    @property
    def producer_id(self) -> int:
        """The id that a broker gave this producer; -1 as long as none was needed."""
        return self._session.identity.producer_id

    @property
    def producer_epoch(self) -> int:
        """The epoch of the producer id; -1 as long as no id was needed."""
        return self._session.identity.epoch

    @property
    def transaction_version(self) -> int:
        """1 or 2: the generation of the transaction protocol, `transaction.version` (KIP-890)."""
        return self._transactions.transaction_version if self._transactions is not None else 1

    def statistics(self) -> ProducerStatistics:
        """Return what was counted since the producer was opened, and what it holds now."""
        counters, accumulator = self._accumulator.counters, self._accumulator
        return ProducerStatistics(
            client_id=self._config.client_id,
            transactional_id=self.transactional_id,
            time_ms=self._config.wall_ms(),
            records_sent=counters.records_sent,
            bytes_sent=counters.bytes_sent,
            batches_sent=counters.batches_sent,
            records_failed=counters.records_failed,
            records_waiting=self.unacknowledged + len(self._queue_outside),
            bytes_waiting=accumulator.buffered_bytes,
            batches_in_flight=sum(len(queue.in_flight) for queue in accumulator.queues.values()),
            retries=counters.retries,
            errors=dict(counters.errors),
            delivery=counters.deliveries.statistics(),
            requests=counters.requests.statistics(),
            connections=self._cluster.connections.statistics(),
        )
