"""`odradek produce` and `odradek consume`: records from lines, and lines from records."""

import base64
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import IO, Final

import click

from odradek.client.blocking import (
    Admin,
    Consumer,
    ConsumerRecord,
    Producer,
    TopicPartition,
    Transaction,
)
from odradek.client.cli.common import (
    Seconds,
    assignment,
    check_reader,
    connection_options,
    echo_json,
    existing_topics,
    in_ms,
    json_line,
    json_option,
    limits,
    new_topics_shown,
    reports_errors,
    show_log,
)
from odradek.client.cli.waiting import say_why
from odradek.client.cli.words import counted, span
from odradek.client.config import CODECS, Compression, Isolation
from odradek.client.errors import Rebalanced, TimedOut
from odradek.client.types import TopicDescription

READ_CHUNK: Final = 2_000
POLL_MS: Final = 200
TRANSACTION_TIMEOUT_S: Final = 60.0
DEFAULT_FORMAT: Final = "%v"
COMMANDLINE: Final = click.core.ParameterSource.COMMANDLINE


@click.command()
@click.argument("topic_name", metavar="TOPIC")
@click.option(
    "--file",
    "-f",
    "source",
    type=click.File("rb"),
    default="-",
    help="Read lines from this file.  [default: standard input]",
)
@click.option(
    "--key-separator",
    "-K",
    metavar="TEXT",
    help="Each line is KEY, this text, VALUE; \\t is a tab. A line without it is an error.",
)
@click.option("--key", "-k", metavar="TEXT", help="Give every record this key.")
@click.option(
    "--header",
    "-H",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Give every record this header. Repeatable.",
)
@click.option(
    "--partition",
    "-p",
    type=click.IntRange(min=0),
    help="Send every record to this partition.  [default: chosen by key]",
)
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Send all records in one transaction of this id: all are visible, or none.",
)
@click.option(
    "--transaction-timeout",
    "transaction_timeout_s",
    type=Seconds(min=0.001),
    default=TRANSACTION_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="The broker aborts the transaction when it has been open for so long.",
)
@click.option(
    "--compression",
    "-z",
    type=click.Choice(tuple(CODECS)),
    default="none",
    show_default=True,
    help="How batches of records are compressed.",
)
@json_option("Print one JSON object: topic, records, transactional_id.")
@connection_options
@reports_errors
def produce(
    topic_name: str,
    source: IO[bytes],
    key_separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    transactional_id: str | None,
    transaction_timeout_s: float,
    compression: Compression,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Send each line to TOPIC as the value of a record.

    A topic that does not exist is created by the first record, if the broker allows it; a line on
    standard error says so.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other.")
    if transactional_id == "":
        raise click.BadParameter("it is empty.", param_hint="--transactional-id")
    source_of = click.get_current_context().get_parameter_source
    if transactional_id is None and source_of("transaction_timeout_s") is COMMANDLINE:
        raise click.UsageError("--transaction-timeout needs --transactional-id.")
    if key_separator == "":
        raise click.BadParameter("it is empty; \\t is a tab.", param_hint="--key-separator")
    given = [assignment(header, "--header") for header in headers]
    encoded = tuple((name, value.encode()) for name, value in given)

    def send_all(to: Producer | Transaction) -> int:
        count = 0
        for record_key, value in _records(source, key, key_separator):
            to.send(topic_name, value, key=record_key, headers=encoded, partition=partition)
            count += 1
        return count

    with (
        new_topics_shown(),
        Producer(
            bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=in_ms(transaction_timeout_s),
            compression=compression,
            **limits(timeout_s),
        ) as producer,
    ):
        if transactional_id is None:
            count = send_all(producer)
            producer.flush()
        else:
            with producer.transaction() as transaction:
                if source.isatty():
                    click.echo(_open_until(transactional_id, transaction_timeout_s), err=True)
                count = send_all(transaction)
    how = "sent" if transactional_id is None else "committed"
    if as_json:
        facts = {"topic": topic_name, "records": count, "transactional_id": transactional_id}
        echo_json(facts)
    else:
        click.echo(f"{counted(count, 'record')} {how} to {topic_name}.", err=True)


def _open_until(transactional_id: str, transaction_timeout_s: float) -> str:
    limit = span(in_ms(transaction_timeout_s))
    return (
        f"A transaction of {transactional_id!r} is open until Ctrl-D, which commits it. Ctrl-C "
        f"aborts it, and so does the broker {limit} after its first record."
    )


def _records(
    source: IO[bytes], key: str | None, key_separator: str | None
) -> Iterator[tuple[bytes | None, bytes]]:
    """Yield the key and the value of each line."""
    fixed = None if key is None else key.encode()
    separator = None if key_separator is None else _unescape(key_separator).encode()
    for number, line in enumerate(source, start=1):
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        if separator is None:
            yield fixed, value
            continue
        head, found, rest = value.partition(separator)
        if not found:
            raise ValueError(f"line {number} has no key: it does not contain {key_separator!r}")
        yield head, rest


@click.command()
@click.argument("topic_name", metavar="TOPIC")
@click.option(
    "--isolation",
    type=click.Choice(("read_committed", "read_uncommitted")),
    default="read_committed",
    show_default=True,
    help="read_uncommitted also prints records of open and aborted transactions.",
)
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Wait for more records until Ctrl-C; begins at the end, unless an option gives the place.",
)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Begin at the first record, also with --follow.  [default without --follow]",
)
@click.option(
    "--offset",
    "-o",
    type=int,
    metavar="NUMBER",
    help="Begin at this offset in each partition; -5 begins five before the end.",
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=int,
    multiple=True,
    help="Read only this partition. Repeatable.  [default: all]",
)
@click.option(
    "--group",
    "-g",
    "group_id",
    metavar="GROUP",
    help="Read as a member of this consumer group: what it has not read yet, from the partitions "
    "that it gives to this member. What was printed counts as read.",
)
@click.option(
    "--max-records", "-n", type=click.IntRange(min=1), help="Stop after this many records."
)
@click.option(
    "--format",
    "template",
    default=DEFAULT_FORMAT,
    metavar="TEXT",
    help="Print each record so: %t topic, %p partition, %o offset, %T timestamp in milliseconds, "
    "%k key, %v value, %h headers, %% percent sign, \\n new line, \\t tab. The line ends after it, "
    "with or without a \\n of its own.  [default: %v]",
)
@json_option("Print a JSON object for each record; the keys are above.")
@connection_options
@reports_errors
def consume(
    topic_name: str,
    isolation: Isolation,
    follow: bool,
    from_beginning: bool,
    offset: int | None,
    partitions: tuple[int, ...],
    group_id: str | None,
    max_records: int | None,
    template: str,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Print the records of TOPIC that are there now, or with --follow those that come.

    \b
    Keys of --json: topic, partition, offset, timestamp_ms, key, value, headers
    (pairs). What is not UTF-8 is an object with the key base64.
    """
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning and --offset exclude each other.")
    if group_id is not None and (from_beginning or offset is not None or partitions):
        raise click.UsageError(
            "--group excludes --from-beginning, --offset and --partition: its members go on where "
            "the group is. 'odradek group reset' sets where that is."
        )
    show = _as_json if as_json else _formatter(template)
    options = limits(timeout_s)
    with (
        Admin(bootstrap, **options) as admin,
        Consumer(bootstrap, group_id=group_id, isolation_level=isolation, **options) as consumer,
    ):
        (topic,) = existing_topics(admin, topic_name)
        if follow:
            show_log()
        if group_id is not None:
            lists = _lists_of_member(consumer, topic_name, timeout_s, follow=follow)
        else:
            numbers = partitions or _with_leader(topic)
            wanted = [TopicPartition(topic_name, number) for number in numbers]
            consumer.assign(wanted)
            _seek(consumer, wanted, offset, at_end=follow and not from_beginning)
            ends = None if follow else consumer.end_offsets(wanted)
            lists = _lists(consumer, ends, timeout_s)
        try:
            is_end = _print(consumer, lists, show, max_records, is_member=group_id is not None)
        except TimedOut:
            say_why(admin, consumer, bootstrap, isolation)
            raise
        if is_end:
            say_why(admin, consumer, bootstrap, isolation)


def _print(
    consumer: Consumer,
    lists: Iterable[list[ConsumerRecord]],
    show: Callable[[ConsumerRecord], bytes],
    max_records: int | None,
    *,
    is_member: bool,
) -> bool:
    """Print records. Return False if there may be more than `max_records`."""
    left = max_records
    for records in lists:
        check_reader()
        shown = records if left is None else records[:left]
        for record in shown:
            sys.stdout.buffer.write(show(record))
        sys.stdout.buffer.flush()
        if is_member and shown:
            _store(consumer, shown)
        if left is not None:
            left -= len(shown)
            if left <= 0:
                return False
    if is_member:
        with suppress(Rebalanced):
            consumer.commit()  # also what is no record: markers of transactions
    return True


def _store(consumer: Consumer, shown: Iterable[ConsumerRecord]) -> None:
    """Store that the group has read these records, and nothing that was not shown."""
    behind = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in shown}
    with suppress(Rebalanced):  # their next owner reads them again
        consumer.commit(behind)


def _with_leader(topic: TopicDescription) -> tuple[int, ...]:
    """Leave out partitions without a leader, with a line for each, unless no partition has one."""
    numbers = tuple(partition.partition for partition in topic.partitions)
    without = {partition.partition for partition in topic.partitions if partition.leader < 0}
    served = tuple(number for number in numbers if number not in without)
    if not served:
        return numbers
    for number in sorted(without):
        click.echo(f"{topic.name}-{number} has no leader and is left out.", err=True)
    return served


def _seek(
    consumer: Consumer, wanted: list[TopicPartition], offset: int | None, *, at_end: bool
) -> None:
    if offset is None:
        (consumer.seek_to_end if at_end else consumer.seek_to_beginning)()
        return
    beginnings, ends = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
    for partition in wanted:
        begin, end = beginnings[partition], ends[partition]
        if offset > end:
            notice = f"{partition} ends at offset {end}: there is nothing at {offset} yet."
            click.echo(notice, err=True)
        elif 0 <= offset < begin:
            notice = f"{partition} begins at offset {begin}: what was at {offset} has been deleted."
            click.echo(notice, err=True)
        place = offset if offset >= 0 else end + offset
        consumer.seek(partition, min(max(place, begin), end))


def _lists(
    consumer: Consumer, ends: dict[TopicPartition, int] | None, timeout_s: float
) -> Iterator[list[ConsumerRecord]]:
    """Yield lists of records, without end or until `ends`.

    Raises `TimedOut` if `ends` are not reached and no record has come for `timeout_s`.
    """
    places: dict[TopicPartition, int] = {}
    moved_at = time.monotonic()
    while True:
        if ends is not None:
            before, places = places, {partition: consumer.position(partition) for partition in ends}
            for partition in [
                partition for partition, place in places.items() if place >= ends[partition]
            ]:
                del ends[partition]
                consumer.pause(partition)
            if not ends:
                return
            if places != before:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at >= timeout_s:
                partition, end = next(iter(ends.items()))
                raise TimedOut(
                    f"{partition} was read up to offset {places[partition]} and nothing more has "
                    f"come for {timeout_s:g} s, though the broker says that it ends at {end}"
                )
        yield consumer.poll(POLL_MS, READ_CHUNK)


def _lists_of_member(
    consumer: Consumer, topic_name: str, timeout_s: float, *, follow: bool
) -> Iterator[list[ConsumerRecord]]:
    """Join the group, and yield lists of records, without end or until the partitions end.

    The end of a partition is the one that it has when this member gets it. Raises `TimedOut` as
    `_lists` does, and if the group gives this member no partition for `timeout_s`.
    """
    ends: dict[TopicPartition, int] = {}

    def take(partitions: Iterable[TopicPartition]) -> None:
        ends.update(consumer.end_offsets(partitions))

    def give_up(partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            ends.pop(partition, None)

    if follow:
        consumer.subscribe(topic_name)
        yield from _lists(consumer, None, timeout_s)
    consumer.subscribe(topic_name, on_assigned=take, on_revoked=give_up, on_lost=give_up)
    deadline = time.monotonic() + timeout_s
    while not ends:
        if time.monotonic() >= deadline:
            raise TimedOut(
                f"the group has given this member no partition of {topic_name} within "
                f"{timeout_s:g} s: other members have them, or died and count until their session "
                "ends ('odradek group describe' shows them)"
            )
        yield consumer.poll(POLL_MS, READ_CHUNK)
    yield from _lists(consumer, ends, timeout_s)


def _formatter(template: str) -> Callable[[ConsumerRecord], bytes]:
    """Return a function that formats a record as `template`, which is parsed once."""
    fields: dict[str, Callable[[ConsumerRecord], bytes]] = {
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp_ms,
        "k": lambda record: b"" if record.key is None else record.key,
        "v": lambda record: b"" if record.value is None else record.value,
        "h": lambda record: b",".join(
            name.encode() + b"=" + (value or b"") for name, value in record.headers
        ),
        "%": lambda record: b"%",
    }
    pieces: list[bytes | Callable[[ConsumerRecord], bytes]] = []
    first, *rest = _unescape(template).replace("%%", "%\0").split("%")
    pieces.append(first.encode())
    for part in rest:
        letter = "%" if part[:1] == "\0" else part[:1]
        if letter not in fields:
            known = " ".join(f"%{field}" for field in fields)
            raise click.BadParameter(f"%{letter} is not one of {known}.", param_hint="--format")
        pieces += (fields[letter], part[1:].encode())

    ending = b"" if isinstance(pieces[-1], bytes) and pieces[-1].endswith(b"\n") else b"\n"

    def fill(record: ConsumerRecord) -> bytes:
        return (
            b"".join(piece if isinstance(piece, bytes) else piece(record) for piece in pieces)
            + ending
        )

    return fill


def _as_json(record: ConsumerRecord) -> bytes:
    line = json_line(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": _text(record.key),
            "value": _text(record.value),
            "headers": [[name, _text(value)] for name, value in record.headers],
        }
    )
    return line.encode() + b"\n"


def _text(value: bytes | None) -> str | dict[str, str] | None:
    """Return a value for JSON: text if it is UTF-8, else an object with base 64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _unescape(text: str) -> str:
    """Return `text` with the escapes \\n, \\t and \\\\ replaced by their characters."""
    return re.sub(r"\\([nt\\])", lambda match: {"n": "\n", "t": "\t"}.get(match[1], "\\"), text)
