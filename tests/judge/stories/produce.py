"""Transactional Produce at every version: in every state, and by everybody who may not."""

from tests.judge.broker import Broker
from tests.judge.situations import TOPIC, WHO, house_of, reach, situations, somebody
from tests.judge.story import in_house, kept_in, variants

VERSIONS = range(3, 14)
ADDS_FROM = 12
OTHER = 1


@kept_in("produce_cells.txt.gz")
@in_house(house_of)
@variants(situation=situations(), version=VERSIONS)
def story_cells(broker: Broker, situation: str, version: int) -> None:
    """Into the partition that is in the transaction (if one is), and into another."""
    broker.topic(TOPIC, OTHER + 1)
    for relation in WHO:
        who = somebody(reach(broker, relation, situation), relation)
        broker.produce(relation, who, TOPIC, version=version)
        broker.produce(relation, who, TOPIC, OTHER, version=version)


@variants(version=VERSIONS)
def story_without_transaction(broker: Broker, version: int) -> None:
    broker.topic(TOPIC)
    who = broker.init("x")
    broker.produce("x", who, TOPIC, version=version)
    broker.produce("x", who, TOPIC, version=version)
    broker.end("x", who, commit=True)


@variants(version=VERSIONS)
def story_bit_and_id_do_not_agree(broker: Broker, version: int) -> None:
    """A transactional batch without a transactional id, a plain one with, and another's id."""
    broker.topic(TOPIC)
    who, other = broker.init("x"), broker.init("y")
    broker.produce(None, who, TOPIC, version=version)
    broker.produce("x", who, TOPIC, version=version, is_transactional=False)
    broker.produce("y", who, TOPIC, version=version, sequence=1)
    broker.add("y", other, [(TOPIC, 0)])
    broker.produce("y", who, TOPIC, version=version, sequence=1)


@variants(version=VERSIONS)
def story_a_zombie_after_an_end(broker: Broker, version: int) -> None:
    """What was on its way when the transaction ended must not begin the next one."""
    broker.topic(TOPIC)
    who = broker.init("x")
    broker.add("x", who, [(TOPIC, 0)])
    broker.produce("x", who, TOPIC)
    broker.end("x", who, commit=True)
    broker.produce("x", who, TOPIC, version=version)
    broker.look(TOPIC)
    broker.end("x", who, commit=False)


@variants(version=VERSIONS)
def story_a_zombie_after_an_end_of_tv2(broker: Broker, version: int) -> None:
    broker.topic(TOPIC)
    who = broker.init("x")
    broker.produce("x", who, TOPIC, version=ADDS_FROM)
    after = broker.end("x", who, commit=True, version=5)
    broker.produce("x", who, TOPIC, version=version)
    broker.produce("x", after, TOPIC, version=version)
    broker.look(TOPIC)
    broker.end("x", after, commit=True, version=5)
