"""The transaction coordinator: asks the table, makes the answer durable, then lets it be seen.

Each operation is check -> step -> append -> apply -> effects: `state.py` has the first two,
`ledger.py` the next two. While an append is under way the id is pending; while markers are under
way it is Prepare*. Others do not get CONCURRENT_TRANSACTIONS at once, as from Kafka, but wait for
that to pass, a second at most: small transactions in a row never pay for a client's back-off. What
is answered in the end is what Kafka answers to the last retry. InitProducerId on an open
transaction is the longest of these: it fences, waits until the abort is complete, and then goes on
as the retry would.

Whoever waits has decided nothing yet: after each wait the request is looked at anew.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final

import trio

from odradek.broker.env import Clock
from odradek.broker.state_partition import StatePartitions
from odradek.broker.topic_partition import TopicPartition
from odradek.broker.txn import explain, state, store
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.expiry import abort_timed_out, remove_expired
from odradek.broker.txn.ledger import Ledger, insist
from odradek.broker.txn.markers import Debt, Markers, MarkerSender, MarkersStopped
from odradek.broker.txn.producer_ids import ProducerIds
from odradek.broker.txn.state import Answer, Event, Move, Request
from odradek.broker.txn.tenure import Entry
from odradek.broker.txn.transaction import (
    BumpCause,
    ClientIdentity,
    ProducerIdAndEpoch,
    State,
    Transaction,
)
from odradek.broker.txn.view import TransactionView, view_of
from odradek.protocol.errors import ErrorCode, KafkaError

REFUSALS: Final = {
    Answer.INVALID: ErrorCode.INVALID_TXN_STATE,
    Answer.FENCED: ErrorCode.PRODUCER_FENCED,
    Answer.FOREIGN: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}

BEFORE_PREPARE: Final = "before-prepare"
AFTER_PREPARE: Final = "after-prepare"

log = logging.getLogger("odradek.txn")


class TransactionCoordinator:
    def __init__(
        self,
        *,
        state_partitions: StatePartitions,
        producer_ids: ProducerIds,
        markers: MarkerSender,
        clock: Clock,
        config: TransactionConfig,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        """`reached` is told about `before-prepare` and `after-prepare`: the fault points here."""
        self._reached = reached
        self._producer_ids = producer_ids
        self._markers = Markers(markers)
        self._clock = clock
        self._config = config
        self._ledger = Ledger(state_partitions, clock, config, self._finish_soon)
        self._nursery: trio.Nursery | None = None

    # Life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Finish, time out and expire transactions until cancelled. Start this before `load`."""
        try:
            async with trio.open_nursery() as nursery:
                self._markers.use(nursery)
                nursery.start_soon(abort_timed_out, self._ledger, self._time_out)
                nursery.start_soon(remove_expired, self._ledger, self._clock)
                self._nursery = nursery
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
        max_wait_ms: int | None = None,
    ) -> ProducerIdAndEpoch:
        """A producer id and an epoch. Whoever had the id before is fenced; what it left open is
        aborted first. Without a transactional id: a fresh producer id, nothing else matters.

        Raises KafkaError: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS, the coordinator errors.
        """
        if transactional_id is None:
            fresh = await self._producer_ids.next()
            return ProducerIdAndEpoch(producer_id=fresh, producer_epoch=0)
        _check_id(transactional_id)
        self._check_timeout(transactional_id, timeout_ms)

        def request_for(transaction: Transaction) -> Request:
            event = state.init_event(transaction, expected)
            resumes = event in (Event.INIT_CURRENT, Event.INIT_LAST)
            return Request(
                event=event,
                now_ms=self._clock.wall_ms(),
                timeout_ms=timeout_ms,
                client=client,
                cause=BumpCause.RESUMED if resumes else BumpCause.NEW_INSTANCE,
            )

        after = await self._perform(
            lambda: self._entry_or_new(transactional_id, timeout_ms), request_for, max_wait_ms
        )
        return after.told

    async def add_partitions(
        self,
        *,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        transaction_version: int,
        max_wait_ms: int | None = None,
    ) -> None:
        """Put `partitions` into the producer's transaction; the first begins one.

        `transaction_version`: 2 where the client's request implies it (Produce 12,
        TxnOffsetCommit 5), else 0. Returns without a checkpoint if they are in already.

        Raises KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS, the coordinator errors.
        """
        _check_id(transactional_id)
        added = frozenset(partitions)

        def request_for(transaction: Transaction) -> Request:
            return Request(
                event=state.add_event(transaction, producer, added),
                now_ms=self._clock.wall_ms(),
                transaction_version=transaction_version,
                partitions=added,
            )

        await self._perform(lambda: self._entry(transactional_id), request_for, max_wait_ms)

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
        max_wait_ms: int | None = None,
    ) -> ProducerIdAndEpoch:
        """Return when the decision is durable; the markers follow on their own.

        `transaction_version`: 2 for EndTxn 5, else 0. The answer is what EndTxn 5 tells the
        producer to use from now on.

        Raises KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS, the coordinator errors.
        """
        _check_id(transactional_id)

        def request_for(transaction: Transaction) -> Request:
            version = transaction_version
            return Request(
                event=state.end_event(transaction, producer, version, committed=committed),
                now_ms=self._clock.wall_ms(),
                transaction_version=version,
            )

        after = await self._perform(lambda: self._entry(transactional_id), request_for, max_wait_ms)
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

    def _check_timeout(self, transactional_id: str, timeout_ms: int) -> None:
        limit_ms = self._config.transaction_max_timeout_ms
        if not 0 < timeout_ms <= limit_ms:
            message = (
                f"{transactional_id!r} asks for a transaction time-out of {timeout_ms} ms; it must "
                f"be above 0 and at most transaction.max.timeout.ms, which is {limit_ms} ms"
            )
            log.warning("%s", message)
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, message)

    # Step and append

    async def _perform(
        self,
        entry_of: Callable[[], Entry | None],
        request_for: Callable[[Transaction], Request],
        max_wait_ms: int | None,
    ) -> Transaction:
        """Carry a request through. Return the transaction as the request left it."""
        limit_ms = self._config.transaction_concurrent_wait_ms
        if max_wait_ms is not None:
            limit_ms = min(limit_ms, max_wait_ms)
        give_up_at = trio.current_time() + limit_ms / 1000
        has_fenced = False
        while True:
            entry = entry_of()
            if entry is None:
                await self._producer_ids.refill()
                continue
            request = request_for(entry.transaction)
            version = request.transaction_version
            cell = state.decide(
                entry.transaction, request.event, version, is_pending=entry.pending is not None
            )
            if isinstance(cell, Move):
                before = entry.transaction
                is_fence = cell.target is State.PREPARE_EPOCH_FENCE
                if not await self._move(entry, cell, request):
                    continue
                if not has_fenced:
                    _log_move(entry, before, request)
                if not is_fence:
                    return entry.transaction
                has_fenced = True
            elif cell is Answer.DONE:
                return entry.transaction
            elif cell is Answer.BUSY:
                await _wait_for_change(entry, give_up_at)
            else:
                raise _refusal(entry, request, REFUSALS[cell])

    async def _move(self, entry: Entry, move: Move, request: Request) -> bool:
        """Make a move durable and visible. False: it needs a producer id, which had to be fetched
        first, so look at everything anew. Raises KafkaError: the log did not take it.
        """
        transaction = entry.transaction
        if move.target is State.PREPARE_EPOCH_FENCE:
            # Never stored, never seen: the abort that follows is the one append for both.
            transaction = state.step(transaction, move, request)
            request = replace(request, event=Event.ABORT_FENCED, transaction_version=2)
            abort = state.decide(transaction, request.event, request.transaction_version)
            assert isinstance(abort, Move)
            move = abort
        if state.needs_producer_id(transaction, move):
            producer_id = self._producer_ids.next_nowait()
            if producer_id is None:
                await self._producer_ids.refill()
                return False
            request = replace(request, producer_id=producer_id)
        following = state.step(transaction, move, request)
        if following.state.is_prepared:
            self._reached(BEFORE_PREPARE)
        await self._ledger.append(entry, following)
        if following.state.is_prepared:
            self._reached(AFTER_PREPARE)
        return True

    # Finishing

    def _finish_soon(self, entry: Entry) -> None:
        assert self._nursery is not None, "TransactionCoordinator.run has not been started"
        self._nursery.start_soon(self._finish, entry)

    async def _finish(self, entry: Entry) -> None:
        """Bring a decided transaction to its end: markers, then the record that says so."""
        with entry.tenure.bound():
            entry.debt = _debt_of(entry)
            try:
                await self._markers.deliver(entry.debt)
            except MarkersStopped as stopped:
                log.error(
                    "%r stays %s: %s to its marker, so a newer coordinator or an administrator has "
                    "written one there. It is tried again when the broker starts",
                    entry.transactional_id,
                    entry.transaction.state.label,
                    stopped,
                )
                return
            await insist(lambda: self._complete(entry))
            entry.debt = None

    async def _complete(self, entry: Entry) -> None:
        request = Request(event=Event.MARKED, now_ms=self._clock.wall_ms())
        cell = state.decide(entry.transaction, request.event, request.transaction_version)
        assert isinstance(cell, Move)
        await self._ledger.append(entry, state.step(entry.transaction, cell, request))

    # Deadlines

    async def _time_out(self, entry: Entry) -> None:
        """Abort a transaction that is open for too long. Raises KafkaError: the log refused."""
        while entry.timeout_at <= trio.current_time():
            if entry.pending is not None:
                await entry.changed()
                continue
            now_ms, cause = self._clock.wall_ms(), BumpCause.TIMEOUT
            request = Request(event=Event.FENCE, now_ms=now_ms, cause=cause)
            cell = state.decide(entry.transaction, request.event, request.transaction_version)
            assert isinstance(cell, Move), "only an open transaction has a deadline"
            before = entry.transaction
            if await self._move(entry, cell, request):
                _log_move(entry, before, request)


def _check_id(transactional_id: str) -> None:
    """Raises KafkaError: an empty id (KAFKA-5171), or one that no record's key can hold."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id may not be empty")
    size = len(transactional_id.encode(errors="surrogatepass"))
    if size > store.ID_MAX_BYTES:
        message = f"a transactional id has at most {store.ID_MAX_BYTES} bytes, not {size}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


async def _wait_for_change(entry: Entry, give_up_at: float) -> None:
    with trio.move_on_at(give_up_at):
        await entry.changed()
        return
    what = "being written" if entry.pending else f"still {entry.transaction.state.label}"
    message = f"the transaction of {entry.transactional_id!r} is {what}: try again"
    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, message)


def _refusal(entry: Entry, request: Request, code: ErrorCode) -> KafkaError:
    name, transaction = entry.transactional_id, entry.transaction
    if code is ErrorCode.INVALID_TXN_STATE:
        what = request.event.name.split("_")[0].lower()
        return KafkaError(code, f"{name!r} is {transaction.state.label}: nothing to {what}")
    return KafkaError(code, explain.why_locked_out(name, transaction, request.now_ms))


def _debt_of(entry: Entry) -> Debt:
    transaction = entry.transaction
    return Debt(
        transactional_id=entry.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=transaction.state is State.PREPARE_COMMIT,
        coordinator_epoch=entry.tenure.coordinator_epoch,
        transaction_version=transaction.transaction_version,
        owed=set(transaction.partitions),
    )


def _log_move(entry: Entry, before: Transaction, request: Request) -> None:
    """A line for everything that locks a producer out, in words."""
    line = explain.what_happened(entry.transactional_id, before, entry.transaction, request.now_ms)
    if line is not None:
        log.info("%s", line)
