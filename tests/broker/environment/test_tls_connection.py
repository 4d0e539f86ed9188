"""TLS over real sockets: many records at once, ends, and handshakes that come to nothing."""

import random
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from odradek.broker.environment import reactor
from odradek.broker.environment.encrypted_socket import (
    RECEIVED_BYTES,
    RECORDS_AT_ONCE,
    EncryptedSocket,
)
from odradek.broker.environment.env import Connection, HandshakeFailed, OtherEnd
from odradek.broker.environment.system import SystemNetwork
from odradek.broker.tls.listener_tls import ListenerTls
from tests.broker.config.configured import from_properties
from tests.broker.environment.test_system import receive
from tests.certificates import Authority
from tests.fakes.threads import cannot_start

PATIENCE_SECONDS = 60
RECORD_BYTES = 100
RECORD_MAX_BYTES = 16 * 1024
RECORD_LEAST_BYTES = 22


class Served:
    """A listener with TLS, and what happens to its connections."""

    def __init__(self, authority: Authority, client_auth: str = "none") -> None:
        self.authority = authority
        properties = {
            "ssl.keystore.location": authority.signed("broker").both_file,
            "ssl.truststore.location": authority.file,
            "ssl.client.auth": client_auth,
        }
        self._tls = ListenerTls("SECURE", from_properties(properties))
        self._arrived, self._connections = trio.open_memory_channel[Connection](10)
        self.port = 0
        self.failures: list[str] = []
        self.progress = 0
        self.begins = self.ends = self.gone = 0
        self.turns = 0

    async def listen(self, task_status: trio.TaskStatus[None]) -> None:
        def started(host: str, port: int, open_port: Callable[[], None]) -> None:
            open_port()
            self.port = port
            task_status.started()

        await SystemNetwork().listen(
            "127.0.0.1",
            0,
            self._serve,
            started=started,
            end_turn=self._end_turn,
            tls=self._tls.current,
        )

    def _note_progress(self) -> None:
        self.progress += 1

    def _end_turn(self) -> None:
        self.turns += 1

    async def _serve(self, connection: Connection) -> None:
        self.begins += 1
        try:
            await connection.handshake(self._note_progress)
        except HandshakeFailed as error:
            self.failures.append(str(error))
        except trio.BrokenResourceError:
            self.gone += 1
        else:
            self._arrived.send_nowait(connection)
            await trio.sleep_forever()
        finally:
            self.ends += 1

    async def accepted(self) -> Connection:
        return await self._connections.receive()

    def plain(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority.file)

    async def client(self, **chain: Any) -> ssl.SSLSocket:
        """A client whose handshake is over."""
        context = self.context()
        if chain:
            context.load_cert_chain(**chain)
        return await trio.to_thread.run_sync(
            lambda: context.wrap_socket(self.plain(), server_hostname="localhost")
        )


@asynccontextmanager
async def served(tmp_path: Path, client_auth: str = "none") -> AsyncIterator[Served]:
    found = Served(Authority(tmp_path), client_auth)
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(found.listen)
            yield found
            nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    """Return when the sockets have made it true."""
    while not condition():  # noqa: ASYNC110
        await trio.sleep(0.001)


async def test_many_parts_and_megabytes_arrive_whole_in_both_directions(tmp_path: Path) -> None:
    rng = random.Random(1)
    sizes = (0, 1, 100, 5_000, 16_384, 70_000)
    parts = [rng.randbytes(rng.choice(sizes)) for _ in range(500)]
    whole = b"".join(parts)
    async with served(tmp_path) as found:
        with await found.client() as client:
            connection = await found.accepted()

            def echo() -> None:
                left = len(whole)
                while left:
                    some = client.recv(10_000)
                    left -= len(some)
                    received.extend(some)
                client.sendall(received)

            received = bytearray()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, echo)
                await connection.send_all(parts)
                assert await receive(connection, len(whole)) == whole
            assert received == whole


async def test_small_records_are_received_together(tmp_path: Path) -> None:
    """One at a time, a request of a client whose records are small would take many turns."""
    async with served(tmp_path) as found:
        with await found.client() as client:
            connection = await found.accepted()
            for _ in range(50):
                client.sendall(b"x" * RECORD_BYTES)
            buffer = memoryview(bytearray(100 * RECORD_BYTES))
            count = 0
            calls = 0
            while count < 50 * RECORD_BYTES:
                count += await connection.receive_into(buffer[count:])
                calls += 1
            assert calls < 10


async def test_what_was_decrypted_is_not_forgotten_when_the_buffer_was_too_small(
    tmp_path: Path,
) -> None:
    """A record is decrypted as a whole; its rest makes no socket readable."""
    async with served(tmp_path) as found:
        with await found.client() as client:
            connection = await found.accepted()
            client.sendall(b"a" * 10_000)
            small = memoryview(bytearray(1_000))
            for _ in range(4):
                assert await connection.receive_into(small) == 1_000
            rest = await connection.receive_untaken(lambda _: (0, False), 100_000)
            assert rest == b"a" * 6_000


async def test_frames_that_are_taken_never_reach_the_task(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        with await found.client() as client:
            connection = await found.accepted()
            taken: list[bytes] = []

            def take(received: memoryview) -> tuple[int, bool]:
                end = bytes(received).rfind(b"\n") + 1
                lines = bytes(received[:end])
                if b"-" in lines:
                    return 0, False
                taken.append(lines)
                return end, end < len(received)

            async with trio.open_nursery() as nursery:
                left: list[bytearray] = []

                async def wait() -> None:
                    left.append(await connection.receive_untaken(take, 100_000))

                nursery.start_soon(wait)
                client.sendall(b"+one\n")
                await until(lambda: b"".join(taken) == b"+one\n")
                client.sendall(b"+two\n")
                await until(lambda: b"".join(taken) == b"+one\n+two\n")
                assert found.turns >= 2
                client.sendall(b"-three\n")
            assert left == [b"-three\n"]


async def test_more_than_a_turn_may_read_is_taken_in_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest was decrypted already, so epoll never returned the socket again."""
    turn_bytes = 2 * RECORD_MAX_BYTES
    monkeypatch.setattr(reactor, "READ_BYTES", turn_bytes)
    async with served(tmp_path) as found:
        with await found.client() as client:
            connection = await found.accepted()
            total = 0

            def take(received: memoryview) -> tuple[int, bool]:
                nonlocal total
                total += len(received)
                return len(received), False

            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.receive_untaken, take, turn_bytes)
                await trio.testing.wait_all_tasks_blocked()
                client.sendall(b"x" * 1_000)  # the end of a turn is inside of the last record
                client.sendall(b"x" * turn_bytes)
                await until(lambda: total == turn_bytes + 1_000)
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize("has_said_so", [True, False], ids=["close_notify", "only TCP"])
@pytest.mark.parametrize("by_reactor", [True, False], ids=["reactor", "task"])
async def test_the_end_of_the_stream_is_seen_after_the_last_bytes(
    tmp_path: Path, has_said_so: bool, by_reactor: bool
) -> None:
    async with served(tmp_path) as found:
        client = await found.client()
        connection = await found.accepted()
        client.sendall(b"last")
        if has_said_so:
            client.setblocking(False)
            with pytest.raises(ssl.SSLWantReadError):
                client.unwrap()  # the socket stays open: the end is that of TLS alone
        else:
            client.close()
        got = bytearray()

        def take(received: memoryview) -> tuple[int, bool]:
            got.extend(received)
            return len(received), False

        if by_reactor:
            assert await connection.receive_untaken(take, 100) == b""
        else:
            got += await receive(connection, 100)
        assert got == b"last"
        assert connection.other_end is not OtherEnd.IS_THERE
        client.close()


async def test_a_reset_ends_the_stream_and_nothing_can_be_sent(tmp_path: Path) -> None:
    """The ssl module of Python does not tell a reset from an end without close_notify."""
    async with served(tmp_path) as found:
        client = await found.client()
        connection = await found.accepted()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        assert await connection.receive_into(memoryview(bytearray(10))) == 0
        with pytest.raises(trio.BrokenResourceError):
            await connection.send_all([b"x" * 100])


async def test_a_client_learns_that_the_broker_closes(tmp_path: Path) -> None:
    """Without close_notify a client cannot tell an end from an attack, and some say so loudly."""
    async with served(tmp_path) as found:
        with await found.client() as client:
            connection = await found.accepted()
            await connection.send_all([b"bye"])
            await connection.aclose()
            vars(client)["suppress_ragged_eofs"] = False
            assert await trio.to_thread.run_sync(client.recv, 10) == b"bye"
            assert await trio.to_thread.run_sync(client.recv, 10) == b""


async def test_a_certificate_of_the_client_is_known_after_the_handshake(tmp_path: Path) -> None:
    async with served(tmp_path, "required") as found:
        alice = found.authority.signed("alice")
        files = {"certfile": alice.certificate_file, "keyfile": alice.key_file}
        with await found.client(**files):
            assert (await found.accepted()).peer_certificate == alice.der


async def test_a_client_without_the_certificate_that_is_required_reads_why(
    tmp_path: Path,
) -> None:
    """It has sent its first request already. A reset would have discarded the alert."""
    async with served(tmp_path, "required") as found:
        with (
            await found.client() as client,
            pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
        ):
            await trio.to_thread.run_sync(_ask, client)
        await until(lambda: bool(found.failures))
        assert found.failures == ["it shows no certificate, and ssl.client.auth=required"]


def _ask(client: ssl.SSLSocket) -> None:
    client.sendall(b"x" * 100)
    client.recv(1)


async def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, "requested") as found:
        strange = Authority(tmp_path, "strange").signed("alice")
        files = {"certfile": strange.certificate_file, "keyfile": strange.key_file}
        with (
            await found.client(**files) as client,
            pytest.raises(ssl.SSLError, match="UNKNOWN_CA"),
        ):
            await trio.to_thread.run_sync(_ask, client)
        await until(lambda: bool(found.failures))
        assert "its certificate is not trusted (" in found.failures[0]


async def test_a_client_that_does_not_trust_the_broker_is_named(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        other = Authority(tmp_path, "other")
        context = ssl.create_default_context(cafile=other.file)

        def connect() -> None:
            with found.plain() as sock, pytest.raises(ssl.SSLCertVerificationError):
                context.wrap_socket(sock, server_hostname="localhost")

        await trio.to_thread.run_sync(connect)
        await until(lambda: bool(found.failures))
        assert found.failures == ["it does not trust the certificate of this broker"]


async def test_a_client_without_tls_is_told_by_an_alert(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        with found.plain() as sock:
            sock.sendall(bytes(100))
            alert = await trio.to_thread.run_sync(sock.recv, 100)
            assert alert == bytes.fromhex("15 0301 0002 02 46")
            assert await trio.to_thread.run_sync(sock.recv, 100) == b""
        await until(lambda: bool(found.failures))
        assert found.failures[0].startswith("it does not speak TLS, as this listener does")


async def test_a_client_that_goes_in_the_middle_of_its_handshake_leaves_nothing(
    tmp_path: Path,
) -> None:
    hello = client_hello()
    async with served(tmp_path) as found:
        for some in (hello[:1], hello[:50], hello):
            with found.plain() as sock:
                sock.sendall(some)
        await until(lambda: found.ends == 3)
        assert len(found.failures) == 3
        gone = "it has closed the connection in the middle of the TLS handshake"
        assert set(found.failures) == {gone}


@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_client_that_goes_without_a_byte_is_no_failure(
    tmp_path: Path, is_reset: bool
) -> None:
    """Each look of a load balancer at the port was a line of the log and a login that failed."""
    async with served(tmp_path) as found:
        with found.plain() as sock:
            await until(lambda: found.begins == 1)
            if is_reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await until(lambda: found.ends == 1)
        assert (found.gone, found.failures) == (1, [])


async def test_silent_clients_and_clients_that_trickle_hold_up_nobody(tmp_path: Path) -> None:
    """A handshake that waits for its client has no thread, and there are two."""
    hello = client_hello()
    async with served(tmp_path) as found:
        silent = [found.plain() for _ in range(100)]
        for number, sock in enumerate(silent[:50]):
            sock.sendall(hello[: 1 + number])
        for _ in range(5):
            with await found.client():
                await found.accepted()
        for sock in silent:
            sock.close()
        await until(lambda: (found.gone, len(found.failures)) == (50, 50))


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        side.do_handshake()
    return outgoing.read()


async def test_records_of_a_byte_are_received_in_portions(tmp_path: Path) -> None:
    """One call received 64 KiB of them in 0.16 s, in which no other client was served."""
    most = RECORDS_AT_ONCE + RECEIVED_BYTES // RECORD_LEAST_BYTES
    sent = 5 * most + 1
    async with served(tmp_path) as found:
        with await found.client() as client:
            connection = await found.accepted()
            for _ in range(sent):
                client.sendall(b"x")
            received, calls = 0, 0
            while received < sent:
                count = await connection.receive_into(memoryview(bytearray(RECORD_MAX_BYTES)))
                assert 0 < count <= most
                received += count
                calls += 1
            assert calls >= 6


async def test_a_handshake_for_which_no_thread_can_start_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the listener, and the broker with it."""
    async with served(tmp_path) as found:
        with monkeypatch.context() as patched, found.plain() as client:
            patched.setattr(threading.Thread, "start", cannot_start)
            client.sendall(client_hello())
            await until(lambda: bool(found.failures))
        assert "can't start new thread" in found.failures[0]
        with await found.client():
            await found.accepted()


async def test_a_hello_in_pieces_makes_progress_once_and_a_byte_makes_none(tmp_path: Path) -> None:
    """Progress keeps a handshake its place among others: it must not be had for a byte."""
    hello = client_hello()
    async with served(tmp_path) as found:
        with found.plain() as client:
            for byte in hello[:-1]:
                client.sendall(bytes([byte]))
            assert found.progress == 0
            client.sendall(hello[-1:])
            await until(lambda: found.progress == 1)
            client.sendall(b"\x14\x03\x03")  # the beginning of what follows
            client.sendall(b"\x00")
        await until(lambda: found.ends == 1)
    assert found.progress == 1


async def test_a_step_of_a_handshake_begins_when_a_record_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that trickled its bytes had a thread for each of them."""
    steps: list[EncryptedSocket] = []
    agree = EncryptedSocket.agree

    def agree_and_note(side: EncryptedSocket) -> bool:
        steps.append(side)
        return agree(side)

    async def trickle(client: socket.socket, record: bytes) -> None:
        for byte in record:
            client.sendall(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()

    monkeypatch.setattr(EncryptedSocket, "agree", agree_and_note)
    async with served(tmp_path) as found:
        with found.plain() as client:
            await trickle(client, client_hello())
            await until(lambda: found.progress == 1)
            assert len(steps) == 1
            await trickle(client, bytes.fromhex("14 0303 0001 01"))  # which TLS 1.3 passes over
            await until(lambda: len(steps) == 2)
        await until(lambda: found.ends == 1)
    assert len(steps) == 2
