"""Descriptions to look at."""

from typing import Any, Final

from odradek.client.administration.descriptions import (
    OPEN_STATES,
    PartitionProducers,
    ProducerDescription,
    TransactionDescription,
)
from odradek.client.cli.txn_events import Snapshot
from odradek.client.types import TopicPartition

NOW_MS: Final = 1_795_262_400_000
"""2026-11-21 12:00 UTC."""
PLACES: Final = (TopicPartition("flights", 0), TopicPartition("flights", 1))


def a_transaction(
    state: str = "Ongoing", transactional_id: str = "refunds-0", **others: Any
) -> TransactionDescription:
    """As our broker describes it; open ones have been so for 2 s of 60 s."""
    is_open = state in OPEN_STATES
    fields: dict[str, Any] = {
        "transactional_id": transactional_id,
        "coordinator_id": 1,
        "state": state,
        "producer_id": 4,
        "producer_epoch": 7,
        "timeout_ms": 60_000,
        "started_ms": NOW_MS - 2_000 if is_open else None,
        "partitions": PLACES if is_open else (),
        "described_at_ms": NOW_MS,
        "client_id": "worker-7",
        "client_host": "127.0.0.1",
        "times_out_in_ms": 58_000 if state == "Ongoing" else None,
        "updated_ms": NOW_MS - 2_000,
    }
    return TransactionDescription(**fields | others)


def a_foreign_transaction(state: str = "Ongoing", **others: Any) -> TransactionDescription:
    """As a real Kafka describes it."""
    ours_only = {"client_id": None, "client_host": None, "times_out_in_ms": None}
    return a_transaction(state, **{**ours_only, "updated_ms": None, **others})


def a_look(
    *transactions: TransactionDescription, at_ms: int = NOW_MS, count: int | None = None
) -> Snapshot:
    """What is open has written 3 records to each of its partitions, from offset 5 on."""
    return Snapshot(
        at_ms=at_ms,
        transactions={transaction.transactional_id: transaction for transaction in transactions},
        producers={place: _producers(place, transactions) for place in PLACES},
        count=len(transactions) if count is None else count,
    )


def _producers(
    place: TopicPartition, transactions: tuple[TransactionDescription, ...]
) -> PartitionProducers:
    return PartitionProducers(
        partition=place,
        producers=tuple(
            ProducerDescription(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                last_sequence=2,
                last_timestamp_ms=NOW_MS,
                coordinator_epoch=-1,
                transaction_start_offset=5,
                records_behind=3 if transaction.has_odradek_fields else None,
            )
            for transaction in transactions
            if place in transaction.partitions
        ),
    )
