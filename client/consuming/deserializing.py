"""The deserializers of a consumer: functions that make objects of the bytes of a key and a value.

A record that one of them fails for is a *poison record*. Without `on_error` its error leaves the
call that would have returned the record, and the position stays at it: the next call tries it
again, and `seek` goes on behind it. With `on_error` that function decides: if it returns, the
record is skipped; if it raises, that exception leaves the call, and the position stays.

The records before a poison record are returned first. So a call that raises has taken nothing.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Final, Generic, Self

from odradek.client.errors import Refused
from odradek.client.types import ConsumerRecord, Key, TopicPartition, Value


class PoisonRecord(Refused):
    """A record whose key or value a deserializer cannot read.

    `record` has the place of the record and its bytes, `part` is "key" or "value", and `__cause__`
    is the exception of the deserializer.
    """

    def __init__(self, record: ConsumerRecord, part: str, cause: Exception) -> None:
        super().__init__(
            f"the {part} of {record.topic}-{record.partition} at offset {record.offset} cannot be "
            f"deserialized: {cause!r}; seek to {record.offset + 1} to go on behind it, or give the "
            f"consumer on_error"
        )
        self.topic = record.topic
        self.partition = record.partition
        self.offset = record.offset
        self.record = record
        self.part = part
        self.__cause__ = cause

    def copy(self) -> Self:
        """Return an equal error to raise elsewhere."""
        assert isinstance(self.__cause__, Exception)
        return type(self)(self.record, self.part, self.__cause__)

    @property
    def place(self) -> TopicPartition:
        """The topic and the partition, for `seek`."""
        return TopicPartition(self.topic, self.partition)


KEY_INDEX: Final = ConsumerRecord._fields.index("key")
"""The place of the key in a record. The value follows it."""

OnError = Callable[[PoisonRecord], object]
"""A function that decides about a poison record: it returns to skip it, or raises to stop."""


class Deserializers(Generic[Key, Value]):
    """The two functions, and the one that decides about poison records."""

    def __init__(
        self,
        key_deserializer: Callable[[bytes], Key] | None = None,
        value_deserializer: Callable[[bytes], Value] | None = None,
        on_error: OnError | None = None,
    ) -> None:
        for function in (key_deserializer, value_deserializer, on_error):
            if inspect.iscoroutinefunction(function):  # it would never be awaited
                raise ValueError(f"deserializers and on_error are plain functions: {function!r}")
        self._of_keys = key_deserializer
        self._of_values = value_deserializer
        self._on_error = on_error
        self.is_needed = not (key_deserializer is None and value_deserializer is None)

    def some(
        self, records: Sequence[ConsumerRecord], start: int, end: int, *, may_raise: bool = True
    ) -> tuple[list[ConsumerRecord[Key, Value]], int]:
        """Deserialize `records[start:end]`. Return them, and the index behind the last used one.

        Stops before a poison record that is not the first. If the first is one, it raises
        `PoisonRecord` or what `on_error` raises, or returns [] and the index behind it. Without
        `may_raise` it then returns [] and `start`: call it again when nothing else is to be
        returned.
        """
        if not self.is_needed:
            return records[start:end], end  # type: ignore[return-value] # Key and Value are bytes
        found: list[ConsumerRecord[Key, Value]] = []
        for index in range(start, end):
            try:
                found.append(self._deserialized(records[index]))
            except PoisonRecord as error:
                if found or not may_raise:
                    return found, index
                self._skip(error)
                return [], index + 1
        return found, end

    def one(self, record: ConsumerRecord) -> ConsumerRecord[Key, Value] | None:
        """Deserialize a record; None if `on_error` skips it. Raises the errors of `some`."""
        if not self.is_needed:
            return record  # type: ignore[return-value] # Key and Value are bytes
        try:
            return self._deserialized(record)
        except PoisonRecord as error:
            self._skip(error)
            return None

    def _skip(self, error: PoisonRecord) -> None:
        if self._on_error is None:
            raise error
        self._on_error(error)

    def _deserialized(self, record: ConsumerRecord) -> ConsumerRecord[Key, Value]:
        key: object = record.key
        value: object = record.value
        part = "key"
        try:
            if record.key is not None and self._of_keys is not None:
                key = self._of_keys(record.key)
            part = "value"
            if record.value is not None and self._of_values is not None:
                value = self._of_values(record.value)
        except Exception as error:
            raise PoisonRecord(record, part, error) from error
        changed = (*record[:KEY_INDEX], key, value, *record[KEY_INDEX + 2 :])
        return tuple.__new__(ConsumerRecord, changed)
