"""Steps for stories about fetch sessions (KIP-227): every field of every answer is recorded.

Ids of sessions get names in the order in which they appear. Topics and partitions stay in the order
of the answer: it is the order in which the broker reads them.
"""

import copy
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from odradek.protocol.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from odradek.protocol.batch import iter_batches
from odradek.protocol.control import read_marker
from odradek.protocol.schema import ZERO_UUID
from tests.judge.broker import Broker, Where
from tests.judge.names import code_name

BY_ID: Final = 13
"""The first version of Fetch that names topics by id."""
MAX_BYTES: Final = 1 << 20
PATIENCE_MS: Final = 10_000
ASKED_SECONDS: Final = 0.3
"""The time in which a broker gets a question, on a busy machine, too."""
NEARLY: Final = 0.9
"""The part of its time after which a fetch is said to have waited: clocks are not exact."""
NEW: Final = 0
CLOSING: Final = -1
NOBODYS_ID: Final = UUID(int=77)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A partition that is listed, and from where it is to be read."""

    topic: str
    partition: int = 0
    offset: int = 0
    max_bytes: int = MAX_BYTES
    leader_epoch: int = -1
    last_epoch: int = -1

    def __str__(self) -> str:
        said = [f"{self.topic}-{self.partition}@{self.offset}"]
        said += [f"max {self.max_bytes}"] * (self.max_bytes != MAX_BYTES)
        said += [f"epoch {self.leader_epoch}"] * (self.leader_epoch != -1)
        said += [f"last epoch {self.last_epoch}"] * (self.last_epoch != -1)
        return " ".join(said)

    def wanted(self) -> FetchPartition:
        return FetchPartition(
            partition=self.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.offset,
            last_fetched_epoch=self.last_epoch,
            partition_max_bytes=self.max_bytes,
        )


class Session:
    """A client with a fetch session. It lists what it is told to list, and goes on by itself.

    `ids` has the ids of topics by name, as this client knows them. They are those of the story's
    topics, unless it is said otherwise.
    """

    def __init__(self, broker: Broker, version: int) -> None:
        self.broker = broker
        self.version = version
        self.session_id = 0
        self.epoch = NEW
        self.ids: dict[str, UUID] = {}

    def fetch(
        self,
        *places: Place,
        without: Sequence[Where] = (),
        session_id: int | None = None,
        epoch: int | None = None,
        max_bytes: int = MAX_BYTES,
        committed: bool = False,
        wait_ms: int = 0,
        min_bytes: int = 1,
        client_id: str | None = None,
    ) -> FetchResponse:
        """Fetch, at once without `wait_ms`. The next fetch goes on with the session, unless this
        one was refused."""
        asked_id = self.session_id if session_id is None else session_id
        asked_epoch = self.epoch if epoch is None else epoch
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes if wait_ms else 0,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            session_id=asked_id,
            session_epoch=asked_epoch,
            topics=self._topics(places),
            forgotten_topics_data=self._forgotten(without),
        )
        words = [f"fetch v{self.version} {self.broker.names.session(asked_id)}/{asked_epoch}"]
        words += ["committed"] * committed + [f"max {max_bytes}"] * (max_bytes != MAX_BYTES)
        words += [str(place) for place in places]
        words += [f"without {topic}-{partition}" for topic, partition in without]
        words += [f"min {min_bytes}"] * (min_bytes != 1)
        began = time.monotonic()

        def said(response: FetchResponse) -> str:
            has_waited = (time.monotonic() - began) * 1000 >= NEARLY * wait_ms > 0
            return self._said(response) + " after its time" * has_waited

        response: FetchResponse = self.broker.ask(
            " ".join(words), FETCH, self.version, request, said, client_id=client_id
        )
        if response.error_code == 0:
            self.session_id = response.session_id
            self.epoch = 1 if asked_epoch in (NEW, CLOSING) else asked_epoch + 1
        return response

    def fetch_meanwhile(self, *places: Place) -> Callable[[], None]:
        """Fetch on a connection of its own and wait for records; what is returned ends it.

        The story goes on when the broker has had time to get the question. A Kafka that gets it
        together with new records may return those with the high watermark before them.
        """
        story, reader = self.broker, copy.copy(self.broker)
        reader.transcript = []
        self.broker = reader
        thread = threading.Thread(
            target=lambda: self.fetch(*places, wait_ms=PATIENCE_MS, client_id="reader")
        )
        thread.start()
        thread.join(ASKED_SECONDS)

        def answer() -> None:
            thread.join()
            story.transcript += reader.transcript
            self.broker = story

        return answer

    def forget_ids(self, topic: str) -> None:
        """Keep the id that a topic has now, when it is made anew."""
        self.ids[topic] = self.broker.names.topic_ids[topic]

    def _id(self, topic: str) -> UUID:
        if self.version < BY_ID:
            return ZERO_UUID
        return self.ids.get(topic, self.broker.names.topic_ids.get(topic, NOBODYS_ID))

    def _topics(self, places: Sequence[Place]) -> tuple[FetchTopic, ...]:
        """One entry for each run of partitions of one topic: they are read in their order."""
        found: list[FetchTopic] = []
        for place in places:
            name, topic_id = self.broker.names.on_wire(place.topic), self._id(place.topic)
            partitions: tuple[FetchPartition, ...] = (place.wanted(),)
            if found and (found[-1].topic, found[-1].topic_id) == (name, topic_id):
                partitions = found.pop().partitions + partitions
            found.append(FetchTopic(topic=name, topic_id=topic_id, partitions=partitions))
        return tuple(found)

    def _forgotten(self, without: Sequence[Where]) -> tuple[ForgottenTopic, ...]:
        return tuple(
            ForgottenTopic(
                topic=self.broker.names.on_wire(topic),
                topic_id=self._id(topic),
                partitions=(partition,),
            )
            for topic, partition in without
        )

    def _said(self, response: FetchResponse) -> str:
        names = self.broker.names
        said = [code_name(response.error_code), names.session(response.session_id)]
        for topic in response.responses:
            name = names.here(topic.topic) or names.topic_id(topic.topic_id)
            partitions = " ".join(self._partition(each) for each in topic.partitions)
            said.append(f"{name} [{partitions}]")
        if response.node_endpoints:
            said.append(f"and {len(response.node_endpoints)} addresses")
        return " ".join(said)

    def _partition(self, data: PartitionData) -> str:
        """Every field: those with a name of their own that are not the default, and the records."""
        names = self.broker.names
        said = [f"{data.partition_index} {code_name(data.error_code)}"]
        said.append(f"hw {data.high_watermark} lso {data.last_stable_offset}")
        said.append(f"start {data.log_start_offset}")
        if data.aborted_transactions is not None:
            aborted = (
                f"{names.producer(each.producer_id)}@{each.first_offset}"
                for each in data.aborted_transactions
            )
            said.append(f"aborted [{' '.join(aborted)}]")
        for name in ("diverging_epoch", "current_leader", "snapshot_id"):
            described = names.describe(getattr(data, name))
            said += [f"{name} {described}"] * (described != "{}")
        if data.preferred_read_replica != -1:
            said.append(f"preferred {data.preferred_read_replica}")
        if data.records is None:
            said.append("null")
        for header, batch in iter_batches(data.records or b""):
            kind = ""
            if header.is_control:
                kind = " COMMIT" if read_marker(batch).committed else " ABORT"
            said.append(f"({header.base_offset}..{header.last_offset}{kind})")
        return "{" + " ".join(said) + "}"
