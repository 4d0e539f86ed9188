"""The time of a connection before its client has authenticated by SASL.

Requests are read one at a time and served by `SaslDialog`. Nothing of a connection is there yet: no
place among the clients, no lane, no share of the memory for requests. A request has up to 64 KiB.
The first `OWN_BYTES` of it are the connection's own. Each further part waits for room in an account
that all such connections share, so that strangers cannot take more than that together, and none of
it for a length that is only announced. The time limit is that of the caller (`handshakes.py`).
"""

import struct
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from odradek.broker.environment.env import Buffer, Connection, nothing_noted
from odradek.broker.server.known_client import Gone, NotAuthenticated
from odradek.broker.server.memory import Account
from odradek.broker.server.sasl_dialog import (
    FRAME_MAX_BYTES,
    Authenticated,
    SaslDialog,
    SaslReply,
)
from odradek.protocol.connection import LENGTH_BYTES, check_frame_length

OWN_BYTES: Final = 4 * 1024
REFUSAL_SECONDS: Final = 0.1
"""The time between a refusal and the end of the connection. A client that sees both at once often
reports the end only."""
_LENGTH: Final = struct.Struct(">i")


async def send_refusal(
    reply: SaslReply, send: Callable[[list[Buffer]], Awaitable[None]], delay_seconds: float
) -> None:
    """Send a refusal after the delay of a failure, and wait until the client has read it.

    Nothing is read meanwhile.
    """
    await trio.sleep(delay_seconds)
    if reply.parts:
        await send(reply.parts)
        await trio.sleep(REFUSAL_SECONDS)


async def authenticate(
    stream: Connection,
    dialog: SaslDialog,
    *,
    memory: Account,
    failure_seconds: float,
    scope: trio.CancelScope,
    note_progress: Callable[[], None] = nothing_noted,
) -> Authenticated:
    """Return the client once it has authenticated.

    `scope` has the time limit; a refusal gets the time that it takes. `note_progress` is called for
    each answer from that to SaslHandshake on. Raises `NotAuthenticated`, `Gone` and ProtocolError.
    """
    while True:
        # A client that always has the next frame ready would keep the loop to itself: receiving
        # what is there, and sending into an empty socket, do not wait.
        await trio.lowlevel.checkpoint()
        try:
            frame = await _frame(stream, dialog.frame_min_bytes, memory)
        except (Gone, trio.BrokenResourceError):
            if (refusal := dialog.refusal) is not None:
                raise NotAuthenticated(refusal.refused, cause=refusal.cause) from None
            raise
        try:
            reply = await dialog.reply(memoryview(frame))
        finally:
            _give_back(frame, memory)
        if reply.refused:
            scope.deadline = max(scope.deadline, trio.current_time() + 1 + failure_seconds)
            await send_refusal(reply, stream.send_all, failure_seconds)
            raise NotAuthenticated(reply.refused, cause=reply.cause)
        await stream.send_all(reply.parts)
        if dialog.has_mechanism:
            note_progress()
        if reply.authenticated is not None:
            return reply.authenticated


async def _frame(stream: Connection, min_bytes: int, memory: Account) -> bytearray:
    """Return the next frame. What it has beyond `OWN_BYTES` counts in `memory`."""
    (length,) = _LENGTH.unpack(await _receive(stream, bytearray(LENGTH_BYTES)))
    check_frame_length(length, low=min_bytes, high=FRAME_MAX_BYTES)
    frame = await _receive(stream, bytearray(min(length, OWN_BYTES)))
    taken_bytes = 0
    try:
        while len(frame) < length:
            part_bytes = min(OWN_BYTES, length - len(frame))
            await memory.room()
            memory.take(part_bytes)
            taken_bytes += part_bytes
            frame += await _receive(stream, bytearray(part_bytes))
    except BaseException:
        memory.give_back(taken_bytes)
        raise
    return frame


def _give_back(frame: bytearray, memory: Account) -> None:
    memory.give_back(max(0, len(frame) - OWN_BYTES))


async def _receive(stream: Connection, into: bytearray) -> bytearray:
    """Fill a buffer. Raises `Gone` at the end of the stream."""
    view, at = memoryview(into), 0
    while at < len(into):
        count = await stream.receive_into(view[at:])
        if not count:
            raise Gone
        at += count
    return into
