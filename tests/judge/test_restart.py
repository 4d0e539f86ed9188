"""What a partition knows of its producers outlives the broker: asked before and after a restart.

It is apart from the stories, because those share one broker that is not restarted. A real Kafka is
stopped in good order only: after kill -9 it says the same, some 12 s later. It keeps one batch of
each producer, we keep five, so that only the last one is repeated here.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from tests.judge.asking import Batch, Marker, mark, producers, read, send
from tests.judge.broker import Broker, Identity
from tests.judge.setups import OURS, SETTINGS
from tests.judge.story import SHARED
from tests.peers.kafka import RealKafka

T0: Final = ("t", 0)
T1: Final = ("t", 1)
T2: Final = ("t", 2)
READY_SECONDS: Final = 60.0
TIMEOUT_MS: Final = 900_000  # a real Kafka may take its time to stop and start

AFTERWARDS: Final = """\
producers of t-0 -> NONE | p1/0 #6
read v12 t-0 from 2 committed -> NONE hw 7 lso 7 start 0 [2..2] [3..3] [4..4] [5..5] [6..6]
producers of t-1 -> NONE | p3/0 #3 open @3 marked
read v12 t-1 from 2 committed -> NONE hw 5 lso 3 start 0 [2..2 COMMIT]
producers of t-2 -> NONE | p2/0 #-1 marked | p4/1 #-1 marked
read v12 t-2 from 2 committed -> NONE hw 4 lso 4 start 0 aborted p4@0 [2..2 ABORT] [3..3 COMMIT]
produce v12 null t-0 p1/0 #6+1 -> t-0 @6 batch's time start 0
produce v12 null t-0 p1/0 #9+1 -> t-0 OUT_OF_ORDER_SEQUENCE_NUMBER start 0
produce v12 null t-0 p1/0 #7+1 -> t-0 @7 start 0
produce v12 null t-0 p1/0 #7+1 -> t-0 @7 batch's time start 0
produce v11 x t-1 p3/0 #2+2 txn -> t-1 @3 batch's time start 0
produce v11 x t-1 p3/0 #5+1 txn -> t-1 OUT_OF_ORDER_SEQUENCE_NUMBER start 0
produce v11 x t-1 p3/0 #4+1 txn -> t-1 @5 start 0
produce v11 null t-1 p3/0 #5+1 -> t-1 INVALID_TXN_STATE start 0
commit v3 x p3/0 -> NONE
produce v12 y t-2 p4/0 #2+1 txn -> t-2 INVALID_PRODUCER_EPOCH
produce v12 y t-2 p4/1 #2+1 txn -> t-2 OUT_OF_ORDER_SEQUENCE_NUMBER start 0
produce v12 y t-2 p4/1 #0+1 txn -> t-2 @4 start 0
commit v5 y p4/1 -> NONE p4/2
mark v1 COMMIT p2/0 by 4 t-2 -> p2 t-2 TRANSACTION_COORDINATOR_FENCED
mark v1 COMMIT p2/0 by 5 t-2 -> p2 t-2 NONE
"""


@dataclass(frozen=True, slots=True)
class Cast:
    """The producers that were there before the restart."""

    idempotent: Identity
    open: Identity
    aborted: Identity
    next: Identity
    marked: Identity


def before(broker: Broker) -> Cast:
    broker.topic("t", 3)
    idempotent, marked = broker.init(None), broker.init(None)
    for sequence in range(7):
        send(broker, None, Batch(T0, idempotent, sequence), version=12)
    still_open = broker.init("x", timeout_ms=TIMEOUT_MS)
    broker.add("x", still_open, [T1])
    send(broker, "x", Batch(T1, still_open, 0, 2, is_transactional=True), version=11)
    broker.end("x", still_open, commit=True)
    broker.add("x", still_open, [T1])
    send(broker, "x", Batch(T1, still_open, 2, 2, is_transactional=True), version=11)
    aborted = broker.init("y")
    send(broker, "y", Batch(T2, aborted, 0, 2, is_transactional=True), version=12)
    following = broker.end("y", aborted, commit=False, version=5)
    mark(broker, Marker(marked, [T2], coordinator_epoch=5))
    return Cast(idempotent, still_open, aborted, following, marked)


def after(broker: Broker, cast: Cast) -> None:
    for partition in range(3):
        producers(broker, "t", partition)
        read(broker, "t", partition, 2)
    for sequence in (6, 9, 7, 7):
        send(broker, None, Batch(T0, cast.idempotent, sequence), version=12)
    for sequence, count in ((2, 2), (5, 1), (4, 1)):
        batch = Batch(T1, cast.open, sequence, count, is_transactional=True)
        send(broker, "x", batch, version=11)
    send(broker, None, Batch(T1, cast.open, 5), version=11)
    broker.end("x", cast.open, commit=True)
    for producer, sequence in ((cast.aborted, 2), (cast.next, 2), (cast.next, 0)):
        send(broker, "y", Batch(T2, producer, sequence, is_transactional=True), version=12)
    broker.end("y", cast.next, commit=True, version=5)
    for coordinator_epoch in (4, 5):
        mark(broker, Marker(cast.marked, [T2], coordinator_epoch=coordinator_epoch))


def transcript_over_restart(
    broker: RunningBroker | RealKafka, restart: Callable[[], None]
) -> list[str]:
    first = Broker(broker.host, broker.port, "restart-")
    first.find("x")
    cast = before(first)
    first.close()
    restart()
    second = Broker(broker.host, broker.port, "restart-")
    second.names = first.names
    try:
        _wait_until_served(second)
        after(second, cast)
    finally:
        second.close()
    return second.transcript


def _wait_until_served(broker: Broker) -> None:
    """Until the coordinators have loaded and each partition has its leader."""
    give_up = time.monotonic() + READY_SECONDS
    while True:
        broker.transcript.clear()
        broker.find("x")
        for partition in range(3):
            broker.end_offsets("t", partition)
        if not any(" NOT_" in line or " COORDINATOR_" in line for line in broker.transcript):
            broker.transcript.clear()
            return
        assert time.monotonic() < give_up, broker.transcript


@pytest.fixture
def ours() -> Iterator[RunningBroker]:
    with run_broker(config={**SETTINGS[SHARED], **OURS}) as broker:
        yield broker


def test_stopped_in_good_order(ours: RunningBroker) -> None:
    assert transcript_over_restart(ours, ours.restart) == AFTERWARDS.splitlines()


def test_killed(ours: RunningBroker) -> None:
    """log.flush=os: the operating system lives on, and what was written with it."""

    def kill_and_start() -> None:
        ours.kill()
        ours.start()

    assert transcript_over_restart(ours, kill_and_start) == AFTERWARDS.splitlines()


@pytest.mark.peers
def test_a_real_kafka_says_the_same() -> None:
    with RealKafka(settings=SETTINGS[SHARED]) as kafka:

        def restart() -> None:
            kafka.stop()
            kafka.start()

        assert transcript_over_restart(kafka, restart) == AFTERWARDS.splitlines()
