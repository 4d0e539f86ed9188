"""The end of a transaction group: one decision for the transactions of many producers.

The first proposal of Kafka's protocol had transaction groups; Kafka dropped them. Here the
producers of a group have transactional ids with the same tag (`{orders}.task-7`), so they share a
coordinator, wherever it moves. One EndTxn lists the members, the first of which is the leader.

The table in `state.py` stays the specification: the end of a group is the same cell for each
member, taken together. It has these steps:

1. *Reserve* each member, in the order of ids: look up its cell, step, and make the id pending, so
   that nothing else changes it. A member that is busy, or lacks a producer id, releases all that
   are reserved, and the attempt begins anew. A member that is refused ends it: nothing is decided,
   and the error names that member.
2. *Append* the records of all members as one batch. It is written, replicated, recovered and cut as
   a whole. **This is the decision.** The record of each member says all that finishing needs,
   because compaction removes them one by one.
3. *Apply*, and finish as any decision is finished. All markers of a group for one partition travel
   in one request (`markers.py`).

Other tasks run between any two members of step 1, but none between the last check and the append.

A repeat is recognised by the leader's epoch, which is one behind, and by the decision id that the
leader's record has. It gets the answer of the first request, also if members have moved on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final
from uuid import UUID

import trio

from odradek.broker.environment.env import Clock
from odradek.broker.environment.turns import Turns
from odradek.broker.txn import explain, state, store
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.events import Event, StepRequest, end_event
from odradek.broker.txn.ledger import Ledger
from odradek.broker.txn.moves import ABORT2, COMMIT2, Move
from odradek.broker.txn.producer_ids import ProducerIds
from odradek.broker.txn.steps import (
    AFTER_PREPARE,
    BEFORE_PREPARE,
    REFUSALS,
    refusal,
    wait_for_change,
)
from odradek.broker.txn.tenure import Entry
from odradek.broker.txn.transaction import ProducerIdAndEpoch, State, TransactionMetadata
from odradek.broker.values.member_ids import member_id
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record

MEMBERS_MAX: Final = 10_000
PARTITIONS_MAX: Final = 200_000
"""The partitions of all members, each counted for every member that wrote to it."""
BATCH_MAX_BYTES: Final = 16 * 1024 * 1024
"""The keys and values of a decision. `max.message.bytes` does not apply to it."""

RESERVE_STEPS: Final = 5
ENCODE_STEPS: Final = 5
"""The cost of one member, in steps of a turn."""

ENDED_BY: Final = {
    Event.COMMIT_RETRY: (State.PREPARE_COMMIT, State.COMPLETE_COMMIT),
    Event.ABORT_RETRY: (State.PREPARE_ABORT, State.COMPLETE_ABORT),
}
"""The states in which a repeat finds the leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMember:
    transactional_id: str
    producer: ProducerIdAndEpoch


class MemberRefused(KafkaError):
    """The group was not decided because of one member."""

    def __init__(self, transactional_id: str, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.transactional_id: Final = transactional_id


class _Busy(Exception):
    """Something is under way for a member: all are released, and it is waited for."""

    def __init__(self, entry: Entry) -> None:
        self.entry: Final = entry


class _NoProducerId(Exception):
    """A member has come to the end of its epochs since the producer ids were fetched."""


class GroupEnds:
    """Decide groups. Their members are entries of the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        producer_ids: ProducerIds,
        clock: Clock,
        config: TransactionConfig,
        reached: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._producer_ids = producer_ids
        self._clock = clock
        self._config = config
        self._reached = reached

    async def end(
        self, members: Sequence[TransactionMember], *, committed: bool, decision_id: UUID
    ) -> list[ProducerIdAndEpoch | None]:
        """Commit or abort the transactions of all members. Return when the decision is durable.

        The result has the identity of each member for its next transaction; None if it has moved on
        since. Raises `MemberRefused`, KafkaError: the codes of `end_transaction`, INVALID_REQUEST;
        nothing is decided then, or it is not known whether it is.
        """
        await self._check_names(members)
        end = _End(committed=committed, decision_id=decision_id)
        give_up_at = trio.current_time() + self._config.transaction_concurrent_wait_ms / 1000
        while True:
            try:
                if not self._is_repeat(members[0], end):
                    await self._fetch_producer_ids(members, end)
                    await self._attempt(members, end)
                return await self._identities(members, decision_id)
            except _Busy as busy:
                await wait_for_change(busy.entry, give_up_at)
            except _NoProducerId:
                continue

    async def _check_names(self, members: Sequence[TransactionMember]) -> None:
        """Raise `MemberRefused`: a member without the leader's tag, or named twice; too many."""
        if len(members) > MEMBERS_MAX:
            message = f"a transaction group has at most {MEMBERS_MAX} members, not {len(members)}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        turns = Turns()
        leader = members[0].transactional_id
        group = self._ledger.group_of(leader)
        if group is None:
            message = f"{leader!r} has no tag in braces, so it is in no transaction group"
            raise _invalid(leader, message)
        seen = set()
        for member in members:
            await turns.take()
            name = member.transactional_id
            if self._ledger.group_of(name) != group:
                raise _invalid(name, f"{name!r} is not in the transaction group of {leader!r}")
            if name in seen:
                raise _invalid(name, f"{name!r} is named twice")
            seen.add(name)

    def _entry(self, member: TransactionMember) -> Entry:
        entry = self._ledger.find(member.transactional_id)
        if entry is None:
            message = f"{member.transactional_id!r} has no producer id, or not any more"
            raise MemberRefused(
                member.transactional_id, ErrorCode.INVALID_PRODUCER_ID_MAPPING, message
            )
        return entry

    def _is_repeat(self, leader: TransactionMember, end: "_End") -> bool:
        """Return True if the group was decided by an earlier request with this decision id.

        Raises `MemberRefused` if the leader's transaction was ended by another decision.
        """
        entry = self._entry(leader)
        transaction = entry.transaction
        ended = ENDED_BY.get(end.event(transaction, leader))
        if ended is None or transaction.state is State.ONGOING:
            return False
        # invariant transaction-groups 4: A repeat is known by the leader's epoch and the decision
        # id, and gets the first answer.
        # plant a repeat is refused after the members have moved on
        # plant another decision is taken for a repeat
        if transaction.decision_id != end.decision_id:
            message = self._what_ended(leader.transactional_id, transaction)
            raise MemberRefused(leader.transactional_id, ErrorCode.INVALID_TXN_STATE, message)
        # The table answers BUSY while markers are under way, as Kafka does for one producer. A
        # group's decision is known by its id, so that it need not be waited for.
        return transaction.state in ended

    def _what_ended(self, transactional_id: str, transaction: TransactionMetadata) -> str:
        """Return a sentence about the end of a leader's transaction, other than by its group."""
        bump = transaction.bump
        if bump is not None and bump.at_ms >= transaction.started_ms:
            return explain.why_locked_out(transactional_id, transaction, self._clock.wall_ms())
        return f"another decision has ended the transaction of {transactional_id!r}"

    async def _identities(
        self, members: Sequence[TransactionMember], decision_id: UUID
    ) -> list[ProducerIdAndEpoch | None]:
        found: list[ProducerIdAndEpoch | None] = []
        turns = Turns()
        for member in members:
            await turns.take()
            entry = self._ledger.find(member.transactional_id)
            is_same = entry is not None and entry.transaction.decision_id == decision_id
            found.append(
                entry.transaction.assigned_producer if entry is not None and is_same else None
            )
        return found

    async def _fetch_producer_ids(self, members: Sequence[TransactionMember], end: "_End") -> None:
        """Fetch a producer id for each member that has come to the end of its epochs."""
        turns = Turns()
        needed = 0
        for member in members:
            await turns.take()
            needed += self._entry(member).transaction.is_exhausted
        while len(end.producer_ids) < needed:
            end.producer_ids.append(member_id(await self._producer_ids.next()))

    async def _attempt(self, members: Sequence[TransactionMember], end: "_End") -> None:
        """Reserve, append and apply. Raises `_Busy`, `_NoProducerId`, `MemberRefused`, KafkaError.

        If it raises, nothing is reserved.
        """
        tenure = self._ledger.tenure_of(members[0].transactional_id)
        reserved: dict[Entry, TransactionMetadata] = {}
        end.producer_ids_used = 0
        try:
            await self._reserve(members, end, reserved)
            records = await _records(reserved)
            # From here to the append no other task runs. What is reserved cannot have changed,
            # unless the tenure has ended.
            tenure.check()
            self._reached(BEFORE_PREPARE)
            await self._ledger.write(reserved, records)
            self._reached(AFTER_PREPARE)
        finally:
            # invariant transaction-groups 2
            for entry, following in reserved.items():
                if entry.pending is following:
                    tenure.release(entry)

    async def _reserve(
        self,
        members: Sequence[TransactionMember],
        end: "_End",
        reserved: dict[Entry, TransactionMetadata],
    ) -> None:
        turns = Turns()
        partitions = 0
        for member in sorted(members, key=lambda member: member.transactional_id):
            await turns.take(RESERVE_STEPS)
            entry = self._entry(member)
            reserved[entry] = entry.pending = self._following(entry, member, end)
            partitions += len(entry.transaction.partitions)
        if partitions > PARTITIONS_MAX:
            message = f"the members have {partitions} partitions together, over {PARTITIONS_MAX}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)

    def _following(
        self, entry: Entry, member: TransactionMember, end: "_End"
    ) -> TransactionMetadata:
        """Return what a member's transaction becomes. Raises as `_attempt`."""
        transaction = entry.transaction
        request = StepRequest(
            event=end.event(transaction, member),
            now_ms=self._clock.wall_ms(),
            decision_id=end.decision_id,
        )
        # invariant transaction-groups 2: From its check to the decision nothing else changes a
        # member: it is pending.
        # plant a member moves between its check and the decision
        # plant a client that goes away leaves members reserved
        is_pending = entry.pending is not None
        cell = state.decide(transaction, request.event, 2, is_pending=is_pending)
        if cell is state.BUSY:
            raise _Busy(entry)
        name = member.transactional_id
        if cell in REFUSALS:
            error = refusal(entry, request, REFUSALS[cell])
            raise MemberRefused(name, error.code, error.message)
        if cell not in (COMMIT2, ABORT2):
            message = f"{name!r} is {transaction.state.label}: it has no open transaction"
            raise MemberRefused(name, ErrorCode.INVALID_TXN_STATE, message)
        unfit = _unfit(transaction)
        if unfit:
            raise MemberRefused(name, ErrorCode.INVALID_TXN_STATE, f"{name!r} {unfit}")
        assert isinstance(cell, Move)
        if state.needs_producer_id(transaction, cell):
            request = replace(request, producer_id=end.next_producer_id())
        return state.step(transaction, cell, request)


@dataclass(slots=True, kw_only=True)
class _End:
    """One request to end a group, and the producer ids that were fetched for it."""

    committed: bool
    decision_id: UUID
    producer_ids: list[int] = field(default_factory=list)
    producer_ids_used: int = 0

    def event(self, transaction: TransactionMetadata, member: TransactionMember) -> Event:
        return end_event(transaction, member.producer, 2, committed=self.committed)

    def next_producer_id(self) -> int:
        """Return one of the ids that were fetched. Raises `_NoProducerId`."""
        if self.producer_ids_used == len(self.producer_ids):
            raise _NoProducerId
        self.producer_ids_used += 1
        return self.producer_ids[self.producer_ids_used - 1]


async def _records(reserved: Mapping[Entry, TransactionMetadata]) -> list[Record]:
    """Return the records of a decision. Raises KafkaError if they are too large together."""
    turns = Turns()
    records = []
    size_bytes = 0
    for entry, following in reserved.items():
        await turns.take(ENCODE_STEPS)
        record = store.encode(entry.transactional_id, following)
        size_bytes += len(record.key or b"") + len(record.value or b"")
        records.append(record)
    if size_bytes > BATCH_MAX_BYTES:
        message = f"the decision of the group has {size_bytes} bytes, over {BATCH_MAX_BYTES}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    return records


def _unfit(transaction: TransactionMetadata) -> str | None:
    """Return why an open transaction cannot end with others; None if it can."""
    if transaction.is_kept:
        return "was kept by a newer instance, which alone may end it"
    if transaction.never_times_out:
        return "commits in two phases: another system decides how it ends"
    if transaction.transaction_version != 2:
        return "was begun by a client of an earlier generation than transaction.version 2"
    return None


def _invalid(transactional_id: str, message: str) -> MemberRefused:
    return MemberRefused(transactional_id, ErrorCode.INVALID_REQUEST, message)
