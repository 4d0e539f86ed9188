"""Servers that are no brokers, and addresses where no broker ever was."""

import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest
import trio

from odradek.client import Admin, Consumer, Disconnected, OdradekError, Producer, Refused, blocking
from odradek.client.cluster.strangers import stranger
from odradek.client.config import ClientConfig
from tests.client.fake_broker import ADDRESS, FakeBroker

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
POSTGRESQL = b"E\0\0\0\x8aSFATAL\0VFATAL\0C0A000\0Munsupported frontend protocol 18.3\0\0"
MYSQL = b"J\0\0\0\n8.0.36\0"
SAID = {
    HTTP: "an HTTP server",
    b"<!DOCTYPE HTML>\n<html>": "an HTTP server",
    b"\x15\x03\x03\0\x02\x02\x46": "a TLS server",
    b"SSH-2.0-OpenSSH_9.6\r\n": "an SSH server",
    b"-ERR unknown command\r\n": "a Redis server",
    POSTGRESQL: "a PostgreSQL server",
    MYSQL: "a MySQL server",
    b"AMQP\0\0\t\1": "RabbitMQ",
    b"220 mail ESMTP\r\n": "a mail or FTP server",
}


@pytest.mark.parametrize("first", SAID)
def test_a_server_is_known_by_its_first_bytes(first: bytes) -> None:
    assert SAID[first] in (stranger(first) or "")


@pytest.mark.parametrize(
    "first", [b"\0\0\0\x15", b"\0\0\x03\0\n", b"\0\x16\x03\x01", b"\0", b"", b"\0\0\0\x2a\0\0\0\0"]
)
def test_a_broker_is_never_taken_for_another_server(first: bytes) -> None:
    assert stranger(first) is None


async def answering(answer: bytes, stream: trio.SocketStream) -> None:
    async with stream:
        await stream.receive_some()
        await stream.send_all(answer)
        await stream.receive_some()


async def closing(stream: trio.SocketStream) -> None:
    await stream.aclose()


async def silent(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def served(nursery: trio.Nursery, handler: Callable[[Any], Awaitable[None]]) -> str:
    listeners = await nursery.start(partial(trio.serve_tcp, handler, 0, host="127.0.0.1"))
    host, port = listeners[0].socket.getsockname()
    return f"{host}:{port}"


Use = Callable[..., Awaitable[object]]


async def list_topics(address: str, **options: Any) -> None:
    async with Admin(address, **options) as admin:
        await admin.list_topics()


async def send(address: str, **options: Any) -> None:
    async with Producer(address, **options) as producer:
        await producer.send_and_wait("t", b"x")


async def begin(address: str, **options: Any) -> None:
    async with Producer(address, transactional_id="id", **options):
        pass


async def poll(address: str, **options: Any) -> None:
    async with Consumer(address, group_id="g", **options) as consumer:
        consumer.subscribe("t")
        await consumer.poll(20_000)


async def iterate(address: str, **options: Any) -> None:
    async with Consumer(address, **options) as consumer:
        consumer.assign([("t", 0)])
        async for _ in consumer:
            pass


USES: list[Use] = [list_topics, send, begin, poll, iterate]


@pytest.mark.parametrize("use", USES)
async def test_an_http_server_on_the_port_is_one_sentence_at_once(
    nursery: trio.Nursery, use: Use
) -> None:
    """It was a minute of silence, and then "the connection was lost: a frame of ... bytes"."""
    address = await served(nursery, partial(answering, HTTP))
    with trio.fail_after(50), pytest.raises(Refused) as raised:
        await use(address)
    assert str(raised.value).endswith(f"{address} is not a Kafka broker, but an HTTP server")


@pytest.mark.parametrize("answer", [POSTGRESQL, MYSQL, b"-ERR unknown command\r\n"])
async def test_other_servers_are_named_as_well(nursery: trio.Nursery, answer: bytes) -> None:
    address = await served(nursery, partial(answering, answer))
    with pytest.raises(Refused, match=f"is not a Kafka broker, but {SAID[answer]}"):
        await list_topics(address)


async def test_a_tls_listener_is_named(nursery: trio.Nursery, certificate: ssl.SSLContext) -> None:
    async def handler(stream: trio.SocketStream) -> None:
        secured = trio.SSLStream(stream, certificate, server_side=True)
        try:
            await secured.do_handshake()
        except trio.BrokenResourceError:
            await stream.aclose()

    address = await served(nursery, handler)
    with pytest.raises(OdradekError, match="TLS"):
        async with Admin(address, first_connect_ms=500) as admin:
            await admin.list_topics()


@pytest.fixture
def certificate() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # it answers a ClientHello only


async def test_one_wrong_address_does_not_hide_a_broker(
    nursery: trio.Nursery, fake_broker: FakeBroker
) -> None:
    address = await served(nursery, partial(answering, HTTP))

    async def connect(host: str, port: int) -> Any:
        if f"{host}:{port}" == address:
            return await ClientConfig().connect(host, port)
        return await fake_broker.connect(host, port)

    async with Admin(f"{address},{ADDRESS}", connect=connect) as admin:
        assert await admin.list_topics() == ["t"]


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (closing, "has taken the connection and closed it without an answer"),
        (silent, "has taken the connection and does not answer; see whether it is a Kafka broker"),
    ],
)
async def test_what_takes_a_connection_and_says_nothing_is_told(
    nursery: trio.Nursery, handler: Callable[[Any], Awaitable[None]], words: str
) -> None:
    address = await served(nursery, handler)
    with pytest.raises(Disconnected) as raised:
        async with Admin(address, first_connect_ms=300) as admin:
            await admin.list_topics()
    assert words in str(raised.value)
    assert address in str(raised.value)
    assert "no broker was reached within 300 ms" in str(raised.value)


class InPieces:
    """A connection to a broker whose first answer arrives in pieces, of which the last is lost."""

    peer = ADDRESS

    def __init__(self) -> None:
        self._pieces = [b"\0\0\1\0", b"<", b""]

    async def receive_into(self, buffer: memoryview) -> int:
        await trio.lowlevel.checkpoint()
        piece = self._pieces.pop(0)
        buffer[: len(piece)] = piece
        return len(piece)

    def send_now(self, parts: Sequence[bytes]) -> Sequence[bytes]:
        return ()

    async def send_all(self, parts: Sequence[bytes]) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_only_the_first_bytes_of_a_connection_say_what_is_there(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A piece that began with `<`, as the number of an API may, was an HTTP server."""

    async def connect(host: str, port: int) -> Any:
        return InPieces()

    with pytest.raises(Disconnected, match="closed it without an answer"):
        await list_topics(ADDRESS, connect=connect)


def test_a_broker_that_was_never_there_is_waited_for_ten_seconds() -> None:
    """It was `max_block_ms`, a minute."""
    assert ClientConfig().first_connect_ms == 10_000
    before = time.monotonic()
    admin = blocking.Admin("127.0.0.1:1", first_connect_ms=100)
    with admin, pytest.raises(Disconnected, match=r"127\.0\.0\.1:1 \(Connection refused\)"):
        admin.list_topics()
    assert time.monotonic() - before < 9


@pytest.mark.parametrize("use", USES)
async def test_every_client_is_told_within_the_default(
    autojump_clock: trio.testing.MockClock, use: Use
) -> None:
    async def connect(host: str, port: int) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")

    before = trio.current_time()
    with pytest.raises(OdradekError, match="Connection refused"):
        await use("10.0.0.1:9092", connect=connect)
    assert trio.current_time() - before < 21
