"""Typed answers of etcd, read from the JSON of its gateway.

At etcd's address there may be something else: a proxy with a page of its own, an etcd of another
cluster, a program that answers anything. So each answer is read here, in full, before any other
code sees it. What etcd would not answer raises `NotEtcd`, and nothing else is raised for it.

In JSON, bytes are base64, 64-bit numbers are texts, and fields that are zero are left out. Fields
that are not read may have any value: later versions of etcd have more of them.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final, TypeVar

from odradek.broker.environment.env import Versioned
from odradek.late import dataclass

T = TypeVar("T")

MESSAGE_MAX_BYTES: Final = 8 * 1024 * 1024
"""The longest answer, or message of a watch. etcd's own limit for a request is 1.5 MiB."""
NUMBER_MAX: Final = 2**63 - 1
REVISION_MAX: Final = 2**53
"""A revision that no etcd reaches: 1,000 writes a millisecond for 285 years."""
TEXT_MAX_CHARACTERS: Final = 500
"""The most of a text of etcd's that is passed on, to the log or to a client."""
TOKEN_MAX_CHARACTERS: Final = 16 * 1024
SHOWN_CHARACTERS: Final = 40

Fields = Mapping[str, object]


class NotEtcd(Exception):
    """An answer that is not etcd's. The text says what does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    cluster_id: int
    """0 if the answer has none."""
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAnswer:
    header: Header


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    key: bytes
    stored: Versioned


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeAnswer(EtcdAnswer):
    pairs: tuple[Pair, ...]
    """In the order of their keys."""
    has_more: bool
    """True if the limit of the request left some out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnAnswer(EtcdAnswer):
    succeeded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAnswer(EtcdAnswer):
    lease: int
    ttl_s: int
    """0 for a lease that has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAnswer(EtcdAnswer):
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    key: bytes
    revision: int
    stored: Versioned | None
    """None for a key that was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchAnswer(EtcdAnswer):
    is_created: bool
    is_canceled: bool
    cancel_reason: str
    compact_revision: int
    """The oldest revision that etcd still has, if the watch began before it; otherwise 0."""
    events: tuple[WatchEvent, ...]
    """In the order of their revisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error in the place of an answer: gRPC's status code and a text."""

    status: int
    message: str


def parse(data: bytes) -> Fields:
    """Return the fields of a JSON object. Raises `NotEtcd`."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise NotEtcd("it is not JSON") from None
    return _as_object(found, "the answer")


def read_failure(fields: Fields, *, is_error: bool) -> Failure | None:
    """Return the error that an answer is, or that it has in the place of a result."""
    if "error" in fields and not isinstance(fields["error"], str):
        fields = _object(fields, "error")
    elif not is_error and "code" not in fields:
        return None
    if not isinstance(fields.get("message"), str):
        raise NotEtcd("it is an error without a message")
    status = _number(fields, "code") or _number(fields, "grpc_code")
    return Failure(status=status, message=_text(fields, "message"))


def read_any(fields: Fields) -> EtcdAnswer:
    """Read an answer of which only the header counts."""
    return EtcdAnswer(header=_header(fields))


def read_range(first: bytes, after: bytes) -> Callable[[Fields], RangeAnswer]:
    """Return a reader for the keys from `first` on, up to `after` without it."""

    def read(fields: Fields) -> RangeAnswer:
        pairs = tuple(map(_pair, _objects(fields, "kvs")))
        keys = [pair.key for pair in pairs]
        if keys and not (first <= keys[0] and keys[-1] < after):
            raise NotEtcd("it has keys that were not asked for")
        if any(left >= right for left, right in pairwise(keys)):
            raise NotEtcd("its keys are not in order")
        has_more = _flag(fields, "more")
        if has_more and not pairs:
            raise NotEtcd("it has no keys, and more of them")
        return RangeAnswer(header=_header(fields), pairs=pairs, has_more=has_more)

    return read


def read_txn(fields: Fields) -> TxnAnswer:
    return TxnAnswer(header=_header(fields), succeeded=_flag(fields, "succeeded"))


def read_lease(fields: Fields) -> LeaseAnswer:
    lease = _number(fields, "ID")
    if not lease:
        raise NotEtcd("it names no lease")
    return LeaseAnswer(header=_header(fields), lease=lease, ttl_s=_number(fields, "TTL"))


def read_kept(lease: int) -> Callable[[Fields], LeaseAnswer]:
    """Return a reader for the answer to keeping a lease alive, which is a stream of one message."""

    def read(fields: Fields) -> LeaseAnswer:
        kept = read_lease(_object(fields, "result"))
        if kept.lease != lease:
            raise NotEtcd(f"it is about lease {kept.lease} instead of {lease}")
        return kept

    return read


def read_token(fields: Fields) -> TokenAnswer:
    token = fields.get("token")
    is_token = isinstance(token, str) and 0 < len(token) <= TOKEN_MAX_CHARACTERS
    if not isinstance(token, str) or not is_token or not token.isascii() or not token.isprintable():
        raise NotEtcd("it has no token")
    return TokenAnswer(header=_header(fields), token=token)


def read_version(fields: Fields) -> str:
    version = _text(fields, "etcdserver")
    if not version:
        raise NotEtcd("it names no version")
    return version


def read_watch(first: bytes, after: bytes) -> Callable[[Fields], WatchAnswer]:
    """Return a reader for the messages of a watch of the keys from `first` on, up to `after`."""

    def read(fields: Fields) -> WatchAnswer:
        result = _object(fields, "result")
        events = tuple(map(_event, _objects(result, "events")))
        if not all(first <= event.key < after for event in events):
            raise NotEtcd("it has keys that are not watched")
        if any(left.revision > right.revision for left, right in pairwise(events)):
            raise NotEtcd("its events are not in order")
        is_canceled = _flag(result, "canceled")
        return WatchAnswer(
            header=_header(result, may_lack_revision=is_canceled),
            is_created=_flag(result, "created"),
            is_canceled=is_canceled,
            cancel_reason=_text(result, "cancel_reason"),
            compact_revision=_number(result, "compact_revision", most=REVISION_MAX),
            events=events,
        )

    return read


# parts of answers


def _header(fields: Fields, *, may_lack_revision: bool = False) -> Header:
    header = _object(fields, "header")
    revision = _number(header, "revision", most=REVISION_MAX)
    if not revision and not may_lack_revision:
        raise NotEtcd("its header has no revision")
    cluster_id = _number(header, "cluster_id", most=2**64 - 1)
    return Header(cluster_id=cluster_id, revision=revision)


def _event(fields: Fields) -> WatchEvent:
    pair = _object(fields, "kv")
    kind = _text(fields, "type")
    if kind not in ("", "PUT", "DELETE"):
        raise NotEtcd(f"it has an event of the type {_shown(kind)}")
    if kind == "DELETE":
        key, revision = _bytes(pair, "key"), _number(pair, "mod_revision", most=REVISION_MAX)
        stored = None
    else:
        read = _pair(pair)
        key, revision, stored = read.key, read.stored.mod_revision, read.stored
    if not revision:
        raise NotEtcd("it has an event without a revision")
    return WatchEvent(key=key, revision=revision, stored=stored)


def _pair(fields: Fields) -> Pair:
    created = _number(fields, "create_revision", most=REVISION_MAX)
    changed = _number(fields, "mod_revision", most=REVISION_MAX)
    if not 0 < created <= changed:
        raise NotEtcd(f"it has a key of revision {changed}, created in {created}")
    value = _bytes(fields, "value")
    stored = Versioned(value=value, create_revision=created, mod_revision=changed)
    return Pair(key=_bytes(fields, "key"), stored=stored)


# fields


def _object(fields: Fields, name: str) -> Fields:
    if name not in fields:
        raise NotEtcd(f"it has no {name}")
    return _as_object(fields[name], name)


def _as_object(value: object, name: str) -> Fields:
    if not isinstance(value, dict):
        raise NotEtcd(f"{name} is no object, but {_shown(value)}")
    return value


def _objects(fields: Fields, name: str) -> list[Fields]:
    found = _typed(fields, name, list, [])
    return [_as_object(each, f"an item of {name}") for each in found]


def _typed(fields: Fields, name: str, kind: type[T], default: T) -> T:
    value = fields.get(name)
    if value is None:  # JSON's null stands for the default, too
        return default
    if not isinstance(value, kind):
        raise NotEtcd(f"{name} is {_shown(value)}")
    return value


def _flag(fields: Fields, name: str) -> bool:
    return _typed(fields, name, bool, False)


def _text(fields: Fields, name: str) -> str:
    return _typed(fields, name, str, "")[:TEXT_MAX_CHARACTERS]


def _number(fields: Fields, name: str, *, most: int = NUMBER_MAX) -> int:
    """Return a number, which JSON has as a text if it may have 64 bits."""
    value = fields.get(name, 0)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise NotEtcd(f"{name} is {_shown(value)}")
    return value


def _bytes(fields: Fields, name: str) -> bytes:
    text = _typed(fields, name, str, "")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NotEtcd(f"{name} is not base64") from None


def _shown(value: object) -> str:
    """Return the beginning of a value of any size, for a message."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) > 2**64:
        return "a number of too many digits"
    if isinstance(value, str):
        value = value[:SHOWN_CHARACTERS]
    return repr(value)
