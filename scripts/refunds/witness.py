"""A reader beside the Spark query: does a partition ever show a part of a micro-batch?

It asks for the last stable offset of each partition all the time. What lies below it is what a
read_committed reader can see at that moment. When all is over, each record of the audit topic says
which departure it comes from, and Spark's checkpoint says which micro-batch that was in. So for
every offset that was ever the last stable one, each micro-batch must be visible as a whole in its
partition, or not at all.
"""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from odradek.client.blocking import Consumer, OdradekError
from odradek.client.types import ConsumerRecord, TopicPartition
from scripts.refunds.load import NO_OPTIONS
from scripts.refunds.processor import TOPIC_IN

PAUSE_S: Final = 0.003
ANSWER_MS: Final = 2_000
"""A killed broker answers nothing. The witness asks again soon, and misses no more than that."""

Place = tuple[int, int]
"""A partition and offset of a departure."""


class Witness:
    """A thread that notes each last stable offset of a topic, from entry to exit."""

    def __init__(self, bootstrap: str, topic: str, options: Mapping[str, Any] = NO_OPTIONS) -> None:
        self._bootstrap = bootstrap
        self._options = options
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="witness")
        self.stable: dict[int, set[int]] = defaultdict(set)
        """The last stable offsets of each partition that it has seen."""
        self.looks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.is_set():
            try:
                self._look_until_it_fails()
            except OdradekError:
                self._is_over.wait(PAUSE_S)

    def _look_until_it_fails(self) -> None:
        with Consumer(self._bootstrap, max_block_ms=ANSWER_MS, **self._options) as consumer:
            partitions = [
                TopicPartition(self._topic, number)
                for number in consumer.partitions_for(self._topic)
            ]
            while not self._is_over.wait(PAUSE_S):
                for name, offset in consumer.end_offsets(partitions).items():
                    self.stable[name.partition].add(offset)
                self.looks += 1

    def torn(self, records: list[ConsumerRecord], checkpoint: Path) -> list[str]:
        """Return a sentence for each micro-batch that was visible in part.

        `records` are all committed records of the topic.
        """
        batch_of = BatchesOfCheckpoint(checkpoint)
        found = []
        for partition, offsets in sorted(self.stable.items()):
            here = [
                (record.offset, batch_of(place_of(record)))
                for record in records
                if record.partition == partition
            ]
            whole = Counter(batch for _, batch in here)
            for stable in sorted(offsets):
                visible = Counter(batch for offset, batch in here if offset < stable)
                found += [
                    f"{self._topic}-{partition} showed {visible[batch]} of {whole[batch]} records "
                    f"of micro-batch {batch} below offset {stable}"
                    for batch in visible
                    if visible[batch] != whole[batch]
                ]
        return found


def place_of(record: ConsumerRecord) -> Place:
    """Return the departure that an audit row comes from."""
    origin = json.loads(record.value or b"")["from"]
    return origin["partition"], origin["offset"]


class BatchesOfCheckpoint:
    """The micro-batches of a query, as its checkpoint has them."""

    def __init__(self, checkpoint: Path) -> None:
        numbers = sorted(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*"))
        self._ends = [(number, self._end(checkpoint, number)) for number in numbers]

    def _end(self, checkpoint: Path, number: int) -> dict[str, int]:
        """Return the end of a micro-batch in each partition: the third line of its file."""
        lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()
        ends: dict[str, int] = json.loads(lines[2])[TOPIC_IN]
        return ends

    def __call__(self, place: Place) -> int:
        """Return the number of the micro-batch that has this departure."""
        partition, offset = place
        for number, ends in self._ends:
            if offset < ends.get(f"{partition}", 0):
                return number
        raise LookupError(f"no micro-batch has offset {offset} of partition {partition}")
