"""`odradek produce` and `odradek consume`: records from lines, and lines from records."""

import base64
import sys
from collections.abc import Callable, Iterator
from typing import IO, Final

import click

from odradek.client.blocking import (
    Consumer,
    ConsumerRecord,
    Producer,
    TopicPartition,
    Transaction,
)
from odradek.client.cli.common import (
    assignment,
    check_reader,
    connection_options,
    in_ms,
    json_line,
    told,
)
from odradek.client.cli.words import counted
from odradek.client.config import CODECS, Compression, Isolation

READ_CHUNK: Final = 2_000
POLL_MS: Final = 200
DEFAULT_FORMAT: Final = "%v"


@click.command()
@click.argument("topic_name", metavar="TOPIC")
@click.option("--file", "-f", "source", type=click.File("rb"), default="-", help="Not from stdin.")
@click.option("--key-separator", "-K", metavar="TEXT", help="What stands between key and value.")
@click.option("--key", "-k", metavar="TEXT", help="The key of every record.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--partition", "-p", type=click.IntRange(min=0), help="Default: by key.")
@click.option("--transactional-id", metavar="ID", help="All records in one transaction, or none.")
@click.option(
    "--compression", "-z", type=click.Choice(tuple(CODECS)), default="none", show_default=True
)
@connection_options
@told
def produce(
    topic_name: str,
    source: IO[bytes],
    key_separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    transactional_id: str | None,
    compression: Compression,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Send lines as records, each as the value of one."""
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other.")
    given = [assignment(one, "--header") for one in headers]
    encoded = tuple((name, value.encode()) for name, value in given)

    def send_all(to: Producer | Transaction) -> int:
        count = 0
        for record_key, value in _records(source, key, key_separator):
            to.send(topic_name, value, key=record_key, headers=encoded, partition=partition)
            count += 1
        return count

    with Producer(
        bootstrap,
        transactional_id=transactional_id,
        compression=compression,
        max_block_ms=in_ms(timeout_s),
    ) as producer:
        if transactional_id is None:
            count = send_all(producer)
            producer.flush()
        else:
            with producer.transaction() as transaction:
                count = send_all(transaction)
    how = "sent" if transactional_id is None else "committed"
    click.echo(f"{counted(count, 'record')} {how} to {topic_name}.", err=True)


def _records(
    source: IO[bytes], key: str | None, key_separator: str | None
) -> Iterator[tuple[bytes | None, bytes]]:
    """Key and value of each line."""
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
)
@click.option("--follow", "-f", is_flag=True, help="Wait for more; alone, begin at the end.")
@click.option(
    "--from-beginning", is_flag=True, help="Begin at the first record (default without -f)."
)
@click.option("--offset", "-o", type=int, help="Begin there; -5: five before the end.")
@click.option("--partition", "-p", "partitions", type=int, multiple=True, help="Repeatable.")
@click.option("--max-records", "-n", type=click.IntRange(min=1), help="Stop after so many.")
@click.option(
    "--format",
    "template",
    default=DEFAULT_FORMAT,
    metavar="TEXT",
    help="%t topic, %p partition, %o offset, %T milliseconds, %k key, %v value, %h headers, "
    "%% percent, \\n \\t.  [default: %v]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a record.")
@connection_options
@told
def consume(
    topic_name: str,
    isolation: Isolation,
    follow: bool,
    from_beginning: bool,
    offset: int | None,
    partitions: tuple[int, ...],
    max_records: int | None,
    template: str,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Print records; without -f, those that are there now."""
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning and --offset exclude each other.")
    show = _as_json if as_json else _formatter(template)
    with Consumer(bootstrap, isolation_level=isolation, max_block_ms=in_ms(timeout_s)) as consumer:
        numbers = partitions or tuple(consumer.partitions_for(topic_name))
        wanted = [TopicPartition(topic_name, one) for one in numbers]
        consumer.assign(wanted)
        _seek(consumer, wanted, offset, at_end=follow and not from_beginning)
        ends = None if follow else consumer.end_offsets(wanted)
        left = max_records
        for records in _lists(consumer, ends):
            check_reader()
            shown = records if left is None else records[:left]
            for record in shown:
                sys.stdout.buffer.write(show(record))
            sys.stdout.buffer.flush()
            if left is not None:
                left -= len(shown)
                if left <= 0:
                    return


def _seek(
    consumer: Consumer, wanted: list[TopicPartition], offset: int | None, *, at_end: bool
) -> None:
    if offset is None:
        (consumer.seek_to_end if at_end else consumer.seek_to_beginning)()
        return
    beginnings, ends = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
    for one in wanted:
        place = offset if offset >= 0 else ends[one] + offset
        consumer.seek(one, min(max(place, beginnings[one]), ends[one]))


def _lists(
    consumer: Consumer, ends: dict[TopicPartition, int] | None
) -> Iterator[list[ConsumerRecord]]:
    """Records as they come; to `ends`, where there are any."""
    while ends is None or any(consumer.position(one) < end for one, end in ends.items()):
        records = consumer.poll(POLL_MS, READ_CHUNK)
        if ends is not None:
            for one, end in list(ends.items()):
                if consumer.position(one) >= end:
                    del ends[one]
                    consumer.pause(one)
        yield records


def _formatter(template: str) -> Callable[[ConsumerRecord], bytes]:
    """A function that fills in `template`, whose escapes are looked for once."""
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
            known = " ".join(f"%{one}" for one in fields)
            raise click.BadParameter(f"%{letter} is not one of {known}", param_hint="--format")
        pieces += (fields[letter], part[1:].encode())

    def fill(record: ConsumerRecord) -> bytes:
        return b"".join(one if isinstance(one, bytes) else one(record) for one in pieces) + b"\n"

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
    """Text where it is text; other bytes in base 64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _unescape(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")
