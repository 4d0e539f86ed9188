"""What an authoriser costs: bulk produce and small requests with 1, 1,000 and 10,000 entries.

One broker without an authoriser and one for each number of entries run at the same time and take
turns. The client is `User:ANONYMOUS`, which one entry allows to use the topics; the other entries
are about other resources and principals. Only our broker is measured: the figure is a part of what
it does without.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from odradek.client.blocking import Acl, Admin
from scripts.benchmarks import java_bulk
from scripts.benchmarks.figures import OURS, Figure, at_least
from scripts.benchmarks.load import new_topic, produce
from scripts.benchmarks.security import (
    PASSWORD,
    SASL_PLAINTEXT,
    USER,
    Cost,
    Rounds,
    absolute,
    broker_settings,
    measured,
    of_plain,
)
from scripts.benchmarks.small import InC, Load, c_program, run
from scripts.benchmarks.targets import Process, Target, wait_until_serving
from tests.peers.jars import PeersMissing, require_tools
from tests.secured_broker import ANONYMOUS, AUTHORIZER

FAMILY: Final = "authorizer"
ENTRIES: Final = (1, 1_000, 10_000)
WITHOUT: Final = "without an authoriser"
ROUNDS: Final = 9
RECORD_BYTES: Final = 1024
COUNT: Final = 150_000
JAVA_COUNT: Final = 150_000
QUICK_COUNT: Final = 20_000
SMALL: Final = Load(partitions=4, connections=64, seconds=2.0)
QUICK_SMALL: Final = Load(partitions=4, connections=64, seconds=0.5)
TOPICS: Final = "bench-"
"""How the names of all topics of a benchmark begin (`load.new_topic`)."""
ENTRIES_AT_ONCE: Final = 500
USERS: Final = 500
LEAST: Final = 0.97

Move = Callable[[Process], Cost]


@dataclass(frozen=True, slots=True)
class Work:
    """What is done with each broker in each round."""

    name: str
    record_bytes: int
    move: Move


def measure(
    targets: Sequence[Target], quick: bool, rounds: int | None = None
) -> dict[str, list[Figure]]:
    """Return the figures of our broker, by its name."""
    figures: dict[str, list[Figure]] = {target.name: [] for target in targets}
    (ours,) = [target for target in targets if target.name == OURS]
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-bench-")))
        works, unmeasured = _works(directory, quick)
        brokers = {WITHOUT: stack.enter_context(_plain(ours))}
        for entries in ENTRIES:
            brokers[_with(entries)] = stack.enter_context(_guarded(ours, entries))
        for work in works:
            for broker in brokers.values():
                work.move(broker)  # does not count
        for work in works:
            found = _in_turn(work, brokers, rounds or (1 if quick else ROUNDS))
            figures[OURS] += _figures(work, found)
    figures[OURS] += unmeasured
    return figures


def _with(entries: int) -> str:
    return f"authoriser with {entries:,} entr{'y' if entries == 1 else 'ies'}"


def _works(directory: Path, quick: bool) -> tuple[list[Work], list[Figure]]:
    """Return what this machine can do, and a row for what it cannot."""
    count = QUICK_COUNT if quick else COUNT
    java_count = QUICK_COUNT if quick else JAVA_COUNT
    load = QUICK_SMALL if quick else SMALL

    def bulk(broker: Process) -> Cost:
        topic = new_topic(_address(broker), "bulk")

        def send() -> float:
            return count / produce(_address(broker), topic, size_bytes=RECORD_BYTES, count=count)

        return measured(broker.pid, count, send)

    def java(broker: Process) -> Cost:
        topic = new_topic(_address(broker), "java-bulk")
        return measured(
            broker.pid, java_count, lambda: java_bulk.run(_address(broker), topic, java_count)
        )

    works = [Work(f"produce {RECORD_BYTES} B, confluent-kafka", RECORD_BYTES, bulk)]
    unmeasured = []
    name = f"produce {RECORD_BYTES} B, Java ProducerPerformance"
    try:
        require_tools()
        works.append(Work(name, RECORD_BYTES, java))
    except PeersMissing as missing:
        click.echo(f"{FAMILY}: skipped for Java. {missing}", err=True)
        unmeasured.append(Figure.without_value(FAMILY, name, "no Java"))
    name = f"small requests, {load}, C"
    try:
        generator = InC(c_program(directory))
        works.append(Work(name, 100, lambda broker: _small(broker, generator, load)))
    except PeersMissing as missing:
        click.echo(f"{FAMILY}: skipped for C. {missing}", err=True)
        unmeasured.append(Figure.without_value(FAMILY, name, "no cc"))
    return works, unmeasured


def _small(broker: Process, generator: InC, load: Load) -> Cost:
    topic = new_topic(_address(broker), "small", load.partitions)
    found = run(generator.command(_address(broker), topic, load), broker.pid)
    count = len(found.times_ms)
    assert found.processor_seconds is not None
    return Cost(count / load.seconds, 1e6 * found.processor_seconds / count)


def _address(broker: Process) -> str:
    return f"{broker.host}:{broker.port}"


@contextlib.contextmanager
def _plain(ours: Target) -> Iterator[Process]:
    assert ours.new_process is not None
    with ours.new_process() as broker:
        broker.launch()
        wait_until_serving(broker)
        yield broker


@contextlib.contextmanager
def _guarded(ours: Target, entries: int) -> Iterator[Process]:
    """Run a broker with so many entries, of which its only super user knows the password."""
    assert ours.new_process is not None
    settings = {
        **broker_settings(SASL_PLAINTEXT),
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{USER}",
    }
    with ours.new_process(settings, (SASL_PLAINTEXT,)) as broker:
        broker.launch()
        wait_until_serving(broker)
        wanted = list(all_entries(entries))
        with Admin(
            f"{broker.host}:{broker.ports[SASL_PLAINTEXT]}",
            security_protocol=SASL_PLAINTEXT,
            sasl_mechanism="PLAIN",
            sasl_username=USER,
            sasl_password=PASSWORD,
        ) as admin:
            for start in range(0, entries, ENTRIES_AT_ONCE):
                admin.create_acls(wanted[start : start + ENTRIES_AT_ONCE])
            assert len(admin.describe_acls()) == entries
        yield broker


def all_entries(count: int) -> Iterator[Acl]:
    """Yield so many entries, of which the first allows the benchmark."""
    yield Acl("topic", TOPICS, ANONYMOUS, "all", pattern="prefixed")
    for number in range(1, count):
        user = f"User:u{number % USERS}"
        match number % 4:
            case 0:
                yield Acl("topic", f"orders-{number}", user, "write")
            case 1:
                yield Acl("topic", f"team-{number}-", user, "read", pattern="prefixed")
            case 2:
                yield Acl("group", f"readers-{number}", user, "read")
            case _:
                yield Acl("topic", f"secret-{number}", "User:*", "read", permission="deny")


def _in_turn(work: Work, brokers: Mapping[str, Process], rounds: int) -> Rounds:
    """Do a work with each broker in each round. Another one begins each time."""
    found: dict[str, list[Cost]] = {name: [] for name in brokers}
    names = list(brokers)
    for number in range(rounds):
        at = number % len(names)
        for name in names[at:] + names[:at]:
            cost = work.move(brokers[name])
            found[name].append(cost)
            click.echo(f"{work.name}: {name} {cost.per_second:,.0f} records/s", err=True)
    return found


def _figures(work: Work, rounds: Rounds) -> Iterator[Figure]:
    yield from absolute(FAMILY, f"{work.name}, {WITHOUT}", rounds[WITHOUT], work.record_bytes)
    for entries in ENTRIES:
        what = _with(entries)
        yield from of_plain(FAMILY, f"{work.name}, {what}", rounds, what, WITHOUT, at_least(LEAST))
