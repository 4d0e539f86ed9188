"""The errors of a client that has lost its transaction are, call by call, those of a real Kafka.

Foreign clients decide by these answers whether to abort and go on or to give up for good.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from odradek.broker.testing import RunningBroker
from tests.compat.agents import Agent, Refused, RemoteProducer
from tests.peers.kafka import RealKafka
from tests.stories.looking import Onlooker

pytestmark = pytest.mark.peers

ACCEPTED: Final = "accepted"
TIMEOUTS_MS: Final = (1_000, 5_000, 30_000)
"""Of the transaction that is to time out, and of the next one of the same producer, which is not:
a longer one where the machine was too slow for that."""
NEXT_CALLS: Final = pytest.mark.parametrize("next_call", ["send", "commit", "abort"])

Story = Callable[[Agent, Onlooker, str, str, Sequence[str]], list[str]]


def fenced(
    agent: Agent, onlooker: Onlooker, topic: str, transactional_id: str, calls: Sequence[str]
) -> list[str]:
    """A new instance takes the place of one that is in a transaction. The old one goes on."""
    producer = agent.producer(onlooker.address, transactional_id)
    producer.begin()
    producer.send(topic, "value-1")
    agent.producer(onlooker.address, transactional_id)
    return transcript(producer, topic, calls)


def too_late(
    agent: Agent, onlooker: Onlooker, topic: str, transactional_id: str, calls: Sequence[str]
) -> list[str]:
    """A transaction is open for longer than its time-out, and is aborted. Its producer goes on."""
    for timeout_ms in TIMEOUTS_MS:
        producer = agent.producer(
            onlooker.address, f"{transactional_id}-{timeout_ms}", timeout_ms=timeout_ms
        )
        producer.begin()
        first_record = outcome_of(producer, topic, "send")
        onlooker.wait_until_settled(topic)
        heard = transcript(producer, topic, calls[:2])
        begun = time.monotonic()
        heard += transcript(producer, topic, calls[2:])
        # What follows the begin may not time out, or the transcript is of two late transactions.
        if first_record == ACCEPTED and time.monotonic() - begun < timeout_ms / 1000:
            return heard
    raise AssertionError(f"a transaction lasted longer than {TIMEOUTS_MS[-1]} ms")


@NEXT_CALLS
@pytest.mark.parametrize("story", [fenced, too_late])
def test_a_client_hears_from_us_what_it_hears_from_kafka(
    agent: Agent,
    story_broker: RunningBroker,
    real_kafka: RealKafka,
    unique: Callable[[str], str],
    story: Story,
    next_call: str,
) -> None:
    calls = [next_call, "abort", "begin", "send", "commit"]
    topic, transactional_id = unique("lost"), unique("loser")
    heard = []
    for address in (story_broker.address, real_kafka.address):
        onlooker = Onlooker(address)
        onlooker.create_topic(topic)
        heard.append(story(agent, onlooker, topic, transactional_id, calls))

    assert heard[0] == heard[1]
    assert heard[1][0] != ACCEPTED or next_call == "abort"


def transcript(producer: RemoteProducer, topic: str, calls: Sequence[str]) -> list[str]:
    """How each call ended: accepted, or what the client's library calls the error."""
    return [outcome_of(producer, topic, call) for call in calls]


def outcome_of(producer: RemoteProducer, topic: str, call: str) -> str:
    try:
        if call == "send":
            producer.send(topic, "value-2")
        else:
            getattr(producer, call)()
    except Refused as refused:
        return refused.kind
    return ACCEPTED
