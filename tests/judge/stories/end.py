"""EndTxn: every cell of both tables, each asked twice: a retry must get the right answer, too."""

import itertools

from tests.judge.broker import Broker
from tests.judge.situations import HELD, RELATIONS, TOPIC, reach, related, setup_of, situations
from tests.judge.story import in_setup, kept_in, variants


@kept_in("end_cells.txt.gz")
@in_setup(setup_of)
@variants(situation=situations(), version=range(6))
def story_cells(broker: Broker, situation: str, version: int) -> None:
    broker.topic(TOPIC)
    for commit, relation in itertools.product((True, False), RELATIONS):
        name = f"{'commit' if commit else 'abort'}-{relation}"
        producer = related(reach(broker, name, situation), relation)
        is_held = situation.startswith(HELD)
        told = broker.end(name, producer, commit=commit, version=version, settle=not is_held)
        broker.end(name, producer, commit=commit, version=version, settle=not is_held)
        if told != producer and relation == "current":
            broker.end(name, told, commit=commit, version=version, settle=not is_held)


@variants(version=range(6), commit=(True, False))
def story_empty_id(broker: Broker, version: int, commit: bool) -> None:
    broker.end("", broker.init(None), commit=commit, version=version, settle=False)
