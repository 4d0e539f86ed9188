"""`odradek txn`: list, describe and end transactions, and show what they hold back.

It works on any broker that has KIP-664. The client and the cause of a fencing are shown only for
Odradek, which returns them.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import click

from odradek.client.administration.descriptions import OPEN_STATES
from odradek.client.administration.pin_words import abort_marker_command, end_line, pin_line
from odradek.client.administration.transactions import MAX_TIMEOUT_MS
from odradek.client.blocking import (
    Admin,
    HangingTransaction,
    OdradekError,
    PartitionProducers,
    Retriable,
    TopicPartition,
    TransactionDescription,
)
from odradek.client.cli import words
from odradek.client.cli.common import (
    INT64_MAX,
    Seconds,
    connection_options,
    echo_json,
    in_ms,
    limits,
    reports_errors,
    show_table,
)
from odradek.client.cli.txn_abort import abort
from odradek.client.cli.txn_groups import groups
from odradek.client.cli.txn_watch import watch
from odradek.client.cli.waiting import pin_facts
from odradek.protocol.state_topics import tag_of
from odradek.protocol.text import printable

FOUND: Final = 3
"""The exit status of `hanging --fail` if a transaction hangs."""


@click.group(short_help="Show transactions, and end them.")
def txn() -> None:
    """Show transactions: which are open, what they hold back, how to end them."""


@txn.command("list", short_help="List transactional ids and their states.")
@click.option(
    "--state",
    "-s",
    "states",
    type=click.Choice(tuple(words.STATES)),
    metavar="STATE",
    multiple=True,
    help=f"{', '.join(words.STATES)}; repeatable.",
)
@click.option(
    "--open", "only_open", is_flag=True, help="List only ids with a transaction that has not ended."
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=click.IntRange(min=0, max=INT64_MAX),
    multiple=True,
    metavar="NUMBER",
    help="List only the id that has this producer id. Repeatable.",
)
@click.option(
    "--older-than",
    "older_than_s",
    type=Seconds(min=0),
    metavar="SECONDS",
    help="Open for longer; ids without an open transaction stay, as in Kafka: add --open.",
)
@click.option("--pattern", help="A regular expression for the whole transactional id.")
@click.option("--group", metavar="NAME", help="List only the members of this transaction group.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object for each id; the keys are above."
)
@connection_options
@reports_errors
def list_transactions(
    states: tuple[str, ...],
    only_open: bool,
    producer_ids: tuple[int, ...],
    older_than_s: float | None,
    pattern: str | None,
    group: str | None,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """List transactional ids, those with the oldest open transaction first.

    \b
    Keys of --json: transactional_id, state, pending_state, coordinator,
    producer_id, producer_epoch, timeout_ms, started, started_ms, age_ms,
    times_out_in_ms, client_id, client_host, epoch_bump_cause, epoch_bump,
    epoch_bump_ms, explanation, updated, updated_ms, partitions (topic,
    partition). What does not apply or is not known is null; times are ISO 8601,
    and milliseconds since 1970; age_ms and times_out_in_ms are durations.
    """
    wanted = (*states, *sorted(OPEN_STATES)) if only_open else states
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        listed = admin.list_transactions(
            states=wanted,
            producer_ids=producer_ids,
            older_than_ms=None if older_than_s is None else in_ms(older_than_s),
            pattern=pattern,
        )
        names = [listing.transactional_id for listing in listed]
        if group is not None:
            names = [name for name in names if tag_of(name) == group]
        described = admin.describe_transactions(*names)
    found = [answer for answer in described.values() if isinstance(answer, TransactionDescription)]
    for answer in described.values():
        if isinstance(answer, Retriable):  # other errors are of ids that have expired meanwhile
            raise answer
    found.sort(
        key=lambda transaction: (
            not transaction.is_open,
            -(transaction.age_ms or 0),
            transaction.transactional_id,
        )
    )
    if as_json:
        for transaction in found:
            echo_json(words.facts(transaction))
    elif found:
        _show_list(found)
    elif only_open and not (states or producer_ids or older_than_s or pattern or group):
        click.echo("No transaction is open.")
    else:
        is_any = not (wanted or producer_ids or pattern or group)
        click.echo(f"There is no transactional id{'' if is_any else ' like that'}.")


def _show_list(found: Sequence[TransactionDescription]) -> None:
    columns = ["transactional id", "state", "open for", "partitions", "producer", "client"]
    rows = []
    for transaction in found:
        row = [
            printable(transaction.transactional_id),
            transaction.state,
            words.open_for(transaction),
            str(len(transaction.partitions) or ""),
            f"{transaction.producer_id} epoch {transaction.producer_epoch}",
            words.client(transaction.client_id, transaction.client_host) or "",
        ]
        rows.append(row)
    show_table(columns, rows, right=("partitions",))
    if any(transaction.state == "Ongoing" for transaction in found):
        click.echo("`odradek txn abort ID` ends an open one, and fences its producer.", err=True)


@txn.command()
@click.argument("transactional_ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object for each id; the keys are above."
)
@connection_options
@reports_errors
def describe(
    transactional_ids: tuple[str, ...], as_json: bool, bootstrap: str, timeout_s: float
) -> None:
    """Describe transactional ids: state, producer, client, partitions, last fencing.

    \b
    Keys of --json: those of `odradek txn list`; partitions also have
    start_offset and records_behind, null where nothing was written yet.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        described = admin.describe_transactions(*transactional_ids)
        found = [
            answer for answer in described.values() if isinstance(answer, TransactionDescription)
        ]
        partitions = {name for transaction in found for name in transaction.partitions}
        producers = admin.describe_producers(sorted(partitions))
    for number, transaction in enumerate(found):
        places = _places(transaction, producers)
        if as_json:
            echo_json(words.facts(transaction) | {"partitions": places})
        else:
            click.echo(("\n" if number else "") + "\n".join(_description(transaction, places)))
    errors = [str(answer) for answer in described.values() if isinstance(answer, OdradekError)]
    if errors:
        raise OdradekError("; ".join(dict.fromkeys(errors)))


def _places(
    found: TransactionDescription,
    producers: Mapping[TopicPartition, PartitionProducers | OdradekError],
) -> list[dict[str, object]]:
    """Return each partition of a transaction, its first offset there, and the offsets behind it."""
    places: list[dict[str, object]] = []
    for name in found.partitions:
        answer = producers[name]
        known = () if isinstance(answer, OdradekError) else answer.producers
        mine = next(
            (producer for producer in known if producer.producer_id == found.producer_id), None
        )
        places.append(
            {
                "topic": name.topic,
                "partition": name.partition,
                "start_offset": mine.transaction_start_offset if mine else None,
                "records_behind": mine.records_behind if mine else None,
            }
        )
    return places


def _description(found: TransactionDescription, places: list[dict[str, object]]) -> list[str]:
    lines = [printable(found.transactional_id), f"  state        {words.state(found)}"]
    if found.age_ms is not None:
        lines.append(f"  open for     {words.open_for(found)}; {words.deadline(found)}")
    lines.append(f"  producer     id {found.producer_id}, epoch {found.producer_epoch}")
    who = words.client(found.client_id, found.client_host)
    if who is not None:
        lines.append(f"  client       {who}")
    lines += [
        f"  {'partitions' if number == 0 else '':<12} {_place(place)}"
        for number, place in enumerate(places)
    ]
    lines.append(f"  pending      {words.pending(found)}")
    why = words.fencing(found, found.described_at_ms)
    if why is not None:
        lines.append(f"  last fencing {why}")
    if found.updated_ms is not None:
        lines.append(f"  last change  {words.ago(found.updated_ms, found.described_at_ms)}")
    lines.append(f"  coordinator  broker {found.coordinator_id}")
    return lines


def _place(place: Mapping[str, object]) -> str:
    name = f"{place['topic']}-{place['partition']}"
    if place["start_offset"] is None:
        return f"{name}, nothing written yet"
    said = f"{name} from offset {place['start_offset']} on"
    behind = place["records_behind"]
    return (
        f"{said}, {words.counted(behind, 'record')} held back" if isinstance(behind, int) else said
    )


@txn.command("who-pins", short_help="Show what holds back read_committed consumers.")
@click.argument("where", metavar="TOPIC[:PARTITION]")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON object for each pinned partition; the keys are above.",
)
@connection_options
@reports_errors
def who_pins(where: str, as_json: bool, bootstrap: str, timeout_s: float) -> None:
    """Show the transaction that holds back read_committed consumers.

    \b
    Keys of --json: topic, partition, producer_id, producer_epoch,
    transactional_id, state, client_id, client_host, age_ms, times_out_in_ms,
    timeout_ms, start_offset (where consumers stop), end_offset,
    records_behind (offsets that wait, markers included), is_hanging. What is
    not known is null; nothing is printed for partitions without such a
    transaction.
    """
    topic, partition = _place_of(where)
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        pins = admin.who_pins(topic, partition)
    pinned = [pin for pin in pins.values() if pin is not None]
    for pin in pinned:
        if as_json:
            echo_json(pin_facts(pin))
        else:
            click.echo(pin_line(pin))
    if not as_json:
        lines = (end_line(pin, bootstrap) for pin in pinned)
        for line in dict.fromkeys(filter(None, lines)):
            click.echo(line, err=True)
    if not pinned and not as_json:
        click.echo(f"{where}: nobody")


def _place_of(text: str) -> tuple[str, int | None]:
    """Read `topic` or `topic:partition`. The name of a topic has no colon."""
    topic, colon, number = text.partition(":")
    if not colon:
        return topic, None
    if not number.isascii() or not number.isdigit():
        raise click.BadParameter(f"{number!r} is no partition.", param_hint="TOPIC[:PARTITION]")
    return topic, int(number)


@txn.command(short_help="Find transactions that no coordinator will end.")
@click.option("--topic", "-t", "topics", multiple=True, help="Look only at this topic. Repeatable.")
@click.option(
    "--max-timeout",
    "max_timeout_s",
    type=Seconds(min=0),
    default=MAX_TIMEOUT_MS / 1000,
    show_default=True,
    metavar="SECONDS",
    help="Look at what was last written longer ago; the brokers' transaction.max.timeout.ms.",
)
@click.option("--fail", is_flag=True, help=f"End with status {FOUND} if there is one.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON object for each transaction; the keys are above.",
)
@connection_options
@reports_errors
def hanging(
    topics: tuple[str, ...],
    max_timeout_s: float,
    fail: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end.

    A transaction hangs if its producer id belongs to no transactional id, or if
    the transaction of that id does not have the partition. Kafka's own tool has
    the same rule.

    \b
    Keys of --json: topic, partition, producer_id, producer_epoch,
    coordinator_epoch, start_offset, last_timestamp, last_timestamp_ms,
    idle_ms, transactional_id, reason, abort_command.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        found = admin.find_hanging(*topics, max_timeout_ms=round(max_timeout_s * 1000))
    for transaction in found:
        command = abort_marker_command(transaction.partition, transaction.start_offset, bootstrap)
        if as_json:
            echo_json(_hanging_facts(transaction) | {"abort_command": command})
        else:
            click.echo(f"{hanging_line(transaction)}\n    {command}")
    if not found and not as_json:
        click.echo("No transaction hangs.")
    if found and fail:
        sys.exit(FOUND)


def hanging_line(found: HangingTransaction) -> str:
    return (
        f"{found.partition}: producer id {found.producer_id}, epoch {found.producer_epoch}, open "
        f"from offset {found.start_offset} on, last written {words.span(found.idle_ms)} ago: "
        f"{found.reason}"
    )


def _hanging_facts(found: HangingTransaction) -> dict[str, object]:
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_epoch": found.coordinator_epoch,
        "start_offset": found.start_offset,
        "last_timestamp": words.iso(found.last_timestamp_ms),
        "last_timestamp_ms": found.last_timestamp_ms,
        "idle_ms": found.idle_ms,
        "transactional_id": found.transactional_id,
        "reason": found.reason,
    }


txn.add_command(abort)
txn.add_command(groups)
txn.add_command(watch)
