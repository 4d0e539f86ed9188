"""The two ends of a connection, without I/O: bytes in, requests or responses out.

`FrameReader` cuts a stream into frames. `ServerProtocol` and `ClientProtocol` read and write
the frames. The caller receives into `FrameReader.buffer()` and sends the buffers that
`build_response` and `request` return.

Memory: a frame is received where it stays. Small frames share a chunk of 64 KiB, each a view of its
own part. A larger frame gets a buffer of its own, at most twice as large as what has arrived of it
or as the largest frame that this connection has completed. So a peer that announces 100 MiB must
send them before they are allocated, and frames of 1 MiB, one after the other, are copied once, by
the kernel.
"""

import struct
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

from odradek.protocol import streams, wire
from odradek.protocol.api import API_VERSIONS_KEY, Api
from odradek.protocol.apis.versions import ApiVersionsRequest
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.schema import Buffer

RequestBody = TypeVar("RequestBody")
ResponseBody = TypeVar("ResponseBody")

LENGTH_BYTES: Final = 4
FRAME_MAX_BYTES: Final = 100 * 1024 * 1024
"""The largest frame a broker takes: Kafka's socket.request.max.bytes."""

REQUEST_ITEMS_MAX: Final = 200_000
"""The most items that all arrays of a request, and its tagged fields, may have together. Kafka
has no such limit."""

FRAME_MIN_BYTES: Final = 4
"""A correlation id, the least that a response has."""

CHUNK_BYTES: Final = 64 * 1024
ROOM_MIN_BYTES: Final = 4 * 1024
"""A chunk with less room than this is given up: a system call should receive a useful amount."""

CORRELATION_ID_COUNT: Final = 1 << 31
NO_BYTES: Final = memoryview(bytearray())

TLS_HANDSHAKE: Final = 0x1603
"""The first two bytes of a client that begins TLS."""
_LENGTH: Final = struct.Struct(">i")
_CORRELATION_ID: Final = struct.Struct(">i")
_ERROR_CODE: Final = struct.Struct(">h")
_REQUEST_HEADER: Final = struct.Struct(">hhih")  # API key, version, correlation id, client id bytes
_RESPONSE_HEADER: Final = struct.Struct(">ii")  # length, correlation id


def check_frame_length(length: int, *, low: int = FRAME_MIN_BYTES, high: int) -> None:
    """Raise `ProtocolError` for a length that no frame has, in the words of its likely cause."""
    if low <= length <= high:
        return
    if length >> 16 == TLS_HANDSHAKE:
        raise ProtocolError(
            "it begins a TLS handshake, and this port has no TLS: let it take another port, or set "
            "its security.protocol to one without SSL"
        )
    raise ProtocolError(f"a frame length of {length} is not between {low} and {high}")


class FrameReader:
    """A reader that cuts a stream into frames.

    while (frame := reader.next_frame()) is None:
        count = await socket.recv_into(reader.buffer())
        reader.note_received(count)
    """

    __slots__ = ("_end", "_largest_bytes", "_start", "_view", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int = FRAME_MAX_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._largest_bytes = 0
        self._view = NO_BYTES
        self._start = 0  # the bytes before it belong to the frames that were returned
        self._end = 0  # the bytes behind it have not been received

    @property
    def is_inside_frame(self) -> bool:
        """Return True if a part of a frame is here. Ask when `next_frame` has returned None."""
        return self._end > self._start

    @property
    def missing_bytes(self) -> int:
        """Return how many bytes of the next frame, or of its length, have not been received."""
        here = self._end - self._start
        return max(LENGTH_BYTES, self._size_bytes() or 0) - here

    def buffer(self) -> memoryview:
        """Return where to receive into; it is never empty.

        Call it between `next_frame`, which returned None, and `note_received`.
        """
        if self._end > self._start or len(self._view) - self._end < ROOM_MIN_BYTES:
            self._make_room()
        return self._view[self._end :]

    def note_received(self, count: int) -> None:
        """Note that `count` bytes were written to the beginning of the last `buffer()`."""
        assert 0 <= count <= len(self._view) - self._end, (count, self._end, len(self._view))
        self._end += count

    def take_over(self, received: bytearray) -> None:
        """Continue with bytes that were received elsewhere, while no part of a frame is here."""
        assert self._end == self._start, "a part of a frame is here"
        self._view, self._start, self._end = memoryview(received), 0, len(received)

    def let_go(self) -> None:
        """Keep no memory while no part of a frame is here."""
        assert self._end == self._start, "a part of a frame is here"
        self._view, self._start, self._end = NO_BYTES, 0, 0

    def next_frame(self) -> memoryview | None:
        """Return the next frame without its length, or None if more must be received first.

        The frame is writable and the reader does not touch it again. Raises `ProtocolError` for a
        length below 4 or above `max_frame_bytes`, as soon as it is seen.
        """
        start = self._start
        if self._end == start:
            return None
        size_bytes = self._size_bytes()
        if size_bytes is None or size_bytes > self._end - start:
            return None
        self._start = start + size_bytes
        assert self._start <= self._end <= len(self._view), (start, size_bytes, self._end)
        if size_bytes > self._largest_bytes:
            self._largest_bytes = size_bytes
        return self._view[start + LENGTH_BYTES : start + size_bytes]

    def _size_bytes(self) -> int | None:
        """Return the size of the frame at `_start` with its length, or None if that is missing."""
        if self._end - self._start < LENGTH_BYTES:
            return None
        length: int = _LENGTH.unpack_from(self._view, self._start)[0]
        if not FRAME_MIN_BYTES <= length <= self.max_frame_bytes:
            check_frame_length(length, high=self.max_frame_bytes)
        return length + LENGTH_BYTES

    def _make_room(self) -> None:
        here = self._end - self._start
        size_bytes = self._size_bytes()
        assert size_bytes is None or size_bytes > here, "a complete frame has not been taken"
        capacity = len(self._view) - self._start
        if size_bytes is None:
            if len(self._view) - self._end < ROOM_MIN_BYTES:
                self._move(CHUNK_BYTES)
        elif size_bytes > capacity:
            earned = max(CHUNK_BYTES, 2 * here, 2 * self._largest_bytes)
            if size_bytes <= earned:
                self._move(max(size_bytes, CHUNK_BYTES))
            elif here == capacity:
                self._move(earned)

    def _move(self, size_bytes: int) -> None:
        """Continue in a new buffer. Frames that were returned keep the old one alive."""
        here = self._end - self._start
        view = memoryview(bytearray(size_bytes))
        view[:here] = self._view[self._start : self._end]
        self._view, self._start, self._end = view, 0, here


class Request(NamedTuple):
    """A request that a server has received.

    `unsupported_version` is set for an ApiVersions request of an unknown version. It is the only
    request that is answered nevertheless: `version` is 0, the body is empty, and the response is
    UNSUPPORTED_VERSION with the list of the versions that are served.
    """

    api: Api[Any, Any]
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    unsupported_version: int | None = None


class ServerProtocol:
    """The server's end: reads requests and writes responses. `apis` are those that it serves."""

    __slots__ = ("_apis",)

    def __init__(self, apis: Mapping[int, Api[Any, Any]]) -> None:
        self._apis = apis

    def parse(self, frame: Buffer | wire.Cursor) -> Request:
        """Return the request in a frame.

        Raises `ProtocolError` for anything else than a request that is served, `TooManyItemsError`
        for a request with more items than the cursor allows.
        """
        if isinstance(frame, wire.Cursor):
            cursor = frame
        else:
            cursor = wire.Cursor(frame, items_max=REQUEST_ITEMS_MAX)
        try:
            key, version, correlation_id, client_id_bytes = _REQUEST_HEADER.unpack_from(cursor.data)
        except struct.error:
            raise ProtocolError(f"a request has only {cursor.remaining} bytes") from None
        cursor.position = _REQUEST_HEADER.size
        api = self._apis.get(key)
        if api is None:
            raise ProtocolError(f"no API with key {key} is served")
        client_id = _parse_client_id(cursor, client_id_bytes)
        if not api.has(version):
            return _parse_unsupported(api, version, correlation_id, client_id)
        if api.is_flexible(version):
            _skip_tags(cursor)
        return Request(api, version, correlation_id, client_id, api.parse_request(version, cursor))

    def build_response(
        self, request: Request, response: object, *, items_max: int = sys.maxsize
    ) -> list[Buffer]:
        """Return the frame that answers `request`, with its length, large records uncopied.

        Raises `TooManyItemsError` if the arrays of `response` have more than `items_max` items.
        """
        parts = wire.Parts(items_max=items_max)
        head = parts.open
        head += _RESPONSE_HEADER.pack(0, request.correlation_id)
        api, version = request.api, request.version
        if _has_response_tags(api, version):
            head.append(0)
        return _finish(head, api.build_response(version, response, parts))


class ClientProtocol:
    """The client's end: writes requests and matches responses with them."""

    __slots__ = ("_client_id", "_in_flight", "_next_correlation_id")

    def __init__(self, client_id: str | None) -> None:
        self._client_id = None if client_id is None else client_id.encode()
        self._next_correlation_id = 0
        self._in_flight: dict[int, tuple[Api[Any, Any], int]] = {}

    def request(
        self,
        api: Api[RequestBody, ResponseBody],
        version: int,
        message: RequestBody,
        *,
        is_answered: bool = True,
    ) -> tuple[int, list[Buffer]]:
        """Return a correlation id and the frame to send. A Produce with acks=0 is not answered."""
        assert api.has(version), (api.name, version)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) % CORRELATION_ID_COUNT
        client_id = self._client_id
        parts = wire.Parts()
        head = parts.open
        head += bytes(LENGTH_BYTES)
        head += _REQUEST_HEADER.pack(
            api.key, version, correlation_id, -1 if client_id is None else len(client_id)
        )
        head += client_id or b""
        if api.is_flexible(version):
            head.append(0)
        buffers = _finish(head, api.build_request(version, message, parts))
        if is_answered:
            assert correlation_id not in self._in_flight, (correlation_id, api.name)
            self._in_flight[correlation_id] = api, version
        return correlation_id, buffers

    def response(self, frame: Buffer) -> tuple[int, Any]:
        """Return the correlation id of a response and its message.

        A broker that does not know the version of an ApiVersions request answers in version 0.
        Raises `ProtocolError` for a frame that is no response, or answers no request in flight.
        """
        cursor = wire.Cursor(frame)
        if cursor.remaining < _CORRELATION_ID.size:
            raise ProtocolError(f"a response has only {cursor.remaining} bytes")
        correlation_id: int = _CORRELATION_ID.unpack_from(cursor.data)[0]
        cursor.position = _CORRELATION_ID.size
        awaited = self._in_flight.pop(correlation_id, None)
        if awaited is None:
            raise ProtocolError(f"no request with correlation id {correlation_id} is in flight")
        api, version = awaited
        if api.key == API_VERSIONS_KEY and _is_unsupported_version(cursor):
            version = 0
        if _has_response_tags(api, version):
            _skip_tags(cursor)
        return correlation_id, api.parse_response(version, cursor)


def _has_response_tags(api: Api[Any, Any], version: int) -> bool:
    """Return True if the header of a response has tagged fields: where its body is flexible.

    ApiVersions is the exception: its client does not know yet which versions the broker serves
    (KIP-511).
    """
    return api.is_flexible(version) and api.key != API_VERSIONS_KEY


def _finish(head: bytearray, parts: wire.Parts) -> list[Buffer]:
    buffers = parts.finish()
    assert buffers[0] is head, "a frame begins with its header"
    _LENGTH.pack_into(head, 0, sum(map(len, buffers)) - LENGTH_BYTES)
    return buffers


def _parse_client_id(cursor: wire.Cursor, size_bytes: int) -> str | None:
    if size_bytes == -1:
        return None
    if size_bytes < 0:
        raise ProtocolError(f"a client id has {size_bytes} bytes")
    try:
        return str(cursor.view(size_bytes), "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a client id is not UTF-8: {error.reason}") from None


def _parse_unsupported(
    api: Api[Any, Any], version: int, correlation_id: int, client_id: str | None
) -> Request:
    if api.key != API_VERSIONS_KEY:
        raise ProtocolError(
            f"{api.name} is served in versions {api.min_version}-{api.max_version}, not {version}"
        )
    return Request(
        api=api,
        version=0,
        correlation_id=correlation_id,
        client_id=client_id,
        body=ApiVersionsRequest(),
        unsupported_version=version,
    )


def _skip_tags(cursor: wire.Cursor) -> None:
    """Pass over the tagged fields of a header: none is defined, so nearly always there is a 0."""
    data, position = cursor.data, cursor.position
    try:
        if data[position]:
            cursor.position, cursor.items_left = streams.skip_tags(
                data, position, cursor.items_left, cursor.items_max
            )
        else:
            cursor.position = position + 1
    except IndexError as error:
        raise streams.wrong_bytes(error, position) from None


def _is_unsupported_version(cursor: wire.Cursor) -> bool:
    if cursor.remaining < _ERROR_CODE.size:
        return False
    code: int = _ERROR_CODE.unpack_from(cursor.data, cursor.position)[0]
    return code == ErrorCode.UNSUPPORTED_VERSION
