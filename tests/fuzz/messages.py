"""Requests that are nearly valid: valid messages of every API, with a few fields changed.

Each field first gets a value that a client could send: an existing topic, an assigned producer id,
an existing partition. The request then reaches the code behind the first check. After that a few
fields get values that no client sends.
"""

from dataclasses import fields, replace
from random import Random
from typing import Any, Final
from uuid import UUID

from odradek.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    encode_versioned,
)
from odradek.protocol.schema import ZERO_UUID, FieldType
from tests.fuzz.batches import some_records

TOPICS: Final = ("fuzz-0", "fuzz-1", "fuzz-2", "fuzz-3", "fuzz-compact", "fuzz-missing")
IDS: Final = tuple(f"fuzz-id-{number}" for number in range(8))
GROUPS: Final = tuple(f"fuzz-group-{number}" for number in range(4))
MEMBERS: Final = ("", "fuzz-member", "fuzz-1-00000000-0000-0000-0000-000000000000")

EPOCHS: Final = (-2, -1, -1, 0, 0, 0, 1, 2, 3, 7)
PATTERNS: Final = ("fuzz.*", "fuzz-[0-2]", "", "(", "(?=x)", "a**", "\\p{Nosuch}", "x{1001}")
"""Regular expressions, and texts that are none for RE2."""
SUBSCRIPTIONS: Final = tuple(
    encode_versioned(
        ConsumerProtocolSubscription(
            topics=topics,
            owned_partitions=tuple(
                ConsumerTopicPartitions(topic=topic, partitions=(0, 1)) for topic in topics[:1]
            ),
        ),
        version,
    )
    for topics in ((), ("fuzz-0",), ("fuzz-0", "fuzz-missing"))
    for version in (0, 1, 3)
)
ASSIGNMENTS: Final = tuple(
    encode_versioned(
        ConsumerProtocolAssignment(
            assigned_partitions=(ConsumerTopicPartitions(topic=topic, partitions=(0, 1, 99)),),
            user_data=user_data,
        )
    )
    for topic in ("fuzz-0", "fuzz-missing")
    for user_data in (None, b"", b"custom")
)

NAMED: Final[dict[str, tuple[Any, ...]]] = {
    "acks": (-1, -1, 0, 1),
    "allow_auto_topic_creation": (True, False),
    "committed": (True, False),
    "current_leader_epoch": (-1, 0, 1),
    "enable_2pc": (False,),
    "assignment": ASSIGNMENTS,
    "generation_id": EPOCHS,
    "generation_id_or_member_epoch": EPOCHS,
    "group_id": GROUPS,
    "group_instance_id": (None, None, "fuzz-instance"),
    "groups_names": GROUPS,
    "isolation_level": (0, 1),
    "key": (*IDS, *GROUPS),
    "key_type": (0, 1),
    "keep_prepared_txn": (False,),
    "max_bytes": (1, 1024, 1 << 20, 64 << 20),
    "max_wait_ms": (0, 0, 0, 1, 50),
    "instance_id": (None, None, "fuzz-instance"),
    "member_epoch": EPOCHS,
    "member_id": MEMBERS,
    "metadata": SUBSCRIPTIONS,
    "min_bytes": (0, 1),
    "num_partitions": (-1, 1, 2),
    "partition_max_bytes": (1, 1024, 1 << 20),
    "protocol_type": ("consumer",),
    "rebalance_timeout_ms": (1, 10, 100),
    "replica_id": (-1,),
    "replication_factor": (-1, 1),
    "resource_name": (*TOPICS, *GROUPS, "1"),
    "resource_type": (2, 4, 32),
    "server_assignor": (None, None, "uniform", "range", "nosuch"),
    "session_epoch": (-1, 0, 0, 1, 2),
    "session_id": (0,),
    "session_timeout_ms": (6000, 10_000),
    "subscribed_topic_regex": (None, None, *PATTERNS),
    "timeout_ms": (0, 100, 1000),
    "timestamp": (-1, -2, -3, 0, 1_700_000_000_000),
    "transaction_timeout_ms": (1, 100, 60_000),
    "transactional_id_pattern": (None, "fuzz.*", "(a|b)*c"),
}
"""Values for fields, by name. A value that is listed several times is chosen more often."""

NUMBERS: Final = (0, 1, -1, -2, 2, 127, 128, 255, 32767, 65535, 2**31 - 1, -(2**31), 2**62)
STRINGS: Final = (
    None,
    "",
    ".",
    "..",
    "../../etc/passwd",
    "a/b",
    "a\0b",
    "a b",
    "__consumer_offsets",
    "__transaction_state",
    "__cluster_metadata",
    "\u2028\x1b[2J",
    "%s%n{0}",
    "\U0001f577" * 60,
    "x" * 249,
    "x" * 250,
    "x" * 8_000,
    "x" * 32_600,
    "x" * 32_767,
    "y" * 70_000,
)
SIZES: Final = {
    "int8": 8,
    "int16": 16,
    "uint16": 16,
    "int32": 32,
    "uint32": 32,
    "int64": 64,
}
COPIES: Final = (2, 2, 3, 10, 30, 1_000)
VARIANTS_MAX: Final = 30
MANY_COPIES: Final = 50_000


def some_message(rng: Random, cls: type[Any], version: int) -> Any:
    """Return a message that a client could send."""
    values = {}
    for declared in fields(cls):
        kind: FieldType = declared.metadata["type"]
        if kind.is_in(version) and (kind.tag is None or rng.random() < 0.2):
            values[declared.name] = _meant(rng, declared.name, kind, version)
    return cls(**values)


def _meant(rng: Random, name: str, kind: FieldType, version: int) -> Any:
    item: Any = kind.item
    if kind.kind == "array":
        if kind.may_be_null(version) and rng.random() < 0.1:
            return None
        count = rng.choice((0, 1, 1, 1, 2, 3))
        if isinstance(item, FieldType):
            return tuple(_meant(rng, f"{name}_item", item, version) for _ in range(count))
        return tuple(some_message(rng, item, version) for _ in range(count))
    if kind.kind == "struct":
        return some_message(rng, item, version)
    if kind.kind == "records":
        return some_records(rng)
    if kind.kind == "bytes":
        if name in NAMED and rng.random() < 0.8:
            return rng.choice(NAMED[name])
        return rng.randbytes(rng.choice((0, 1, 8, 40)))
    if kind.kind == "bool":
        return rng.random() < 0.3
    if kind.kind == "uuid":
        return rng.choice((ZERO_UUID, UUID(int=rng.getrandbits(128))))
    if kind.kind == "float64":
        return rng.random()
    if name in NAMED:
        return rng.choice(NAMED[name])
    if kind.kind == "string":
        return _meant_string(rng, name, nullable=kind.may_be_null(version))
    return _meant_number(rng, name)


def _meant_string(rng: Random, name: str, *, nullable: bool) -> str | None:
    if nullable and rng.random() < 0.2:
        return None
    if "transactional_id" in name:
        return rng.choice(IDS)
    if "group" in name:
        return rng.choice(GROUPS)
    if "topic" in name or name == "name":
        return rng.choice(TOPICS)
    return rng.choice(("range", "consumer", "fuzz", *TOPICS))


def _meant_number(rng: Random, name: str) -> int:
    if "producer_id" in name:
        return rng.choice((-1, rng.randrange(40)))
    if "producer_epoch" in name:
        return rng.choice((-1, 0, 0, 1, 2))
    if "offset" in name:
        return rng.choice((-1, 0, 0, 1, rng.randrange(5_000)))
    return rng.choice((0, 0, 0, 1, -1))


# values that no client sends


def with_every_string(message: Any, version: int, text: str) -> Any:
    """Return the message with `text` in each string, because errors quote strings."""
    values: dict[str, Any] = {}
    for declared in fields(message):
        kind: FieldType = declared.metadata["type"]
        value = getattr(message, declared.name)
        if not kind.is_in(version) or value is None:
            continue
        if kind.kind == "string":
            values[declared.name] = text
        elif kind.kind == "struct":
            values[declared.name] = with_every_string(value, version, text)
        elif kind.kind == "array" and not isinstance(kind.item, FieldType):
            values[declared.name] = tuple(with_every_string(v, version, text) for v in value)
    return replace(message, **values)


def changed(rng: Random, message: Any, version: int) -> Any:
    """Return the message with one field changed, at any depth."""
    present = [declared for declared in fields(message) if declared.metadata["type"].is_in(version)]
    if not present:
        return message
    declared = rng.choice(present)
    kind: FieldType = declared.metadata["type"]
    value = getattr(message, declared.name)
    return replace(message, **{declared.name: _changed_value(rng, kind, value, version)})


def _changed_value(rng: Random, kind: FieldType, value: Any, version: int) -> Any:
    if kind.kind == "array":
        return _changed_array(rng, value, version)
    if kind.kind == "struct":
        return value if value is None else changed(rng, value, version)
    if kind.kind == "records":
        return rng.choice((None, b"", some_records(rng), rng.randbytes(rng.randrange(200))))
    if kind.kind == "bytes":
        return rng.choice((None, b"", bytes(70_000), rng.randbytes(rng.randrange(200))))
    if kind.kind == "string":
        return rng.choice(STRINGS)
    if kind.kind in SIZES:
        return _fitting(rng.choice(NUMBERS), kind.kind)
    if kind.kind == "bool":
        return not value
    if kind.kind == "uuid":
        return UUID(int=rng.choice((0, 1, 2**128 - 1)))
    return rng.choice((0.0, -1.0, 1e308, float("inf"), float("nan")))


def _fitting(number: int, kind: str) -> int:
    bits = SIZES[kind]
    if kind.startswith("u"):
        return number % (1 << bits)
    half = 1 << (bits - 1)
    return (number + half) % (1 << bits) - half


def _changed_array(rng: Random, items: Any, version: int) -> Any:
    way = rng.randrange(8)
    if way == 0:
        return None
    if way == 1 or not items:
        return ()
    place = rng.randrange(len(items))
    item = items[place]
    if way <= 4 and hasattr(item, "__dataclass_fields__"):
        return (*items[:place], changed(rng, item, version), *items[place + 1 :])
    copies = MANY_COPIES if rng.random() < 0.002 else rng.choice(COPIES)
    if rng.random() < 0.5 and copies <= VARIANTS_MAX and hasattr(item, "__dataclass_fields__"):
        return (*items, *(changed(rng, item, version) for _ in range(copies)))
    return (*items, *(item,) * copies)
