"""The deserializers of a consumer: functions that make objects of the bytes of a key and a value.

A record that one of them fails for is a *poison record*. Without `on_error` its error leaves the
call that would have returned the record, and the position stays at it: the next call tries it
again, and `seek` goes on behind it. With `on_error` that function decides: if it returns, the
record is skipped; if it raises, that exception leaves the call, and the position stays.

The records before a poison record are returned first. So a call that raises has taken nothing.

`Retriable` is the exception to this: if a deserializer raises it, because a schema registry is away
say, the record is not at fault. It leaves the call as it is, `on_error` is not asked, and the next
call tries the record again.

A deserializer may return an awaitable. It is not awaited while records are taken: other tasks would
see positions that are half moved. `MustWait` leaves the call as an error would, with nothing taken.
Its caller waits with `MustWait.wait`, and calls again: the outcome is kept for that record.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from odradek.client.errors import Retriable
from odradek.client.serialization import (
    KEY_INDEX,
    Conversion,
    Deserializer,
    OnError,
    Part,
    PoisonRecord,
    conversion,
    dismiss,
    is_awaitable,
)
from odradek.client.types import ConsumerRecord, Key, TopicPartition, Value

T = TypeVar("T")


class MustWait(Exception):
    """A deserializer must be awaited before its record can be returned."""

    def __init__(self, outcomes: "_Outcomes", part: Part, awaitable: Awaitable[Any]) -> None:
        super().__init__(f"the {part} of a record must be awaited")
        self._outcomes = outcomes
        self._part = part
        self._awaitable = awaitable

    def dismiss(self) -> None:
        """Cancel the wait: the deserializer is called for the record again."""
        dismiss(self._awaitable)

    async def wait(self) -> None:
        """Wait for the deserializer, and keep what it returns or raises for the next call."""
        try:
            self._outcomes.returned[self._part] = await self._awaitable
        except Exception as error:
            self._outcomes.raised[self._part] = error


async def settled(function: Callable[[], T]) -> T:
    """Call a function that deserializes, again after each wait for a deserializer."""
    while True:
        try:
            return function()
        except MustWait as waiting:
            await waiting.wait()


class _Outcomes:
    """The outcomes of the deserializers of one record, after they were awaited."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.returned: dict[Part, Any] = {}
        self.raised: dict[Part, Exception] = {}


class Deserializers(Generic[Key, Value]):
    """The two functions, and the one that decides about poison records."""

    def __init__(
        self,
        key_deserializer: Deserializer[Key] | None = None,
        value_deserializer: Deserializer[Value] | None = None,
        on_error: OnError | None = None,
    ) -> None:
        if inspect.iscoroutinefunction(on_error):  # it would never be awaited
            raise ValueError(f"on_error is a plain function, and not async as {on_error!r}")
        self._of_keys = conversion("key_deserializer", key_deserializer)
        self._of_values = conversion("value_deserializer", value_deserializer)
        self._on_error = on_error
        self._awaited: dict[TopicPartition, _Outcomes] = {}
        """By partition, the outcomes for the next record that waits there."""
        self._not_awaited: set[type] = set()
        """The classes of values that are no awaitables: a look here is quicker than asking."""
        self.is_needed = not (key_deserializer is None and value_deserializer is None)

    def some(
        self, records: Sequence[ConsumerRecord], start: int, end: int, *, may_raise: bool = True
    ) -> tuple[list[ConsumerRecord[Key, Value]], int]:
        """Deserialize `records[start:end]`. Return them, and the index behind the last used one.

        Stops before a poison record that is not the first. If the first is one, it raises
        `PoisonRecord` or what `on_error` raises, or returns [] and the index behind it. Without
        `may_raise` it then returns [] and `start`: call it again when nothing else is to be
        returned. A record that must be awaited is treated as a poison record: `MustWait` is raised.
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
            except (MustWait, Retriable) as error:
                if not found and may_raise:
                    raise
                if isinstance(error, MustWait):
                    error.dismiss()
                return found, index
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
        key: Any = record.key
        value: Any = record.value
        part: Part = "key"
        try:
            if key is not None and self._of_keys is not None:
                if self._of_keys.takes_context or self._awaited:
                    key = self._converted(self._of_keys, record, part, key)
                else:
                    key = self._of_keys.function(key)
                if type(key) not in self._not_awaited:
                    self._check(record, part, key)
            part = "value"
            if value is not None and self._of_values is not None:
                if self._of_values.takes_context or self._awaited:
                    value = self._converted(self._of_values, record, part, value)
                else:
                    value = self._of_values.function(value)
                if type(value) not in self._not_awaited:
                    self._check(record, part, value)
        # invariant client 12: A record is poison by its own fault only.
        # plant a good record is poison while the schema registry is away
        # plant what a deserializer was awaited for becomes the value of another record
        except (MustWait, Retriable):
            raise
        except Exception as error:
            raise PoisonRecord(record, part, error) from error
        if self._awaited:
            self._awaited.pop(TopicPartition(record.topic, record.partition), None)
        changed = (*record[:KEY_INDEX], key, value, *record[KEY_INDEX + 2 :])
        return tuple.__new__(ConsumerRecord, changed)

    def _converted(
        self, function: Conversion, record: ConsumerRecord, part: Part, given: bytes
    ) -> Any:
        """Return what a deserializer returns, or has returned after it was awaited."""
        if self._awaited:
            outcomes = self._awaited.get(TopicPartition(record.topic, record.partition))
            # invariant client 12
            if outcomes is not None and outcomes.offset == record.offset:
                if part in outcomes.raised:
                    raise outcomes.raised.pop(part)
                if part in outcomes.returned:
                    return outcomes.returned[part]
        return function(given, record.topic, part, record.headers)

    def _check(self, record: ConsumerRecord, part: Part, returned: Any) -> None:
        """Raise `MustWait` if a deserializer has returned something to await."""
        if not is_awaitable(returned):
            self._not_awaited.add(type(returned))
            return
        place = TopicPartition(record.topic, record.partition)
        outcomes = self._awaited.get(place)
        if outcomes is None or outcomes.offset != record.offset:
            outcomes = self._awaited[place] = _Outcomes(record.offset)
        raise MustWait(outcomes, part, returned)
