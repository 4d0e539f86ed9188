"""The wire format, to the byte, and bytes that are not in it."""

from uuid import UUID

import pytest

from odradek.client.schemas.wire import NotFramed, frame, unframe
from odradek.client.serialization import SerializationContext
from odradek.client.types import Header
from tests.drawing import given, st

VALUE = SerializationContext("orders", "value", [])
GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_an_id_stands_behind_a_zero_byte_in_four_bytes() -> None:
    assert frame(258, b"payload") == b"\0\0\0\1\2payload"
    assert unframe(b"\0\0\0\1\2payload", VALUE) == (258, b"payload", None)


@pytest.mark.parametrize(
    ("indexes", "written"),
    [((0,), b"\0"), ((1,), b"\2\2"), ((0, 0), b"\4\0\0"), ((2, 64), b"\4\4\x80\1")],
)
def test_the_place_of_a_message_is_written_as_zigzag_varints(
    indexes: tuple[int, ...], written: bytes
) -> None:
    assert frame(1, b"p", indexes) == b"\0\0\0\0\1" + written + b"p"
    assert unframe(frame(1, b"p", indexes), VALUE, has_indexes=True) == (1, b"p", indexes)


@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=20), st.binary())
def test_every_place_is_read_as_it_was_written(indexes: list[int], payload: bytes) -> None:
    read = unframe(frame(7, payload, indexes), VALUE, has_indexes=True)
    assert read == (7, payload, tuple(indexes))


def test_a_guid_may_stand_before_the_value_or_in_a_header() -> None:
    named = b"\1" + GUID.bytes
    assert unframe(named + b"p", VALUE) == (GUID, b"p", None)
    headers: list[Header] = [
        ("__key_schema_id", b"\0\0\0\0\1"),
        ("__value_schema_id", named + b"\2\2"),
    ]
    in_header = VALUE._replace(headers=headers)
    assert unframe(b"p", in_header, has_indexes=True) == (GUID, b"p", (1,))


@given(st.binary(max_size=30), st.booleans())
def test_other_bytes_are_an_error_and_nothing_else(written: bytes, has_indexes: bool) -> None:
    try:
        unframe(written, VALUE, has_indexes=has_indexes)
    except NotFramed:
        return


def test_the_error_shows_how_the_bytes_begin() -> None:
    with pytest.raises(NotFramed, match=r"it begins with b'\{\"ite', and not with a byte 0"):
        unframe(b'{"item": 1}', VALUE)
    with pytest.raises(NotFramed, match="is cut off"):
        unframe(b"\0\0\0\0\1\4\2", VALUE, has_indexes=True)
