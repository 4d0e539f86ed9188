"""The serializers of a producer: functions that make bytes of a key and of a value.

None is not given to them: it stays None, which means no key, or a tombstone.
"""

from collections.abc import Callable
from typing import Generic

from odradek.client.errors import Refused
from odradek.client.types import Key, Value


class Serializers(Generic[Key, Value]):
    """The two functions; without one of them, keys (or values) are bytes already."""

    def __init__(
        self,
        key_serializer: Callable[[Key], bytes] | None,
        value_serializer: Callable[[Value], bytes] | None,
    ) -> None:
        self._of_keys = key_serializer
        self._of_values = value_serializer
        self.is_needed = not (key_serializer is None and value_serializer is None)

    def __call__(
        self, topic: str, key: Key | None, value: Value | None
    ) -> tuple[bytes | None, bytes | None]:
        """Return key and value as bytes. Raises `Refused` if a serializer fails."""
        return (
            _serialized("key", self._of_keys, key, topic),
            _serialized("value", self._of_values, value, topic),
        )


def _serialized(
    part: str, serializer: Callable[[Key], bytes] | None, given: Key | None, topic: str
) -> bytes | None:
    if given is None:
        return None
    if serializer is None:
        return given  # type: ignore[return-value] # without a serializer Key is bytes
    try:
        serialized = serializer(given)
    except Exception as error:
        raise Refused(
            f"the record for {topic!r} was not sent, because its {part}_serializer raised {error!r}"
        ) from error
    if not isinstance(serialized, bytes | bytearray | memoryview):
        raise Refused(
            f"the record for {topic!r} was not sent: its {part}_serializer must return bytes, and "
            f"it returned {type(serialized).__name__}"
        )
    return serialized
