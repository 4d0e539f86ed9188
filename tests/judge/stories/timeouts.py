"""A transaction that takes too long is aborted; then its producer comes back, at each version."""

from tests.judge.broker import Broker
from tests.judge.hurry import Hurry
from tests.judge.situations import TOPIC, begin
from tests.judge.story import against_the_clock, variants

TIMEOUT_MS = 300
"""Long enough that a busy machine mostly gets a batch into the transaction first."""


@against_the_clock
@variants(version=range(6), generation=(1, 2))
def story_the_late_one_comes_back(broker: Broker, version: int, generation: int) -> None:
    names = ("commits", "aborts", "writes", "continues", "asks", "adds")
    broker.topic(TOPIC, len(names))
    late = {}
    for partition, name in enumerate(names):
        late[name] = broker.init(name, timeout_ms=TIMEOUT_MS)
        hurry = Hurry(TIMEOUT_MS)
        begin(broker, name, late[name], generation, partition=partition)
        hurry.over()
    for name in names:
        broker.wait_for(name, "CompleteAbort")
    broker.end("commits", late["commits"], commit=True, version=version)
    told = broker.end("aborts", late["aborts"], commit=False, version=version)
    broker.end("aborts", told, commit=True, version=version)
    for produce_version in range(3, 14):
        broker.produce("writes", late["writes"], TOPIC, version=produce_version)
    if version >= 3:
        broker.init("continues", expected=late["continues"], version=version)
    broker.init("asks", version=version)
    broker.add("adds", late["adds"], [(TOPIC, 0)], version=version)
    if version < 5:
        broker.add_offsets("adds", late["adds"], "g", version=version)
    broker.commit_offsets("adds", late["adds"], "g", {(TOPIC, 0): 1}, version=version)


@against_the_clock
@variants(generation=(1, 2))
def story_offsets_that_were_pending(broker: Broker, generation: int) -> None:
    broker.topic(TOPIC)
    producer = broker.init("x", timeout_ms=TIMEOUT_MS)
    hurry = Hurry(TIMEOUT_MS)
    if generation == 1:
        broker.add_offsets("x", producer, "g")
    broker.commit_offsets("x", producer, "g", {(TOPIC, 0): 5}, version=5 if generation == 2 else 3)
    broker.committed("g", [(TOPIC, 0)], stable=True)
    hurry.over()
    broker.wait_for("x", "CompleteAbort")
    broker.committed("g", [(TOPIC, 0)], stable=True)


@against_the_clock
def story_the_clock_starts_with_the_first_partition(broker: Broker) -> None:
    """Waiting before it costs nothing; adding another partition does not start it anew."""
    broker.topic(TOPIC, 2)
    producer = broker.init("x", timeout_ms=TIMEOUT_MS)
    slow = broker.init("y", timeout_ms=TIMEOUT_MS)
    hurry = Hurry(TIMEOUT_MS)
    broker.produce("y", slow, TOPIC, 0, version=12)
    hurry.over()
    broker.wait_for("y", "CompleteAbort")
    hurry = Hurry(TIMEOUT_MS)
    broker.produce("x", producer, TOPIC, 1, version=12)
    broker.end("x", producer, commit=True, version=5)
    hurry.over()


@against_the_clock
def story_every_transaction_has_its_own_clock(broker: Broker) -> None:
    broker.topic(TOPIC)
    producer = broker.init("x", timeout_ms=TIMEOUT_MS)
    hurry = Hurry(TIMEOUT_MS)
    broker.produce("x", producer, TOPIC, version=12)
    producer = broker.end("x", producer, commit=True, version=5)
    hurry.over()
    hurry = Hurry(TIMEOUT_MS)
    broker.produce("x", producer, TOPIC, version=12)
    hurry.over()
    broker.wait_for("x", "CompleteAbort")
    broker.init("x", expected=producer)


@against_the_clock
def story_the_new_instances_timeout_counts(broker: Broker) -> None:
    broker.topic(TOPIC)
    broker.init("x", timeout_ms=600_000)
    producer = broker.init("x", timeout_ms=TIMEOUT_MS)
    hurry = Hurry(TIMEOUT_MS)
    broker.produce("x", producer, TOPIC, version=12)
    hurry.over()
    broker.wait_for("x", "CompleteAbort")
