"""The place of a row that the broker has refused: which row of which task it was, and its key.

A broker refuses a whole record batch, and names the partition. A person wants to know the row.
"""

from collections import deque
from typing import Final

from odradek.client.blocking import Delivery, OdradekError
from odradek.client.spark.messages import TopicBatch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, RecordReader

KEY_SHOWN_CHARACTERS: Final = 60
DECODED_AT_ONCE: Final = 1_000


class WrongRow(ValueError):
    """A row cannot be written. The message states what is wrong with it."""


def place_of(row: int | None, task: int, key: bytes | None) -> str:
    """Return the words for a row: its number in the task if known, from 0, and its key if any."""
    of_task = f"row {row} of task {task}" if row is not None else f"a row of task {task}"
    if key is None:
        return of_task
    text = key.decode(errors="backslashreplace")
    shown = text if len(text) <= KEY_SHOWN_CHARACTERS else f"{text[:KEY_SHOWN_CHARACTERS]}..."
    return f"{of_task} (key {shown!r})"


class Sent:
    """The batches that were sent and are not stored yet, so that a refusal can name a row."""

    def __init__(self) -> None:
        self._sent: deque[tuple[Delivery, int, TopicBatch]] = deque()

    def add(self, delivery: Delivery, task: int, batch: TopicBatch) -> None:
        """Remember a batch of a task, and forget the first ones that are stored.

        Raises the error of a batch that was lost.
        """
        self._sent.append((delivery, task, batch))
        while self._sent and self._sent[0][0].is_done:
            self._sent[0][0].result()
            self._sent.popleft()

    def explain(self) -> WrongRow | None:
        """Return the error for the first batch that was refused because of a row, if any was.

        Call it only while an error is on its way: what it has looked at, `flush` does not raise.
        """
        for delivery, task, batch in self._sent:
            error = _error_of(delivery)
            if error is not None and error.code is ErrorCode.MESSAGE_TOO_LARGE:
                return _too_large(error, task, batch)
            if error is not None and error.code is ErrorCode.INVALID_RECORD:
                found = _without_key(error, task, batch)
                if found is not None:
                    return found
        return None


def _error_of(delivery: Delivery) -> OdradekError | None:
    if delivery.is_done:
        try:
            delivery.result()
        except OdradekError as error:
            return error
    return None


def _too_large(error: OdradekError, task: int, batch: TopicBatch) -> WrongRow:
    sizes = [(len(record.key or b"") + len(record.value or b"")) for record in _records(batch)]
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    return WrongRow(
        f"Of {batch.record_count} rows in a batch for topic {batch.topic}, the largest is "
        f"{_place(largest, task, batch)}, with {sizes[largest]} bytes of key and value: {error}, "
        "or set kafka.max.request.size to less than that."
    )


def _without_key(error: OdradekError, task: int, batch: TopicBatch) -> WrongRow | None:
    for index, record in enumerate(_records(batch)):
        if record.key is None:
            return WrongRow(
                f"Topic {batch.topic} is compacted, and {_place(index, task, batch)} has no key: "
                f"fill the column key ({error})."
            )
    return None


def _place(index: int, task: int, batch: TopicBatch) -> str:
    row = None if batch.rows is None else int(batch.rows[index])
    return place_of(row, task, _records(batch)[index].key)


def _records(batch: TopicBatch) -> list[Record]:
    reader = RecordReader(batch.data)
    records: list[Record] = []
    while reader.left:
        records += reader.take(DECODED_AT_ONCE)
    return records
