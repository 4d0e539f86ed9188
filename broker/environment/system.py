"""The real Env: the operating system's clock, sockets, files and randomness.

A connection is a bare non-blocking socket. Sending is tried first, and waits if it would block. So
does receiving while there may be more: after a call that took all that had arrived, the next one
waits first. A caller in a loop must execute a checkpoint now and then (`connection.py` does).
Reading goes into the caller's buffer, writing gathers the caller's parts: the bytes of a record
batch are not copied.
"""

import contextlib
import errno
import functools
import ipaddress
import logging
import os
import random
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import outcome
import trio

from odradek.broker.environment.compiled import fastest_steps
from odradek.broker.environment.env import (
    NO_DESCRIPTOR,
    Bound,
    Buffer,
    Connection,
    Disk,
    Env,
    MetaStore,
    Take,
    TlsContext,
    nothing_noted,
)
from odradek.broker.environment.reactor import Reactor, is_possible
from odradek.broker.environment.socket_end import SocketEnd

T = TypeVar("T")
Connected = Callable[[socket.socket], Connection]
"""A function that makes a connection of a socket that was accepted. Raises OSError."""
Found = tuple[Any, ...]
"""What getaddrinfo returns: family, kind, protocol, canonical name, address."""

LOGGER: Final = logging.getLogger(__name__)
BACKLOG: Final = 1024
PARTS_MAX: Final = 512
"""The number of buffers in one sendmsg; the system's own limit is 1,024."""
ACCEPT_PAUSE_SECONDS: Final = 0.1
THREAD_PAUSE_SECONDS: Final = 0.1
OF_BOTH_FAMILIES: Final = {"::": ("0.0.0.0", "::"), "localhost": ("127.0.0.1", "::1")}
"""Hosts that stand for an address of IPv4 and one of IPv6, whatever the machine's files say."""
NO_SUCH_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
FREE_PORT_TRIES: Final = 10
SPARE_DESCRIPTORS: Final = 8
OPEN_FILES_MAX: Final = 65_536
KILL_AT: Final = "ODRADEK_KILL_AT"
CONNECT_TIMEOUT_SECONDS: Final = 10.0
KEEPALIVE_SECONDS: Final = 300
"""The seconds of silence after which the system probes the other machine."""


class SystemClock:
    """The wall clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SocketConnection(SocketEnd):
    """A `Connection` over a TCP socket."""

    __slots__ = ()

    @property
    def peer_certificate(self) -> None:
        return None

    async def handshake(self, note_progress: Callable[[], None] = nothing_noted) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_into(self, buffer: memoryview) -> int:
        if self._is_drained:
            await trio.lowlevel.wait_readable(self._socket)
        while True:
            try:
                count = self._socket.recv_into(buffer)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
            except OSError as error:
                raise trio.BrokenResourceError(error.strerror) from error
            else:
                self._is_drained = count < len(buffer)
                return count

    async def receive_untaken(self, take: Take, max_bytes: int) -> bytearray:
        if self._reactor is not None:
            return await self._reactor.receive_untaken(self._socket, take, max_bytes)
        await trio.lowlevel.wait_readable(self._socket)
        self._is_drained = False
        received = bytearray(max_bytes)
        count = await self.receive_into(memoryview(received))
        return received[:count]

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        waiting = parts
        try:
            while waiting:
                if len(waiting) == 1:
                    sent = self._socket.send(waiting[0])
                    if sent == len(waiting[0]):
                        return ()
                else:
                    sent = self._socket.sendmsg(islice(waiting, PARTS_MAX))
                waiting = _without_first(waiting, sent)
        except BlockingIOError:
            pass
        except OSError as error:
            raise trio.BrokenResourceError(error.strerror) from error
        return waiting

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


def _without_first(parts: Sequence[Buffer], count: int) -> Sequence[Buffer]:
    """Return `parts` without their first `count` bytes."""
    if len(parts) == 1 and count == len(parts[0]):
        return ()
    for index, part in enumerate(parts):
        if count < len(part):
            return [memoryview(part)[count:], *parts[index + 1 :]]
        count -= len(part)
    return ()


class SystemNetwork:
    """A `Network` of TCP sockets."""

    async def connect(self, host: str, port: int, *, tls: TlsContext | None = None) -> Connection:
        with trio.fail_after(CONNECT_TIMEOUT_SECONDS):
            try:
                stream = await trio.open_tcp_stream(host, port)
            except RuntimeError as error:  # a name is looked up in a thread, and none can start
                raise OSError(errno.EAGAIN, str(error)) from error
        sock = socket.socket(fileno=stream.socket.detach())
        return _connection(sock) if tls is None else _connecting_tls(sock, host, tls)

    async def listen(
        self,
        host: str,
        port: int,
        handler: Callable[[Connection], Awaitable[None]],
        *,
        started: Bound,
        end_turn: Callable[[], None] | None = None,
        tls: TlsContext | None = None,
    ) -> None:
        listeners = await _bound_listeners(host, port)
        address = listeners[0].getsockname()
        is_open = trio.Event()

        def open_port() -> None:
            for listener in listeners:
                listener.listen(BACKLOG)
            is_open.set()

        try:
            started(host if is_wildcard(host) else address[0], address[1], open_port)
            await is_open.wait()
        except BaseException:
            for listener in listeners:
                listener.close()
            raise
        reactor = Reactor(end_turn) if end_turn is not None and is_possible() else None
        connected = _tls_connections(reactor, tls) if tls else _connections(reactor)
        async with trio.open_nursery() as nursery:
            if reactor is not None:
                nursery.start_soon(reactor.run)
            for listener in listeners:
                nursery.start_soon(_accept, listener, handler, nursery, connected)


async def _bound_listeners(host: str, port: int) -> list[socket.socket]:
    """Bind a socket to every address of `host`. Raises OSError."""
    hosts = OF_BOTH_FAMILIES.get(host, (host,))
    found = [
        each
        for one in hosts
        for each in await trio.socket.getaddrinfo(
            one, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    ]
    for _ in range(FREE_PORT_TRIES - 1 if port == 0 else 0):
        with contextlib.suppress(OSError):  # the port that is free in one family is not in another
            return _bind_all(found, may_lack_one=len(hosts) > 1)
    return _bind_all(found, may_lack_one=len(hosts) > 1)


def _bind_all(found: Sequence[Found], *, may_lack_one: bool) -> list[socket.socket]:
    """Bind a socket to every address. Raises OSError.

    `may_lack_one`: leave out a family that this machine does not have.
    """
    listeners: list[socket.socket] = []
    lacking: OSError | None = None
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            if listeners and address[1] == 0:  # the same port on every address
                address = (address[0], listeners[0].getsockname()[1], *address[2:])
            try:
                listeners.append(_bind(family, kind, protocol, address))
            except OSError as error:
                if not may_lack_one or error.errno not in NO_SUCH_FAMILY:
                    raise
                lacking = error
        if not listeners and lacking is not None:
            raise lacking
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _bind(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


async def _accept(
    listener: socket.socket,
    handler: Callable[[Connection], Awaitable[None]],
    nursery: trio.Nursery,
    connected: Connected,
) -> None:
    spare = _Spare()
    try:
        while True:
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                await trio.lowlevel.wait_readable(listener)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno in NO_DESCRIPTOR and spare.take():
                    await _turn_away(listener, spare)
                else:
                    LOGGER.warning("no connection can be accepted: %s", error.strerror)
                    await trio.sleep(ACCEPT_PAUSE_SECONDS)
            else:
                nursery.start_soon(_serve, sock, handler, connected)
                await trio.lowlevel.checkpoint()
    finally:
        spare.close()
        trio.lowlevel.notify_closing(listener)
        listener.close()


class _Spare:
    """File descriptors that are kept until no other is left.

    A log that opens a file just when one is released takes it, and may keep it. So there are some.
    """

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self.take()

    def take(self) -> bool:
        """Return True if there is one, now or already."""
        with contextlib.suppress(OSError):
            while len(self._descriptors) < SPARE_DESCRIPTORS:
                self._descriptors.append(os.open(os.devnull, os.O_RDONLY))
        return bool(self._descriptors)

    def release(self) -> None:
        """Close one of them."""
        if self._descriptors:
            os.close(self._descriptors.pop())

    def close(self) -> None:
        while self._descriptors:
            self.release()


async def _turn_away(listener: socket.socket, spare: _Spare) -> None:
    """Close the first connection that waits: its client learns that it is not served.

    Without a descriptor the system refuses to accept even if no client waits, so wait for one.
    """
    spare.release()
    try:
        sock, address = listener.accept()
    except BlockingIOError:
        spare.take()
        await trio.lowlevel.wait_readable(listener)
    except OSError as error:
        LOGGER.warning("no connection can be accepted: %s", error.strerror)
        await trio.sleep(ACCEPT_PAUSE_SECONDS)
    else:
        sock.close()
        spare.take()  # before a connection does
        LOGGER.warning(
            "connection of %s:%d refused: no file descriptor is left; raise the limit of open "
            "files (ulimit -n)",
            *address[:2],
        )
        await trio.lowlevel.checkpoint()


async def _serve(
    sock: socket.socket,
    handler: Callable[[Connection], Awaitable[None]],
    connected: Connected,
) -> None:
    try:
        connection = connected(sock)
    except OSError:  # gone before it was served
        sock.close()
        return
    try:
        await handler(connection)
    finally:
        await connection.aclose()


def _connection(sock: socket.socket, reactor: Reactor | None = None) -> SocketConnection:
    peer, is_local = _set_up(sock)
    return SocketConnection(sock, peer, is_local=is_local, reactor=reactor)


def _connections(reactor: Reactor | None) -> Connected:
    return functools.partial(_connection, reactor=reactor)


def _tls_connections(reactor: Reactor | None, tls: TlsContext) -> Connected:
    # Most brokers have no TLS, and a start is almost only imports.
    from odradek.broker.environment.handshake_threads import HandshakeThreads
    from odradek.broker.environment.tls_connection import TlsConnection

    threads = HandshakeThreads()

    def connection(sock: socket.socket) -> Connection:
        peer, is_local = _set_up(sock)
        return TlsConnection(
            sock, peer, is_local=is_local, reactor=reactor, tls=tls, threads=threads
        )

    return connection


def _connecting_tls(sock: socket.socket, host: str, tls: TlsContext) -> Connection:
    from odradek.broker.environment.tls_connection import ConnectingTls

    peer, is_local = _set_up(sock)
    return ConnectingTls(sock, peer, is_local=is_local, host=host, tls=tls)


def _set_up(sock: socket.socket) -> tuple[str, bool]:
    """Prepare the socket of a connection. Return its peer, and True if that is on this machine."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
    host, port = sock.getpeername()[:2]
    # A machine that connects to one of its addresses does so from the same one.
    is_local = is_loopback(host) or host == sock.getsockname()[0]
    return f"{host}:{port}", is_local


def is_address(host: str) -> bool:
    """Return True if `host` is an IP address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address; so is the name `localhost`."""
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host == "localhost"


def is_wildcard(host: str) -> bool:
    """Return True if an address stands for all of this machine's: clients cannot connect to it."""
    return is_address(host) and ipaddress.ip_address(host).is_unspecified


def has_terminal() -> bool:
    """Return True if this process gets SIGHUP when a terminal is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def host_name() -> str:
    """Return the name of this machine, by which others on its network may find it."""
    return socket.gethostname()


def raise_file_limit() -> int:
    """Raise the limit of open files and sockets as far as allowed, and return it."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):  # some systems refuse although they said otherwise
            LOGGER.debug("the limit of open files stays at %d", soft)
    return OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft


def fault_points(wish: str) -> Callable[[str], None]:
    """Return `Env.reached` for `ODRADEK_KILL_AT=name:N`: SIGKILL when the point is reached N times.

    Tests of crashes use it: nothing is tidied up.
    """
    name, _, count = wish.partition(":")
    left = {name: int(count or 1)}

    def reached(point: str) -> None:
        if point in left:
            left[point] -= 1
            if left[point] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached


async def _in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread. Wait for one while the system lets none start."""
    call = functools.partial(outcome.capture, function)
    while True:
        try:
            result: outcome.Outcome[T] = await trio.to_thread.run_sync(call)
        except RuntimeError as error:
            LOGGER.warning("no thread can start, and a large request or a hash waits: %s", error)
            await trio.sleep(THREAD_PAUSE_SECONDS)
        else:
            return result.unwrap()


def system_env(disk: Disk, meta: MetaStore) -> Env:
    """Return the Env of a broker process."""
    make = functools.partial(
        Env,
        clock=SystemClock(),
        net=SystemNetwork(),
        disk=disk,
        meta=meta,
        rng=random.SystemRandom(),
        offload=_in_thread,
        plain_steps=fastest_steps(),
    )
    wish = os.environ.get(KILL_AT)
    return make(reached=fault_points(wish)) if wish else make()
