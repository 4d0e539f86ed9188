"""The transaction coordinator: asks the table, makes the answer durable, then lets it be seen.

Each operation is check -> step -> append -> apply -> effects: `state.py` has the first two,
`ledger.py` the next two, and `steps.py` leads through them. While an append is under way the id is
pending; while markers are under way it is Prepare*. Others do not get CONCURRENT_TRANSACTIONS at
once, as from Kafka, but wait for that to pass, a second at most: small transactions in a row never
pay for a client's back-off. What is answered in the end is what Kafka answers to the last retry.
InitProducerId on an open transaction is the longest of these: it fences, waits until the abort is
complete, and then goes on as the retry would.

Whoever waits has decided nothing yet: after each wait the request is looked at anew.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import trio

from odradek.broker.client_identity import ClientIdentity
from odradek.broker.coordination.state_partition import StatePartitions
from odradek.broker.env import Clock
from odradek.broker.topic_partition import TopicPartition
from odradek.broker.txn import explain, state, store
from odradek.broker.txn.background import Background
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.events import (
    Event,
    Request,
    add_event,
    end_event,
    init_event,
)
from odradek.broker.txn.ledger import Ledger
from odradek.broker.txn.markers import MarkerSender
from odradek.broker.txn.narrator import Kind, Narrator
from odradek.broker.txn.presence import Presence
from odradek.broker.txn.producer_ids import ProducerIds
from odradek.broker.txn.steps import REFUSALS, Steps
from odradek.broker.txn.tenure import Entry
from odradek.broker.txn.transaction import NO_TIMEOUT_MS, BumpCause, ProducerIdAndEpoch, Transaction
from odradek.broker.txn.view import TransactionView, view_of
from odradek.protocol.errors import ErrorCode, KafkaError

MISCONFIGURED: Final = frozenset(
    {
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
TOLD: Final = frozenset({*REFUSALS.values(), *MISCONFIGURED})
"""The refusals that are in the log: those that trying again does not help."""


@dataclass(frozen=True, slots=True)
class Initialised:
    """The answer to InitProducerId: who the producer is from now on, and under which identity the
    transaction was begun that it finds open."""

    producer: ProducerIdAndEpoch
    ongoing: ProducerIdAndEpoch | None = None


class TransactionCoordinator:
    def __init__(
        self,
        *,
        state_partitions: StatePartitions,
        producer_ids: ProducerIds,
        clock: Clock,
        config: TransactionConfig,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        """`reached` is told about `before-prepare` and `after-prepare`: the fault points here."""
        self._producer_ids = producer_ids
        self._clock = clock
        self._config = config
        self._narrator = Narrator()
        self._ledger = Ledger(state_partitions, clock, config, self._finish_soon)
        self._steps = Steps(self._ledger, producer_ids, clock, config, self._narrator, reached)
        watches = config.transaction_abort_on_disconnect
        self.presence = Presence(self._producer_has_gone) if watches else None
        self._background: Background | None = None

    # Life

    async def run(
        self,
        sender: MarkerSender,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Finish, time out and expire transactions until cancelled. Start this before `load`.

        `sender` takes markers to the leaders of partitions.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._background = Background(
                    nursery, self._ledger, self._steps, sender, self._clock, self._narrator
                )
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._ledger.unload_all()

    async def load(self, partition_index: int) -> None:
        """Begin to coordinate what `__transaction_state-N`, which this broker leads, keeps.

        Requests are answered with COORDINATOR_LOAD_IN_PROGRESS until it is read. Raises KafkaError
        if it cannot be read; it is then not coordinated here.
        """
        await self._ledger.load(partition_index)

    def unload(self, partition_index: int) -> None:
        """This broker does not lead that partition any more: whoever waits gets NOT_COORDINATOR."""
        self._ledger.unload(partition_index)

    # Requests

    async def init_producer_id(
        self,
        *,
        transactional_id: str | None,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        client: ClientIdentity,
        two_phase: bool = False,
        keep_prepared: bool = False,
        by_administrator: bool = False,
    ) -> Initialised:
        """A producer id and an epoch. Whoever had the id before is fenced; what it left open is
        aborted first, or kept if `keep_prepared`. Without a transactional id: a fresh producer id,
        nothing else matters.

        `two_phase`: transactions never time out, whatever `timeout_ms` says (KIP-939).
        `by_administrator`: told by those who only want to end what is open.

        Raises KafkaError: INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, the coordinator
        errors.
        """
        if transactional_id is None:
            fresh = await self._producer_ids.next()
            return Initialised(ProducerIdAndEpoch(producer_id=fresh, producer_epoch=0))
        _check_id(transactional_id)

        def request_for(transaction: Transaction) -> Request:
            event = init_event(transaction, expected, keep=keep_prepared)
            return Request(
                event=event,
                now_ms=self._clock.wall_ms(),
                timeout_ms=NO_TIMEOUT_MS if two_phase else timeout_ms,
                client=client,
                cause=_cause_of(event, by_administrator),
            )

        with self._telling(transactional_id, "InitProducerId", client):
            self._check_two_phase(transactional_id, two_phase or keep_prepared)
            if not two_phase:
                self._check_timeout(transactional_id, timeout_ms)
            after = await self._steps.perform(
                lambda: self._entry_or_new(transactional_id, timeout_ms), request_for
            )
        return Initialised(after.told, after.ongoing)

    async def add_partitions(
        self,
        *,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        transaction_version: int,
        max_wait_ms: int | None = None,
        client: ClientIdentity | None = None,
    ) -> None:
        """Put `partitions` into the producer's transaction; the first begins one.

        `transaction_version`: 2 where the client's request implies it (Produce 12,
        TxnOffsetCommit 5), else 0. Returns without a checkpoint if they are in already. `client`:
        who asks, if a refusal is to be in the log.

        Raises KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS, the coordinator errors.
        """
        _check_id(transactional_id)
        added = frozenset(partitions)

        def request_for(transaction: Transaction) -> Request:
            return Request(
                event=add_event(transaction, producer, added),
                now_ms=self._clock.wall_ms(),
                transaction_version=transaction_version,
                partitions=added,
            )

        with self._telling(transactional_id, "a partition", client):
            await self._steps.perform(
                lambda: self._entry(transactional_id), request_for, max_wait_ms
            )

    def verify(
        self,
        *,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition is in the producer's open transaction (AddPartitionsToTxn with
        VerifyOnly, KIP-890). Synchronous: what is appended before the next checkpoint is covered.
        """
        try:
            _check_id(transactional_id)
            transaction = self._entry(transactional_id).transaction
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return {
            partition: state.verify(transaction, producer, partition) for partition in partitions
        }

    async def end_transaction(
        self,
        *,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        committed: bool,
        transaction_version: int,
        client: ClientIdentity | None = None,
    ) -> ProducerIdAndEpoch:
        """Return when the decision is durable; the markers follow on their own.

        `transaction_version`: 2 for EndTxn 5, else 0. The answer is what EndTxn 5 tells the
        producer to use from now on. `client` as in `add_partitions`.

        Raises KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS, the coordinator errors.
        """
        _check_id(transactional_id)

        def request_for(transaction: Transaction) -> Request:
            version = transaction_version
            return Request(
                event=end_event(transaction, producer, version, committed=committed),
                now_ms=self._clock.wall_ms(),
                transaction_version=version,
            )

        with self._telling(transactional_id, "the commit" if committed else "the abort", client):
            after = await self._steps.perform(lambda: self._entry(transactional_id), request_for)
        return after.told

    # Questions

    def describe(self, transactional_id: str) -> TransactionView:
        """Raises KafkaError: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, coordinator errors."""
        _check_id(transactional_id)
        entry = self._ledger.find(transactional_id)
        if entry is None:
            message = f"nobody uses the transactional id {transactional_id!r}"
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, message)
        return view_of(entry, self._clock.wall_ms())

    @property
    def transaction_count(self) -> int:
        """How many transactional ids are coordinated here."""
        return self._ledger.count

    def transactions(self) -> Iterator[TransactionView]:
        """Every transactional id that is coordinated here."""
        now_ms = self._clock.wall_ms()
        return (view_of(entry, now_ms) for entry in self._ledger.entries())

    def owner_of(self, producer_id: int) -> str | None:
        """The transactional id that has this producer id now, if it is coordinated here."""
        return self._ledger.owner_of(producer_id)

    @property
    def is_loading(self) -> bool:
        return self._ledger.is_loading

    def why_refused(self, transactional_id: str, producer: ProducerIdAndEpoch) -> str | None:
        """Why that producer is not the current one any more, in a sentence, if that is known."""
        try:
            entry = self._ledger.find(transactional_id)
        except KafkaError:
            return None
        if entry is None or entry.transaction.current == producer:
            return None
        return view_of(entry, self._clock.wall_ms()).explanation

    # The log

    def tell_refused(
        self,
        transactional_id: str,
        what: str,
        client: ClientIdentity,
        why: str,
        *,
        level: int = logging.INFO,
    ) -> None:
        """Have a refused request in the log, with the cause in words. What is said of ids that
        nobody has stands for each other: there may be any number of them."""
        try:
            is_known = self._ledger.find(transactional_id) is not None
        except KafkaError:
            is_known = False
        subject = transactional_id if is_known else ""
        line = explain.refused(what, client, why)
        self._narrator.say(Kind.REFUSED, subject, line, level=level)

    def marked_by_hand(
        self,
        *,
        partition: TopicPartition,
        producer: ProducerIdAndEpoch,
        committed: bool,
        code: ErrorCode,
        client: ClientIdentity,
    ) -> None:
        """An administrator, not a coordinator, has sent a marker to `partition`."""
        owner = self._ledger.owner_of(producer.producer_id)
        line = explain.marked_by_hand(owner, partition, producer, committed, code, client)
        self._narrator.say(Kind.MARKED_BY_HAND, owner or "", line, level=logging.WARNING)

    @contextmanager
    def _telling(
        self, transactional_id: str, what: str, client: ClientIdentity | None
    ) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            if error.code in TOLD and client is not None:
                level = logging.WARNING if error.code in MISCONFIGURED else logging.INFO
                self.tell_refused(transactional_id, what, client, error.message, level=level)
            raise

    # Check

    def _entry(self, transactional_id: str) -> Entry:
        entry = self._ledger.find(transactional_id)
        if entry is None:
            message = (
                f"{transactional_id!r} has no producer id: it never had one, or was idle for "
                f"longer than transactional.id.expiration.ms"
            )
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
        return entry

    def _entry_or_new(self, transactional_id: str, timeout_ms: int) -> Entry | None:
        """None: there is no producer id at hand for a new one."""
        tenure = self._ledger.tenure_of(transactional_id)
        entry = tenure.entries.get(transactional_id)
        if entry is None:
            producer_id = self._producer_ids.next_nowait()
            if producer_id is None:
                return None
            unused = Transaction(producer_id=producer_id, timeout_ms=timeout_ms)
            entry = tenure.entries[transactional_id] = Entry(tenure, transactional_id, unused)
        return entry

    def _check_two_phase(self, transactional_id: str, is_asked_for: bool) -> None:
        if is_asked_for and not self._config.transaction_two_phase_commit_enable:
            message = (
                f"{transactional_id!r} asks for two-phase commit, and "
                f"transaction.two.phase.commit.enable is not set"
            )
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)

    def _check_timeout(self, transactional_id: str, timeout_ms: int) -> None:
        limit_ms = self._config.transaction_max_timeout_ms
        if not 0 < timeout_ms <= limit_ms:
            message = (
                f"{transactional_id!r} asks for a transaction time-out of {timeout_ms} ms; it must "
                f"be above 0 and at most transaction.max.timeout.ms, which is {limit_ms} ms"
            )
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, message)

    # Background

    def _finish_soon(self, entry: Entry) -> None:
        assert self._background is not None, "TransactionCoordinator.run has not been started"
        self._background.finish(entry)

    def _producer_has_gone(
        self, transactional_id: str, producer: ProducerIdAndEpoch, client: ClientIdentity
    ) -> None:
        try:
            entry = self._ledger.find(transactional_id)
        except KafkaError:  # it is not coordinated here any more
            return
        if entry is not None and self._background is not None:
            self._background.abort_disconnected(entry, producer, client)


def _cause_of(event: Event, by_administrator: bool) -> BumpCause:
    if by_administrator:
        return BumpCause.ADMINISTRATOR
    resumes = event in (Event.INIT_CURRENT, Event.INIT_LAST)
    return BumpCause.RESUMED if resumes else BumpCause.NEW_INSTANCE


def _check_id(transactional_id: str) -> None:
    """Raises KafkaError: an empty id (KAFKA-5171), or one that no record's key can hold."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id may not be empty")
    size = len(transactional_id.encode(errors="surrogatepass"))
    if size > store.ID_MAX_BYTES:
        message = f"a transactional id has at most {store.ID_MAX_BYTES} bytes, not {size}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
