"""Requests of any API that make no sense, made from the declarations alone.

Every array is empty or has one item twice, the first one has 10,000 different ones, and every text
and number has values that no good client sends. An API has its nonsense as soon as it is declared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from odradek.broker.api import APIS
from odradek.protocol.api import Api
from odradek.protocol.schema import FieldType
from tests.broker.largest import Full, Path, array_paths, largest_request

MANY: Final = 10_000
TEXTS: Final = ("", "never", "a/b", "(?=x)", "-1", "n" * 300)
"""No name, that of nothing, none that a topic may have, no RE2, a number, and too long a name."""
NOT_RE2: Final = ("(?=x)", r"(x)\1", "*", "[", "x{1001}", r"\p{Nonsense}", "(?<x>")
BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
OLD: Final = frozenset(
    {
        "Produce",
        "Fetch",
        "ListOffsets",
        "Metadata",
        "OffsetCommit",
        "OffsetFetch",
        "FindCoordinator",
        "JoinGroup",
        "Heartbeat",
        "LeaveGroup",
        "SyncGroup",
        "ApiVersions",
        "CreateTopics",
        "InitProducerId",
        "OffsetForLeaderEpoch",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "WriteTxnMarkers",
        "TxnOffsetCommit",
        "CreatePartitions",
        "DescribeProducers",
        "DescribeTransactions",
        "ListTransactions",
    }
)
"""APIs whose nonsense is in stories of their own (`bad_input`, `bad_contents`, `bad_looks`)."""
TIMEOUT_MS: Final = 60_000
BASES: Final[dict[str, dict[str, Any]]] = {
    "ConsumerGroupHeartbeat": {
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": TIMEOUT_MS,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": (),
    },
    "ListConfigResources": {"resource_types": (2,)},
    "DescribeCluster": {"endpoint_type": 1},
    "DescribeTopicPartitions": {"response_partition_limit": 100, "cursor": None},
}
"""Values with which the rest of a request is looked at."""
UNTOLD: Final = frozenset({"timeout_ms"})
"""A broker may be done in no time, or not."""


@dataclass(frozen=True, slots=True)
class Nonsense:
    """A request, and how it differs from a good one."""

    words: str
    request: Any


def new_apis() -> dict[str, Api[Any, Any]]:
    return {api.name: api for api in APIS.values() if api.name not in OLD}


def nonsense_of(api: Api[Any, Any], name: str) -> Iterator[Nonsense]:
    """Yield the nonsense of the newest version of an API; `name` is a topic and a group."""
    version = api.max_version
    outermost = True
    for path in array_paths(api.request, version):
        for words, count in (("empty", 0), ("twice the same", 2), (f"{MANY} different", MANY)):
            if count < MANY or outermost:
                full = _full(path, count, are_alike=count < MANY, name=name)
                request = _based(api, largest_request(api, version, full), path[0])
                yield Nonsense(f"{'.'.join(path)}: {words}", request)
        outermost = False
    one = _full((), 1, are_alike=True, name=name)
    base = largest_request(api, version, one)
    for path, kind in _scalars(api.request, version):
        for value in NOT_RE2 if path[-1].endswith("_regex") else _values(kind):
            request = _with(_based(api, base, path[0]), path, value)
            yield Nonsense(f"{'.'.join(path)}={_short(value)}", request)


def _full(path: Path, count: int, *, are_alike: bool, name: str) -> Full:
    known = {"timeout_ms": TIMEOUT_MS, "config_operation": 0}
    return Full(path=path, count=count, are_alike=are_alike, known=known, name=name)


def _based(api: Api[Any, Any], request: Any, but: str) -> Any:
    """Return a request with the values of `BASES`, without the field that is to be nonsense."""
    base = BASES.get(api.name, {})
    return replace(request, **{name: value for name, value in base.items() if name != but})


def _scalars(cls: type[Any], version: int) -> Iterator[tuple[Path, FieldType]]:
    """Every text and number of a message, also those in the items of arrays."""
    for declared in fields(cls):
        kind: FieldType = declared.metadata["type"]
        if not kind.is_in(version) or declared.name in UNTOLD:
            continue
        inner = kind.item
        if isinstance(inner, type):
            for path, each in _scalars(inner, version):
                yield (declared.name, *path), each
        elif kind.kind == "array":
            assert inner is not None
            yield (declared.name,), inner
        else:
            yield (declared.name,), kind


def _values(kind: FieldType) -> tuple[Any, ...]:
    if kind.kind == "string":
        return TEXTS
    if kind.kind in BITS:
        most = 2 ** (BITS[kind.kind] - 1) - 1
        return (-1, -2, 99, most, -most - 1)
    return ()


def _with(message: Any, path: Path, value: Any) -> Any:
    """Return a message with a value in the place of one of its texts or numbers."""
    name, *rest = path
    old = getattr(message, name)
    if isinstance(old, tuple):
        new: Any = (_with(old[0], tuple(rest), value),) if rest and old else (value,)
        if rest and not old:
            new = ()
    elif rest:
        assert is_dataclass(old), path
        new = _with(old, tuple(rest), value)
    else:
        new = value
    return replace(message, **{name: new})


def _short(value: Any) -> str:
    return repr(value) if len(str(value)) < 30 else f"{len(value)} characters"
