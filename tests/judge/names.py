"""Names for the values that each broker chooses, so that two transcripts can be compared.

Producer ids, topic ids, coordinator epochs, leader epochs and member ids get a name when they are
first seen: the first producer id of a story is p1 on every broker. The topics, groups and
transactional ids of a story have its prefix on the wire, and none in a transcript.
"""

import dataclasses
import re
from collections.abc import Collection
from typing import Any, Final
from uuid import UUID

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID

NOBODY: Final = 2**62
"""A producer id that no broker has assigned."""

CHOSEN: Final = re.compile(r"[-\w]{22}$")
"""The end of a member id that a broker has chosen: a UUID, as hexadecimal digits or in base 64."""

UNSAID: Final = frozenset({"throttle_time_ms", "error_message", "correlation_id"})
"""Fields that a transcript leaves out, because brokers may differ there."""

TIMES: Final = ("timestamp_ms", "_time_ms", "timestamp")


class Names:
    """The names of one story on one broker."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._given: dict[str, dict[object, str]] = {}
        self.topic_ids: dict[str, UUID] = {}
        self.shows_all = False
        """Set it to show bytes, which are counted otherwise, and member ids of the story's own."""

    def on_wire(self, name: str) -> str:
        """Return a name as it is sent. Internal topics and the empty name have no prefix."""
        return name if not name or name.startswith("__") else self.prefix + name

    def here(self, name: str | None) -> str:
        """Return a name as it is in a transcript."""
        return "null" if name is None else name.removeprefix(self.prefix)

    def _of(self, kind: str, value: object) -> str:
        given = self._given.setdefault(kind, {})
        return given.setdefault(value, f"{kind}{len(given) + 1}")

    def producer(self, producer_id: int) -> str:
        if producer_id == NOBODY:
            return "nobody"
        return str(producer_id) if producer_id < 0 else self._of("p", producer_id)

    def knows_producer(self, producer_id: int) -> bool:
        return producer_id in self._given.get("p", {})

    def is_here(self, wire: str) -> bool:
        """Return True if a name on the wire is one of the story."""
        return wire.startswith(self.prefix)

    def identity(self, producer_id: int, producer_epoch: int) -> str:
        return f"{self.producer(producer_id)}/{producer_epoch}"

    def coordinator_epoch(self, epoch: int) -> str:
        return str(epoch) if epoch < 0 else self._of("c", epoch)

    def session(self, session_id: int) -> str:
        """Return the name of a fetch session. 0 and what is negative are none."""
        return str(session_id) if session_id <= 0 else self._of("s", session_id)

    def member(self, member_id: str) -> str:
        if not member_id or (self.shows_all and not CHOSEN.search(member_id)):
            return member_id
        return self._of("m", member_id)

    @property
    def members(self) -> dict[str, str]:
        """The names that were given to member ids, by member id."""
        return {str(wire): name for wire, name in self._given.get("m", {}).items()}

    def without_prefix(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return bytes with the names in them as they are in a transcript."""
        return bytes(data).replace(self.prefix.encode(), b"")

    def topic_id(self, topic_id: UUID) -> str:
        if topic_id == ZERO_UUID:
            return "zero"
        for name, known in self.topic_ids.items():
            if known == topic_id:
                return f"id({name})"
        return self._of("topic", topic_id)

    def describe(self, value: object, field: str = "") -> str:
        """Format any part of any message. Fields with their default are left out."""
        if isinstance(value, tuple | list):
            return "[" + " ".join(self.describe(item, field) for item in value) + "]"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return "{" + " ".join(self._fields(value)) + "}"
        if field.endswith("error_code") and isinstance(value, int):
            return code_name(value)
        if field.endswith("producer_id") and isinstance(value, int):
            return self.producer(value)
        if field == "coordinator_epoch" and isinstance(value, int):
            return self.coordinator_epoch(value)
        if (field.endswith("member_id") or field == "leader") and isinstance(value, str):
            return self.member(value)
        if isinstance(value, UUID):
            return self.topic_id(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return repr(self.without_prefix(value)) if self.shows_all else f"{len(value)} bytes"
        return self.here(value) if isinstance(value, str) else str(value)

    def describe_fields(self, message: Any) -> list[str]:
        """Format the fields of a message that are neither messages nor arrays."""
        inner = {
            field.name
            for field in dataclasses.fields(message)
            if isinstance(getattr(message, field.name), tuple)
            or dataclasses.is_dataclass(getattr(message, field.name))
        }
        return self._fields(message, but=inner)

    def _fields(self, message: Any, but: Collection[str] = ()) -> list[str]:
        said = []
        for field in dataclasses.fields(message):
            if field.name in but:
                continue
            value = getattr(message, field.name)
            if field.name in UNSAID or field.name.endswith(TIMES) or _is_default(field, value):
                continue
            said.append(f"{field.name}={self.describe(value, field.name)}")
        return said


def code_name(code: int) -> str:
    """Return the name of an error code, or its number if Kafka has no name for it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _is_default(field: "dataclasses.Field[Any]", value: object) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return bool(value == field.default)
