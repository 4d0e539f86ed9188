"""The visible state of a broker: topics, ends of partitions, offsets of groups."""

import functools
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.compat.confluent import consumer

DEADLINE_SECONDS: Final = 60.0


Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen], wanted: Seen) -> None:
    """Call `look` until it returns `wanted`. Fail after DEADLINE_SECONDS."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, f"still {seen}, not {wanted}"
        time.sleep(0.01)  # between two looks, not for luck


class Ends(NamedTuple):
    last_stable: int
    high_watermark: int


class Onlooker:
    """An administrator and plain consumers: they look, and no transaction moves because of them."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._admin = AdminClient({"bootstrap.servers": address})

    def create_topic(self, topic: str, *, partitions: int = 1) -> None:
        made = self._admin.create_topics([NewTopic(topic, partitions, 1)])
        made[topic].result(DEADLINE_SECONDS)

    def ends(self, topic: str, partition: int = 0) -> Ends:
        place = TopicPartition(topic, partition)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        found = [
            self._admin.list_offsets({place: latest}, isolation_level=level)[place]
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        return Ends(*(answer.result(DEADLINE_SECONDS).offset for answer in found))

    def wait_until_settled(self, topic: str, partitions: Iterable[int] = (0,)) -> None:
        """Return when no transaction is open in any of the partitions."""
        for partition in partitions:
            eventually(functools.partial(self._is_settled, topic, partition), True)

    def _is_settled(self, topic: str, partition: int) -> bool:
        ends = self.ends(topic, partition)
        return ends.last_stable == ends.high_watermark

    def store_offset(self, group: str, topic: str, offset: int) -> None:
        with consumer(self.address, group) as receiver:
            receiver.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)

    def stored_offset(self, group: str, topic: str) -> int:
        """The stable one: of an open transaction it waits for the end."""
        with consumer(self.address, group) as receiver:
            (place,) = receiver.committed([TopicPartition(topic, 0)], DEADLINE_SECONDS)
            return int(place.offset)
