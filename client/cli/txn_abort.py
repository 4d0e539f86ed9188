"""`odradek txn abort`: end a transaction, by its id or in one partition.

By id, the coordinator fences the producer and aborts its open transaction in every partition. In
one partition, a marker is written without the coordinator, as Kafka's tool does. That is for
hanging transactions, which no coordinator has.
"""

import shlex
import sys

import click

from odradek.client.blocking import (
    Admin,
    OdradekError,
    ProducerDescription,
    Refused,
    TopicPartition,
    TransactionDescription,
)
from odradek.client.cli import words
from odradek.client.cli.common import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    confirm,
    connection_options,
    json_option,
    limits,
    report,
    reports_errors,
)
from odradek.client.config import ClientOptions

CLIENT_ID = "odradek txn abort"
"""The client id, which the broker's explanation of the fencing contains."""


@click.command()
@click.argument("transactional_id", metavar="[ID]", required=False)
@click.option(
    "--topic",
    "-t",
    metavar="TOPIC",
    help="The topic to write to; with --partition, and an offset or a producer.",
)
@click.option(
    "--partition",
    "-p",
    type=click.IntRange(0, INT32_MAX),
    metavar="NUMBER",
    help="The partition to write to; with --topic.",
)
@click.option(
    "--start-offset",
    type=click.IntRange(0, INT64_MAX),
    metavar="OFFSET",
    help="The offset at which the transaction begins in the partition.",
)
@click.option(
    "--producer-id",
    type=click.IntRange(0, INT64_MAX),
    metavar="NUMBER",
    help="The producer of the transaction; with --producer-epoch.",
)
@click.option(
    "--producer-epoch",
    type=click.IntRange(0, INT16_MAX),
    metavar="NUMBER",
    help="The producer's epoch; with --producer-id.",
)
@click.option(
    "--coordinator-epoch",
    type=click.IntRange(-1, INT32_MAX),
    metavar="NUMBER",
    help="The coordinator epoch of the marker.  [default: what the partition knows]",
)
@click.option(
    "--without-markers",
    is_flag=True,
    help="End a transaction that is decided, and whose partitions will not take its markers.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option("Print one JSON object; the keys are above.")
@connection_options
@reports_errors
def abort(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    without_markers: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Abort a transaction and say what happened.

    \b
    odradek txn abort ID
        fences the producer of ID, which aborts what it has open everywhere.
    odradek txn abort ID --without-markers
        frees ID, whose transaction is decided, from partitions that are lost.
    odradek txn abort --topic T --partition P --start-offset OFFSET
    odradek txn abort --topic T --partition P --producer-id N --producer-epoch E
        writes an ABORT marker to one partition; for transactions that hang.

    \b
    Keys of --json, by ID: transactional_id, aborted (false if nothing was
    open), producer_id, producer_epoch (those of now). In one partition: topic,
    partition, producer_id, producer_epoch, last_stable_offset.
    """
    options: ClientOptions = {**limits(timeout_s), "client_id": CLIENT_ID}
    with Admin(bootstrap, **options) as admin:
        if transactional_id is not None:
            given = (topic, partition, start_offset, producer_id, producer_epoch, coordinator_epoch)
            if any(option is not None for option in given):
                raise click.UsageError("Give an ID, or the options of one partition, not both.")
            abort_id(admin, transactional_id, yes, without_markers=without_markers, as_json=as_json)
            return
        if without_markers:
            raise click.UsageError("--without-markers belongs to an ID.")
        if topic is None or partition is None:
            raise click.UsageError("Give an ID, or --topic and --partition.")
        if (start_offset is None) == (producer_id is None):
            raise click.UsageError("Give --start-offset, or --producer-id and --producer-epoch.")
        if (producer_id is None) != (producer_epoch is None):
            raise click.UsageError("--producer-id and --producer-epoch belong together.")
        place = TopicPartition(topic, partition)
        found = _find(admin, place, start_offset, producer_id)
        epoch = found.producer_epoch if producer_epoch is None else producer_epoch
        known = found.coordinator_epoch if coordinator_epoch is None else coordinator_epoch
        abort_there(admin, place, found, epoch, known, yes, as_json=as_json)


def abort_id(
    admin: Admin,
    transactional_id: str,
    yes: bool,
    *,
    without_markers: bool = False,
    as_json: bool = False,
) -> None:
    before = admin.describe_transaction(transactional_id)
    if not before.is_open:
        report(
            as_json,
            _facts(before, before.producer_id, before.producer_epoch, aborted=False),
            f"{transactional_id!r} has no open transaction ({before.state}); nothing was done.",
        )
        return
    if before.state != "Ongoing":
        _free(admin, before, yes, without_markers, as_json)
        return
    _ask(f"Abort {_said(before)}, and fence its producer?", yes)
    after = admin.force_terminate_transaction(transactional_id)
    report(
        as_json,
        _facts(before, after.producer_id, after.producer_epoch, aborted=True),
        f"Aborted {_said(before)}. Its producer, id {before.producer_id} epoch "
        f"{before.producer_epoch}, is fenced: {_next(before, after.producer_id)} "
        f"epoch {after.producer_epoch} now.",
    )


def _facts(
    found: TransactionDescription, producer_id: int, producer_epoch: int, *, aborted: bool
) -> dict[str, object]:
    return {
        "transactional_id": found.transactional_id,
        "aborted": aborted,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }


def _free(
    admin: Admin, decided: TransactionDescription, yes: bool, without_markers: bool, as_json: bool
) -> None:
    """Free the id of a transaction whose markers are not taken, if that is what the user wants."""
    where = words.named(decided.partitions)
    if not without_markers:
        raise Refused(
            f"the transaction of {decided.transactional_id!r} is decided already "
            f"({decided.state}) and waits for the markers of {where}; it ends by itself when they "
            "are taken. If these partitions will not take them, --without-markers gives them up"
        )
    _ask(
        f"The transaction of {decided.transactional_id!r} is decided ({decided.state}). Give up "
        f"the markers of {where}, where it then stays open?",
        yes,
    )
    after = admin.force_terminate_transaction(decided.transactional_id, without_markers=True)
    report(
        as_json,
        _facts(decided, after.producer_id, after.producer_epoch, aborted=False),
        f"{decided.transactional_id!r} is free ({_next(decided, after.producer_id)} epoch "
        f"{after.producer_epoch} now), without the markers of {where}.",
    )
    for place in decided.partitions:
        by_hand = ("--topic", place.topic, "--partition", str(place.partition))
        producer = ("--producer-id", str(decided.producer_id))
        epoch = ("--producer-epoch", str(decided.producer_epoch))
        command = shlex.join(["odradek", "txn", "abort", *by_hand, *producer, *epoch])
        said = f"If {place} is there again, {command!r} aborts what is open in it."
        click.echo(said, err=as_json)


def _next(before: TransactionDescription, producer_id: int) -> str:
    return "it is" if before.producer_id == producer_id else f"it is producer id {producer_id},"


def _said(found: TransactionDescription) -> str:
    age = "" if found.age_ms is None else f", open for {words.span(found.age_ms)}"
    who = words.client(found.client_id, found.client_host)
    of = f"{found.transactional_id!r} ({who})" if who else repr(found.transactional_id)
    return f"the transaction of {of}{age} in {words.named(found.partitions)}"


def abort_there(
    admin: Admin,
    place: TopicPartition,
    found: ProducerDescription,
    producer_epoch: int,
    coordinator_epoch: int,
    yes: bool,
    *,
    as_json: bool = False,
) -> None:
    warning = _warning(admin, place, found)
    if warning is not None:
        click.echo(warning, err=True)
    what = f"producer id {found.producer_id}, epoch {producer_epoch}"
    _ask(f"Write an ABORT marker for {what} to {place}?", yes)
    before = _stable_offset(admin, place)
    admin.abort_transaction(
        place,
        producer_id=found.producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
    )
    after = _stable_offset(admin, place)
    moved = f"went from {before} to {after}" if after != before else f"is still {after}"
    facts = {"topic": place.topic, "partition": place.partition, "producer_id": found.producer_id}
    report(
        as_json,
        {**facts, "producer_epoch": producer_epoch, "last_stable_offset": after},
        f"Wrote an ABORT marker for {what} to {place}; its last stable offset {moved}.",
    )


def _find(
    admin: Admin, place: TopicPartition, start_offset: int | None, producer_id: int | None
) -> ProducerDescription:
    """Return the description of the chosen producer in the partition. Raises `Refused`."""
    answer = admin.describe_producers([place])[place]
    if isinstance(answer, OdradekError):
        raise answer
    for producer in answer.producers:
        if producer_id is None and producer.transaction_start_offset == start_offset:
            return producer
        if producer.producer_id == producer_id:
            return producer
    if producer_id is not None:
        raise Refused(f"the partition {place} has no producer id {producer_id}")
    starts = sorted(
        producer.transaction_start_offset
        for producer in answer.producers
        if producer.transaction_start_offset is not None
    )
    there = f"those open there begin at {', '.join(map(str, starts))}" if starts else "none is open"
    raise Refused(f"no open transaction of {place} begins at offset {start_offset}: {there}")


def _warning(admin: Admin, place: TopicPartition, found: ProducerDescription) -> str | None:
    """Return a warning if a coordinator can still end this transaction; else None."""
    listed = admin.list_transactions(producer_ids=[found.producer_id])
    described = admin.describe_transactions(*(listing.transactional_id for listing in listed))
    for answer in described.values():
        if isinstance(answer, TransactionDescription) and place in answer.partitions:
            instead = shlex.join(["odradek", "txn", "abort", answer.transactional_id])
            return (
                f"It does not hang: {answer.transactional_id!r} is {answer.state} and can still "
                f"end it ({instead!r} ends it everywhere)."
            )
    return None


def _stable_offset(admin: Admin, place: TopicPartition) -> int:
    return admin.list_offsets({place: "latest"})[place].offset


def _ask(question: str, yes: bool) -> None:
    """End the command unless the user confirms."""
    if not yes and sys.stdin.isatty():
        confirm(question)
