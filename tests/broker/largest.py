"""The largest requests of an API: one of its arrays is full, made from the declarations alone.

A request of an API that nobody has thought of is made in the same way, so that its handler has to
stand the test, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final
from uuid import UUID

from odradek.protocol.api import Api
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.schema import FieldType

BIG: Final = "big"
"""The name of all that is there: a topic, a group and a transactional id."""

Path = tuple[str, ...]
"""The fields that lead from a request to one of its arrays."""

BATCH: Final = bytes(encode_batch([Record(key=None, value=b"v")]))
NUMBERS: Final = {
    "acks": 1,
    "committed_leader_epoch": -1,
    "current_leader_epoch": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "isolation_level": 0,
    "last_fetched_epoch": -1,
    "leader_epoch": 0,
    "max_wait_ms": 0,
    "num_partitions": 1,
    "operation": 3,
    "pattern_type_filter": 3,
    "permission_type": 3,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_pattern_type": 3,
    "resource_type": 2,
    "resource_type_filter": 2,
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
    "timestamp": -1,
}
"""What lets a request get as far as possible; other numbers are small ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """How to fill a request: `count` items in the array at `path`, one in every other.

    `are_alike`: all items say the same, that which is there; else each names another thing.
    """

    path: Path
    count: int
    are_alike: bool
    known: dict[str, Any]
    """Values of fields by name, that only the running broker knows."""
    name: str = BIG
    """What every text begins with."""


def array_paths(cls: type[Any], version: int) -> Iterator[Path]:
    """Every array of a message, also those in the items of arrays."""
    for declared in fields(cls):
        kind: FieldType = declared.metadata["type"]
        if not kind.is_in(version):
            continue
        if kind.kind == "array":
            yield (declared.name,)
        inner = kind.item
        if isinstance(inner, type):
            for path in array_paths(inner, version):
                yield (declared.name, *path)


def largest_request(api: Api[Any, Any], version: int, full: Full) -> Any:
    """The request; without a path a small one that names everything by its name or number."""
    return _message(api.request, version, full, full.path, 0)


def _message(cls: type[Any], version: int, full: Full, path: Path, number: int) -> Any:
    values: dict[str, Any] = {}
    for declared in fields(cls):
        kind: FieldType = declared.metadata["type"]
        if kind.is_in(version):
            inner_path = path[1:] if path[:1] == (declared.name,) else None
            values[declared.name] = _value(declared.name, kind, version, full, inner_path, number)
    return cls(**values)


def _value(
    name: str, kind: FieldType, version: int, full: Full, path: Path | None, number: int
) -> Any:
    if kind.kind == "array":
        count = full.count if path == () else 1
        return tuple(
            _item(name, kind, version, full, path or (), place if count > 1 else number)
            for place in range(count)
        )
    if kind.kind == "struct":
        assert isinstance(kind.item, type)
        return _message(kind.item, version, full, path or (), number)
    if name in full.known:
        return full.known[name]
    return _simple(name, kind, full, number)


def _item(name: str, kind: FieldType, version: int, full: Full, path: Path, number: int) -> Any:
    if isinstance(kind.item, type):
        return _message(kind.item, version, full, path, number)
    assert kind.item is not None
    return _simple(name, kind.item, full, number)


def _simple(name: str, kind: FieldType, full: Full, number: int) -> Any:
    if kind.kind == "string":
        return full.name if full.are_alike or not number else f"{full.name}-{number}"
    if kind.kind == "uuid":
        return UUID(int=number)
    if kind.kind == "bool":
        return False
    if kind.kind == "float64":
        return 0.0
    if kind.kind == "bytes":
        return b"b"
    if kind.kind == "records":
        return BATCH
    if name in NUMBERS:
        return NUMBERS[name]
    if full.are_alike:
        return 0
    return number % 128 if kind.kind == "int8" else number
