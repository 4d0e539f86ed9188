"""Messages have the same bytes as kafka-python's, and each side reads those of the other.

kafka-python has its own code to write messages from Kafka's schemas. A mistake that is the same in
our writing and our reading therefore shows here. Its objects are made from ours field by field;
`to_foreign` has the differences.
"""

from dataclasses import fields
from functools import cache
from typing import Any, Final
from uuid import UUID

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import kafka.protocol.schemas.fields.codecs
import pytest

from odradek.protocol.api import Api
from odradek.protocol.connection import ClientProtocol, ServerProtocol
from odradek.protocol.schema import ZERO_UUID, FieldType
from tests.drawing import given
from tests.protocol import group_schemas
from tests.protocol.declared import APIS, APIS_WITH_2PC
from tests.protocol.messages import CASES, message_class, messages, quick

BITS: Any = kafka.protocol.schemas.fields.codecs.BitField


@cache
def foreign_class(name: str) -> Any:
    """Return kafka-python's class for a message."""
    modules = (
        kafka.protocol.admin,
        kafka.protocol.consumer,
        kafka.protocol.metadata,
        kafka.protocol.producer,
        kafka.protocol.sasl,
    )
    found = [getattr(module, name) for module in modules if hasattr(module, name)]
    assert found, f"kafka-python has no {name}"
    return found[0]


def foreign_name(name: str, cls: Any) -> str:
    """Return kafka-python's name of a field. It has one name for all authorized operations."""
    if name not in cls.fields and name.endswith("_authorized_operations"):
        return "authorized_operations"
    return name


def is_sent(declared: Any, message: Any, version: int) -> bool:
    kind: FieldType = declared.metadata["type"]
    if not kind.is_in(version):
        return False
    return kind.tag is None or getattr(message, declared.name) != declared.default


def to_foreign(message: Any, cls: Any, version: int) -> Any:
    """Convert `message` to kafka-python's `cls`.

    A tagged field is left out if its default is not sent, because kafka-python takes null for the
    default of a tagged struct or id.
    """
    values = {
        (name := foreign_name(declared.name, cls)): _to_foreign_value(
            getattr(message, declared.name), cls.fields[name], version
        )
        for declared in fields(message)
        if is_sent(declared, message, version)
    }
    return cls(version=version, **values)


def _to_foreign_value(value: Any, field: Any, version: int) -> Any:
    if value is None:
        return None
    if getattr(field, "_type", None) == BITS:
        return BITS.from_32_bit_field(value & 0xFFFFFFFF)
    if not field.has_data_class():
        return list(value) if isinstance(value, tuple) else value
    if isinstance(value, tuple):
        return [to_foreign(item, field.data_class, version) for item in value]
    return to_foreign(value, field.data_class, version)


def agrees(message: Any, foreign: Any, version: int) -> bool:
    """Return True if kafka-python has read the values that were written."""
    return all(
        _agrees(
            getattr(message, declared.name),
            getattr(foreign, foreign_name(declared.name, type(foreign))),
            version,
        )
        for declared in fields(message)
        if is_sent(declared, message, version)
    )


def _agrees(value: Any, foreign: Any, version: int) -> bool:
    if isinstance(value, tuple) and foreign is not None:
        return len(value) == len(foreign) and all(
            _agrees(item, other, version) for item, other in zip(value, foreign, strict=True)
        )
    if hasattr(value, "__dataclass_fields__"):
        return agrees(value, foreign, version)
    if isinstance(foreign, set) or (foreign is None and isinstance(value, int)):
        bits = {31} if foreign is None else foreign
        return bool(BITS.to_32_bit_field(bits) == value & 0xFFFFFFFF)
    if isinstance(value, UUID):
        return bool(value == (ZERO_UUID if foreign is None else foreign))
    return bool(value == foreign)


KNOWN: Final = tuple(
    case for case in CASES if message_class(case[0], case[2]).__name__ not in group_schemas.APIS
)
"""All messages except those of consumer groups (KIP-848), which kafka-python does not have."""


@pytest.mark.parametrize(
    ("api", "version", "side"), KNOWN, ids=[f"{api.name}-{v}-{side}" for api, v, side in KNOWN]
)
def test_our_bytes_are_those_of_kafka_python(api: Api[Any, Any], version: int, side: str) -> None:
    cls = message_class(api, side)
    foreign_cls = foreign_class(cls.__name__)
    build = api.build_request if side == "request" else api.build_response
    parse = api.parse_request if side == "request" else api.parse_response

    @given(message=messages(cls, version, with_own_tags=False))
    @quick
    def check(message: Any) -> None:
        foreign = to_foreign(message, foreign_cls, version)
        theirs = foreign.encode(version=version)
        ours = b"".join(build(version, message).finish())
        assert ours == theirs
        assert parse(version, theirs) == message
        if cls.__name__ == "ApiVersionsResponse" and message.error_code:
            return  # kafka-python reads every error of ApiVersions as version 0
        assert agrees(message, foreign_cls.decode(ours, version=version), version)

    check()


@pytest.mark.parametrize(
    ("api", "version"),
    [(api, version) for api, version, side in KNOWN if side == "request"],
    ids=[f"{api.name}-{version}" for api, version, side in KNOWN if side == "request"],
)
def test_our_frames_are_those_of_kafka_python(api: Api[Any, Any], version: int) -> None:
    """A whole exchange with headers and lengths, each side played once by kafka-python."""
    request = message_example(api, "request", version)
    response = message_example(api, "response", version)
    client, server = ClientProtocol("kafka-python"), ServerProtocol(APIS_WITH_2PC)
    correlation_id, buffers = client.request(api, version, request)
    frame = b"".join(buffers)

    foreign_request = to_foreign(request, foreign_class(api.request.__name__), version)
    foreign_request.with_header(correlation_id=correlation_id, client_id="kafka-python")
    assert foreign_request.encode(header=True, framed=True) == frame

    parsed = server.parse(frame[4:])
    assert (parsed.api, parsed.version, parsed.client_id) == (api, version, "kafka-python")
    assert parsed.body == request
    answer = b"".join(server.build_response(parsed, response))
    foreign_response = to_foreign(response, foreign_class(api.response.__name__), version)
    foreign_response.with_header(correlation_id=correlation_id)
    assert foreign_response.encode(header=True, framed=True) == answer
    assert client.response(answer[4:]) == (correlation_id, response)


def message_example(api: Api[Any, Any], side: str, version: int) -> Any:
    """Return a message with contents, the same in every run."""
    found: list[Any] = []

    @given(message=messages(message_class(api, side), version, with_own_tags=False))
    @quick
    def collect(message: Any) -> None:
        found.append(message)

    collect()
    if api.name == "ApiVersions" and side == "response":
        found = [message for message in found if message.error_code != 35]
    return max(found, key=lambda message: len(repr(message)))


def test_kafka_python_knows_every_api_that_is_served() -> None:
    for api in APIS.values():
        for cls in (api.request, api.response):
            if cls.__name__ in group_schemas.APIS:
                continue
            first, last = foreign_class(cls.__name__).valid_versions
            assert first <= api.min_version <= api.max_version <= last
