"""`odradek bench`: what a broker and this client do together, in figures.

It works with every Kafka broker. The figures are those of one client process in Python: a broker
may do more with several of them. `BENCHMARKS.md` says how the project itself measures.
"""

import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import click

from odradek.client.blocking import Admin, Consumer, OdradekError, Producer, TopicPartition
from odradek.client.cli.common import (
    INT16_MAX,
    INT32_MAX,
    connection_options,
    echo_json,
    json_option,
    limits,
    reports_errors,
    sentence,
)
from odradek.client.config import CODECS, ClientOptions, Compression
from odradek.client.errors import Refused, TimedOut
from odradek.protocol.quantities import as_number

P = ParamSpec("P")
R = TypeVar("R")

PREFIX: Final = "odradek-bench-"
PROGRESS_S: Final = 1.0
SAMPLES: Final = 10_000
"""The records whose latency is measured, about: each measurement takes time itself."""
POLL_MS: Final = 200
READ_CHUNK: Final = 5_000
MEGABYTE: Final = 1_000_000


class Size(click.ParamType):  # type: ignore[type-arg]  # generic only in the stubs
    """A number of bytes on the command line: 100, 1KiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            number = int(as_number("bytes", str(value)))
        except ValueError:
            self.fail(f"{value!r} is not a size such as 100 or 1KiB.", param, ctx)
        if not 0 <= number <= INT32_MAX:
            self.fail(f"{value!r} is out of range.", param, ctx)
        return number


@click.group()
def bench() -> None:
    """Measure a broker: records and transactions per second, and how long they take.

    A topic is made for it and removed at the end, unless one is given. This client is measured,
    too: one process in Python.
    """


def topic_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options of the topic and its records."""
    topic = click.option(
        "--topic", "-t", metavar="NAME", help="Use this topic, which stays.  [default: a new one]"
    )
    partitions = click.option(
        "--partitions",
        "-p",
        type=click.IntRange(1, INT16_MAX),
        default=4,
        show_default=True,
        help="Partitions of the new topic.",
    )
    replicas = click.option(
        "--replication-factor",
        "-r",
        type=click.IntRange(1, INT16_MAX),
        help="Replicas of each.  [default: the broker's]",
    )
    size = click.option(
        "--size",
        "size_bytes",
        type=Size(),
        default=100,
        show_default=True,
        metavar="BYTES",
        help="The value of a record; also as 1KiB.",
    )
    compression = click.option(
        "--compression",
        "-z",
        type=click.Choice(tuple(CODECS)),
        default="none",
        show_default=True,
        help="How batches of records are compressed.",
    )
    return topic(partitions(replicas(size(compression(command)))))


def records_option(default: int, what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the option `--records`."""
    return click.option(
        "--records",
        "-n",
        "record_count",
        type=click.IntRange(1, INT32_MAX),
        default=default,
        show_default=True,
        help=what,
    )


@bench.command()
@records_option(100_000, "Records to send.")
@click.option(
    "--rate",
    type=click.IntRange(1, INT32_MAX),
    help="Send so many records a second.  [default: as many as possible]",
)
@topic_options
@json_option("Print one JSON object; the keys are above.")
@connection_options
@reports_errors
def produce(
    record_count: int,
    rate: int | None,
    topic: str | None,
    partitions: int,
    replication_factor: int | None,
    size_bytes: int,
    compression: Compression,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Send records, acknowledged by all in-sync replicas.

    The latency is the time from sending a record to its acknowledgement. Without --rate that is
    mostly the time in the client's buffer.

    \b
    Keys of --json: benchmark, topic (null: a new one), records, record_bytes, seconds,
    records_per_second, megabytes_per_second, latency_ms (p50, p99, max).
    """
    options = limits(timeout_s)
    with _topic(bootstrap, options, topic, partitions, replication_factor) as name:
        took_s, latencies = _send(
            bootstrap, options, name, record_count, size_bytes, compression, rate=rate
        )
    facts = _throughput("produce", topic, record_count, size_bytes, took_s)
    _show({**facts, "latency_ms": _percentiles(latencies)}, as_json)


def _send(
    bootstrap: str,
    options: ClientOptions,
    topic: str,
    count: int,
    size_bytes: int,
    compression: Compression,
    *,
    rate: int | None = None,
) -> tuple[float, list[float]]:
    """Send records. Return the seconds that it took, and the latencies of some of them."""
    latencies: list[float] = []
    value = secrets.token_bytes(size_bytes)
    every = max(1, count // SAMPLES)

    def acknowledged(began: float, *_: object) -> None:
        latencies.append(time.perf_counter() - began)

    with Producer(bootstrap, compression=compression, **options) as producer:
        producer.partitions_for(topic)
        progress = _Progress("sent", count)
        began = time.perf_counter()
        for number in range(count):
            if rate is not None:
                time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            if number % every == 0:
                sampled = partial(acknowledged, time.perf_counter())
                producer.send(topic, value, on_delivery=sampled)
                progress.show(number)
            else:
                producer.send(topic, value)
        producer.flush()
        took_s = time.perf_counter() - began
    progress.end()
    return took_s, latencies


@bench.command()
@records_option(100_000, "Records to read; of a topic that is given, at most.")
@topic_options
@json_option("Print one JSON object; the keys are above.")
@connection_options
@reports_errors
def consume(
    record_count: int,
    topic: str | None,
    partitions: int,
    replication_factor: int | None,
    size_bytes: int,
    compression: Compression,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Read records from the beginning. A new topic is filled first, which is not measured.

    The latency is the time of one poll that returns records.

    \b
    Keys of --json: benchmark, topic (null: a new one), records, record_bytes (on average), seconds,
    records_per_second, megabytes_per_second, latency_ms (p50, p99, max).
    """
    options = limits(timeout_s)
    with _topic(bootstrap, options, topic, partitions, replication_factor) as name:
        if topic is None:
            _send(bootstrap, options, name, record_count, size_bytes, compression)
        took_s, count, total_bytes, polls = _read(bootstrap, options, name, record_count, timeout_s)
    facts = _throughput("consume", topic, count, total_bytes / count, took_s)
    _show({**facts, "latency_ms": _percentiles(polls)}, as_json)


def _read(
    bootstrap: str, options: ClientOptions, topic: str, most: int, timeout_s: float
) -> tuple[float, int, int, list[float]]:
    """Read records. Return the seconds, their number and bytes, and the seconds of each poll."""
    polls: list[float] = []
    count = total_bytes = 0
    with Consumer(bootstrap, **options) as consumer:
        with Admin(bootstrap, **options) as admin:
            (found,) = admin.describe_topics(topic)
        places = [TopicPartition(topic, each.partition) for each in found.partitions]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning()
        progress = _Progress("read", most)
        began = moved = time.perf_counter()
        while count < most and any(consumer.position(place) < ends[place] for place in places):
            before = time.perf_counter()
            records = consumer.poll(POLL_MS, READ_CHUNK)
            now = time.perf_counter()
            if records:
                polls.append(now - before)
                moved = now
            elif now - moved > timeout_s:
                raise TimedOut(f"nothing more of {topic} has come for {timeout_s:g} s")
            count += len(records)
            total_bytes += sum(len(record.value or b"") for record in records)
            progress.show(count)
        took_s = time.perf_counter() - began
    progress.end()
    if not count:
        raise Refused(f"the topic {topic!r} has no records to read")
    return took_s, count, total_bytes, polls


@bench.command()
@click.option(
    "--transactions",
    "-x",
    "transaction_count",
    type=click.IntRange(1, INT32_MAX),
    default=1_000,
    show_default=True,
    help="Transactions to commit, of all producers together.",
)
@records_option(10, "Records in each transaction.")
@click.option(
    "--producers",
    type=click.IntRange(1, 1_000),
    default=1,
    show_default=True,
    help="Producers that work at the same time, each with a transactional id of its own.",
)
@topic_options
@json_option("Print one JSON object; the keys are above.")
@connection_options
@reports_errors
def txn(
    transaction_count: int,
    record_count: int,
    producers: int,
    topic: str | None,
    partitions: int,
    replication_factor: int | None,
    size_bytes: int,
    compression: Compression,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Commit transactions. The latency is that of a whole one, from its first record on.

    \b
    Keys of --json: benchmark, topic (null: a new one), transactions, producers, records,
    record_bytes, seconds, transactions_per_second, records_per_second,
    megabytes_per_second, latency_ms (p50, p99, max).
    """
    options = limits(timeout_s)
    share, rest = divmod(transaction_count, producers)
    counts = [share + (number < rest) for number in range(producers)]
    value = secrets.token_bytes(size_bytes)
    progress = _Progress("committed", transaction_count)
    is_over = False
    with _topic(bootstrap, options, topic, partitions, replication_factor) as name:
        run = f"{PREFIX}{secrets.token_hex(4)}"

        def commit(number: int) -> tuple[float, list[float]]:
            """Return when the first transaction began, and how long each took."""
            took = []
            me = f"{run}-{number}"
            with Producer(
                bootstrap, transactional_id=me, compression=compression, **options
            ) as producer:
                first = time.perf_counter()
                for done in range(counts[number]):
                    if is_over:
                        break
                    began = time.perf_counter()
                    with producer.transaction() as transaction:
                        for _ in range(record_count):
                            transaction.send(name, value)
                    took.append(time.perf_counter() - began)
                    if number == 0:
                        progress.show(done * producers)
                return first, took

        with ThreadPoolExecutor(producers) as pool:  # it waits for the others at its end
            try:
                found = list(pool.map(commit, range(producers)))
            finally:
                is_over = True
    latencies = [each for _, took in found for each in took]
    took_s = max(first + sum(took) for first, took in found) - min(first for first, _ in found)
    progress.end()
    total = transaction_count * record_count
    facts = _throughput("txn", topic, total, size_bytes, took_s)
    facts |= {"transactions": transaction_count, "producers": producers}
    facts["transactions_per_second"] = round(transaction_count / took_s, 1)
    _show({**facts, "latency_ms": _percentiles(latencies)}, as_json)


@contextmanager
def _topic(
    bootstrap: str,
    options: ClientOptions,
    given: str | None,
    partitions: int,
    replication_factor: int | None,
) -> Iterator[str]:
    """Yield the topic that is given, or a new one, which is removed at the end."""
    if given is not None:
        yield given
        return
    name = f"{PREFIX}{secrets.token_hex(4)}"
    with Admin(bootstrap, **options) as admin:
        admin.create_topic(name, partitions=partitions, replication_factor=replication_factor or -1)
    try:
        yield name
    finally:
        try:
            with Admin(bootstrap, **options) as admin:
                admin.delete_topics(name)
        except OdradekError as error:
            click.echo(sentence(f"the topic {name} was not removed: {error}"), err=True)


class _Progress:
    """A line on the terminal that says how far a benchmark is."""

    def __init__(self, done: str, total: int) -> None:
        self._done = done
        self._total = total
        self._is_shown = sys.stderr.isatty()
        self._next = time.monotonic() + PROGRESS_S

    def show(self, count: int) -> None:
        if self._is_shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_S
            click.echo(f"\r{count:,} of {self._total:,} {self._done} ", err=True, nl=False)

    def end(self) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def _throughput(
    what: str, topic: str | None, records: int, size_bytes: float, took_s: float
) -> dict[str, Any]:
    return {
        "benchmark": what,
        "topic": topic,
        "records": records,
        "record_bytes": round(size_bytes),
        "seconds": round(took_s, 3),
        "records_per_second": round(records / took_s, 1),
        "megabytes_per_second": round(records * size_bytes / took_s / MEGABYTE, 2),
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return percentiles in milliseconds."""
    ordered = sorted(seconds)

    def at(part: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1_000, 2)

    return {"p50": at(0.5), "p99": at(0.99), "max": at(1.0)}


def _show(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        echo_json(facts)
        return
    latency = facts["latency_ms"]
    if "transactions" in facts:
        click.echo(
            f"{facts['transactions']:,} transactions in {facts['seconds']:.2f} s: "
            f"{facts['transactions_per_second']:,.0f} transactions/s"
        )
    click.echo(
        f"{facts['records']:,} records of {facts['record_bytes']:,} bytes in "
        f"{facts['seconds']:.2f} s: {facts['records_per_second']:,.0f} records/s, "
        f"{facts['megabytes_per_second']:,.1f} MB/s"
    )
    click.echo(
        f"latency: p50 {latency['p50']:,} ms, p99 {latency['p99']:,} ms, max {latency['max']:,} ms"
    )
