"""The inputs of one client: `make(seed, number)` returns the same input in every run."""

import struct
from dataclasses import dataclass
from enum import Enum
from functools import cache
from random import Random
from typing import Any, Final

from odradek.broker.api import APIS
from odradek.protocol.api import Api
from odradek.protocol.connection import ClientProtocol
from odradek.protocol.errors import ProtocolError
from tests.broker.samples import request_frame, sample
from tests.fuzz.messages import STRINGS, changed, some_message, with_every_string

LENGTH_BYTES: Final = 4
CORRELATION_ID: Final = slice(8, 12)
WORDS: Final = (0, 1, -1, -2, 2**31 - 1, -(2**31), 255, 65_536, 200_000, 200_001)
TAG_COUNTS: Final = (1, 3, 1_000, 20_000)


class Ending(Enum):
    """A client's behaviour after it has sent its bytes."""

    READ = "reads the answers"
    HALF_CLOSE = "sends no more and reads the answers"
    RESET = "resets the connection"
    LEAVE = "closes the connection"
    LINGER = "never reads"


ENDINGS: Final = (
    *[Ending.READ] * 12,
    *[Ending.HALF_CLOSE] * 3,
    Ending.RESET,
    Ending.RESET,
    Ending.LEAVE,
    Ending.LINGER,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """The bytes of one connection. `name` has the requests that they were made of."""

    number: int
    name: str
    frames: tuple[bytes, ...]
    ending: Ending

    @property
    def data(self) -> bytes:
        return b"".join(self.frames)


def make(seed: int, number: int) -> Input:
    """Return the input with a number."""
    rng = Random(f"{seed}/{number}")
    frames, names = [], []
    for correlation_id in range(rng.choice((1, 1, 1, 1, 2, 5))):
        api = rng.choice(tuple(APIS.values()))
        version = rng.randint(api.min_version, api.max_version)
        frames.append(_frame(rng, api, version, correlation_id))
        names.append(f"{api.name} v{version}")
    return Input(
        number=number,
        name=", ".join(names),
        frames=tuple(frames),
        ending=rng.choice(ENDINGS),
    )


def _frame(rng: Random, api: Api[Any, Any], version: int, correlation_id: int) -> bytes:
    message = some_message(rng, api.request, version)
    spoiled = message
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        spoiled = changed(rng, spoiled, version)
    if rng.random() < 0.03:
        text = rng.choice(STRINGS)
        spoiled = spoiled if text is None else with_every_string(spoiled, version, text)
    frame = bytearray(_built(api, version, spoiled, message))
    frame[CORRELATION_ID] = correlation_id.to_bytes(4, "big")
    if rng.random() < 0.04 and api.is_flexible(version):
        frame = _with_tags(rng, frame)
    if rng.random() < 0.4:
        for _ in range(rng.choice((1, 1, 2, 4))):
            frame = _bent(rng, frame)
    return bytes(frame)


def _built(api: Api[Any, Any], version: int, spoiled: Any, message: Any) -> bytes:
    try:
        return request_frame(api, version, spoiled)
    except (ProtocolError, ValueError, TypeError, AttributeError, OverflowError, struct.error):
        return request_frame(api, version, message)  # the message cannot be encoded at all


def _bent(rng: Random, frame: bytearray) -> bytearray:
    """Return the bytes with changes, mostly with a correct length in front again."""
    way = rng.randrange(7)
    place = rng.randrange(LENGTH_BYTES, len(frame))
    if way == 0:
        frame[place] ^= 1 << rng.randrange(8)
    elif way == 1:
        frame[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
    elif way == 2:
        frame[place : place + 4] = rng.choice(WORDS).to_bytes(4, "big", signed=True)
    elif way == 3:
        del frame[place : place + rng.choice((1, 2, 4, 16))]
    elif way == 4:
        frame[place:place] = rng.randbytes(rng.choice((1, 2, 4, 16)))
    elif way == 5:
        frame[place:place] = frame[place : place + rng.choice((2, 8, 64))] * rng.choice((1, 50))
    else:
        del frame[place:]
    if len(frame) > LENGTH_BYTES and rng.random() < 0.93:
        frame[:LENGTH_BYTES] = (len(frame) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big")
    return frame if len(frame) > LENGTH_BYTES else frame + b"\0"


def _with_tags(rng: Random, frame: bytearray) -> bytearray:
    """Add unknown tagged fields to the end of the header."""
    client_id_bytes = int.from_bytes(frame[12:14], "big")
    place = 14 + client_id_bytes
    tags = _tags(rng.choice(TAG_COUNTS))
    if rng.random() < 0.1:
        tags += b"\0\0"  # one too many
    frame[place : place + 1] = tags
    frame[:LENGTH_BYTES] = (len(frame) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big")
    return frame


@cache
def _tags(count: int) -> bytes:
    """Return a number of empty tagged fields."""
    return _varint(count) + b"".join(_varint(tag) + b"\0" for tag in range(count))


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def what_is_wrong_with(answer: bytes, made: Input) -> str:
    """Return a sentence about a response that answers none of the requests, "" for a good one."""
    asked = [frame for frame in _cut(made.data) if frame[CORRELATION_ID] == answer[:4]]
    if not asked:
        return f"nothing was asked with correlation id {answer[:4].hex()}"
    wrong = [_why_no_answer(answer, frame) for frame in asked]
    return "" if "" in wrong else wrong[0]


def _cut(data: bytes) -> list[bytes]:
    """Return the frames as a broker sees them: a changed length moves the next frame."""
    frames, place = [], 0
    while place + LENGTH_BYTES <= len(data):
        end = place + LENGTH_BYTES + int.from_bytes(data[place : place + LENGTH_BYTES], "big")
        frames.append(data[place:end])
        place = end
    return frames


def _why_no_answer(answer: bytes, request: bytes) -> str:
    key, version = struct.unpack_from(">hh", request, LENGTH_BYTES)
    api = APIS.get(key)
    if api is None:
        return f"a request of API {key} is answered"
    if not api.has(version):
        version = api.min_version  # ApiVersions is answered in any version
    client = ClientProtocol("fuzz")
    correlation_id, _ = client.request(api, version, sample(api.request, version))
    try:
        client.response(correlation_id.to_bytes(4, "big") + answer[4:])
    except ProtocolError as error:
        return f"{api.name} v{version}: {error}"
    return ""
