"""Ids that nobody uses any more are forgotten: transactional ids, and producers of a partition."""

from tests.judge.broker import Broker, Identity
from tests.judge.situations import TOPIC, begin
from tests.judge.story import in_brief_house, variants


def end_of(broker: Broker, state: str) -> Identity:
    who = broker.init("x")
    if state == "Empty":
        return who
    begin(broker, "x", who, 2)
    return broker.end("x", who, commit=state == "CompleteCommit", version=5)


@in_brief_house
@variants(state=("Empty", "CompleteCommit", "CompleteAbort"), version=range(6))
def story_a_forgotten_id(broker: Broker, state: str, version: int) -> None:
    """The old identity is nobody's then; a new instance gets a new producer id."""
    broker.topic(TOPIC)
    who = end_of(broker, state)
    broker.wait_for("x", "Dead")
    broker.end("x", who, commit=True, version=version)
    broker.end("x", who, commit=False, version=version)
    broker.add("x", who, [(TOPIC, 0)], version=version)
    if version < 5:
        broker.add_offsets("x", who, "g", version=version)
    broker.commit_offsets("x", who, "g", {(TOPIC, 0): 1}, version=version)
    broker.produce("x", who, TOPIC, version=11)
    broker.produce("x", who, TOPIC, version=12)
    if version < 3:
        broker.init("x", version=version)
    else:
        broker.init("x", version=version, expected=who)


@in_brief_house
def story_an_open_transaction_is_not_forgotten(broker: Broker) -> None:
    broker.topic(TOPIC)
    who = broker.init("x")
    begin(broker, "x", who, 2)
    broker.init("y")
    broker.wait_for("y", "Dead")
    broker.end("x", who, commit=True, version=5)
    broker.wait_for("x", "Dead")
