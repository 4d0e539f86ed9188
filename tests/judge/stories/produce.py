"""Transactional Produce at every version: in every state, and by every wrong producer."""

from tests.judge.broker import Broker
from tests.judge.situations import RELATIONS, TOPIC, reach, related, setup_of, situations
from tests.judge.story import in_setup, kept_in, variants

VERSIONS = range(3, 14)
ADDS_FROM = 12
OTHER = 1


@kept_in("produce_cells.txt.gz")
@in_setup(setup_of)
@variants(situation=situations(), version=VERSIONS)
def story_cells(broker: Broker, situation: str, version: int) -> None:
    """Into the partition that is in the transaction (if one is), and into another."""
    broker.topic(TOPIC, OTHER + 1)
    for relation in RELATIONS:
        producer = related(reach(broker, relation, situation), relation)
        broker.produce(relation, producer, TOPIC, version=version)
        broker.produce(relation, producer, TOPIC, OTHER, version=version)


@variants(version=VERSIONS)
def story_without_transaction(broker: Broker, version: int) -> None:
    broker.topic(TOPIC)
    producer = broker.init("x")
    broker.produce("x", producer, TOPIC, version=version)
    broker.produce("x", producer, TOPIC, version=version)
    broker.end("x", producer, commit=True)


@variants(version=VERSIONS)
def story_bit_and_id_do_not_agree(broker: Broker, version: int) -> None:
    """A transactional batch without a transactional id, a plain one with, and another's id."""
    broker.topic(TOPIC)
    producer, other = broker.init("x"), broker.init("y")
    broker.produce(None, producer, TOPIC, version=version)
    broker.produce("x", producer, TOPIC, version=version, is_transactional=False)
    broker.produce("y", producer, TOPIC, version=version, sequence=1)
    broker.add("y", other, [(TOPIC, 0)])
    broker.produce("y", producer, TOPIC, version=version, sequence=1)


@variants(version=VERSIONS)
def story_a_zombie_after_an_end(broker: Broker, version: int) -> None:
    """A batch that was on its way when the transaction ended must not begin the next one."""
    broker.topic(TOPIC)
    producer = broker.init("x")
    broker.add("x", producer, [(TOPIC, 0)])
    broker.produce("x", producer, TOPIC)
    broker.end("x", producer, commit=True)
    broker.produce("x", producer, TOPIC, version=version)
    broker.look(TOPIC)
    broker.end("x", producer, commit=False)


@variants(version=VERSIONS)
def story_a_zombie_after_an_end_of_tv2(broker: Broker, version: int) -> None:
    broker.topic(TOPIC)
    producer = broker.init("x")
    broker.produce("x", producer, TOPIC, version=ADDS_FROM)
    after = broker.end("x", producer, commit=True, version=5)
    broker.produce("x", producer, TOPIC, version=version)
    broker.produce("x", after, TOPIC, version=version)
    broker.look(TOPIC)
    broker.end("x", after, commit=True, version=5)
