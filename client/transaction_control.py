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
repeated until it is answered: it may be, the coordinator knows a repeated one.
"""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import trio

from odradek.client.accumulator import NO_PRODUCER, Accumulator, ProducerIdentity
from odradek.client.cluster import COORDINATOR_MOVED, GROUP, TRANSACTION, Cluster
from odradek.client.config import ProducerConfig
from odradek.client.connection import TRANSACTION_FEATURE, Connection
from odradek.client.errors import (
    FENCED,
    Aborted,
    Closed,
    Disconnected,
    Fatal,
    Fenced,
    OdradekError,
    Refused,
    Retriable,
    TimedOut,
    code_of,
    transactional_error_for,
)
from odradek.client.sender import PRODUCE_WITH_NAMES, Sender
from odradek.client.txn import Event, State, step
from odradek.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.errors import RETRIABLE, ErrorCode

T = TypeVar("T")

TV1_PRODUCE: Final = 11
TV1_ADD_PARTITIONS: Final = 3
TV1_TXN_OFFSET_COMMIT: Final = 4
TV1_END_TXN: Final = 4
TV2_PRODUCE: Final = 12
TV2_TXN_OFFSET_COMMIT: Final = 5
TV2_END_TXN: Final = 5
EXPECTS_EPOCH: Final = 3
"""The InitProducerId version that may say which id and epoch it has (KIP-360)."""

_UNKNOWN_END: Final = frozenset({*FENCED, ErrorCode.INVALID_TXN_STATE})
"""Answers to EndTxn after which only InitProducerId can tell what happened."""


class _Refusal(Exception):
    """A coordinator's refusal that is not retriable."""

    def __init__(self, code: ErrorCode, error: OdradekError) -> None:
        super().__init__(str(error))
        self.code = code
        self.error = error


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
        self.transaction_version = 1
        self.produce_at_most = TV1_PRODUCE
        self.partitions: dict[TopicPartition, None] = {}
        self.groups: dict[str, None] = {}
        self.number = 0
        """Transactions begun."""
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._sender = sender
        self._is_started = False
        self._has_gap = False
        self._was_ended = False
        self._wanted: dict[TopicPartition, None] = {}
        self._is_adding = False
        self._coordinator_lock = trio.Lock()
        self._decided: trio.Event | None = None
        self._ending: trio.Event | None = None

    # State

    def advance(self, event: Event) -> None:
        """Take one step of the table. Raises what the table refuses with, and why."""
        try:
            self.state = step(self.state, event)
        except OdradekError as refusal:
            if self.cause is None:
                raise
            raise type(self.cause)(f"{refusal}; {self.cause}", code=self.cause.code) from None

    def check_sending(self) -> None:
        """Raises unless records and offsets may be given to the transaction now."""
        self.advance(Event.SEND)

    def _set_back(self, event: Event, error: OdradekError) -> None:
        """Something went wrong with the transaction, or with the producer altogether."""
        before = self.state
        self.state = step(self.state, event)
        if self.state is not before and self.state in (State.ABORTABLE, State.FAILED):
            self.cause = error
            self._sender.drop(error)
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
        """Take over the transactional id: fences whoever had it, ends what it left open.

        Raises `Fatal`, `Refused` or `TimedOut`.
        """
        try:
            self._sender.identity = await self._init_producer_id(NO_PRODUCER)
        except _Refusal as refusal:
            raise refusal.error from None
        self.advance(Event.INITIALISED)

    async def _init_producer_id(self, expected: ProducerIdentity) -> ProducerIdentity:
        """Raises `_Refusal`, `TimedOut`."""
        doing = f"starting transactional id {self.transactional_id!r}"
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.epoch,
        )

        async def attempt() -> ProducerIdentity:
            connection = await self._coordinator()
            version = connection.version_of(INIT_PRODUCER_ID)
            if expected is not NO_PRODUCER and version < EXPECTS_EPOCH:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
                raise _Refusal(code, transactional_error_for(code, doing))
            self._choose_version(connection)
            answer = await connection.request(INIT_PRODUCER_ID, version, request)
            self._check(answer.error_code, doing)
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return await self._repeat(doing, attempt)

    async def _coordinator(self) -> Connection:
        node_id = await self._cluster.coordinator(TRANSACTION, self.transactional_id)
        return await self._cluster.connection(node_id, "coordinator")

    def _choose_version(self, connection: Connection) -> None:
        """TV2 where the cluster has decided for it and the versions are there."""
        has_feature = connection.features.get(TRANSACTION_FEATURE, 0) >= 2
        served = connection.versions
        has_versions = all(
            api.key in served and served[api.key].max_version >= version
            for api, version in (
                (PRODUCE, TV2_PRODUCE),
                (TXN_OFFSET_COMMIT, TV2_TXN_OFFSET_COMMIT),
                (END_TXN, TV2_END_TXN),
            )
        )
        is_second = has_feature and has_versions
        self.transaction_version = 2 if is_second else 1
        self.produce_at_most = PRODUCE_WITH_NAMES if is_second else TV1_PRODUCE

    def _check(self, number: int, doing: str, said: str | None = None) -> None:
        """Raise `Retriable` or `_Refusal` for a coordinator's code."""
        if number == ErrorCode.NONE:
            return
        code = code_of(number)
        error = transactional_error_for(code, doing, said)
        if code in COORDINATOR_MOVED:
            self._cluster.forget_coordinator(TRANSACTION, self.transactional_id)
        if code in RETRIABLE:
            raise Retriable(str(error), code=code)
        raise _Refusal(code, error)

    async def _repeat(
        self, doing: str, attempt: Callable[[], Awaitable[T]], *, timeout_ms: float | None = None
    ) -> T:
        """Retry; after a lost connection the coordinator is looked for again."""

        async def guarded() -> T:
            try:
                return await attempt()
            except (Disconnected, TimedOut):
                self._cluster.forget_coordinator(TRANSACTION, self.transactional_id)
                raise

        return await self._cluster.retrying(doing, guarded, timeout_ms=timeout_ms)

    async def _decide(self, error: OdradekError) -> None:
        """Ask the coordinator whether the epoch went up by a time-out or by a successor."""
        assert self._decided is not None
        decided = self._decided
        try:
            self._sender.identity = await self._init_producer_id(self._sender.identity)
        except _Refusal as refusal:
            self.fail(self._taken_over() if refusal.code in FENCED else refusal.error)
        except OdradekError as failure:
            self.fail(Fatal(f"{error}; {failure}", code=error.code))
        else:
            self._was_ended = True
            self._set_back(Event.TIMED_OUT, self._timed_out())
        finally:
            decided.set()

    def _taken_over(self) -> Fenced:
        return Fenced(
            f"another producer with transactional id {self.transactional_id!r} has taken over; "
            f"this one must stop",
            code=ErrorCode.PRODUCER_FENCED,
        )

    def _timed_out(self) -> Aborted:
        return Aborted(
            f"the broker has aborted the transaction of {self.transactional_id!r} because it was "
            f"open for longer than transaction_timeout_ms={self._config.transaction_timeout_ms}; "
            f"do its work again, faster or with a larger limit",
            code=ErrorCode.INVALID_PRODUCER_EPOCH,
        )

    async def _refused(self, refusal: _Refusal) -> OdradekError:
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
                    await self._add(list(self._wanted))
        except _Refusal as refusal:
            await self._refused(refusal)
        except OdradekError as error:
            self._judge(error)
        finally:
            self._is_adding = False
        self._sender.pump()

    async def _add(self, wanted: list[TopicPartition]) -> None:
        self._is_started = True
        by_topic: dict[str, list[int]] = {}
        for topic, partition in wanted:
            by_topic.setdefault(topic, []).append(partition)
        producer_id, epoch = self._sender.identity
        doing = f"adding {', '.join(map(str, wanted))} to the transaction"
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=topic, partitions=tuple(partitions))
                for topic, partitions in by_topic.items()
            ),
        )

        async def attempt() -> None:
            connection = await self._coordinator()
            version = connection.version_of(ADD_PARTITIONS_TO_TXN, TV1_ADD_PARTITIONS)
            answer = await connection.request(ADD_PARTITIONS_TO_TXN, version, request)
            for topic in answer.results_by_topic_v3_and_below:
                for one in topic.results_by_partition:
                    if one.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        self._check(one.partition_error_code, doing)

        await self._repeat(doing, attempt)
        for partition in wanted:
            del self._wanted[partition]
            self.partitions[partition] = None

    # Offsets

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Store offsets with the transaction. Raises `Aborted`, `Fatal`, `TimedOut`."""
        self.check_sending()
        is_done = False
        try:
            if self.transaction_version < 2:
                await self._add_group(group.group_id)
            await self._commit_offsets(offsets, group)
            is_done = True
        except _Refusal as refusal:
            raise await self._refused(refusal) from None
        finally:
            if not is_done:
                # Nobody knows whether they are in: the transaction must not be committed.
                self.abort_needed(
                    Aborted(f"storing offsets of the group {group.group_id!r} was not finished")
                )

    async def _add_group(self, group_id: str) -> None:
        if group_id in self.groups:
            return
        doing = f"adding offsets of the group {group_id!r} to the transaction"
        producer_id, epoch = self._sender.identity
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=group_id,
        )

        async def attempt() -> None:
            connection = await self._coordinator()
            version = connection.version_of(ADD_OFFSETS_TO_TXN)
            answer = await connection.request(ADD_OFFSETS_TO_TXN, version, request)
            self._check(answer.error_code, doing)

        async with self._coordinator_lock:
            self._is_started = True
            await self._repeat(doing, attempt)

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        doing = f"storing offsets of the group {group.group_id!r} with the transaction"
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), stored in offsets.items():
            by_topic.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=stored.offset,
                    committed_leader_epoch=stored.leader_epoch,
                    committed_metadata=stored.metadata,
                )
            )
        producer_id, epoch = self._sender.identity
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=tuple(
                TxnOffsetCommitRequestTopic(name=topic, partitions=tuple(partitions))
                for topic, partitions in by_topic.items()
            ),
        )
        at_most = TV1_TXN_OFFSET_COMMIT if self.transaction_version < 2 else TV2_TXN_OFFSET_COMMIT

        async def attempt() -> None:
            answer = await self._cluster.ask_coordinator(
                GROUP, group.group_id, TXN_OFFSET_COMMIT, request, at_most=at_most
            )
            for topic in answer.topics:
                for one in topic.partitions:
                    if one.error_code in COORDINATOR_MOVED:
                        self._cluster.forget_coordinator(GROUP, group.group_id)
                    self._check(one.error_code, doing)

        self._is_started = True
        self.groups[group.group_id] = None
        await self._cluster.retrying(doing, attempt)

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
        self.partitions = {}
        self.groups = {}
        self._wanted = {}
        self._is_started = self._has_gap = self._was_ended = False

    async def end(self, *, committed: bool) -> None:
        """Commit or abort, and wait for the answer; cancelling ends only the waiting.

        Raises `Aborted` (a commit was not possible: abort), `Fatal`, `Fenced`.
        """
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
                await self._send_the_rest()
            else:
                self._sender.drop(Aborted("the transaction was aborted"))
                await self._sender.settled()
                if self._decided is not None:
                    await self._decided.wait()
            await self._end(committed)
            self.advance(Event.ENDED)
            outcome.clear()
        except OdradekError as error:
            outcome[0] = error
        finally:
            self._decided = None
            self._ending = None
            ending.set()

    async def _send_the_rest(self) -> None:
        """Until every record of the transaction is stored. Raises what makes it impossible."""
        self._sender.start_flush()
        try:
            while self._accumulator.incomplete and self.state is State.COMMITTING:
                await self._accumulator.changed()
        finally:
            self._sender.end_flush()
        if self.state is State.IN_DOUBT and self._decided is not None:
            await self._decided.wait()
        if self.state is not State.COMMITTING:
            assert self.cause is not None, self.state
            raise self.cause.copy()

    async def _end(self, committed: bool) -> None:
        """EndTxn, and a new epoch where it needs one."""
        if not self._is_started or self._was_ended:
            return
        word = "committing" if committed else "aborting"
        doing = f"{word} the transaction of {self.transactional_id!r}"
        try:
            await self._end_txn(committed, doing)
            if self._has_gap and self.transaction_version < 2:
                self._sender.identity = await self._init_producer_id(self._sender.identity)
        except _Refusal as refusal:
            await self._recover(committed, refusal)
        except (TimedOut, Refused) as error:
            left = (
                "whether it was committed is not known"
                if committed
                else f"the broker aborts it after {self._config.transaction_timeout_ms} ms"
            )
            failure = Fatal(f"{error}; {left}. Make a new producer.", code=error.code)
            self.fail(failure)
            raise failure from None

    async def _end_txn(self, committed: bool, doing: str) -> None:
        at_most = TV1_END_TXN if self.transaction_version < 2 else TV2_END_TXN
        producer_id, epoch = self._sender.identity
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
        )

        async def attempt() -> ProducerIdentity | None:
            connection = await self._coordinator()
            version = connection.version_of(END_TXN, at_most)
            answer = await connection.request(END_TXN, version, request)
            self._check(answer.error_code, doing)
            if answer.producer_id < 0:
                return None
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        identity = await self._repeat(doing, attempt)
        if identity is not None:
            self._sender.identity = identity

    async def _recover(self, committed: bool, refusal: _Refusal) -> None:
        """EndTxn was refused: find out why, and make a clean start if that is possible."""
        if refusal.code not in _UNKNOWN_END:
            self._judge(refusal.error)
            raise refusal.error
        try:
            self._sender.identity = await self._init_producer_id(self._sender.identity)
        except _Refusal as second:
            failed = self._taken_over() if second.code in FENCED else second.error
            self.fail(failed)
            raise failed from None
        except OdradekError as error:
            failure = Fatal(str(error), code=error.code)
            self.fail(failure)
            raise failure from None
        if committed:
            self._was_ended = True
            self._set_back(Event.TIMED_OUT, self._timed_out())
            assert self.cause is not None
            raise self.cause.copy()
