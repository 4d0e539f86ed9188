"""The serializers of a producer: functions that make bytes of a key and of a value.

None is not given to them: it stays None, which means no key, or a tombstone. `Serialized` bytes are
not given to them either: they are sent as they are. If a serializer raises `Retriable`, `send`
raises it as it is; another exception becomes `Refused`.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NoReturn

from odradek.client.errors import Refused, Retriable
from odradek.client.serialization import (
    Conversion,
    Part,
    Serializer,
    conversion,
    dismiss,
    is_awaitable,
    reason,
    run_now,
)
from odradek.client.types import Header, Key, Serialized, Value

Wait = Callable[[Awaitable[Any]], Awaitable[Any]]
"""How to wait for what a serializer has returned."""


Encoded = tuple[bytes | None, bytes | None, Sequence[Header]]
"""Key, value and headers of a record as they are sent. A serializer may have changed the headers.
"""


async def awaited(awaitable: Awaitable[Any]) -> Any:
    """Wait as the program does, where it calls."""
    return await awaitable


async def _not_awaited(awaitable: Awaitable[Any]) -> NoReturn:
    dismiss(awaitable)
    raise Refused("it must be awaited, and send_nowait does not wait: use send")


class Serializers(Generic[Key, Value]):
    """The two functions; without one of them, keys (or values) are bytes already."""

    def __init__(
        self, key_serializer: Serializer[Key] | None, value_serializer: Serializer[Value] | None
    ) -> None:
        self._of_keys = conversion("key_serializer", key_serializer)
        self._of_values = conversion("value_serializer", value_serializer)
        self.is_needed = not (key_serializer is None and value_serializer is None)
        self._may_change_headers = any(
            each is not None and each.takes_context for each in (self._of_keys, self._of_values)
        )

    async def encode(
        self,
        topic: str,
        key: Key | Serialized | None,
        value: Value | Serialized | None,
        headers: Sequence[Header],
    ) -> Encoded:
        """Return key and value as bytes. Raises `Refused` if a serializer fails."""
        started = self._start(topic, key, value, headers)
        return await _finish(started, topic, awaited) if _must_wait(started) else started

    def encode_nowait(
        self,
        topic: str,
        key: Key | Serialized | None,
        value: Value | Serialized | None,
        headers: Sequence[Header],
        wait: Wait = _not_awaited,
    ) -> Encoded:
        """Encode as `encode` does, at once. `wait` blocks, or raises `Refused`."""
        started = self._start(topic, key, value, headers)
        return run_now(_finish(started, topic, wait)) if _must_wait(started) else started

    def _start(
        self,
        topic: str,
        key: Key | Serialized | None,
        value: Value | Serialized | None,
        headers: Sequence[Header],
    ) -> Encoded:
        """Call the serializers. Instead of bytes there may be something to await."""
        if self._may_change_headers:
            headers = list(headers or ())
        encoded_key = _encoded(self._of_keys, "key", key, topic, headers)
        try:
            encoded_value = _encoded(self._of_values, "value", value, topic, headers)
        except BaseException:
            dismiss(encoded_key)
            raise
        return encoded_key, encoded_value, headers


def _must_wait(started: Encoded) -> bool:
    key, value, _ = started
    if isinstance(value, bytes) and (key is None or isinstance(key, bytes)):  # the usual case
        return False
    return is_awaitable(key) or is_awaitable(value)


async def _finish(started: Encoded, topic: str, wait: Wait) -> Encoded:
    """Await what the serializers have returned instead of bytes."""
    key, value, headers = started
    try:
        if is_awaitable(key):
            key = await _finished(key, "key", topic, wait)
        if is_awaitable(value):
            value = await _finished(value, "value", topic, wait)
    except BaseException:
        dismiss(value)
        raise
    return key, value, headers


def _encoded(
    function: Conversion | None, part: Part, given: Any, topic: str, headers: Sequence[Header]
) -> Any:
    """Return the bytes of a key or a value, or what must be awaited for them."""
    if given is None or function is None or isinstance(given, Serialized):
        return given  # without a serializer it is bytes
    try:
        if function.takes_context:
            encoded = function(given, topic, part, headers)
        else:
            encoded = function.function(given)
    except Retriable:  # the schema registry is away, say: the same record may be sent later
        raise
    except Exception as error:
        raise _failed(part, topic, error) from error
    if type(encoded) is bytes or is_awaitable(encoded):
        return encoded
    return _checked(encoded, part, topic)


async def _finished(awaitable: Any, part: Part, topic: str, wait: Wait) -> bytes:
    try:
        encoded = await wait(awaitable)
    except Retriable:  # the schema registry is away, say: the same record may be sent later
        raise
    except Exception as error:
        raise _failed(part, topic, error) from error
    return _checked(encoded, part, topic)


def _failed(part: Part, topic: str, error: Exception) -> Refused:
    return Refused(
        f"the record for {topic!r} was not sent, because its {part}_serializer raised "
        f"{reason(error)}"
    )


def _checked(encoded: object, part: Part, topic: str) -> bytes:
    if not isinstance(encoded, bytes | bytearray | memoryview):
        raise Refused(
            f"the record for {topic!r} was not sent: its {part}_serializer must return bytes, and "
            f"it returned {type(encoded).__name__}"
        )
    return encoded  # type: ignore[return-value] # a buffer is sent as bytes are
