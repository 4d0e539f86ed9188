"""An application to copy from: read flights, refund the cancelled ones, exactly once.

One process serves one input partition. Its transactional id has the partition's number, so that a
restarted process fences its predecessor. Each slice is one transaction with the refunds, the audit
rows and the offsets of the flights: readers see all of them or none.

    python -m scripts.refunds.processor --partition 0
"""

import json
from collections.abc import Callable
from typing import Any

import click

from odradek.client import Aborted, Fenced
from odradek.client.blocking import Consumer, Producer, Transaction
from odradek.client.types import ConsumerRecord, OffsetAndMetadata, TopicPartition
from scripts.refunds.flights import flight_id, is_cancelled

GROUP = "refunds"
TOPIC_IN = "departures"
TOPIC_REFUNDS = "refunds-emitted"
TOPIC_AUDIT = "refund-audit"
FENCED_STATUS = 3


def refund_of(flight: dict[str, Any]) -> dict[str, Any]:
    """Return the refund for a passenger of a cancelled flight in cents, by distance."""
    return {
        "flight_id": flight_id(flight),
        "dest": flight["dest"],
        "cents": 5_000 + 11 * flight["distance"],
    }


def audit_of(flight: dict[str, Any], record: ConsumerRecord) -> dict[str, Any]:
    return {
        "flight_id": flight_id(flight),
        "why": "cancelled",
        "from": {"partition": record.partition, "offset": record.offset},
    }


def refund(txn: Transaction, record: ConsumerRecord) -> bool:
    """Write the two rows of a cancelled flight. Return True if the flight was cancelled."""
    assert record.value is not None
    flight = json.loads(record.value)
    if not is_cancelled(flight):
        return False
    for topic, row in (
        (TOPIC_REFUNDS, refund_of(flight)),
        (TOPIC_AUDIT, audit_of(flight, record)),
    ):
        txn.send(topic, json.dumps(row).encode(), key=record.key, partition=record.partition)
    return True


def process(
    bootstrap: str,
    partition: int,
    *,
    until: int,
    slice_records: int,
    committed: Callable[[int], None] = lambda offset: None,
    refunded: Callable[[Producer], None] = lambda producer: None,
) -> None:
    """Process `partition` until everything below the offset `until` is done.

    `committed` is called with the next offset after each slice, `refunded` with the producer after
    the two sends of each refund. Raises `Fenced` if another process has taken over. A transaction
    that the broker aborted (after a timeout, for example) is repeated from the same position.
    """
    source = TopicPartition(TOPIC_IN, partition)
    with (
        # A predecessor's open transaction may still commit offsets. Starting the producer ends it,
        # so the position is read afterwards.
        Producer(
            bootstrap, transactional_id=f"refunds-{partition}", transaction_timeout_ms=20_000
        ) as producer,
        Consumer(bootstrap, group_id=GROUP) as consumer,
    ):
        stored = consumer.committed([source]).get(source)
        position = stored.offset if stored else 0
        consumer.assign([source])
        consumer.seek(source, position)
        while position < until:
            records = consumer.poll(timeout_ms=1_000, max_records=slice_records)
            if not records:
                continue
            following = records[-1].offset + 1
            try:
                with producer.transaction() as txn:
                    for record in records:
                        if refund(txn, record):
                            refunded(producer)
                    txn.send_offsets({source: OffsetAndMetadata(following)}, GROUP)
            # the broker has none of this slice: repeat it
            except Aborted:
                consumer.seek(source, position)
                continue
            position = following
            committed(position)


@click.command()
@click.option("--bootstrap", default="127.0.0.1:9092", show_default=True)
@click.option("--partition", type=int, required=True)
@click.option("--until", type=int, default=2**63 - 1, help="Stop at this input offset.")
@click.option("--slice", "slice_records", default=500, show_default=True)
def main(bootstrap: str, partition: int, until: int, slice_records: int) -> None:
    """Refund the cancelled flights of one partition."""
    try:
        process(bootstrap, partition, until=until, slice_records=slice_records)
    except Fenced as error:
        raise SystemExit(f"refunds-{partition}: {error}") from None


if __name__ == "__main__":
    main()
