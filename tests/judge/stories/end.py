"""EndTxn: every cell of both tables, each asked twice: a retry must get the right answer, too."""

import itertools

from tests.judge.broker import Broker
from tests.judge.situations import HELD, TOPIC, WHO, house_of, reach, situations, somebody
from tests.judge.story import in_house, kept_in, variants


@kept_in("end_cells.txt.gz")
@in_house(house_of)
@variants(situation=situations(), version=range(6))
def story_cells(broker: Broker, situation: str, version: int) -> None:
    broker.topic(TOPIC)
    for commit, relation in itertools.product((True, False), WHO):
        name = f"{'commit' if commit else 'abort'}-{relation}"
        who = somebody(reach(broker, name, situation), relation)
        is_held = situation.startswith(HELD)
        told = broker.end(name, who, commit=commit, version=version, settle=not is_held)
        broker.end(name, who, commit=commit, version=version, settle=not is_held)
        if told != who and relation == "current":
            broker.end(name, told, commit=commit, version=version, settle=not is_held)


@variants(version=range(6), commit=(True, False))
def story_empty_id(broker: Broker, version: int, commit: bool) -> None:
    broker.end("", broker.init(None), commit=commit, version=version, settle=False)
