"""Unused ids are forgotten: transactional ids, and the producers of a partition."""

from tests.judge.broker import Broker, Identity
from tests.judge.hurry import Hurry
from tests.judge.setups import EXPIRES_MS
from tests.judge.situations import TOPIC, begin
from tests.judge.story import against_the_clock, in_brief_setup, variants

VERSIONS = range(6)


def end_of(broker: Broker, name: str, state: str) -> Identity:
    if state == "Empty":
        return broker.init(name)
    producer = begun(broker, name)
    return broker.end(name, producer, commit=state == "CompleteCommit", version=5)


def begun(broker: Broker, name: str) -> Identity:
    """In a transaction, before the id is forgotten."""
    hurry = Hurry(EXPIRES_MS)
    producer = broker.init(name)
    begin(broker, name, producer, 2)
    hurry.over()
    return producer


@against_the_clock
@in_brief_setup
@variants(state=("Empty", "CompleteCommit", "CompleteAbort"))
def story_a_forgotten_id(broker: Broker, state: str) -> Hurry:
    """The old identity is then unknown. A new instance gets a new producer id."""
    broker.topic(TOPIC)
    late = {version: end_of(broker, f"v{version}", state) for version in VERSIONS}
    for version in VERSIONS:
        broker.wait_for(f"v{version}", "Dead")
    hurry = Hurry(EXPIRES_MS)  # the new instances are forgotten soon, too
    for version, producer in late.items():
        name = f"v{version}"
        broker.end(name, producer, commit=True, version=version)
        broker.end(name, producer, commit=False, version=version)
        broker.add(name, producer, [(TOPIC, 0)], version=version)
        if version < 5:
            broker.add_offsets(name, producer, "g", version=version)
        broker.commit_offsets(name, producer, "g", {(TOPIC, 0): 1}, version=version)
        broker.produce(name, producer, TOPIC, version=11)
        broker.produce(name, producer, TOPIC, version=12)
        broker.init(name, version=version, expected=producer if version >= 3 else None)
    return hurry


@against_the_clock
@in_brief_setup
def story_an_open_transaction_is_not_forgotten(broker: Broker) -> None:
    broker.topic(TOPIC)
    producer = begun(broker, "x")
    broker.init("y")
    broker.wait_for("y", "Dead")
    broker.end("x", producer, commit=True, version=5)
    broker.wait_for("x", "Dead")
