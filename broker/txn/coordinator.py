"""The transaction coordinator: looks up an event in the table, makes the result durable, shows it.

Each operation is check -> step -> append -> replay -> effects: `state.py` has the first two,
`ledger.py` the next two, and `steps.py` leads through them. While an append is under way the id is
pending; while markers are under way it is Prepare*. Kafka returns CONCURRENT_TRANSACTIONS to other
requests at once. This coordinator lets them wait for up to `transaction.concurrent.wait.ms` first,
so that small transactions in a row do not pay for a client's back-off (KAFKA-5477). The answer is
what Kafka returns to the last retry. InitProducerId on an open transaction waits longest: it
fences, waits until the abort is complete, and then goes on as the client's retry would.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import trio

from odradek.broker.coordination.state_partition import StatePartitions
from odradek.broker.environment.env import Clock
from odradek.broker.txn import explain, state, store
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.counts import TransactionCounts
from odradek.broker.txn.events import Event, StepRequest, add_event, end_event, init_event
from odradek.broker.txn.expiry import RoomForIds
from odradek.broker.txn.ledger import Ledger
from odradek.broker.txn.markers import MarkerSender
from odradek.broker.txn.narrator import Kind, Narrator
from odradek.broker.txn.presence import Presence
from odradek.broker.txn.producer_ids import ProducerIds
from odradek.broker.txn.steps import REFUSALS, Steps
from odradek.broker.txn.tasks import CoordinatorTasks
from odradek.broker.txn.tenure import Entry, OnChanged
from odradek.broker.txn.transaction import (
    NO_TIMEOUT_MS,
    BumpCause,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from odradek.broker.txn.transaction_group import GroupEnds, TransactionMember
from odradek.broker.txn.view import TransactionView, view_of
from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import TopicIdPartition, TopicPartition
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError

MISCONFIGURED: Final = frozenset(
    {
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
LOGGED: Final = frozenset({*REFUSALS.values(), *MISCONFIGURED})
"""The refusals that are logged: a retry does not help against them."""


@dataclass(frozen=True, slots=True)
class Initialised:
    """The answer to InitProducerId.

    `producer` is the producer's id and epoch from now on. `ongoing` is those of the open
    transaction that it has kept (KIP-939).
    """

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
        is_by_tag: Callable[[], bool],
        reached: Callable[[str], None] = lambda point: None,
        on_changed: OnChanged | None = None,
    ) -> None:
        """Make a coordinator of no partition yet.

        `is_by_tag` says whether ids are kept where their tag hashes to. `reached` is called at the
        fault points `before-prepare` and `after-prepare`. `on_changed` is called with each entry
        that has changed.
        """
        self._producer_ids = producer_ids
        self._clock = clock
        self._config = config
        self._narrator = Narrator()
        self._ledger = Ledger(
            state_partitions,
            clock,
            config,
            on_decided=lambda entries: self._started_tasks.finish(entries),
            on_uncertain=lambda index: self._started_tasks.read_anew(index),
            is_by_tag=is_by_tag,
            on_appended=lambda entry, to: self._started_tasks.mark_early(entry, to),
            commit_later=lambda commit: self._started_tasks.commit_later(commit),
            on_changed=on_changed,
        )
        self._room = RoomForIds(self._ledger, clock, config.transactional_ids_max_bytes)
        self._steps = Steps(
            self._ledger, self._room, producer_ids, clock, config, self._narrator, reached
        )
        self._group_ends = GroupEnds(self._ledger, producer_ids, clock, config, reached)
        self._allows_two_phase = config.transaction_two_phase_commit_enable
        watches = config.transaction_abort_on_disconnect
        self.presence = Presence(self._producer_has_gone, is_on=watches)
        self._tasks: CoordinatorTasks | None = None

    # Life

    def configure(self, *, allows_two_phase: bool, aborts_on_disconnect: bool) -> None:
        """Change the settings that may change while the broker runs."""
        self._allows_two_phase = allows_two_phase
        self.presence.turn(aborts_on_disconnect)

    async def run(
        self, sender: MarkerSender, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Finish, time out and expire transactions until cancelled. Start this before `load`.

        `sender` sends markers to the leaders of partitions.
        """
        async with trio.open_nursery() as nursery:
            self._tasks = CoordinatorTasks(
                nursery, self._ledger, self._steps, sender, self._clock, self._narrator
            )
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                # While the nursery still takes tasks: what is written at the same moment may want
                # to start one.
                self._ledger.unload_all()

    async def load(self, partition_index: int) -> None:
        """Begin to coordinate the ids in `__transaction_state-N`, which this broker leads.

        Until the partition is read, requests get COORDINATOR_LOAD_IN_PROGRESS. Raises KafkaError if
        the partition cannot be read; its ids are then not coordinated here.
        """
        await self._ledger.load(partition_index)

    def unload(self, partition_index: int) -> None:
        """Stop coordinating a partition that this broker does not lead any more.

        Requests that wait get NOT_COORDINATOR.
        """
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
        without_markers: bool = False,
    ) -> Initialised:
        """Return a producer id and an epoch, and fence the instance that had the id before.

        An open transaction of that instance is aborted first, or kept if `keep_prepared`. Without a
        transactional id, return a fresh producer id; nothing else matters then.

        `two_phase`: transactions never time out, whatever `timeout_ms` is (KIP-939).
        `by_administrator`: an administrator sends it, only to end what is open. The explanation of
        the fence names an administrator then.
        `without_markers`: give up the markers that a decided transaction still owes. The id is free
        then. In these partitions the transaction stays open until markers are written by hand.

        Raises KafkaError: INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, the coordinator
        errors; COORDINATOR_LOAD_IN_PROGRESS, too, if there is no room for another id for now.
        """
        if transactional_id is None:
            fresh = await self._producer_ids.next()
            return Initialised(ProducerIdAndEpoch(producer_id=fresh, producer_epoch=0))
        store.check_id(transactional_id)

        def request_for(transaction: TransactionMetadata) -> StepRequest:
            event = init_event(transaction, expected, keep=keep_prepared)
            return StepRequest(
                event=event,
                now_ms=self._clock.wall_ms(),
                timeout_ms=NO_TIMEOUT_MS if two_phase else timeout_ms,
                client=client,
                cause=_cause_of(event, by_administrator),
            )

        with self._logging_refusals(transactional_id, "InitProducerId", client):
            self._check_two_phase(transactional_id, two_phase or keep_prepared)
            if not two_phase:
                self._check_timeout(transactional_id, timeout_ms)
            await self._room.make(transactional_id)
            if without_markers:
                self._give_markers_up(transactional_id, client)
            after = await self._steps.perform(
                lambda: self._entry_or_new(transactional_id, timeout_ms), request_for
            )
        return Initialised(after.assigned_producer, after.ongoing)

    async def add_partitions(
        self,
        *,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicIdPartition],
        transaction_version: int,
        max_wait_ms: int | None = None,
        client: ClientIdentity | None = None,
        may_follow: Callable[[], bool] = lambda: False,
    ) -> None:
        """Add `partitions` to the producer's transaction; the first of them begins it.

        `transaction_version`: 2 where the client's request implies it (Produce 12,
        TxnOffsetCommit 5), else 0. Returns without a checkpoint if all are in it already. `client`:
        the sender of the request, if a refusal is to be logged. `may_follow` is as in
        `Ledger.write`: if it returns True, the addition is not durable yet.

        Raises KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS, the coordinator errors; COORDINATOR_LOAD_IN_PROGRESS, too, if there
        is no room for more partitions for now.
        """
        store.check_id(transactional_id)
        added = frozenset(partitions)

        def request_for(transaction: TransactionMetadata) -> StepRequest:
            return StepRequest(
                event=add_event(transaction, producer, added),
                now_ms=self._clock.wall_ms(),
                transaction_version=transaction_version,
                partitions=added,
            )

        with self._logging_refusals(transactional_id, "a partition", client):
            await self._steps.perform(
                lambda: self._entry(transactional_id), request_for, max_wait_ms, may_follow
            )
        self._ledger.note_heard(transactional_id)

    def verify(
        self,
        *,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicIdPartition],
    ) -> dict[TopicIdPartition, ErrorCode]:
        """Return NONE for each partition in the producer's open transaction, for others the error.

        This is AddPartitionsToTxn with VerifyOnly (KIP-890). It is synchronous: the answer holds
        for what is appended before the next checkpoint.
        """
        try:
            store.check_id(transactional_id)
            transaction = self._entry(transactional_id).for_leaders
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
        """Commit or abort. Return when the decision is durable; the markers are written afterwards.

        `transaction_version`: 2 for EndTxn 5, else 0. The result is the producer id and epoch that
        EndTxn 5 returns, for the next transaction. `client` as in `add_partitions`.

        Raises KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS, the coordinator errors.
        """
        store.check_id(transactional_id)

        def request_for(transaction: TransactionMetadata) -> StepRequest:
            version = transaction_version
            return StepRequest(
                event=end_event(transaction, producer, version, committed=committed),
                now_ms=self._clock.wall_ms(),
                transaction_version=version,
            )

        with self._logging_refusals(
            transactional_id, "the commit" if committed else "the abort", client
        ):
            after = await self._steps.perform(lambda: self._entry(transactional_id), request_for)
        return after.assigned_producer

    async def end_group(
        self,
        members: Sequence[TransactionMember],
        *,
        committed: bool,
        decision_id: UUID,
        client: ClientIdentity | None = None,
    ) -> list[ProducerIdAndEpoch | None]:
        """End the transactions of a group, whose leader is the first member. See `GroupEnds.end`.

        `client` as in `add_partitions`. Raises `MemberRefused`, KafkaError: INVALID_REQUEST, and as
        `end_transaction`.
        """
        self._ledger.check_groups()
        leader = members[0].transactional_id
        what = "the commit of a group" if committed else "the abort of a group"
        with self._logging_refusals(leader, what, client):
            return await self._group_ends.end(members, committed=committed, decision_id=decision_id)

    # Questions

    def describe(self, transactional_id: str) -> TransactionView:
        """Return what an id is doing.

        Raises KafkaError: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, the coordinator errors.
        """
        store.check_id(transactional_id)
        entry = self._ledger.find(transactional_id)
        if entry is None:
            message = f"no producer uses the transactional id {transactional_id!r}"
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, message)
        return view_of(entry, self._clock.wall_ms())

    @property
    def transaction_count(self) -> int:
        """The number of transactional ids that are coordinated here."""
        return self._ledger.count

    def transactions(self) -> Iterator[TransactionView]:
        """Yield all transactional ids that are coordinated here."""
        now_ms = self._clock.wall_ms()
        return (view_of(entry, now_ms) for entry in self._ledger.entries())

    def owner_of(self, producer_id: int) -> str | None:
        """Return the transactional id that has this producer id now, if it is coordinated here."""
        return self._ledger.owner_of(producer_id)

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that keeps an id."""
        return self._ledger.partition_for(transactional_id)

    def coordinator_epoch(self, transactional_id: str) -> int:
        """Return the epoch in which this broker coordinates an id; -1 if it does not."""
        return self._ledger.coordinator_epoch(transactional_id)

    @property
    def counts(self) -> TransactionCounts:
        return self._ledger.counts

    @property
    def is_loading(self) -> bool:
        return self._ledger.is_loading

    def why_refused(self, transactional_id: str, producer: ProducerIdAndEpoch) -> str | None:
        """Return one sentence about why `producer` is fenced; None if it is not, or not known."""
        try:
            entry = self._ledger.find(transactional_id)
        except KafkaError:
            return None
        if entry is None or entry.transaction.current == producer:
            return None
        return view_of(entry, self._clock.wall_ms()).explanation

    # The log

    def log_refused(
        self,
        transactional_id: str,
        what: str,
        client: ClientIdentity,
        why: str,
        *,
        level: int = logging.INFO,
    ) -> None:
        """Log a refused request with its cause."""
        # Clients may invent any number of ids. All unknown ids share one subject, so that the
        # narrator withholds the repetitions.
        try:
            is_known = self._ledger.find(transactional_id) is not None
        except KafkaError:
            is_known = False
        subject = transactional_id if is_known else ""
        line = explain.refusal_line(what, client, why)
        self._narrator.log(Kind.REFUSED, subject, line, level=level)

    def marked_by_hand(
        self,
        *,
        partition: TopicPartition,
        producer: ProducerIdAndEpoch,
        committed: bool,
        code: ErrorCode,
        client: ClientIdentity,
    ) -> None:
        """Log a marker that an administrator, not a coordinator, has sent to `partition`."""
        owner = self._ledger.owner_of(producer.producer_id)
        line = explain.marked_by_hand(owner, partition, producer, committed, code, client)
        self._narrator.log(Kind.MARKED_BY_HAND, owner or "", line, level=logging.WARNING)

    @contextmanager
    def _logging_refusals(
        self, transactional_id: str, what: str, client: ClientIdentity | None
    ) -> Iterator[None]:
        """Log a refusal that the block raises."""
        try:
            yield
        except KafkaError as error:
            if error.code in LOGGED and client is not None:
                level = logging.WARNING if error.code in MISCONFIGURED else logging.INFO
                self.log_refused(transactional_id, what, client, error.message, level=level)
            raise

    # Check

    def _entry(self, transactional_id: str) -> Entry:
        entry = self._ledger.find(transactional_id)
        if entry is None:
            is_member = self._ledger.group_of(transactional_id) is not None
            kind = "transaction.group" if is_member else "transactional"
            message = (
                f"{transactional_id!r} has no producer id: it never had one, or was idle for "
                f"longer than {kind}.id.expiration.ms"
            )
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
        return entry

    def _entry_or_new(self, transactional_id: str, timeout_ms: int) -> Entry | None:
        """Return the entry of an id, made if need be; None if no producer id is at hand for it."""
        tenure = self._ledger.tenure_of(transactional_id)
        entry = tenure.entries.get(transactional_id)
        if entry is None:
            number = self._producer_ids.next_nowait()
            if number is None:
                return None
            producer_id = self._ledger.producer_id(transactional_id, number)
            unused = TransactionMetadata(producer_id=producer_id, timeout_ms=timeout_ms)
            entry = self._ledger.new_entry(tenure, transactional_id, unused)
            tenure.add(entry)
        return entry

    def _check_two_phase(self, transactional_id: str, is_asked_for: bool) -> None:
        if is_asked_for and not self._allows_two_phase:
            message = (
                f"{transactional_id!r} asks for two-phase commit, and "
                f"transaction.two.phase.commit.enable is false"
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

    # Tasks

    def _give_markers_up(self, transactional_id: str, client: ClientIdentity) -> None:
        entry = self._ledger.find(transactional_id)
        if entry is not None and entry.debt is not None:
            entry.debt.give_up(client)

    @property
    def _started_tasks(self) -> CoordinatorTasks:
        assert self._tasks is not None, "TransactionCoordinator.run has not been started"
        return self._tasks

    def _producer_has_gone(
        self, transactional_id: str, producer: ProducerIdAndEpoch, client: ClientIdentity
    ) -> None:
        if self._ledger.group_of(transactional_id) is not None:
            return  # a member's process may end before the group is decided
        try:
            entry = self._ledger.find(transactional_id)
        except KafkaError:  # it is not coordinated here any more
            return
        if entry is not None and self._tasks is not None:
            self._tasks.abort_disconnected(entry, producer, client)


def _cause_of(event: Event, by_administrator: bool) -> BumpCause:
    if by_administrator:
        return BumpCause.ADMINISTRATOR
    resumes = event in (Event.INIT_CURRENT, Event.INIT_LAST)
    return BumpCause.RESUMED if resumes else BumpCause.NEW_INSTANCE
