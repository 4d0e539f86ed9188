"""A producer's identity at the brokers, and what a failed batch means for it.

Every producer has one session. Before the sender sends, the session gives it the identity, and
decides whether anything may be sent and whether a partition may be written. When a batch failed,
the session decides whether it is sent again or given up. There are two kinds:

- `IdempotentSession`: a producer id from any broker. When a partition has lost a batch for good,
  the session raises the epoch, and the partition's batches are numbered anew.
- `TransactionalSession` (in `transactional_session.py`): the coordinator of the transactional id
  decides about identity, and a lost batch makes its transaction impossible to commit.

A session sees the accumulator and never the sender: it can drop batches, ask for a flush, wait
until nothing is in flight, and wake the sender.
"""

from abc import ABC, abstractmethod
from typing import Final

from odradek.client.cluster.cluster import Cluster
from odradek.client.config import ProducerConfig
from odradek.client.errors import FENCED, Fatal, OdradekError, Retriable
from odradek.client.producing.accumulator import Accumulator
from odradek.client.producing.batches import NO_PRODUCER, ProducerBatch, ProducerIdentity
from odradek.client.types import TopicPartition
from odradek.protocol.apis.txn import INIT_PRODUCER_ID, InitProducerIdRequest
from odradek.protocol.errors import ErrorCode
from odradek.protocol.produce_batches import NAMES_UNTIL

EPOCH_MAX: Final = 32766
LOST_SEQUENCE: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
)
"""The codes for a sequenced batch if the partition does not have the batch before it."""


class ProducerSession(ABC):
    """The sender's view of a producer's session. No method waits."""

    def __init__(self) -> None:
        self.identity = NO_PRODUCER
        """The producer id and epoch of the next new batch."""

    @property
    def produce_at_most(self) -> int:
        """The highest version of Produce that may be used."""
        return NAMES_UNTIL

    @abstractmethod
    def may_send(self) -> bool:
        """Return True if batches may be sent now. If an identity is missing, obtain it."""

    @abstractmethod
    def admit(self, partition: TopicPartition) -> bool:
        """Return True if the partition may be written now. If not, start what makes it so."""

    @abstractmethod
    def on_refused(self, batch: ProducerBatch, error: OdradekError) -> OdradekError | None:
        """Decide about a batch whose attempt has failed with `error`.

        Return None if it may be sent again, else the error to give it up with.
        """

    @abstractmethod
    def on_stored(self, partition: TopicPartition) -> None:
        """Record that a batch was stored."""

    @abstractmethod
    def on_failed(self, batch: ProducerBatch, error: OdradekError) -> None:
        """Record that the batch was given up. It is not sent again."""


class IdempotentSession(ProducerSession):
    """The session of a producer without transactions, and of one without idempotence."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, accumulator: Accumulator) -> None:
        super().__init__()
        self._cluster = cluster
        self._config = config
        self._is_idempotent = config.is_idempotent
        self._accumulator = accumulator
        self._is_asking = False

    def may_send(self) -> bool:
        if not self._is_idempotent or self.identity.producer_id >= 0:
            return True
        if not self._is_asking:
            self._is_asking = True
            self._cluster.tasks.spawn(self._obtain_identity)
        return False

    def admit(self, partition: TopicPartition) -> bool:
        return True

    def on_refused(self, batch: ProducerBatch, error: OdradekError) -> OdradekError | None:
        if error.code in LOST_SEQUENCE and batch.is_sequenced:
            self._sequence_refused(batch)
            return None
        if error.code in FENCED:
            return Fatal(str(error), code=error.code)
        return None if isinstance(error, Retriable) else error

    def on_stored(self, partition: TopicPartition) -> None:
        """Do nothing, because no transaction has to know."""

    def on_failed(self, batch: ProducerBatch, error: OdradekError) -> None:
        """Do nothing, because other batches do not depend on this one."""

    def _sequence_refused(self, batch: ProducerBatch) -> None:
        """Number the partition's batches anew if a batch before this one is lost for good.

        If earlier batches are unanswered, the refusal may be about one of them, and it is enough to
        send this one again. See the top of `batches.py`.
        """
        queue = batch.queue
        if queue.is_first(batch):
            # If the identities differ, another partition has raised the epoch already.
            if queue.identity == self.identity:
                self._raise_epoch()
            queue.restart()

    def _raise_epoch(self) -> None:
        """Begin the next epoch, in which every partition begins at sequence 0.

        Without transactions a client may raise the epoch by itself (KIP-360). When the epochs of a
        producer id are used up, the next `may_send` obtains a new id.
        """
        producer_id, epoch = self.identity
        if epoch >= EPOCH_MAX:
            self.identity = NO_PRODUCER
        else:
            self.identity = ProducerIdentity(producer_id, epoch + 1)

    async def _obtain_identity(self) -> None:
        """Ask any broker for a producer id."""

        async def attempt() -> ProducerIdentity:
            request = InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=self._config.transaction_timeout_ms,
            )
            answer = await self._cluster.ask(None, INIT_PRODUCER_ID, request)
            self._cluster.check(answer.error_code, "asking for a producer id")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        try:
            self.identity = await self._cluster.retrying("asking for a producer id", attempt)
        except Retriable:
            pass  # the next `may_send` asks again, until the deadlines of the batches
        except OdradekError as error:
            self._accumulator.drop(error)
        finally:
            self._is_asking = False
        self._accumulator.wake()
