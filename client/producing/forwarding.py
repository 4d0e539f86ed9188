"""Sending a consumed record to another topic, with where it came from and why.

The names and the bytes of the headers are those of Spring Kafka's DeadLetterPublishingRecoverer, or
of the dead letter queue of Kafka Connect, so that tools for these read them.

The origin is that of the first topic: a record that is forwarded again, from a retry topic say,
keeps it. The reason is the last one: it replaces an earlier one.
"""

import struct
import traceback
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar, Unpack

from odradek.client.errors import Refused
from odradek.client.serialization import PoisonRecord
from odradek.client.types import (
    ConsumerRecord,
    Header,
    Key,
    OnDelivery,
    RecordOptions,
    Serialized,
    Value,
)
from odradek.client.wording import shortened

OriginNames = Literal["spring", "connect"]
"""The headers that say where a forwarded record came from, and why: those of Spring Kafka or of
Kafka Connect."""

SPRING: Final = "kafka_dlt-"
CONNECT: Final = "__connect.errors."
REASONS: Final = (f"{SPRING}exception-", f"{SPRING}key-exception-", f"{CONNECT}exception.")
"""The beginnings of the names of headers that have a reason."""
TIMESTAMP_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}
MESSAGE_MAX: Final = 2048
"""The characters of a message that are kept. Some repeat the value, and the broker refuses records
that are too large."""
STACKTRACE_MAX: Final = 8192
"""The characters of a stack trace that are kept, from its end: Python's last line says most."""

KeySent = TypeVar("KeySent", contravariant=True)
ValueSent = TypeVar("ValueSent", contravariant=True)
Sent = TypeVar("Sent", covariant=True)


class Origin(NamedTuple):
    """The origin of a forwarded record, and the reason for which it was forwarded."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    """None with the names of Kafka Connect, which have none."""
    exception: str | None
    """The name of the class of the exception; None without a reason."""
    message: str | None


def origin_of(record: ConsumerRecord[Any, Any]) -> Origin | None:
    """Return what the headers of a record say of its origin; None if it was not forwarded.

    Raises `Refused` if they have the names, but not the bytes.
    """
    headers = dict(record.headers)  # the last one of a name counts, as in Java
    try:
        if f"{SPRING}original-topic" in headers:
            return _spring_origin(headers)
        if f"{CONNECT}topic" in headers:
            return Origin(
                _text(headers, f"{CONNECT}topic") or "",
                int(headers[f"{CONNECT}partition"] or b""),
                int(headers[f"{CONNECT}offset"] or b""),
                None,
                _text(headers, f"{CONNECT}exception.class.name"),
                _text(headers, f"{CONNECT}exception.message"),
            )
    except (KeyError, ValueError, struct.error) as error:
        raise Refused(
            f"the headers of {record.topic}-{record.partition} at offset {record.offset} do not "
            f"say where it came from: {error!r}"
        ) from error
    return None


def _spring_origin(headers: dict[str, bytes | None]) -> Origin:
    of_key = "" if f"{SPRING}exception-fqcn" in headers else "key-"
    timestamp = headers.get(f"{SPRING}original-timestamp")
    return Origin(
        _text(headers, f"{SPRING}original-topic") or "",
        _number(">i", headers[f"{SPRING}original-partition"]),
        _number(">q", headers[f"{SPRING}original-offset"]),
        None if timestamp is None else _number(">q", timestamp),
        _text(headers, f"{SPRING}{of_key}exception-fqcn"),
        _text(headers, f"{SPRING}{of_key}exception-message"),
    )


def _text(headers: dict[str, bytes | None], name: str) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode(errors="replace")


def _number(layout: str, value: bytes | None) -> int:
    number: int
    (number,) = struct.unpack(layout, value or b"")
    return number


def forwarded_headers(
    record: ConsumerRecord[Any, Any],
    error: BaseException | None,
    names: OriginNames,
    added: Iterable[Header] = (),
) -> list[Header]:
    """Return the headers of a record, with its origin, the reason, and what is added.

    An added header replaces those of its name. A reason replaces an earlier one.
    """
    if names not in ("spring", "connect"):
        raise ValueError(f"names is one of 'spring', 'connect', and {names!r} was given")
    added = list(added)
    replaced = {name for name, _ in added}
    kept = [
        (name, value)
        for name, value in record.headers
        if name not in replaced and not (error is not None and name.startswith(REASONS))
    ]
    origin = _spring_source(record) if names == "spring" else _connect_source(record)
    # invariant client 13: A dead letter keeps its first origin.
    # plant a dead letter that came through a retry topic has that as its origin
    if origin[0][0] in dict(record.headers):
        origin = []
    reason: list[Header] = []
    if error is not None:
        reason = _spring_reason(error) if names == "spring" else _connect_reason(error)
    return [*kept, *origin, *reason, *added]


def _spring_source(record: ConsumerRecord[Any, Any]) -> list[Header]:
    kind = TIMESTAMP_TYPES.get(record.timestamp_type, "NoTimestampType")
    return [
        (f"{SPRING}original-topic", record.topic.encode()),
        (f"{SPRING}original-partition", struct.pack(">i", record.partition)),
        (f"{SPRING}original-offset", struct.pack(">q", record.offset)),
        (f"{SPRING}original-timestamp", struct.pack(">q", record.timestamp_ms)),
        (f"{SPRING}original-timestamp-type", kind.encode()),
    ]


def _connect_source(record: ConsumerRecord[Any, Any]) -> list[Header]:
    return [
        (f"{CONNECT}topic", record.topic.encode()),
        (f"{CONNECT}partition", b"%d" % record.partition),
        (f"{CONNECT}offset", b"%d" % record.offset),
    ]


def _spring_reason(error: BaseException) -> list[Header]:
    is_of_key = isinstance(error, PoisonRecord) and error.part == "key"
    start = f"{SPRING}key-exception-" if is_of_key else f"{SPRING}exception-"
    reason: list[Header] = [(f"{start}fqcn", _class_name(error))]
    if error.__cause__ is not None:
        reason.append((f"{SPRING}exception-cause-fqcn", _class_name(error.__cause__)))
    return [
        *reason,
        (f"{start}message", _message(error)),
        (f"{start}stacktrace", _stacktrace(error)),
    ]


def _connect_reason(error: BaseException) -> list[Header]:
    return [
        (f"{CONNECT}exception.class.name", _class_name(error)),
        (f"{CONNECT}exception.message", _message(error)),
        (f"{CONNECT}exception.stacktrace", _stacktrace(error)),
    ]


def _class_name(error: BaseException) -> bytes:
    kind = type(error)
    return _bytes(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."))


def _message(error: BaseException) -> bytes:
    return _bytes(shortened(str(error), MESSAGE_MAX))


def _stacktrace(error: BaseException) -> bytes:
    return _bytes("".join(traceback.format_exception(error))[-STACKTRACE_MAX:])


def _bytes(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


class SendsAsync(Protocol[KeySent, ValueSent, Sent]):
    """A producer or a transaction that is awaited, under trio or asyncio."""

    async def send(
        self,
        topic: str,
        value: ValueSent | Serialized | None,
        **options: Unpack[RecordOptions[KeySent]],
    ) -> Sent: ...


class SendsAtOnce(Protocol[KeySent, ValueSent, Sent]):
    """A blocking producer or transaction."""

    def send(
        self,
        topic: str,
        value: ValueSent | Serialized | None,
        **options: Unpack[RecordOptions[KeySent]],
    ) -> Sent: ...


class Forwards(Generic[Key, Value]):
    """The method of producers and transactions that sends a consumed record on."""

    async def forward(
        self: SendsAsync[Key, Value, Sent],
        record: ConsumerRecord[Key, Value] | ConsumerRecord[Serialized, Serialized],
        topic: str,
        *,
        error: BaseException | None = None,
        headers: Sequence[Header] = (),
        names: OriginNames = "spring",
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Sent:
        """Send a consumed record to `topic`, with its key, value, timestamp and headers.

        It gets headers that say where it came from, and why if `error` is given: a dead letter, or
        a record that is tried again. Their names are those of Spring Kafka, or of Kafka Connect
        with `names="connect"`; `origin_of` reads both. `headers` are added, and replace those of
        the same name. Of a `PoisonRecord`, give its `record`, and if only the producer has
        serializers, `record.serialized()`: the bytes are sent as they are. Otherwise serializers
        get key and value. Raises the errors of `send`.
        """
        return await self.send(
            topic,
            record.value,
            key=record.key,
            headers=forwarded_headers(record, error, names, headers),
            partition=partition,
            timestamp_ms=record.timestamp_ms,
            on_delivery=on_delivery,
        )


class ForwardsAtOnce(Generic[Key, Value]):
    """The same for the blocking classes."""

    def forward(
        self: SendsAtOnce[Key, Value, Sent],
        record: ConsumerRecord[Key, Value] | ConsumerRecord[Serialized, Serialized],
        topic: str,
        *,
        error: BaseException | None = None,
        headers: Sequence[Header] = (),
        names: OriginNames = "spring",
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Sent:
        return self.send(
            topic,
            record.value,
            key=record.key,
            headers=forwarded_headers(record, error, names, headers),
            partition=partition,
            timestamp_ms=record.timestamp_ms,
            on_delivery=on_delivery,
        )

    forward.__doc__ = Forwards.forward.__doc__
