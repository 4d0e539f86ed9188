"""The brokers of the stories: ours and, with --peers, a real Kafka."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from tests.compat.agents import Agent, Client
from tests.peers.kafka import RealKafka
from tests.stories.looking import Onlooker


@dataclass(frozen=True, slots=True)
class Stage:
    """A running broker and the directory of its files."""

    name: str
    address: str
    data_dir: Path
    onlooker: Onlooker


@pytest.fixture(scope="session")
def story_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with run_broker(data_dir=tmp_path_factory.mktemp("stories")) as broker:
        yield broker


@pytest.fixture(scope="session", params=["odradek", pytest.param("kafka", marks=pytest.mark.peers)])
def stage(request: pytest.FixtureRequest) -> Stage:
    if request.param == "kafka":
        kafka: RealKafka = request.getfixturevalue("real_kafka")
        return Stage("kafka", kafka.address, kafka.log_dir, Onlooker(kafka.address))
    broker: RunningBroker = request.getfixturevalue("story_broker")
    return Stage("odradek", broker.address, broker.data_dir, Onlooker(broker.address))


@pytest.fixture
def agent(client: Client) -> Iterator[Agent]:
    with client.running() as started:
        yield started


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that starts as given and that no other test has."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:12]}"
