"""An application to copy from: read flights, refund the cancelled ones, exactly once.

Start as many processors as you like, and stop them when you like: they are a group, which gives
each partition to one of them. Each slice is one transaction with the refunds, the audit rows and
the offsets of the flights: readers see all of them or none. If the group has given the partitions
to another processor meanwhile, the coordinator refuses the offsets and the slice aborts (KIP-447).

    python -m scripts.refunds.processor --name 1

`--name` makes the transactional id. Each running processor has its own, and a processor that is
started again has the name that it had: then it ends the open transaction of its predecessor.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from odradek.client import Aborted, Fenced
from odradek.client.blocking import Consumer, Producer, Transaction
from odradek.client.cli.client_properties import read_client_properties
from odradek.client.config import ClientOptions, ConsumerOptions
from odradek.client.types import ConsumerRecord, GroupMetadata, TopicPartition
from scripts.refunds.flights import flight_id, is_cancelled

GROUP = "refunds"
TOPIC_IN = "departures"
TOPIC_REFUNDS = "refunds-emitted"
TOPIC_AUDIT = "refund-audit"
TRANSACTIONAL_IDS: Final = "refunds-"
FENCED_STATUS = 3
TRANSACTION_TIMEOUT_MS: Final = 30_000
HEARTBEATS_PER_SESSION: Final = 8

Offsets = Mapping[TopicPartition, int]
Store = Callable[[Consumer, Transaction, Offsets, GroupMetadata], None]


class Observer:
    """The calls of `process` to whoever watches it. These do nothing."""

    def assigned(self, partitions: list[TopicPartition]) -> None:
        """Partitions have come."""

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Partitions are about to go."""

    def lost(self, partitions: list[TopicPartition]) -> None:
        """Partitions have gone, because this processor was taken for dead."""

    def refunded(self, producer: Producer) -> None:
        """Both rows of a refund are sent."""

    def committed(self, offsets: Offsets) -> None:
        """A slice is committed; `offsets` are the next ones to read."""

    def aborted(self, error: Aborted) -> None:
        """A slice is aborted. The owner of its partitions processes it again."""


def refund_of(flight: dict[str, Any]) -> dict[str, Any]:
    """Return the refund for a passenger of a cancelled flight in cents, by distance."""
    return {
        "flight_id": flight_id(flight),
        "dest": flight["dest"],
        "cents": 5_000 + 11 * flight["distance"],
    }


def audit_of(
    flight: dict[str, Any], record: ConsumerRecord, name: str, member: GroupMetadata
) -> dict[str, Any]:
    """Return why there is a refund, where its flight was read, and which processor did it."""
    return {
        "flight_id": flight_id(flight),
        "why": "cancelled",
        "from": {"partition": record.partition, "offset": record.offset},
        "by": {"processor": name, "generation": member.generation_id},
    }


def refund(txn: Transaction, record: ConsumerRecord, name: str, member: GroupMetadata) -> bool:
    """Write the two rows of a cancelled flight. Return True if the flight was cancelled."""
    assert record.value is not None
    flight = json.loads(record.value)
    if not is_cancelled(flight):
        return False
    for topic, row in (
        (TOPIC_REFUNDS, refund_of(flight)),
        (TOPIC_AUDIT, audit_of(flight, record, name, member)),
    ):
        txn.send(topic, json.dumps(row).encode(), key=record.key, partition=record.partition)
    return True


def in_transaction(
    consumer: Consumer, txn: Transaction, offsets: Offsets, member: GroupMetadata
) -> None:
    """Store the offsets with the output, as the member that has read them."""
    txn.send_offsets(offsets, member)


def process(
    bootstrap: str,
    name: str,
    *,
    slice_records: int = 500,
    session_timeout_ms: int | None = None,
    observer: Observer | None = None,
    store: Store = in_transaction,
    security: ClientOptions | None = None,
) -> None:
    """Process what the group gives this processor, until an exception ends it.

    Raises `Fenced` if another processor has taken over the name. A slice that was aborted is
    processed again by the owner of its partitions, which may be this processor. Without
    `session_timeout_ms` the partitions of a killed processor move after the default time.
    `security` has the options with which the clients authenticate.
    """
    watch = observer or Observer()
    access: Mapping[str, Any] = security or {}
    options: ConsumerOptions = {"group_id": GROUP}
    if session_timeout_ms is not None:
        options["session_timeout_ms"] = session_timeout_ms
        options["heartbeat_interval_ms"] = session_timeout_ms // HEARTBEATS_PER_SESSION
    with (
        Producer(
            bootstrap,
            transactional_id=TRANSACTIONAL_IDS + name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            **access,
        ) as producer,
        Consumer(bootstrap, **options, **access) as consumer,
    ):
        consumer.subscribe(
            TOPIC_IN, on_assigned=watch.assigned, on_revoked=watch.revoked, on_lost=watch.lost
        )
        while True:
            records = consumer.poll(timeout_ms=1_000, max_records=slice_records)
            if not records:
                continue
            member = consumer.group_metadata()  # before the records are processed
            try:
                with producer.transaction() as txn:
                    following = {}
                    for record in records:
                        if refund(txn, record, name, member):
                            watch.refunded(producer)
                        place = TopicPartition(record.topic, record.partition)
                        following[place] = record.offset + 1
                    store(consumer, txn, following, member)
            except Aborted as error:  # the broker has none of this slice
                consumer.seek_to_committed()
                watch.aborted(error)
            else:
                watch.committed(following)


def security_of(file: Path | None) -> ClientOptions | None:
    """Return the options that a file of Kafka's client settings gives."""
    return None if file is None else read_client_properties(file).options


@click.command()
@click.option("--bootstrap", default="127.0.0.1:9092", show_default=True)
@click.option("--name", required=True, help="Its own, and the same after a restart.")
@click.option("--slice", "slice_records", default=500, show_default=True)
@click.option("--command-config", "file", type=click.Path(path_type=Path))
def main(bootstrap: str, name: str, slice_records: int, file: Path | None) -> None:
    """Refund cancelled flights as a member of the group, until Ctrl-C."""
    try:
        process(bootstrap, name, slice_records=slice_records, security=security_of(file))
    except Fenced as error:
        raise SystemExit(f"{TRANSACTIONAL_IDS}{name}: {error}") from None


if __name__ == "__main__":
    main()
