"""The setting of an attack: few and small state topics, and topics that the inputs name."""

from typing import Final

from odradek.broker.testing import RunningBroker
from tests.broker.asks import create_topic
from tests.broker.raw import RawClient
from tests.fuzz.messages import TOPICS

CONFIG: Final = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "num.partitions": "1",
}


def create_topics(broker: RunningBroker) -> None:
    """Create the topics that inputs name, except the missing one."""
    with RawClient(broker) as client:
        for name in TOPICS[:-1]:
            configs = {"cleanup.policy": "compact"} if "compact" in name else None
            assert create_topic(client, name, 2, configs).error_code == 0
