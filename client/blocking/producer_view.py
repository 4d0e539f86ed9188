"""The identity of a blocking producer and its statistics: what it shows of itself."""

from odradek.client.blocking.hosted import Blocking
from odradek.client.producing.batches import NO_PRODUCER
from odradek.client.producing.producer import Producer as AsyncProducer
from odradek.client.statistics import ProducerStatistics


class BlockingProducerView(Blocking[AsyncProducer]):
    """The part of a producer that changes nothing; `Producer` adds the rest."""

    @property
    def producer_id(self) -> int:
        """The id that the broker gave this producer; -1 as long as none was needed."""
        inner = self._hosted.opened
        return NO_PRODUCER.producer_id if inner is None else inner.producer_id

    @property
    def producer_epoch(self) -> int:
        """The epoch of the producer id; -1 as long as no id was needed."""
        inner = self._hosted.opened
        return NO_PRODUCER.epoch if inner is None else inner.producer_epoch

    @property
    def transaction_version(self) -> int:
        """1 or 2: the generation of the transaction protocol, `transaction.version` (KIP-890)."""
        inner = self._hosted.opened
        return 1 if inner is None else inner.transaction_version

    def statistics(self) -> ProducerStatistics:
        """Return what was counted since the producer was opened, and what it holds now."""
        return self._hosted.loop.call_nowait(self._async.statistics)
