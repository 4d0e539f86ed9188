"""InitProducerId: every row, at every version."""

from tests.judge.broker import Broker, Identity
from tests.judge.situations import (
    HELD,
    RELATIONS,
    TOPIC,
    begin,
    reach,
    related,
    setup_of,
    situations,
)
from tests.judge.story import in_setup, kept_in, variants

EXPECTS_FROM = 3


@variants(version=range(6))
def story_no_id(broker: Broker, version: int) -> None:
    broker.init(None, version=version)
    broker.init(None, version=version, timeout_ms=0)
    producer = broker.init(None, version=version, timeout_ms=2**31 - 1)
    if version >= EXPECTS_FROM:
        broker.init(None, version=version, expected=producer)
        broker.init(None, version=version, expected=Identity(producer.producer_id, -1))
        broker.init(None, version=version, expected=Identity(-1, 3))


@variants(version=range(6))
def story_empty_id(broker: Broker, version: int) -> None:
    broker.init("", version=version)
    broker.init("", version=version, timeout_ms=0)


@variants(version=range(6))
def story_new_instances(broker: Broker, version: int) -> None:
    for timeout_ms in (60_000, 1, 900_000):
        broker.init("x", version=version, timeout_ms=timeout_ms)


@variants(version=range(6))
def story_timeouts_refused(broker: Broker, version: int) -> None:
    for timeout_ms in (0, -1, -(2**31), 900_001, 2**31 - 1):
        broker.init("x", version=version, timeout_ms=timeout_ms)
    broker.init("x", version=version)
    for timeout_ms in (0, 900_001):
        broker.init("x", version=version, timeout_ms=timeout_ms)
    broker.init("x", version=version)


@variants(version=range(EXPECTS_FROM, 6))
def story_half_an_identity(broker: Broker, version: int) -> None:
    broker.init("x", version=version, expected=Identity(5, -1))
    broker.init("x", version=version, expected=Identity(-1, 5))
    producer = broker.init("x", version=version)
    broker.init("x", version=version, expected=Identity(producer.producer_id, -1))
    broker.init("x", version=version, expected=Identity(-1, producer.epoch))
    broker.init("x", version=version, expected=Identity(-5, -7))
    broker.init("x", version=version, expected=Identity(producer.producer_id, -7))


@variants(version=range(EXPECTS_FROM, 6))
def story_lost_answers(broker: Broker, version: int) -> None:
    first = broker.init("x", version=version)
    second = broker.init("x", version=version, expected=first)
    broker.init("x", version=version, expected=first)
    broker.init("x", version=version, expected=first)
    third = broker.init("x", version=version, expected=second)
    broker.init("x", version=version, expected=first)
    broker.init("x", version=version, expected=second)
    broker.init("x", version=version)
    broker.init("x", version=version, expected=third)


@in_setup(setup_of)
@variants(situation=situations(), version=range(EXPECTS_FROM))
def story_a_new_instance(broker: Broker, situation: str, version: int) -> None:
    """Versions that cannot say whom they expect."""
    broker.topic(TOPIC)
    reach(broker, "x", situation)
    broker.init("x", version=version)
    broker.init("x", version=version)


@kept_in("init_cells.txt.gz")
@in_setup(setup_of)
@variants(situation=situations(), version=range(EXPECTS_FROM, 6))
def story_cells(broker: Broker, situation: str, version: int) -> None:
    """InitProducerId names no identity, or one of each kind. Each request is sent twice.

    The answer must be good for a transaction.
    """
    broker.topic(TOPIC)
    for relation in ("none", *RELATIONS):
        producer = reach(broker, relation, situation)
        expected = None if relation == "none" else related(producer, relation)
        broker.init(relation, version=version, expected=expected)
        told = broker.init(relation, version=version, expected=expected)
        if told.producer_id >= 0 and not situation.startswith(HELD):
            begin(broker, relation, told, 2)
            broker.end(relation, told, commit=True, version=5)
