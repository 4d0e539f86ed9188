"""The producer's side of the transaction protocol: when a request is sent, and what follows.

`state.py` decides what is allowed, `requests.py` has the requests, and the state of one
transaction is an `OpenTransaction`. There are two generations of the protocol:

- TV2 (KIP-890, Kafka 4): a Produce 12 or TxnOffsetCommit 5 adds its partition to the transaction
  by itself, and every EndTxn 5 raises the epoch, so that nothing late can slip into a later
  transaction.
- TV1 before that: AddPartitionsToTxn and AddOffsetsToTxn come first. The epoch stays, so after an
  abort that leaves a gap in some partition's sequences the epoch is raised by InitProducerId.

The broker decides which one, by its finalised feature `transaction.version`.

The end of a transaction runs in the background until the coordinator has answered. If the program's
task is cancelled, the end goes on, and the next transaction waits for it. EndTxn is retried until
it is answered. Retrying is safe: the coordinator recognises a repeated EndTxn (KIP-890).
"""

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from odradek.client.cluster.cluster import Cluster
from odradek.client.config import ProducerConfig
from odradek.client.errors import (
    FENCED,
    Aborted,
    Closed,
    Fatal,
    Fenced,
    OdradekError,
    Refused,
    Retriable,
    TimedOut,
)
from odradek.client.producing.accumulator import Accumulator
from odradek.client.producing.batches import NO_PRODUCER, Batch
from odradek.client.producing.open_transaction import OpenTransaction
from odradek.client.producing.prepared import Completion, PreparedTransaction
from odradek.client.producing.requests import Refusal, TransactionRequests
from odradek.client.producing.session import LOST_SEQUENCE, ProducerSession
from odradek.client.producing.state import Event, State, step
from odradek.client.producing.transaction_errors import end_unknown, timed_out
from odradek.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from odradek.protocol.errors import ErrorCode

_UNKNOWN_END: Final = frozenset({*FENCED, ErrorCode.INVALID_TXN_STATE})
"""Answers to EndTxn that leave open what became of the transaction."""


class TransactionalSession(ProducerSession):
    """The identity and the state of one transactional producer, and its coordinator's answers."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, accumulator: Accumulator) -> None:
        super().__init__()
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        self.state = State.NEW
        self.transaction = OpenTransaction()
        """The open transaction, or the latest one. Before the first begin: the transaction that an
        earlier instance has left prepared."""
        self._cluster = cluster
        self._requests = TransactionRequests(cluster, config, self._check_not_ended)
        self._timeout_ms = config.transaction_timeout_ms
        self.never_times_out = config.two_phase_commit
        """The broker never aborts its transactions because of their age."""
        self._keeps_prepared = config.keep_prepared
        self._accumulator = accumulator
        self._coordinator_lock = trio.Lock()

    @property
    def transaction_version(self) -> int:
        return self._requests.transaction_version

    @property
    def produce_at_most(self) -> int:
        return self._requests.produce_at_most

    # State

    def advance(self, event: Event) -> None:
        """Take one step of the table. If the table refuses, raise its error, or the cause of it."""
        try:
            self.state = step(self.state, event)
        except OdradekError as refusal:
            cause = self.transaction.cause
            if cause is None or isinstance(refusal, Refused):
                raise
            raise cause.copy() from None

    def check_sending(self) -> None:
        """Raise an error unless records and offsets may be sent in the transaction now."""
        self.advance(Event.SEND)

    def _check_not_ended(self) -> None:
        """Raise an error if nothing may be added to the transaction any more."""
        if not self._may_retry():
            cause = self.transaction.cause
            raise cause.copy() if cause else Aborted("the transaction was aborted")

    def _set_back(self, event: Event, error: OdradekError) -> None:
        """Take a step after an error. If it dooms the transaction, drop the unsent batches."""
        before = self.state
        self.state = step(self.state, event)
        if self.state is not before and self.state in (State.ABORTABLE, State.FAILED):
            transaction = self.transaction
            transaction.cause = error
            transaction.has_gap |= self._accumulator.drop(error)
            if transaction.decided is not None:
                transaction.decided.set()

    def fail(self, error: OdradekError) -> None:
        self._set_back(Event.FAIL, error)

    def abort_needed(self, error: OdradekError) -> None:
        self._set_back(Event.ABORT_NEEDED, error)

    def _judge(self, error: OdradekError) -> None:
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
        return self.state in (State.OPEN, State.COMMITTING)

    def _may_retry(self) -> bool:
        return self.state in (State.OPEN, State.COMMITTING, State.IN_DOUBT)

    def admit(self, partition: TopicPartition) -> bool:
        transaction = self.transaction
        if self.transaction_version >= 2:
            transaction.partitions[partition] = None
            transaction.is_started = True
            return True
        if partition in transaction.partitions:
            return True
        transaction.wanted[partition] = None
        if not transaction.is_adding:
            transaction.is_adding = True
            self._cluster.spawn(self._add_partitions, transaction)
        return False

    def refused(self, batch: Batch, error: OdradekError) -> OdradekError | None:
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

    def failed(self, batch: Batch, error: OdradekError) -> None:
        self.transaction.has_gap |= batch.is_sequenced
        self._judge(error)

    def _doubt(self, error: OdradekError) -> None:
        """Start to find out why a broker refused the producer's epoch."""
        before = self.state
        self.state = step(self.state, Event.DOUBT)
        if self.state is State.IN_DOUBT and before is not State.IN_DOUBT:
            if self._cluster.is_closed:  # no task can ask any more, and a waiter would wait
                self.fail(Fatal(f"{error}; the client was closed", code=error.code))
                return
            self.transaction.decided = trio.Event()
            self._cluster.spawn(self._decide, self.transaction, error)

    # Identity

    async def initialise(self) -> None:
        """Take over the transactional id.

        The coordinator fences the producer that had it, and aborts the transaction that it left
        open. With `keep_prepared`, a prepared transaction stays open.

        Raises `Fatal`, `Refused` or `TimedOut`.
        """
        try:
            if self._keeps_prepared:
                self.identity, found = await self._requests.claim_producer_id()
            else:
                self.identity = await self._requests.init_producer_id(NO_PRODUCER)
                found = None
        except Refusal as refusal:
            raise refusal.error from None
        self.transaction.prepared = found
        self.transaction.is_started = found is not None
        self.advance(Event.PREPARE if found is not None else Event.INITIALISED)

    async def _decide(self, transaction: OpenTransaction, error: OdradekError) -> None:
        """Ask the coordinator whether the epoch went up by a time-out or by a successor."""
        assert transaction.decided is not None
        try:
            await self._go_on_if_last()
        except Fenced as fenced:
            self.fail(fenced)
        except Refusal as refusal:
            self.fail(refusal.error)
        except OdradekError as failure:
            self.fail(Fatal(f"{error}; {failure}", code=error.code))
        else:
            transaction.was_ended = True
            self._set_back(Event.TIMED_OUT, timed_out(self.transactional_id, self._timeout_ms))
        finally:
            transaction.decided.set()

    async def _go_on_if_last(self) -> None:
        """Get the next epoch if a time-out has raised it. Raises `Fenced` if a successor has.

        The request is an abort under this producer's own epoch, as in the Java client.
        InitProducerId cannot be used: it looks at the producer id only, and would abort the open
        transaction of a successor. TV1 has no harmless request, so `Fenced` is raised.
        """
        if self.transaction_version < 2:
            raise await self._requests.taken_over(self._timeout_ms)
        try:
            self.identity = await self._requests.end_txn(self.identity, committed=False)
        except Refusal as refusal:
            if refusal.code in FENCED:
                raise await self._requests.taken_over(self._timeout_ms) from None
            raise

    async def _recovered_identity(self) -> None:
        """Get an identity after INVALID_TXN_STATE: the epoch is ours (TV1) or timed out (TV2)."""
        if self.transaction_version < 2:
            self.identity = await self._requests.init_producer_id(self.identity)
        else:
            await self._go_on_if_last()

    async def _refused(self, refusal: Refusal) -> OdradekError:
        """Take the step that a coordinator's refusal causes. Return the error to raise."""
        if refusal.code in FENCED:
            self._doubt(refusal.error)
            if self.state is State.IN_DOUBT:
                await self.transaction.wait_decided()
        else:
            self._judge(refusal.error)
        return (self.transaction.cause or refusal.error).copy()

    # Adding to the transaction (TV1)

    async def _add_partitions(self, transaction: OpenTransaction) -> None:
        try:
            async with self._coordinator_lock:
                while transaction.wanted and transaction is self.transaction and self.may_send():
                    wanted = list(transaction.wanted)
                    transaction.is_started = True
                    await self._requests.add_partitions(self.identity, wanted)
                    for partition in wanted:
                        del transaction.wanted[partition]
                        transaction.partitions[partition] = None
        except Refusal as refusal:
            await self._refused(refusal)
        except OdradekError as error:
            self._judge(error)
        finally:
            transaction.is_adding = False
        self._accumulator.wake()

    # Offsets

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Store offsets with the transaction. Raises `Aborted`, `Fatal`, `TimedOut`."""
        self.check_sending()
        is_done = False
        with self.transaction.storing():
            try:
                await self._cluster.within(
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
        if self.transaction_version < 2 and group.group_id not in transaction.groups:
            async with self._coordinator_lock:
                await self._requests.add_group(identity, group.group_id)
        transaction.groups[group.group_id] = None
        await self._requests.commit_offsets(identity, offsets, group)

    # Beginning and ending

    async def begin(self) -> OpenTransaction:
        """Begin a transaction when the previous one has ended. Raises `Refused`, `Fatal`."""
        await self.transaction.wait_ended()
        if self.state in (State.ABORTABLE, State.IN_DOUBT):
            await self.end(committed=False)
        self.advance(Event.BEGIN)
        self.transaction = OpenTransaction()
        # A record that the previous transaction has lost must not fail this one.
        self._accumulator.failures.take()
        return self.transaction

    async def prepare(self) -> PreparedTransaction:
        """Wait until all of the transaction is stored. From then on it may only be ended.

        Raises `Aborted`, `Fatal`, and `Refused` with TV1, where several transactions have the same
        epoch, so their identities would be equal.
        """
        if self.transaction_version < 2:
            raise Refused("preparing a transaction needs a broker with transaction.version 2")
        self.check_sending()
        await self._send_the_rest(State.OPEN)
        self.advance(Event.PREPARE)
        self.transaction.prepared = prepared = PreparedTransaction(*self.identity)
        return prepared

    async def complete(self, decided: PreparedTransaction | None) -> Completion:
        """Commit the prepared transaction if it equals `decided`, else abort it; see `Producer`."""
        await self.transaction.wait_ended()
        if self.state is State.READY:
            return Completion.NOTHING
        if self.state is State.FAILED:
            self.advance(Event.COMMIT)  # raises the cause of the failure
        if self.state is not State.PREPARED:
            raise Refused(f"nothing is prepared, the transaction is {self.state.value}")
        committed = decided is not None and decided == self.transaction.prepared
        await self.end(committed=committed)
        return Completion.COMMITTED if committed else Completion.ABORTED

    async def end(self, *, committed: bool) -> None:
        """Commit or abort, and wait for the answer. Cancelling ends only the wait.

        Raises `Aborted` if it must be aborted instead of committed, `Fatal`, `Fenced`.
        """
        if committed and self.state is State.IN_DOUBT:
            await self.transaction.wait_decided()
        self._cluster.check_open()
        self.advance(Event.COMMIT if committed else Event.ABORT)
        ending = self.transaction.ending = trio.Event()
        outcome: list[OdradekError] = []
        self._cluster.spawn(self._run_end, committed, outcome, ending)
        await ending.wait()
        if outcome:
            raise outcome[0]

    async def finish(self) -> None:
        """Abort an open transaction before the producer closes. Ignore errors."""
        await self.transaction.wait_ended()
        if self.state in (State.OPEN, State.ABORTABLE, State.IN_DOUBT):
            with contextlib.suppress(OdradekError):
                await self.end(committed=False)

    async def _run_end(
        self, committed: bool, outcome: list[OdradekError], ending: trio.Event
    ) -> None:
        outcome.append(Closed("the producer was closed while the transaction was being ended"))
        try:
            if committed:
                await self._send_the_rest(State.COMMITTING)
            await self._ask_for_end(committed)
            self.advance(Event.ENDED)
            outcome.clear()
        except OdradekError as error:
            outcome[0] = error
        finally:
            ending.set()

    async def _ask_for_end(self, committed: bool) -> None:
        """Ask the coordinator for the end, for `max_block_ms` in total. Raises `Fatal`."""
        try:
            await self._cluster.within(
                f"{'committing' if committed else 'aborting'} the transaction of "
                f"{self.transactional_id!r}",
                partial(self._settle_and_end, committed),
            )
        except TimedOut as error:
            raise self._end_unknown(error, committed) from None

    async def _settle_and_end(self, committed: bool) -> None:
        transaction = self.transaction
        if not committed:
            transaction.has_gap |= self._accumulator.drop(Aborted("the transaction was aborted"))
            await self._accumulator.settled()
            await self._all_asked()
            await transaction.wait_decided()
            if self.state is State.FAILED and transaction.cause is not None:
                raise transaction.cause.copy()
        await self._end(committed)

    async def _all_asked(self) -> None:
        """Wait until no request to a coordinator is under way for the transaction.

        With TV1 the epoch stays, so a request after the end would add to the next transaction.
        """
        await self.transaction.wait_stored()
        async with self._coordinator_lock:
            pass

    async def _send_the_rest(self, state: State) -> None:
        """Wait until every record and offset of the transaction is stored.

        Raises the reason if the transaction leaves `state` meanwhile.
        """
        transaction = self.transaction
        with self._accumulator.flushing():
            while (self._accumulator.incomplete or transaction.is_storing) and self.state is state:
                if self._accumulator.incomplete:
                    await self._accumulator.changed()
                else:
                    await transaction.wait_stored()
        if self.state is State.IN_DOUBT:
            await transaction.wait_decided()
        if self.state is not state:
            if transaction.cause is None:  # another task has ended it meanwhile
                raise Refused(f"the transaction is {self.state.value}")
            raise transaction.cause.copy()
        self._cluster.check_open()  # closing drops what was not sent, so nothing waits for it

    async def _end(self, committed: bool) -> None:
        """Send EndTxn if the coordinator may have the transaction.

        After a gap in a partition's sequences, the next batch would be refused as out of order. TV2
        raises the epoch with every EndTxn; with TV1 InitProducerId raises it (KIP-360).
        """
        transaction = self.transaction
        if transaction.was_ended or not (transaction.is_started or transaction.prepared):
            return
        if not transaction.is_started:
            # The transaction was prepared without a record, so the coordinator does not have it.
            # Abort only to raise the epoch. Otherwise the next transaction would have the identity
            # that was prepared, and `complete` would take it for this one.
            committed = False
        try:
            self.identity = await self._requests.end_txn(self.identity, committed=committed)
            if transaction.has_gap and self.transaction_version < 2:
                self.identity = await self._requests.init_producer_id(self.identity)
        except Refusal as refusal:
            await self._recover(committed, refusal)
        except Refused as error:
            raise self._end_unknown(error, committed) from None

    def _end_unknown(self, error: OdradekError, committed: bool) -> Fatal:
        after_ms = None if self.never_times_out else self._timeout_ms
        self.fail(failure := end_unknown(error, committed=committed, aborted_after_ms=after_ms))
        return failure

    async def _recover(self, committed: bool, refusal: Refusal) -> None:
        """Handle a refused EndTxn: get an identity to go on with, or fail.

        Raises the error of the end, unless an abort was asked for and the transaction is over.
        """
        if refusal.code not in _UNKNOWN_END:
            error = refusal.error
            may_abort = committed and self.transaction.prepared is None
            if not (may_abort or isinstance(error, Fatal)):
                # If an abort was refused, this producer can do nothing more. If the commit of a
                # prepared transaction was refused, it must not abort: the other system may have
                # decided to commit.
                error = Fatal(f"{error}. Make a new producer.", code=refusal.code)
            self._judge(error)
            raise error
        try:
            if refusal.code in FENCED:
                raise await self._requests.taken_over(self._timeout_ms)
            await self._recovered_identity()
        except (Fenced, Refusal) as second:
            failed = second.error if isinstance(second, Refusal) else second
            failed.add_note("Its last transaction was committed or aborted, as a whole.")
            self.fail(failed)
            raise failed from None
        except OdradekError as error:
            failure = Fatal(str(error), code=error.code)
            self.fail(failure)
            raise failure from None
        if committed:
            self.transaction.was_ended = True
            self._set_back(Event.TIMED_OUT, timed_out(self.transactional_id, self._timeout_ms))
            assert self.transaction.cause is not None
            raise self.transaction.cause.copy()
