"""The sections of transactions: lanes, their spans and events, and what they hold back."""

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.client.administration.admin import Admin
from odradek.client.administration.descriptions import (
    PartitionProducers,
    Pin,
    TransactionDescription,
)
from odradek.client.administration.pin_words import describe_command, end_command
from odradek.client.cli.txn_events import Listed, Snapshot, open_places
from odradek.client.config import system_wall_ms
from odradek.client.errors import OdradekError, Refused, Retriable
from odradek.client.types import TopicPartition
from odradek.client.web.board import Board
from odradek.client.web.cluster import ClusterSource
from odradek.client.web.lanes import Lanes
from odradek.client.web.poller import PageSource
from odradek.client.wording import client
from odradek.protocol.state_topics import tag_of
from odradek.protocol.text import printable

SWEPT_AT_ONCE: Final = 500
"""The partitions without an open transaction that a look asks about, in turns.

An open transaction that no coordinator has is found there."""
LANES_MAX: Final = 5_000
"""The transactional ids that are shown: open ones first, the oldest before the others."""
OTHERS_SHOWN: Final = 20
"""The other open transactions of a pinned partition that are shown."""

Producers = Mapping[TopicPartition, PartitionProducers | OdradekError]


class TransactionSource(PageSource):
    """The transactional ids and what has happened to them."""

    section = "transactions"
    every_s = 1.0

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self._listed: Listed | None = None
        self._lanes = Lanes()

    async def look(self, admin: Admin, board: Board) -> str | None:
        listed = Listed(await admin.list_transactions())
        names = listed.to_describe(self.snapshot, self._listed)
        answers = await admin.describe_transactions(*names)
        transactions = listed.described(answers, self.snapshot)
        snapshot = Snapshot(at_ms=system_wall_ms(), transactions=transactions, count=len(listed))
        self._show(board, snapshot)
        self.snapshot, self._listed = snapshot, listed
        return None

    def _show(self, board: Board, snapshot: Snapshot) -> None:
        event_count = self._lanes.events[-1][0] if self._lanes.events else 0
        for number in sorted(self._lanes.note(snapshot)):
            board.put("span", str(number), self._lanes.spans[number].facts)
        for number, event in self._lanes.events:
            if number > event_count:
                board.put(
                    "event",
                    str(number),
                    {
                        "id": event.transactional_id,
                        "at_ms": event.at_ms,
                        "kind": event.kind,
                        "text": event.text,
                    },
                )
        spans, events = self._lanes.forget(snapshot.at_ms)
        for number in spans:
            board.remove("span", str(number))
        for number in events:
            board.remove("event", str(number))
        every = snapshot.transactions
        open_count = sum(found.is_open for found in every.values())
        board.put("count", "transactions", {"all": len(every), "open": open_count})
        board.replace("lane", {name: _lane(every[name]) for name in _shown(every)})


def _shown(every: Mapping[str, TransactionDescription]) -> Sequence[str]:
    """Return the ids to show, not too many."""
    if len(every) <= LANES_MAX:
        return list(every)

    def place(name: str) -> tuple[bool, int]:
        found = every[name]
        if found.is_open:
            return False, found.started_ms or 0
        return True, -(found.updated_ms or 0)

    return sorted(every, key=place)[:LANES_MAX]


def _lane(found: TransactionDescription) -> dict[str, object]:
    is_limited = found.state == "Ongoing" and found.remaining_ms is not None
    deadline_ms = None
    if is_limited and found.started_ms is not None:
        deadline_ms = found.started_ms + found.timeout_ms
    return {
        "name": printable(found.transactional_id),
        "group": printable(tag_of(found.transactional_id) or ""),
        "state": found.state,
        "pending_state": found.pending_state,
        "is_open": found.is_open,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "client": client(found.client_id, found.client_host),
        "coordinator": found.coordinator_id,
        "timeout_ms": found.timeout_ms,
        "started_ms": found.started_ms if found.is_open else None,
        "deadline_ms": deadline_ms,
        "fence_cause": found.epoch_bump_cause,
        "fence_ms": found.epoch_bump_ms,
        "partition_count": len(found.partitions),
    }


class PinSource(PageSource):
    """The partitions whose committed readers wait behind an open transaction."""

    section = "pins"
    every_s = 1.0

    def __init__(
        self, transactions: TransactionSource, cluster: ClusterSource, bootstrap: str
    ) -> None:
        self._transactions = transactions
        self._cluster = cluster
        self._bootstrap = bootstrap
        self._swept = 0
        self._rows: dict[TopicPartition, dict[str, object]] = {}
        """What was shown last."""
        self._since: dict[tuple[TopicPartition, int, int], int] = {}

    async def look(self, admin: Admin, board: Board) -> str | None:
        snapshot = self._transactions.snapshot
        open_now = open_places(snapshot.transactions) if snapshot else []
        wanted = dict.fromkeys([*open_now, *sorted(self._rows), *self._sweep()])
        producers = await admin.describe_producers(wanted)
        pinned = [
            name
            for name, found in producers.items()
            if isinstance(found, PartitionProducers) and found.pinning is not None
        ]
        pins = await admin.find_pins(pinned, producers)
        found = {name: pin for name, pin in pins.items() if isinstance(pin, Pin)}
        unanswered = {
            name: answer
            for name, answer in (*producers.items(), *pins.items())
            if isinstance(answer, Retriable)
        }
        now_ms = system_wall_ms()
        since = {_identity(pin): self._since_ms(pin, now_ms) for pin in found.values()}
        self._since = since | {key: at for key, at in self._since.items() if key[0] in unanswered}
        rows = {
            name: self._facts(pin, producers[name], since[_identity(pin)])
            for name, pin in found.items()
        }
        there = unanswered.keys() & {*self._cluster.partitions, *self._cluster.leaderless}
        kept = {name: row for name, row in self._rows.items() if name in there}
        self._rows = dict(sorted((kept | rows).items()))
        board.replace("pin", {str(name): row for name, row in self._rows.items()})
        for error in unanswered.values():
            raise error
        return _refusal(producers)

    def _sweep(self) -> Sequence[TopicPartition]:
        """Return the next partitions of all, in turns."""
        every = self._cluster.partitions
        if self._swept >= len(every):
            self._swept = 0
        begin = self._swept
        self._swept += SWEPT_AT_ONCE
        return every[begin : self._swept]

    def _since_ms(self, pin: Pin, now_ms: int) -> int:
        """Return when the transaction began. Until a coordinator says so: when it was seen."""
        snapshot = self._transactions.snapshot
        described = snapshot.transactions.get(pin.transactional_id or "") if snapshot else None
        if not pin.is_hanging and described is not None and described.started_ms is not None:
            return described.started_ms
        first_ms = now_ms - (pin.age_ms or 0)
        return self._since.get(_identity(pin), first_ms)

    def _facts(
        self, pin: Pin, found: PartitionProducers | OdradekError, since_ms: int
    ) -> dict[str, object]:
        assert isinstance(found, PartitionProducers), found
        end_offset = found.high_watermark if found.high_watermark is not None else pin.end_offset
        others = sorted(
            each.transaction_start_offset
            for each in found.producers
            if each.transaction_start_offset is not None and each.producer_id != pin.producer_id
        )
        is_limited = pin.state == "Ongoing" and pin.remaining_ms is not None
        return {
            "topic": printable(pin.partition.topic),
            "partition": pin.partition.partition,
            "log_start_offset": found.log_start_offset,
            "last_stable_offset": pin.start_offset,
            "high_watermark": max(end_offset, pin.start_offset),
            "others": others[:OTHERS_SHOWN],
            "other_count": len(others),
            "id": pin.transactional_id,
            "name": None if pin.transactional_id is None else printable(pin.transactional_id),
            "producer_id": pin.producer_id,
            "producer_epoch": pin.producer_epoch,
            "client": client(pin.client_id, pin.client_host),
            "state": pin.state,
            "since_ms": since_ms,
            "deadline_ms": since_ms + (pin.timeout_ms or 0) if is_limited else None,
            "is_hanging": pin.is_hanging,
            "command": end_command(pin, self._bootstrap),
            "describe": describe_command(pin, self._bootstrap),
        }


def _identity(pin: Pin) -> tuple[TopicPartition, int, int]:
    return pin.partition, pin.producer_id, pin.start_offset


def _refusal(producers: Producers) -> str | None:
    """Return a sentence about topics that this client may not see into; None without one."""
    refused = {
        name.topic: answer for name, answer in producers.items() if isinstance(answer, Refused)
    }
    if not refused:
        return None
    first = next(iter(refused.values()))
    return f"{len(refused)} of the topics cannot be looked into: {first}"
