"""The producer's side of the transaction protocol: what is said to the coordinators, and when.

`txn.py` decides what is allowed; here it is asked for. Two generations of the protocol:

- TV2 (KIP-890, Kafka 4): a Produce 12 or TxnOffsetCommit 5 adds its partition to the transaction
  by itself, and every EndTxn 5 raises the epoch, so that nothing late can slip into a later
  transaction.
- TV1 before that: AddPartitionsToTxn and AddOffsetsToTxn come first. The epoch stays, so after an
  abort that leaves a gap in some partition's sequences the epoch is raised by InitProducerId.

Which one, the broker decides: its finalised feature `transaction.version`.

The end of a transaction runs in the background until the coordinator has answered. A user who is
cancelled meanwhile loses the wait and not the end; the next transaction waits for it. EndTxn is
retried until it is answered, which is safe: the coordinator recognises a repeated one (KIP-890).
"""

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from odradek.client.accumulator import Accumulator
from odradek.client.cluster import Cluster
from odradek.client.config import ProducerConfig
from odradek.client.delivery import NO_PRODUCER
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
from odradek.client.prepared import Completion, PreparedTransaction
from odradek.client.sender import Sender
from odradek.client.transaction_errors import end_unknown, timed_out
from odradek.client.transaction_requests import Refusal, TransactionRequests
from odradek.client.txn import Event, State, step
from odradek.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from odradek.protocol.errors import ErrorCode

_UNKNOWN_END: Final = frozenset({*FENCED, ErrorCode.INVALID_TXN_STATE})
"""Answers to EndTxn that leave open what became of the transaction."""


class TransactionControl:
    """One transactional producer's identity, state and talk with the coordinators."""

    def __init__(
        self, cluster: Cluster, config: ProducerConfig, accumulator: Accumulator, sender: Sender
    ) -> None:
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        self.state = State.NEW
        self.cause: OdradekError | None = None
        """Why the transaction is to be aborted, or the producer has failed."""
        self.partitions: dict[TopicPartition, None] = {}
        self.groups: dict[str, None] = {}
        self.number = 0
        """Transactions begun."""
        self._cluster = cluster
        self._requests = TransactionRequests(cluster, config, self._check_not_ended)
        self._timeout_ms = config.transaction_timeout_ms
        self.never_times_out = config.two_phase_commit
        """Nobody but a producer ends its transactions."""
        self._keeps_prepared = config.keep_prepared
        self._prepared: PreparedTransaction | None = None
        self._accumulator = accumulator
        self._sender = sender
        self._is_started = False
        self._has_gap = False
        self._was_ended = False
        self._wanted: dict[TopicPartition, None] = {}
        self._is_adding = False
        self._storing = 0
        """Calls of `send_offsets` that are under way."""
        self._stored = trio.Event()
        self._coordinator_lock = trio.Lock()
        self._decided: trio.Event | None = None
        self._ending: trio.Event | None = None

    @property
    def transaction_version(self) -> int:
        return self._requests.transaction_version

    @property
    def produce_at_most(self) -> int:
        return self._requests.produce_at_most

    # State

    def advance(self, event: Event) -> None:
        """Take one step of the table. Raises what the table refuses with, and why."""
        try:
            self.state = step(self.state, event)
        except OdradekError as refusal:
            if self.cause is None or isinstance(refusal, Refused):
                raise
            raise self.cause.copy() from None

    def check_sending(self) -> None:
        """Raises unless records and offsets may be given to the transaction now."""
        self.advance(Event.SEND)

    def _check_not_ended(self) -> None:
        """Raises if the transaction is to be ended without what is being asked for."""
        if not self.may_retry():
            raise self.cause.copy() if self.cause else Aborted("the transaction was aborted")

    def _set_back(self, event: Event, error: OdradekError) -> None:
        """Something went wrong with the transaction, or with the producer altogether."""
        before = self.state
        self.state = step(self.state, event)
        if self.state is not before and self.state in (State.ABORTABLE, State.FAILED):
            self.cause = error
            self._has_gap |= self._sender.drop(error)
            if self._decided is not None:
                self._decided.set()

    def fail(self, error: OdradekError) -> None:
        self._set_back(Event.FAIL, error)

    def abort_needed(self, error: OdradekError) -> None:
        self._set_back(Event.ABORT_NEEDED, error)

    def _judge(self, error: OdradekError) -> None:
        """Let an error decide about the transaction or the producer."""
        if isinstance(error, Fatal):
            self.fail(error)
        elif isinstance(error, Retriable):
            self.abort_needed(
                Aborted(f"{error}; abort the transaction and do its work again", code=error.code)
            )
        else:
            self.abort_needed(error)

    # The sender's gate

    def may_send(self) -> bool:
        return self.state in (State.OPEN, State.COMMITTING)

    def may_retry(self) -> bool:
        return self.state in (State.OPEN, State.COMMITTING, State.IN_DOUBT)

    def admit(self, partition: TopicPartition) -> bool:
        if self.transaction_version >= 2:
            self.partitions[partition] = None
            self._is_started = True
            return True
        if partition in self.partitions:
            return True
        self._wanted[partition] = None
        if not self._is_adding:
            self._is_adding = True
            self._cluster.spawn(self._add_partitions)
        return False

    def lost(self, error: OdradekError, *, was_sequenced: bool) -> None:
        self._has_gap |= was_sequenced
        self._judge(error)

    def in_doubt(self, error: OdradekError) -> None:
        before = self.state
        self.state = step(self.state, Event.DOUBT)
        if self.state is State.IN_DOUBT and before is not State.IN_DOUBT:
            self._decided = trio.Event()
            self._cluster.spawn(self._decide, error)

    # Identity

    async def initialise(self) -> None:
        """Take over the transactional id: fences whoever had it, ends what it left open (but for
        what it has prepared, if that is to be kept).

        Raises `Fatal`, `Refused` or `TimedOut`.
        """
        try:
            if self._keeps_prepared:
                self._sender.identity, found = await self._requests.claim_producer_id()
            else:
                self._sender.identity = await self._requests.init_producer_id(NO_PRODUCER)
                found = None
        except Refusal as refusal:
            raise refusal.error from None
        self._prepared = found
        self._is_started = found is not None
        self.advance(Event.PREPARE if found is not None else Event.INITIALISED)

    async def _decide(self, error: OdradekError) -> None:
        """Ask the coordinator whether the epoch went up by a time-out or by a successor."""
        assert self._decided is not None
        decided = self._decided
        try:
            await self._go_on_if_last()
        except Fenced as fenced:
            self.fail(fenced)
        except Refusal as refusal:
            self.fail(refusal.error)
        except OdradekError as failure:
            self.fail(Fatal(f"{error}; {failure}", code=error.code))
        else:
            self._was_ended = True
            self._set_back(Event.TIMED_OUT, timed_out(self.transactional_id, self._timeout_ms))
        finally:
            decided.set()

    async def _go_on_if_last(self) -> None:
        """Get the next epoch if a time-out has spent ours. Raises `Fenced` if a successor has.

        The question is an abort under our own epoch, as the Java client asks it. InitProducerId
        would answer it too, but it looks at the producer id only, and would end the transaction
        that a successor has open. With TV1 there is no harmless question: that is told as fenced.
        """
        if self.transaction_version < 2:
            raise await self._requests.taken_over(self._timeout_ms)
        try:
            self._sender.identity = await self._requests.end_txn(
                self._sender.identity, committed=False
            )
        except Refusal as refusal:
            if refusal.code in FENCED:
                raise await self._requests.taken_over(self._timeout_ms) from None
            raise

    async def _recovered_identity(self) -> None:
        """After INVALID_TXN_STATE the epoch may still be ours (TV1) or spent by a time-out."""
        if self.transaction_version < 2:
            self._sender.identity = await self._requests.init_producer_id(self._sender.identity)
        else:
            await self._go_on_if_last()

    async def _refused(self, refusal: Refusal) -> OdradekError:
        """What a refusal means for the transaction: the error to raise."""
        if refusal.code in FENCED:
            self.in_doubt(refusal.error)
            if self.state is State.IN_DOUBT and self._decided is not None:
                await self._decided.wait()
        else:
            self._judge(refusal.error)
        return (self.cause or refusal.error).copy()

    # Adding to the transaction (TV1)

    async def _add_partitions(self) -> None:
        try:
            async with self._coordinator_lock:
                while self._wanted and self.may_send():
                    wanted = list(self._wanted)
                    self._is_started = True
                    await self._requests.add_partitions(self._sender.identity, wanted)
                    for partition in wanted:
                        del self._wanted[partition]
                        self.partitions[partition] = None
        except Refusal as refusal:
            await self._refused(refusal)
        except OdradekError as error:
            self._judge(error)
        finally:
            self._is_adding = False
        self._sender.pump()

    # Offsets

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Store offsets with the transaction. Raises `Aborted`, `Fatal`, `TimedOut`."""
        self.check_sending()
        is_done = False
        if not self._storing:
            self._stored = trio.Event()
        self._storing += 1
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
                # Nobody knows whether they are in: the transaction must not be committed.
                self.abort_needed(
                    Aborted(f"storing offsets of the group {group.group_id!r} was not finished")
                )
            self._storing -= 1
            if not self._storing:
                self._stored.set()

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        identity = self._sender.identity
        self._is_started = True
        if self.transaction_version < 2 and group.group_id not in self.groups:
            async with self._coordinator_lock:
                await self._requests.add_group(identity, group.group_id)
        self.groups[group.group_id] = None
        await self._requests.commit_offsets(identity, offsets, group)

    # Beginning and ending

    async def begin(self) -> None:
        """Begin a transaction, when the one before has ended. Raises `Refused`, `Fatal`."""
        if self._ending is not None:
            await self._ending.wait()
        if self.state in (State.ABORTABLE, State.IN_DOUBT):
            await self.end(committed=False)
        self.advance(Event.BEGIN)
        self.number += 1
        self.cause = None
        self._prepared = None
        self.partitions = {}
        self.groups = {}
        self._wanted = {}
        self._is_started = self._has_gap = self._was_ended = False
        # What the transaction before has lost is no failure of this one.
        self._accumulator.failures.take()

    async def prepare(self) -> PreparedTransaction:
        """Wait until all of the transaction is stored; from now on it may only be ended.

        Raises `Aborted`, `Fatal`, `Refused` (not with TV1: only an epoch for each transaction tells
        one from the next).
        """
        if self.transaction_version < 2:
            raise Refused("preparing a transaction needs a broker with transaction.version 2")
        self.check_sending()
        await self._send_the_rest(State.OPEN)
        self.advance(Event.PREPARE)
        self._prepared = PreparedTransaction(*self._sender.identity)
        return self._prepared

    async def complete(self, decided: PreparedTransaction | None) -> Completion:
        """Commit what is prepared if it is what was `decided`, else abort it. Raises as `end`."""
        if self._ending is not None:
            await self._ending.wait()
        if self.state is State.READY:
            return Completion.NOTHING
        if self.state is State.FAILED:
            self.advance(Event.COMMIT)  # raises why
        if self.state is not State.PREPARED:
            raise Refused(f"nothing is prepared, the transaction is {self.state.value}")
        committed = decided is not None and decided == self._prepared
        await self.end(committed=committed)
        return Completion.COMMITTED if committed else Completion.ABORTED

    async def end(self, *, committed: bool) -> None:
        """Commit or abort, and wait for the answer; cancelling ends only the waiting.

        Raises `Aborted` (a commit was not possible: abort), `Fatal`, `Fenced`.
        """
        if committed and self.state is State.IN_DOUBT and self._decided is not None:
            await self._decided.wait()
        self._cluster.check_open()
        self.advance(Event.COMMIT if committed else Event.ABORT)
        ending = self._ending = trio.Event()
        outcome: list[OdradekError] = []
        self._cluster.spawn(self._run_end, committed, outcome, ending)
        await ending.wait()
        if outcome:
            raise outcome[0]

    async def finish(self) -> None:
        """Before the producer closes: end what was left open. Errors do not matter any more."""
        if self._ending is not None:
            await self._ending.wait()
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
            self._decided = None
            self._ending = None
            ending.set()

    async def _ask_for_end(self, committed: bool) -> None:
        """Ask the coordinator until it has confirmed the end, for `max_block_ms` altogether.

        Raises `Fatal` if it has not: then only another producer can go on.
        """
        try:
            await self._cluster.within(
                f"{'committing' if committed else 'aborting'} the transaction of "
                f"{self.transactional_id!r}",
                partial(self._settle_and_end, committed),
            )
        except TimedOut as error:
            raise self._end_unknown(error, committed) from None

    async def _settle_and_end(self, committed: bool) -> None:
        if not committed:
            self._has_gap |= self._sender.drop(Aborted("the transaction was aborted"))
            await self._sender.settled()
            await self._all_asked()
            if self._decided is not None:
                await self._decided.wait()
            if self.state is State.FAILED and self.cause is not None:
                raise self.cause.copy()
        await self._end(committed)

    async def _all_asked(self) -> None:
        """Until nothing is asked of the coordinators for the transaction any more. With TV1 what
        comes after its end is part of the next one: nobody can tell them apart."""
        if self._storing:
            await self._stored.wait()
        async with self._coordinator_lock:
            pass

    async def _send_the_rest(self, state: State) -> None:
        """Until every record and offset of the transaction is stored. Raises what makes it
        impossible, which is whatever leads out of `state`."""
        self._sender.start_flush()
        try:
            while (self._accumulator.incomplete or self._storing) and self.state is state:
                if self._accumulator.incomplete:
                    await self._accumulator.changed()
                else:
                    await self._stored.wait()
        finally:
            self._sender.end_flush()
        if self.state is State.IN_DOUBT and self._decided is not None:
            await self._decided.wait()
        if self.state is not state:
            if self.cause is None:  # somebody else has ended it meanwhile
                raise Refused(f"the transaction is {self.state.value}")
            raise self.cause.copy()

    async def _end(self, committed: bool) -> None:
        """EndTxn, and a new epoch where it needs one."""
        if self._was_ended or not (self._is_started or self._prepared):
            return
        if not self._is_started:
            # Prepared without anything in it: the broker knows nothing of it, and only has to spend
            # the epoch. Else what was prepared would look like the next transaction.
            committed = False
        try:
            self._sender.identity = await self._requests.end_txn(
                self._sender.identity, committed=committed
            )
            if self._has_gap and self.transaction_version < 2:
                self._sender.identity = await self._requests.init_producer_id(self._sender.identity)
        except Refusal as refusal:
            await self._recover(committed, refusal)
        except Refused as error:
            raise self._end_unknown(error, committed) from None

    def _end_unknown(self, error: OdradekError, committed: bool) -> Fatal:
        after_ms = None if self.never_times_out else self._timeout_ms
        self.fail(failure := end_unknown(error, committed=committed, aborted_after_ms=after_ms))
        return failure

    async def _recover(self, committed: bool, refusal: Refusal) -> None:
        """EndTxn was refused: find out why, and make a clean start if that is possible."""
        if refusal.code not in _UNKNOWN_END:
            error = refusal.error
            may_abort = committed and self._prepared is None
            if not (may_abort or isinstance(error, Fatal)):
                # Nothing but another producer helps where an abort is refused, or the commit of
                # what is prepared: that it is to be committed may be decided elsewhere.
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
            self._was_ended = True
            self._set_back(Event.TIMED_OUT, timed_out(self.transactional_id, self._timeout_ms))
            assert self.cause is not None
            raise self.cause.copy()
