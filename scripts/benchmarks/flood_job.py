"""Hostile strangers of one broker on this machine, until killed.

    python -m scripts.benchmarks.flood_job PORT

They are silent connections that come back when they are closed, connections that send the first
message of a handshake byte by byte, whole handshakes at a rate, and wrong passwords at a rate. The
job prints one line when the silent ones are there.
"""

import resource
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio

from odradek.protocol.apis.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from odradek.protocol.connection import ClientProtocol
from scripts.benchmarks.raw_producer import Question

SILENT: Final = 2_000
TRICKLING: Final = 200
HANDSHAKES_PER_SECOND: Final = 100
PASSWORDS_PER_SECOND: Final = 50
FILES: Final = 8_192
TRICKLE_SECONDS: Final = 0.5
AGAIN_SECONDS: Final = 5.0
HELLO: Final = bytes.fromhex("16 0301 0200 01 0001fc 0303")
"""The beginning of a ClientHello."""


async def main(port: int) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(SILENT):
            nursery.start_soon(again_and_again, silent, port)
        await trio.sleep(AGAIN_SECONDS / 2)
        for _ in range(TRICKLING):
            nursery.start_soon(again_and_again, trickle, port)
        nursery.start_soon(at_rate, HANDSHAKES_PER_SECOND, handshake, port)
        nursery.start_soon(at_rate, PASSWORDS_PER_SECOND, wrong_password, port)
        print("the strangers are there", flush=True)


async def again_and_again(stranger: Callable[[int], Awaitable[None]], port: int) -> None:
    while True:
        await once(stranger, port)
        await trio.sleep(AGAIN_SECONDS)


async def at_rate(per_second: int, stranger: Callable[[int], Awaitable[None]], port: int) -> None:
    async with trio.open_nursery() as nursery:
        while True:
            nursery.start_soon(once, stranger, port)
            await trio.sleep(1 / per_second)


async def once(stranger: Callable[[int], Awaitable[None]], port: int) -> None:
    """Play one stranger. The broker may end it at any moment."""
    with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
        await stranger(port)


async def silent(port: int) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.receive_some(1)


async def trickle(port: int) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        for byte in HELLO + bytes(500):
            await stream.send_all(bytes([byte]))
            await trio.sleep(TRICKLE_SECONDS)


async def agreed(port: int) -> trio.SSLStream[trio.SocketStream]:
    """Return a connection whose handshake is over."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    plain = await trio.open_tcp_stream("127.0.0.1", port)
    stream = trio.SSLStream(plain, context, https_compatible=True)
    try:
        await stream.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return stream


async def handshake(port: int) -> None:
    await trio.aclose_forcefully(await agreed(port))


async def wrong_password(port: int) -> None:
    stream = await agreed(port)
    try:
        protocol = ClientProtocol("stranger")
        questions: list[Question] = [
            (SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")),
            (SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0honest\0guessed")),
        ]
        for api, version, message in questions:
            _, parts = protocol.request(api, version, message)
            await stream.send_all(b"".join(parts))
            await stream.receive_some(4_096)
    finally:
        await trio.aclose_forcefully(stream)


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES if hard < 0 else min(FILES, hard), hard))
    trio.run(main, int(sys.argv[1]))
