"""The commit of transaction groups, by raw requests. Only Odradek has them.

A group is committed twice over: until the decision is durable, which is what the request waits for,
and until every partition has its markers and every member is complete.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Final
from uuid import uuid4

from odradek.protocol.apis.txn import END_TXN, EndTxnMember, EndTxnRequest
from scripts.benchmarks.figures import OURS, Figure, Floor, below
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.many import Where
from scripts.benchmarks.members import measure_members
from scripts.benchmarks.raw_producer import RawProducer, ask, find_coordinator
from scripts.benchmarks.targets import Target
from tests.broker.raw import RawClient

FAMILY: Final = "groups"
SIZES: Final = ((1, 1), (100, 1), (1_000, 1), (200, 200))
"""Numbers of members, and of partitions that each of them writes to."""
PARTITIONS: Final = 200
ROUNDS: Final = 5
SLOPE_MAX: Final = 1.5
THOUSAND_MAX_MS: Final = 1_000.0


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    if target.name != OURS:
        return
    decided: dict[int, float] = {}
    with target.running() as address:
        host, _, port = address.rpartition(":")
        topic = new_topic(address, "groups", partitions=PARTITIONS)
        with RawClient(Where(host, int(port))) as connection:
            find_coordinator(connection, "groups")
            for members, each in SIZES[:3] if quick else SIZES:
                rounds = [
                    _commit(connection, topic, f"{members}-{each}-{number}", members, each)
                    for number in range(2 if quick else ROUNDS)
                ]
                decision_ms, whole_ms = map(statistics.median, zip(*rounds, strict=True))
                decided[members] = decision_ms
                what = f"group of {members} members, {each} partitions each"
                limit = below(THOUSAND_MAX_MS) if members == 1_000 else None
                yield _figure(f"{what}: decision", decision_ms, limit)
                yield _figure(f"{what}: with markers", whole_ms, limit)
    slope = decided[1_000] / 1_000 / (decided[100] / 100)
    yield Figure(
        family=FAMILY,
        name="decision for each member, 1,000 to 100",
        value=slope,
        unit="times",
        floor=below(SLOPE_MAX),
    )
    if target.new_process is not None:
        yield from measure_members(quick)


def _figure(name: str, value_ms: float, floor: Floor | None) -> Figure:
    return Figure(family=FAMILY, name=name, value=value_ms, unit="ms", floor=floor)


def _commit(
    connection: RawClient, topic: str, name: str, count: int, each: int
) -> tuple[float, float]:
    """Return the milliseconds until the decision, and until all is complete."""
    members = [RawProducer(transactional_id=f"{{{name}}}.{number}") for number in range(count)]
    for number, member in enumerate(members):
        member.take(ask(connection, member.init()))
        partitions = [(number + step) % PARTITIONS for step in range(each)]
        ask(connection, member.produce(topic, partitions))
    request = EndTxnRequest(
        transactional_id=members[0].transactional_id,
        producer_id=-1,
        producer_epoch=-1,
        committed=True,
        members=tuple(
            EndTxnMember(
                transactional_id=member.transactional_id,
                producer_id=member.producer_id,
                producer_epoch=member.epoch,
            )
            for member in members
        ),
        decision_id=uuid4(),
    )
    began = time.perf_counter()
    ask(connection, (END_TXN, 5, request))
    decided = time.perf_counter()
    ask(connection, members[0].init())  # which waits until its transaction is complete
    return (decided - began) * 1_000, (time.perf_counter() - began) * 1_000
