"""The story of two instances, for any client and any broker, and the log that it must leave."""

from typing import Final

from tests.compat.agents import Agent, RemoteProducer
from tests.stories.logs import Entry, Step
from tests.stories.looking import Onlooker

FENCED_AS: Final = {
    "confluent": "_FENCED",
    "java": "ProducerFencedException",
    "franz-go": "PRODUCER_FENCED",
}

# By the client's transaction version. With the second (KIP-890) each transaction's marker takes the
# next epoch; the abort does in both, as it fences, and the new instance comes one after that.
LOG_OF_ONE_ID: Final = {
    version: [
        Entry(0, "value-1", "a", 0),
        Entry(1, "ABORT", "a", 1),
        Entry(2, "value-2", "a", 2),
        Entry(3, "COMMIT", "a", epoch_of_commit),
    ]
    for version, epoch_of_commit in ((1, 2), (2, 3))
}
LOG_OF_TWO_IDS: Final = {
    version: [
        Entry(0, "value-1", "a", 0),
        Entry(1, "value-2", "b", 0),
        Entry(2, "COMMIT", "b", epoch_of_commit),
        Entry(3, "COMMIT", "a", epoch_of_commit),
    ]
    for version, epoch_of_commit in ((1, 0), (2, 1))
}
STATES_OF_ONE_ID: Final = {
    version: [
        Step("Empty", 0),
        Step("Ongoing", 0),
        Step("PrepareAbort", 1),
        Step("CompleteAbort", 1),
        Step("Empty", 2),
        Step("Ongoing", 2),
        Step("PrepareCommit", epoch_of_commit),
        Step("CompleteCommit", epoch_of_commit),
    ]
    for version, epoch_of_commit in ((1, 2), (2, 3))
}


def play(
    agent: Agent, onlooker: Onlooker, topic: str, first_id: str, second_id: str
) -> tuple[RemoteProducer, RemoteProducer]:
    """The first writes value 1 and leaves it open; the second starts, writes value 2, commits."""
    first = agent.producer(onlooker.address, first_id)
    first.begin()
    first.send(topic, "value-1")
    second = agent.producer(onlooker.address, second_id)
    second.write(topic, "value-2")
    return first, second
