"""The cost of large numbers: ids, open transactions, partitions of one transaction, groups.

The important figures are the growths: the cost of one among many over the cost of one among few.
No cost may grow faster than linearly.
"""

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from scripts.benchmarks.figures import Figure, below
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.process import MIB, SETTLE_SECONDS, processor_seconds, resident_mib
from scripts.benchmarks.raw_producer import (
    GROUP,
    Question,
    RawProducer,
    ask,
    find_coordinator,
    together,
)
from scripts.benchmarks.targets import Process, Target, wait_until_serving
from tests.broker.raw import RawClient

FAMILY: Final = "many"
IDS: Final = (100, 1_000, 10_000)
QUICK_IDS: Final = (10, 100, 1_000)
PARTITIONS: Final = (10, 100, 1_000)
OPEN: Final = 1_000
CONNECTIONS: Final = 8
ROUNDS: Final = 250
ALONE: Final = 300
LARGE: Final = 5
"""Transactions with very many partitions. The first is left out."""
GROUPS: Final = (10, 1_000)
IDLE_SECONDS: Final = 10.0
COMMITS: Final = 1_000
"""Offset commits that are measured, after one of each group."""
GROWTH_MAX: Final = 1.5


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker, and connections to it."""

    address: str
    pid: int | None
    connections: Sequence[RawClient]

    @property
    def first(self) -> RawClient:
        return self.connections[0]


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    with _broker(target) as broker:
        find_coordinator(broker.first, "many")
        topic = new_topic(broker.address, "many", partitions=CONNECTIONS)
        yield from _ids(broker, topic, QUICK_IDS if quick else IDS)
        yield from _open_ones(broker, topic, OPEN // 10 if quick else OPEN)
    with _broker(target) as broker:
        find_coordinator(broker.first, "many")
        yield from _partitions(broker, PARTITIONS[:2] if quick else PARTITIONS)
    for number in GROUPS:
        with _broker(target) as broker:
            yield from _groups(broker, number)


@contextlib.contextmanager
def _broker(target: Target) -> Iterator[Broker]:
    with contextlib.ExitStack() as stack:
        if target.new_process is None:
            address, pid = stack.enter_context(target.running()), None
        else:
            process: Process = stack.enter_context(target.new_process())
            process.launch()
            wait_until_serving(process)
            address, pid = f"{process.host}:{process.port}", process.pid
        host, _, port = address.rpartition(":")
        where = Where(host, int(port))
        connections = [stack.enter_context(RawClient(where)) for _ in range(CONNECTIONS)]
        yield Broker(address, pid, connections)


def _groups(broker: Broker, count: int) -> Iterator[Figure]:
    """Measure the processor time of an offset commit, of one group after the other."""
    if broker.pid is None:
        return
    find_coordinator(broker.first, "many", GROUP)
    topic = new_topic(broker.address, "many", partitions=1)
    requests = [_commit_of(f"many-{number}", topic) for number in range(count)]
    for request in requests:
        ask(broker.first, request)
    before = processor_seconds(broker.pid)
    for number in range(COMMITS):
        ask(broker.first, requests[number % count])
    taken_ms = (processor_seconds(broker.pid) - before) * 1000
    yield _figure(f"processor time of an offset commit, {count:,} groups", taken_ms / COMMITS, "ms")
    time.sleep(SETTLE_SECONDS)
    before = processor_seconds(broker.pid)
    time.sleep(IDLE_SECONDS)
    idle_ms = (processor_seconds(broker.pid) - before) / IDLE_SECONDS * 60_000
    yield _figure(f"a minute without requests, {count:,} groups", idle_ms, "ms")


def _commit_of(group_id: str, topic: str) -> Question:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    topics = (OffsetCommitRequestTopic(name=topic, partitions=(partition,)),)
    request = OffsetCommitRequest(group_id=group_id, member_id="", topics=topics)
    return OFFSET_COMMIT, 8, request


@dataclass(frozen=True, slots=True)
class Where:
    host: str
    port: int


def _ids(broker: Broker, topic: str, counts: Sequence[int]) -> Iterator[Figure]:
    """Measure the same number of transactions with few and with many transactional ids."""
    producers: list[RawProducer] = []
    resident: list[float] = []
    costs_ms: list[float] = []
    for count in counts:
        producers += _new_producers(broker, len(producers), count)
        costs_ms.append(_cost_ms(broker, topic, producers))
        yield _figure(f"time of a transaction, {count:,} ids", costs_ms[-1], "ms")
        if broker.pid is not None:
            time.sleep(SETTLE_SECONDS)
            resident.append(resident_mib(broker.pid))
    yield _growth(f"{counts[-1]:,} ids against {counts[0]:,}, a transaction", costs_ms)
    if resident:
        a_piece = (resident[-1] - resident[0]) * MIB / (counts[-1] - counts[0])
        yield _figure(f"memory of an id, {counts[-1]:,} ids", a_piece, "B")


def _new_producers(broker: Broker, first: int, end: int) -> list[RawProducer]:
    made = [RawProducer(transactional_id=f"many-{number}") for number in range(first, end)]
    for some in _dealt(made):
        answers = together(broker.connections, [producer.init() for producer in some])
        for producer, answer in zip(some, answers, strict=True):
            producer.take(answer)
    return made


def _cost_ms(broker: Broker, topic: str, producers: Sequence[RawProducer]) -> float:
    """Return the median cost of rounds in which a few producers have a transaction each."""
    groups = _dealt(producers)
    stride = max(1, len(groups) // ROUNDS)
    times = []
    for number in range(ROUNDS):
        some = groups[number * stride % len(groups)]
        started = time.perf_counter()
        _begin(broker, topic, some)
        _commit(broker, some)
        times.append((time.perf_counter() - started) / len(some))
    return statistics.median(times) * 1000


def _dealt(producers: Sequence[RawProducer]) -> list[Sequence[RawProducer]]:
    """Yield groups of as many producers as there are connections."""
    starts = range(0, len(producers), CONNECTIONS)
    return [producers[start : start + CONNECTIONS] for start in starts]


def _begin(broker: Broker, topic: str, some: Sequence[RawProducer]) -> None:
    questions = [producer.produce(topic, [place]) for place, producer in enumerate(some)]
    together(broker.connections, questions)


def _commit(broker: Broker, some: Sequence[RawProducer]) -> None:
    answers = together(broker.connections, [producer.commit() for producer in some])
    for producer, answer in zip(some, answers, strict=True):
        producer.take(answer)


def _open_ones(broker: Broker, topic: str, count: int) -> Iterator[Figure]:
    """Measure one producer's transactions while many others are open, and how fast those end."""
    alone = RawProducer(transactional_id="alone")
    alone.take(ask(broker.first, alone.init()))
    before_ms = _alone_ms(broker, topic, alone)
    others = [RawProducer(transactional_id=f"open-{number}") for number in range(count)]
    for some in _dealt(others):
        answers = together(broker.connections, [producer.init() for producer in some])
        for producer, answer in zip(some, answers, strict=True):
            producer.take(answer)
        _begin(broker, topic, some)
    during_ms = _alone_ms(broker, topic, alone)
    started = time.perf_counter()
    for some in _dealt(others):
        _commit(broker, some)
    ended_ms = (time.perf_counter() - started) * 1000 / count
    yield _figure("transaction p50, none other open", before_ms, "ms")
    yield _figure(f"transaction p50, {count:,} others open", during_ms, "ms")
    yield _growth(f"{count:,} others open against none, a transaction", [before_ms, during_ms])
    yield _figure(f"ending one of {count:,} open ones", ended_ms, "ms")


def _alone_ms(broker: Broker, topic: str, producer: RawProducer) -> float:
    times = []
    for _ in range(ALONE):
        started = time.perf_counter()
        ask(broker.first, producer.produce(topic, [0]))
        producer.take(ask(broker.first, producer.commit()))
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def _partitions(broker: Broker, counts: Sequence[int]) -> Iterator[Figure]:
    """Measure a transaction with many partitions, added all in one request or one by one."""
    topic = new_topic(broker.address, "wide", partitions=counts[-1])
    producer = RawProducer(transactional_id="wide")
    producer.take(ask(broker.first, producer.init()))
    for how, step in (("at once", counts[-1]), ("one by one", 1)):
        costs_ms = []
        for count in counts:
            costs_ms.append(_wide_ms(broker.first, topic, producer, count, step) / count)
            yield _figure(f"a partition of {count:,}, added {how}", costs_ms[-1], "ms")
        yield _growth(f"{counts[-1]:,} partitions against {counts[0]}, {how}, each", costs_ms)


def _wide_ms(
    connection: RawClient, topic: str, producer: RawProducer, count: int, step: int
) -> float:
    """Return the median time from a first batch to the next one, which includes all markers."""
    begins = []
    for _ in range(LARGE + 1):
        begins.append(time.perf_counter())
        for start in range(0, count, step):
            wanted = range(start, min(start + step, count))
            ask(connection, producer.produce(topic, wanted))
        producer.take(ask(connection, producer.commit()))
    taken = [after - before for before, after in pairwise(begins)]
    return statistics.median(taken) * 1000


def growth(costs: Sequence[float]) -> float:
    """Return the ratio of the cost of one among the most to the cost of one among the fewest."""
    return costs[-1] / costs[0]


def _growth(name: str, costs: Sequence[float]) -> Figure:
    limit = below(GROWTH_MAX)
    return Figure(family=FAMILY, name=name, value=growth(costs), unit="×", floor=limit)


def _figure(name: str, value: float, unit: str) -> Figure:
    return Figure(family=FAMILY, name=name, value=value, unit=unit)
