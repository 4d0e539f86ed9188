"""Bulk produce and consume over SASL_SSL, beside Kafka's own, and as a part of plain.

Each broker has a plain listener and one of SASL_SSL, with the same certificate (ECDSA P-256) and a
user of PLAIN. Consumers read the same records over both.
"""

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from scripts.benchmarks import java_bulk
from scripts.benchmarks.figures import OURS, Figure, at_least, at_least_of_theirs
from scripts.benchmarks.load import consume, new_topic, produce
from scripts.benchmarks.security import (
    SASL_SSL,
    Cost,
    Rounds,
    absolute,
    broker_settings,
    java_settings,
    librdkafka_settings,
    measured,
    of_plain,
)
from scripts.benchmarks.targets import Process, Target, wait_until_serving
from tests.certificates import Authority
from tests.peers.jars import PeersMissing, require_tools

FAMILY: Final = "encrypted"
ROUNDS: Final = 5
RECORD_BYTES: Final = 1024
COUNT: Final = 300_000
JAVA_COUNT: Final = 200_000
QUICK_COUNT: Final = 20_000
PLAINTEXT: Final = "PLAINTEXT"
PRODUCE: Final = f"produce {RECORD_BYTES} B, confluent-kafka"
CONSUME: Final = f"consume {RECORD_BYTES} B, confluent-kafka"
JAVA_PRODUCE: Final = f"produce {RECORD_BYTES} B, Java ProducerPerformance"
LEAST_OF_PLAIN: Final = {PRODUCE: 0.4, CONSUME: 0.5, JAVA_PRODUCE: 0.6}
LEAST_OF_THEIRS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker with both listeners, and a topic with records."""

    process: Process
    authority: Authority
    stored: str
    count: int
    java_count: int

    def address(self, protocol: str) -> str:
        process = self.process
        port = process.port if protocol == PLAINTEXT else process.ports[protocol]
        return f"{process.host}:{port}"

    def new_topic(self, what_for: str) -> str:
        return new_topic(self.address(PLAINTEXT), what_for)

    def move(self, what: str, protocol: str) -> Cost:
        """Move the records of one run over a listener."""
        count = self.java_count if what == JAVA_PRODUCE else self.count
        ways = {PRODUCE: self._produce, CONSUME: self._consume, JAVA_PRODUCE: self._java_produce}
        return measured(self.process.pid, count, ways[what](protocol))

    def _produce(self, protocol: str) -> Callable[[], float]:
        address, topic, settings = self.address(protocol), self.new_topic("bulk"), self._c(protocol)
        return lambda: (
            self.count
            / produce(address, topic, size_bytes=RECORD_BYTES, count=self.count, settings=settings)
        )

    def _consume(self, protocol: str) -> Callable[[], float]:
        address, settings = self.address(protocol), self._c(protocol)
        return lambda: (
            self.count / consume(address, self.stored, count=self.count, settings=settings)
        )

    def _java_produce(self, protocol: str) -> Callable[[], float]:
        address, topic = self.address(protocol), self.new_topic("java-bulk")
        settings = {} if protocol == PLAINTEXT else java_settings(self.authority)
        return lambda: java_bulk.run(address, topic, self.java_count, settings)

    def _c(self, protocol: str) -> dict[str, str]:
        return {} if protocol == PLAINTEXT else librdkafka_settings(self.authority)


def measure(
    targets: Sequence[Target], quick: bool, rounds: int | None = None
) -> dict[str, list[Figure]]:
    """Return the figures of each target, by its name. A running broker is not measured."""
    found: dict[str, list[Figure]] = {target.name: [] for target in targets}
    works, unmeasured = _works()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-bench-")))
        authority = Authority(directory)
        brokers = {
            target.name: stack.enter_context(_broker(target, authority, quick))
            for target in targets
            if target.new_process is not None
        }
        for what in works:
            costs = _in_turn(what, brokers, rounds or (1 if quick else ROUNDS))
            for name in brokers:
                found[name] += _figures(what, name, costs[name])
    found[OURS] += unmeasured
    return found


def _works() -> tuple[list[str], list[Figure]]:
    works = [PRODUCE, CONSUME]
    try:
        require_tools()
    except PeersMissing as missing:
        click.echo(f"{FAMILY}: skipped for Java. {missing}", err=True)
        return works, [Figure.without_value(FAMILY, JAVA_PRODUCE, "no Java")]
    return [*works, JAVA_PRODUCE], []


@contextlib.contextmanager
def _broker(target: Target, authority: Authority, quick: bool) -> Iterator[Broker]:
    """Run a broker that has served as much as one run before, and has the records to consume."""
    assert target.new_process is not None
    settings = broker_settings(SASL_SSL, authority)
    with target.new_process(settings, (SASL_SSL,)) as process:
        process.launch()
        wait_until_serving(process)
        count, java_count = (QUICK_COUNT, QUICK_COUNT) if quick else (COUNT, JAVA_COUNT)
        broker = Broker(
            process=process,
            authority=authority,
            stored=new_topic(f"{process.host}:{process.port}", "stored"),
            count=count,
            java_count=java_count,
        )
        produce(broker.address(PLAINTEXT), broker.stored, size_bytes=RECORD_BYTES, count=count)
        for what, protocol in itertools.product((PRODUCE, CONSUME), (PLAINTEXT, SASL_SSL)):
            broker.move(what, protocol)  # does not count: a Java machine still compiles its code
        yield broker


def _in_turn(what: str, brokers: Mapping[str, Broker], rounds: int) -> dict[str, Rounds]:
    """Move records over both listeners of each broker, in each round in another order."""
    found: dict[str, dict[str, list[Cost]]] = {
        name: {PLAINTEXT: [], SASL_SSL: []} for name in brokers
    }
    runs = [(name, protocol) for protocol in (PLAINTEXT, SASL_SSL) for name in brokers]
    for number in range(rounds):
        at = number % len(runs)
        for name, protocol in runs[at:] + runs[:at]:
            cost = brokers[name].move(what, protocol)
            found[name][protocol].append(cost)
            rate = cost.per_second * RECORD_BYTES / 1e6
            click.echo(f"{what}: {name} {protocol} {rate:,.0f} MB/s", err=True)
    return {name: dict(of_broker) for name, of_broker in found.items()}


def _figures(what: str, broker: str, rounds: Rounds) -> Iterator[Figure]:
    yield from absolute(FAMILY, f"{what}, {PLAINTEXT}", rounds[PLAINTEXT], RECORD_BYTES)
    yield from absolute(
        FAMILY,
        f"{what}, {SASL_SSL}",
        rounds[SASL_SSL],
        RECORD_BYTES,
        at_least_of_theirs(LEAST_OF_THEIRS),
    )
    floor = at_least(LEAST_OF_PLAIN[what]) if broker == OURS else None
    yield from of_plain(FAMILY, f"{what}, {SASL_SSL}", rounds, SASL_SSL, PLAINTEXT, floor)
