"""The sentences of commands about records that wait behind an open transaction."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from odradek.client.administration.admin import OffsetSpec
from odradek.client.administration.pin_words import held_back
from odradek.client.administration.pins import Pins
from odradek.client.blocking import Admin, OdradekError, Pin, TopicPartition
from odradek.client.cli.common import sentence
from odradek.client.config import Isolation

if TYPE_CHECKING:  # most commands have no consumer
    from odradek.client.blocking import Consumer


def find_waiting(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the number of records behind the last stable offset, where there are any."""
    wanted: dict[TopicPartition, OffsetSpec] = dict.fromkeys(partitions, "latest")
    stable = admin.list_offsets(wanted)
    ends = admin.list_offsets(wanted, isolation_level="read_uncommitted")
    return {
        name: ends[name].offset - stable[name].offset
        for name in wanted
        if ends[name].offset > stable[name].offset
    }


def pins_of(admin: Admin, waiting: Mapping[TopicPartition, int]) -> Pins:
    """Return the transactions that records wait for. An error is the answer of each partition."""
    try:
        return admin.find_pins(waiting) if waiting else {}
    except OdradekError as error:
        return dict.fromkeys(waiting, error)


def say_why(admin: Admin, consumer: "Consumer", bootstrap: str, isolation: Isolation) -> None:
    """Say on standard error which records were not printed because a transaction is open."""
    if isolation != "read_committed":
        return
    with suppress(OdradekError):  # the command has done, or reported, what it was called for
        waiting = find_waiting(admin, consumer.assignment())
        for line in held_back(waiting, pins_of(admin, waiting), bootstrap):
            click.echo(sentence(line), err=True)


def pin_facts(pin: Pin) -> dict[str, object]:
    return {
        "topic": pin.partition.topic,
        "partition": pin.partition.partition,
        "producer_id": pin.producer_id,
        "producer_epoch": pin.producer_epoch,
        "transactional_id": pin.transactional_id,
        "state": pin.state,
        "client_id": pin.client_id,
        "client_host": pin.client_host,
        "age_ms": pin.age_ms,
        "times_out_in_ms": pin.remaining_ms,
        "timeout_ms": pin.timeout_ms,
        "start_offset": pin.start_offset,
        "end_offset": pin.end_offset,
        "records_behind": pin.records_behind,
        "is_hanging": pin.is_hanging,
    }


def with_pin(row: dict[str, object], pin: Pin | OdradekError | None) -> dict[str, object]:
    """Return what `--json` prints of a partition, with its pin as `pin` if there is one."""
    return row | {"pin": pin_facts(pin)} if isinstance(pin, Pin) else row
