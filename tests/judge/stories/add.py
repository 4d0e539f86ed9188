"""AddPartitionsToTxn, also VerifyOnly, and AddOffsetsToTxn: every row, at every version."""

from tests.judge.broker import Broker
from tests.judge.situations import HELD, RELATIONS, TOPIC, reach, related, setup_of, situations
from tests.judge.story import in_setup, kept_in, variants

CLIENTS = range(4)
BROKERS = range(4, 6)
OTHER = 1


@kept_in("add_cells.txt.gz")
@in_setup(setup_of)
@variants(situation=situations(), version=range(6))
def story_cells(broker: Broker, situation: str, version: int) -> None:
    """A partition that is in already (if anything is), another one, and both."""
    broker.topic(TOPIC, OTHER + 1)
    for relation in RELATIONS:
        producer = related(reach(broker, relation, situation), relation)
        broker.add(relation, producer, [(TOPIC, 0)], version=version)
        broker.add(relation, producer, [(TOPIC, OTHER)], version=version)
        broker.add(relation, producer, [(TOPIC, 0), (TOPIC, OTHER)], version=version)
        if version in BROKERS:
            broker.add(relation, producer, [(TOPIC, 0)], version=version, verify_only=True)


@kept_in("add_cells.txt.gz")
@in_setup(setup_of)
@variants(situation=situations(), version=BROKERS)
def story_verify_cells(broker: Broker, situation: str, version: int) -> None:
    broker.topic(TOPIC, OTHER + 1)
    for relation in RELATIONS:
        producer = related(reach(broker, relation, situation), relation)
        for partitions in ([(TOPIC, 0)], [(TOPIC, OTHER)], [(TOPIC, 0), (TOPIC, OTHER)]):
            broker.add(relation, producer, partitions, version=version, verify_only=True)


@kept_in("add_cells.txt.gz")
@in_setup(setup_of)
@variants(situation=situations(), version=range(5))
def story_offsets_cells(broker: Broker, situation: str, version: int) -> None:
    broker.topic(TOPIC)
    for relation in RELATIONS:
        producer = related(reach(broker, relation, situation), relation)
        broker.add_offsets(relation, producer, "g", version=version)
        broker.add_offsets(relation, producer, "g", version=version)
        if not situation.startswith(HELD):
            broker.end(relation, producer, commit=True)


@variants(version=range(6))
def story_unknown_among_known(broker: Broker, version: int) -> None:
    broker.topic(TOPIC)
    producer = broker.init("x")
    for bad in (("nowhere", 0), (TOPIC, 1), (TOPIC, -1)):
        broker.add("x", producer, [(TOPIC, 0), bad], version=version)
        broker.add("x", producer, [bad], version=version)
    broker.add("x", producer, [], version=version)
    broker.add("x", producer, [(TOPIC, 0), (TOPIC, 0)], version=version)
    broker.end("x", producer, commit=True)


@variants(version=BROKERS)
def story_unknown_is_verified(broker: Broker, version: int) -> None:
    broker.topic(TOPIC)
    producer = broker.init("x")
    broker.add("x", producer, [(TOPIC, 0)])
    for bad in (("nowhere", 0), (TOPIC, 1)):
        broker.add("x", producer, [(TOPIC, 0), bad], version=version, verify_only=True)
    broker.add("x", producer, [], version=version, verify_only=True)


@variants(version=range(6))
def story_internal_topics(broker: Broker, version: int) -> None:
    producer = broker.init("x")
    broker.add("x", producer, [("__consumer_offsets", 0)], version=version)
    broker.add("x", producer, [("__transaction_state", 0)], version=version)


@variants(version=range(6))
def story_empty_id(broker: Broker, version: int) -> None:
    broker.topic(TOPIC)
    producer = broker.init(None)
    broker.add("", producer, [(TOPIC, 0)], version=version)
    if version in BROKERS:
        broker.add("", producer, [(TOPIC, 0)], version=version, verify_only=True)
    else:
        broker.add_offsets("", producer, "g", version=version)


@variants(version=range(5))
def story_empty_group(broker: Broker, version: int) -> None:
    producer = broker.init("x")
    broker.add_offsets("x", producer, "", version=version)
    broker.end("x", producer, commit=True)
