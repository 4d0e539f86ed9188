"""A transactional producer's identity and state, and what the brokers' answers do to them.

`state.py` decides what is allowed, `requests.py` has the requests, `ending.py` prepares and ends
transactions, and the state of one transaction is an `OpenTransaction`. There are two generations of
the protocol:

- TV2 (KIP-890, Kafka 4): a Produce 12 or TxnOffsetCommit 5 adds its partition to the transaction
  by itself, and every EndTxn 5 raises the epoch, so that nothing late can slip into a later
  transaction.
- TV1 before that: AddPartitionsToTxn and AddOffsetsToTxn come first. The epoch stays, so after an
  abort that leaves a gap in some partition's sequences the epoch is raised by InitProducerId.

The broker decides which one, by its finalised feature `transaction.version`.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from odradek.client.cluster.cluster import Cluster
from odradek.client.config import ProducerConfig
from odradek.client.errors import (
    FENCED,
    Aborted,
    Busy,
    Fatal,
    Fenced,
    OdradekError,
    Refused,
    Retriable,
)
from odradek.client.producing.accumulator import Accumulator
from odradek.client.producing.bare_groups import BareGroups
from odradek.client.producing.batches import NO_PRODUCER, ProducerBatch
from odradek.client.producing.last_producer import LastProducer
from odradek.client.producing.line import Line
from odradek.client.producing.open_transaction import OpenTransaction
from odradek.client.producing.requests import Refusal, TransactionRequests
from odradek.client.producing.session import LOST_SEQUENCE, ProducerSession
from odradek.client.producing.state import BEGUN, SessionEvent, SessionState, state_after
from odradek.client.producing.transaction_errors import timed_out
from odradek.client.producing.transaction_span import TransactionSpan
from odradek.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from odradek.protocol.state_topics import tag_of

MAY_RETRY: Final = frozenset(
    {
        SessionState.OPEN,
        SessionState.COMMITTING,
        SessionState.IN_DOUBT,
        SessionState.DETACHED,
    }
)
"""The states in which a request of the transaction is sent again."""
WITHOUT_END: Final = frozenset(
    {SessionState.NEW, SessionState.PREPARED, SessionState.DETACHED, SessionState.FAILED}
)
"""The states in which no task of this producer is about to end the transaction."""
KEPT_OPEN_AT: Final = 1 / 3
"""The part of the time-out after which a member of a transaction group lets itself be heard."""


class TransactionalSession(ProducerSession):
    """The identity and the state of one transactional producer, and its coordinator's answers."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, accumulator: Accumulator) -> None:
        super().__init__()
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        self.state = SessionState.NEW
        self.transaction = OpenTransaction()
        """The open transaction, or the latest one. Before the first begin: the transaction that an
        earlier instance has left prepared."""
        self.cluster = cluster
        self.accumulator = accumulator
        self.requests = TransactionRequests(cluster, config, self._check_not_ended)
        self.timeout_ms = config.transaction_timeout_ms
        self.never_times_out = config.two_phase_commit
        """The broker never aborts its transactions because of their age."""
        self._keeps_prepared = config.keep_prepared
        self.last: LastProducer | None = None
        """The failed producer of this program whose place this one takes."""
        self._coordinator_lock = trio.Lock()
        self._bare_groups = BareGroups(cluster)
        self._line = Line[bool]()
        """It has something as long as no transaction is begun and no task has its turn."""
        self._line.give(True)
        self._is_taken = False
        self.span = TransactionSpan(config.tracer, config.client_id, self.transactional_id)

    @property
    def transaction_version(self) -> int:
        return self.requests.transaction_version

    @property
    def produce_at_most(self) -> int:
        return self.requests.produce_at_most

    def as_last(self) -> LastProducer:
        """Return what the producer that takes the place of this one must know."""
        return LastProducer(self.identity, was_open=self.transaction.anchor is not None)

    # State

    def advance(self, event: SessionEvent) -> None:
        """Take one step of the table. If the table refuses, raise its error, or the cause of it."""
        try:
            self._enter(state_after(self.state, event))
        except OdradekError as refusal:
            cause = self.transaction.cause
            if cause is None or isinstance(refusal, Refused):
                raise
            raise cause.copy() from None

    def check_sending(self) -> None:
        """Raise an error unless records and offsets may be sent in the transaction now."""
        self.advance(SessionEvent.SEND)

    def _check_not_ended(self) -> None:
        """Raise an error if nothing may be added to the transaction any more."""
        if not self._may_retry():
            cause = self.transaction.cause
            raise cause.copy() if cause else Aborted("the transaction was aborted")

    def _enter(self, state: SessionState) -> None:
        """Set the state. When no transaction is open any more, the next task has its turn."""
        self.state = state
        if self._is_taken and state in (SessionState.READY, SessionState.FAILED):
            self._is_taken = False
            self._line.give(True)

    async def take_turn(self, wait_ms: float) -> None:
        """Wait until no transaction of another task is open. Then `begin` it.

        Raises `Busy` after `wait_ms`, and the errors of `begin` if there is nothing to wait for.
        """
        if self.state in WITHOUT_END:
            self.advance(SessionEvent.BEGIN)
        if await self._line.take(wait_ms) is None:
            raise Busy(
                f"a transaction of {self.transactional_id!r} was open for {wait_ms:g} ms, and a "
                f"producer has one at a time; try again later, or use a TransactionPool"
            )

    def begin(self, *, has_turn: bool = False) -> OpenTransaction:
        """Begin the next transaction. Raises `Refused`, `Fatal`."""
        has_turn = has_turn or self._line.take_nowait() is not None
        try:
            self.advance(SessionEvent.BEGIN)
        except OdradekError:
            if has_turn:
                self._line.give(True, first=True)
            raise
        if not has_turn:  # a task that waits has been given the turn just now
            self._enter(SessionState.READY)
            raise Refused(BEGUN[1])
        self._is_taken = True
        self.transaction = OpenTransaction()
        self.cluster.journal.transaction("began", self.transactional_id)
        self.span.begin(self.transaction, self.identity, self.transaction_version)
        # A record that the previous transaction has lost must not fail this one.
        self.accumulator.failures.take()
        return self.transaction

    def _set_back(self, event: SessionEvent, error: OdradekError) -> None:
        """Take a step after an error. If it dooms the transaction, drop the unsent batches."""
        before = self.state
        self._enter(state_after(self.state, event))
        if self.state is not before and self.state in (SessionState.ABORTABLE, SessionState.FAILED):
            transaction = self.transaction
            transaction.cause = error
            if self.state is SessionState.FAILED:
                self.cluster.journal.producer_failed(
                    self.transactional_id, error, is_fenced=isinstance(error, Fenced)
                )
                self.span.end("unknown", error)
            transaction.has_gap |= self.accumulator.drop(error)
            if transaction.decided is not None:
                transaction.decided.set()

    def fail(self, error: OdradekError) -> None:
        self._set_back(SessionEvent.FAIL, error)

    def abort_needed(self, error: OdradekError) -> None:
        self._set_back(SessionEvent.ABORT_NEEDED, error)

    def set_timed_out(self) -> None:
        """Take the step for a transaction that the coordinator has aborted because of its age."""
        self.transaction.was_ended = True
        self._set_back(SessionEvent.TIMED_OUT, timed_out(self.transactional_id, self.timeout_ms))

    def judge(self, error: OdradekError) -> None:
        """Take the step that an error causes for the transaction or the producer."""
        if isinstance(error, Fatal):
            self.fail(error)
        elif isinstance(error, Retriable):
            self.abort_needed(
                Aborted(f"{error}; abort the transaction and do its work again", code=error.code)
            )
        else:
            self.abort_needed(error)

    # Answers to the sender

    def may_send(self) -> bool:
        return self.state in (SessionState.OPEN, SessionState.COMMITTING)

    def _may_retry(self) -> bool:
        return self.state in MAY_RETRY

    def admit(self, partition: TopicPartition) -> bool:
        transaction = self.transaction
        # From Produce version 12 on, the broker adds the partition itself (KIP-890).
        if self.transaction_version >= 2:
            transaction.partitions[partition] = None
            transaction.is_started = True
            return True
        if partition in transaction.partitions:
            return True
        transaction.wanted[partition] = None
        if not transaction.is_adding:
            transaction.is_adding = True
            self.cluster.tasks.spawn(self._add_partitions, transaction)
        return False

    def on_refused(self, batch: ProducerBatch, error: OdradekError) -> OdradekError | None:
        if error.code in LOST_SEQUENCE and batch.is_sequenced:
            # While earlier batches are unanswered, this batch is sent again later. If it is the
            # first unanswered one, an earlier batch is lost for good. See `batches.py`.
            if batch.queue.is_first(batch):
                return error
        elif error.code in FENCED:
            self._doubt(error)
        elif not isinstance(error, Retriable):
            return error
        if not self._may_retry():
            return Aborted(f"the transaction cannot go on: {error}")
        return None

    def on_stored(self, partition: TopicPartition) -> None:
        self.transaction.anchor = partition

    def on_failed(self, batch: ProducerBatch, error: OdradekError) -> None:
        self.transaction.has_gap |= batch.is_sequenced
        self.judge(error)

    def _doubt(self, error: OdradekError) -> None:
        """Start to find out why a broker refused the producer's epoch."""
        before = self.state
        self.state = state_after(self.state, SessionEvent.DOUBT)
        if self.state is SessionState.IN_DOUBT and before is not SessionState.IN_DOUBT:
            if self.cluster.tasks.is_closed:  # no task can ask any more, and a waiter would wait
                self.fail(Fatal(f"{error}; the client was closed", code=error.code))
                return
            self.transaction.decided = trio.Event()
            self.cluster.tasks.spawn(self._decide, self.transaction, error)

    # Identity

    async def initialise(self) -> None:
        """Take over the transactional id.

        The coordinator fences the producer that had it, and aborts the transaction that it left
        open. With `keep_prepared`, a prepared transaction stays open.

        Raises `Fatal`, `Refused` or `TimedOut`.
        """
        try:
            if self._keeps_prepared:
                self.identity, found = await self.requests.claim_producer_id()
            elif self.last is not None:
                self.identity, found = await self.requests.regain(self.last), None
            else:
                self.identity = await self.requests.init_producer_id(NO_PRODUCER)
                found = None
        except Refusal as refusal:
            raise refusal.error from None
        self.transaction.prepared = found
        self.transaction.is_started = found is not None
        if self.requests.has_groups and tag_of(self.transactional_id) is not None:
            self.cluster.tasks.spawn(self._keep_open)
        self.advance(SessionEvent.PREPARE if found is not None else SessionEvent.INITIALISED)

    async def _decide(self, transaction: OpenTransaction, error: OdradekError) -> None:
        """Ask the coordinator whether the epoch went up by a time-out or by a successor."""
        assert transaction.decided is not None
        try:
            self.identity = await self.requests.identity_after_time_out(self.identity)
        except Fenced as fenced:
            self.fail(fenced)
        except Refusal as refusal:
            self.fail(refusal.error)
        except OdradekError as failure:
            self.fail(Fatal(f"{error}; {failure}", code=error.code))
        else:
            self.set_timed_out()
        finally:
            transaction.decided.set()

    async def _refused(self, refusal: Refusal) -> OdradekError:
        """Take the step that a coordinator's refusal causes. Return the error to raise."""
        if refusal.code in FENCED:
            self._doubt(refusal.error)
            if self.state is SessionState.IN_DOUBT:
                await self.transaction.wait_decided()
        else:
            self.judge(refusal.error)
        return (self.transaction.cause or refusal.error).copy()

    # The clock of a transaction group

    async def _keep_open(self) -> None:
        """Send a sign of life to the coordinator at intervals while a transaction is open.

        The members of a group time out when none of them was heard for long enough. The request
        adds a partition that is in the transaction already.
        """
        while True:
            await trio.sleep(self.timeout_ms / 1000 * KEPT_OPEN_AT)
            anchor = self.transaction.anchor
            if anchor is None or self.state not in (SessionState.OPEN, SessionState.DETACHED):
                continue
            # An error needs no answer here: what the program does next finds out by itself.
            with suppress(OdradekError, Refusal):
                await self.requests.add_partitions(self.identity, [anchor])

    # Adding to the transaction (TV1)

    async def _add_partitions(self, transaction: OpenTransaction) -> None:
        try:
            async with self._coordinator_lock:
                while transaction.wanted and transaction is self.transaction and self.may_send():
                    wanted = list(transaction.wanted)
                    # Set first: the request may arrive although its answer is lost, and then EndTxn
                    # is needed.
                    transaction.is_started = True
                    await self.requests.add_partitions(self.identity, wanted)
                    for partition in wanted:
                        del transaction.wanted[partition]
                        transaction.partitions[partition] = None
        except Refusal as refusal:
            await self._refused(refusal)
        except OdradekError as error:
            self.judge(error)
        finally:
            transaction.is_adding = False
        self.accumulator.wake()

    async def wait_asked(self) -> None:
        """Wait until no request to a coordinator is under way for the transaction.

        With TV1 the epoch stays, so a request after the end would add to the next transaction.
        """
        await self.transaction.wait_stored()
        async with self._coordinator_lock:
            pass

    # Offsets

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Store offsets with the transaction. Raises `Aborted`, `Fatal`, `TimedOut`."""
        self.check_sending()
        is_done = False
        with self.transaction.storing():
            try:
                await self.cluster.within(
                    f"storing offsets of the group {group.group_id!r} with the transaction",
                    partial(self._send_offsets, offsets, group),
                )
                is_done = True
            except Refusal as refusal:
                raise await self._refused(refusal) from None
            finally:
                if not is_done:
                    # The offsets may be stored or not, so the transaction must not be committed.
                    self.abort_needed(
                        Aborted(f"storing offsets of the group {group.group_id!r} was not finished")
                    )

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        identity = self.identity
        transaction = self.transaction
        transaction.is_started = True
        # From TxnOffsetCommit version 5 on, the broker adds the group itself (KIP-890).
        if self.transaction_version < 2 and group.group_id not in transaction.groups:
            async with self._coordinator_lock:
                await self.requests.add_group(identity, group.group_id)
        transaction.groups[group.group_id] = None
        await self.requests.commit_offsets(identity, offsets, group)
        self._bare_groups.note(group)
