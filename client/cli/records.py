"""The client's commands of `odradek`: topic, produce, consume.

What a person can get wrong ends in one sentence on standard error and status 1 (2 for a wrong
option). A reader that goes away (`odradek consume t | head`) ends the command quietly.
"""

import base64
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, ParamSpec, TypeVar

import click

from odradek.client.blocking import (
    Admin,
    Consumer,
    ConsumerRecord,
    OdradekError,
    Producer,
    TopicDescription,
    TopicPartition,
    Transaction,
)
from odradek.client.config import CODECS, Compression, Isolation

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S: Final = 10.0
INTERRUPTED: Final = 130
READ_CHUNK: Final = 2_000
POLL_MS: Final = 200
DEFAULT_FORMAT: Final = "%v"


def told(command: Callable[P, R]) -> Callable[P, R]:
    """Errors of the client become one sentence; a closed pipe and Ctrl-C end it quietly."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:
            # Python would complain again when it flushes standard output at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except (OdradekError, ValueError, OSError) as error:
            sentence = str(error).rstrip(".")
            raise click.ClickException(f"{sentence[:1].upper()}{sentence[1:]}.") from None

    return run


def connection_options(command: Callable[P, R]) -> Callable[P, R]:
    """`--bootstrap` and `--timeout`."""
    bootstrap = click.option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="ODRADEK_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        help="A broker to begin with, or several separated by commas.",
    )
    timeout = click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0.001),
        default=DEFAULT_TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help="How long to try.",
    )
    return bootstrap(timeout(command))


@click.group()
def topic() -> None:
    """Make, list, describe and delete topics."""


@topic.command("create")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--partitions", "-p", type=click.IntRange(min=1), help="Default: the broker's.")
@click.option("--replication-factor", "-r", type=click.IntRange(min=1), help="Likewise.")
@click.option("--config", "-c", "configs", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--if-not-exists", is_flag=True, help="No error if it is there.")
@connection_options
@told
def create_topic(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Make topics."""
    settings = dict(_assignment(one, "--config") for one in configs)
    with Admin(bootstrap, max_block_ms=_ms(timeout_s)) as admin:
        for name in names:
            admin.create_topic(
                name,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                configs=settings,
                if_not_exists=if_not_exists,
            )


@topic.command("list")
@click.option("--internal", is_flag=True, help="Also the brokers' own.")
@connection_options
@told
def list_topics(internal: bool, bootstrap: str, timeout_s: float) -> None:
    """Name the topics, one a line."""
    with Admin(bootstrap, max_block_ms=_ms(timeout_s)) as admin:
        for name in admin.list_topics(internal=internal):
            click.echo(name)


@topic.command("describe")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a topic.")
@connection_options
@told
def describe_topic(names: tuple[str, ...], as_json: bool, bootstrap: str, timeout_s: float) -> None:
    """Show partitions, who leads them, how many records they have, and settings."""
    with Admin(bootstrap, max_block_ms=_ms(timeout_s)) as admin:
        for found in admin.describe_topics(*names):
            description = _describe(admin, found)
            if as_json:
                click.echo(json.dumps(description))
            else:
                _show(description)


def _describe(admin: Admin, found: TopicDescription) -> dict[str, Any]:
    partitions = [TopicPartition(found.name, one.partition) for one in found.partitions]
    first = admin.list_offsets({one: "earliest" for one in partitions})
    stable = admin.list_offsets({one: "latest" for one in partitions})
    end = admin.list_offsets(
        {one: "latest" for one in partitions}, isolation_level="read_uncommitted"
    )
    settings = admin.describe_topic_configs(found.name)[found.name]
    return {
        "topic": found.name,
        "id": str(found.topic_id),
        "settings": {name: one.value for name, one in settings.items() if not one.is_default},
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "replicas": list(one.replicas),
                "in sync": list(one.isr),
                "first offset": first[name].offset,
                "last stable offset": stable[name].offset,
                "end offset": end[name].offset,
            }
            for name, one in zip(partitions, found.partitions, strict=True)
        ],
    }


def _show(description: dict[str, Any]) -> None:
    # rich takes a tenth of a second to import, and only this command wants it.
    from rich.console import Console
    from rich.table import Table

    settings = ", ".join(f"{name}={value}" for name, value in description["settings"].items())
    title = f"{description['topic']}  {description['id']}"
    table = Table(title=title, caption=settings or "all settings at their defaults")
    for column in description["partitions"][0]:
        table.add_column(column, justify="right")
    for row in description["partitions"]:
        table.add_row(
            *(
                ",".join(map(str, cell)) if isinstance(cell, list) else str(cell)
                for cell in row.values()
            )
        )
    Console().print(table)


@topic.command("delete")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask, on a terminal.")
@connection_options
@told
def delete_topic(names: tuple[str, ...], yes: bool, bootstrap: str, timeout_s: float) -> None:
    """Delete topics and all their records."""
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(names)} and all records in it?", abort=True)
    with Admin(bootstrap, max_block_ms=_ms(timeout_s)) as admin:
        admin.delete_topics(*names)


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
    given = [_assignment(one, "--header") for one in headers]
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
        max_block_ms=_ms(timeout_s),
    ) as producer:
        if transactional_id is None:
            count = send_all(producer)
            producer.flush()
        else:
            with producer.transaction() as transaction:
                count = send_all(transaction)
    how = "sent" if transactional_id is None else "committed"
    click.echo(f"{count} record{'' if count == 1 else 's'} {how} to {topic_name}.", err=True)


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
    with Consumer(bootstrap, isolation_level=isolation, max_block_ms=_ms(timeout_s)) as consumer:
        numbers = partitions or tuple(consumer.partitions_for(topic_name))
        wanted = [TopicPartition(topic_name, one) for one in numbers]
        consumer.assign(wanted)
        _seek(consumer, wanted, offset, at_end=follow and not from_beginning)
        ends = None if follow else consumer.end_offsets(wanted)
        left = max_records
        for records in _lists(consumer, ends):
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
    return (
        json.dumps(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[name, _text(value)] for name, value in record.headers],
            },
            ensure_ascii=False,
        ).encode()
        + b"\n"
    )


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


def _assignment(text: str, option: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
    return name, value


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


COMMANDS: Final[tuple[click.Command, ...]] = (topic, produce, consume)
