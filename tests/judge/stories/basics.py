"""The plain life of a transaction, in every generation of the protocol."""

from tests.judge.broker import Broker
from tests.judge.story import variants


@variants(commit=(True, False))
def story_two_partitions_and_offsets_tv1(broker: Broker, commit: bool) -> None:
    broker.topic("t", 2)
    producer = broker.init("x")
    broker.add("x", producer, [("t", 0), ("t", 1)])
    broker.produce("x", producer, "t", 0, count=2)
    broker.produce("x", producer, "t", 1)
    broker.look("t", 0)
    broker.add_offsets("x", producer, "g")
    broker.commit_offsets("x", producer, "g", {("t", 0): 7})
    broker.committed("g", [("t", 0)], stable=True)
    broker.end("x", producer, commit=commit)
    broker.committed("g", [("t", 0)], stable=True)


@variants(commit=(True, False))
def story_two_partitions_and_offsets_tv2(broker: Broker, commit: bool) -> None:
    broker.topic("t", 2)
    producer = broker.init("x")
    broker.produce("x", producer, "t", 0, count=2, version=12)
    broker.produce("x", producer, "t", 1, version=13)
    broker.look("t", 0)
    broker.commit_offsets("x", producer, "g", {("t", 0): 7}, version=5)
    broker.committed("g", [("t", 0)], stable=True)
    after = broker.end("x", producer, commit=commit, version=5)
    broker.committed("g", [("t", 0)], stable=True)
    broker.produce("x", after, "t", 0, version=12)
    broker.end("x", after, commit=True, version=5)
