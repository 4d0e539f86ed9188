"""A network of hosts for machines that forbid namespaces: loopback addresses, and a proxy between.

Host number N is reached at 127.77.N.1, where the proxy listens, and its services listen at
127.78.N.1. So all connections pass the proxy, one process. Another network on the same machine has
127.79 and 127.80, and so on: a proxy takes the first pair that is free.

The proxy finds out which host has begun a connection from the process that holds the other end. A
cut holds back the bytes of one direction of one link until it is healed. A connection that is begun
meanwhile is accepted, and hears nothing.

    python -m tests.cluster.loopback DIRECTORY HOST...

is the proxy. It ends with its input, unless that says `keep`, and with SIGTERM; then it kills the
processes that the files DIRECTORY/HOST.process name.
"""

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import trio

from tests.cluster.network import CLIENT, IN_THE_BACKGROUND, Process

PORTS: Final = (9092, 9093, 9100, 2379, 2380)
"""The ports of the services in docker-compose.yml, and that of etcd's nodes among themselves."""
CONTROL: Final = "loopback.socket"
READY: Final = "ready"
PAIR: Final = "loopback.pair"
"""The file with the number of the pair of address blocks that the proxy has taken."""
FIRST_BLOCK: Final = 77
PAIRS_MAX: Final = 80
CHUNK_BYTES: Final = 64 * 1024
Link = tuple[str, str]


class NoAddresses(Exception):
    """The proxy could not take addresses: one sentence for a person."""


def proxy_address(pair: int, number: int) -> str:
    return f"127.{FIRST_BLOCK + 2 * pair}.{number}.1"


def service_address(pair: int, number: int) -> str:
    return f"127.{FIRST_BLOCK + 2 * pair + 1}.{number}.1"


class LoopbackNetwork:
    """The network of a proxy. It has the methods of `Network`."""

    def __init__(self, anchor: Process, hosts: Sequence[str], directory: Path) -> None:
        self.anchor = anchor
        self._directory = directory
        self._pair = int((directory / PAIR).read_text())
        self._numbers = {name: 1 + index for index, name in enumerate(hosts)}

    def command(self, host: str, words: Sequence[str]) -> list[str]:
        """Return these words with addresses in place of the names of hosts."""
        return [self._with_addresses(host, word) for word in words]

    def _with_addresses(self, host: str, word: str) -> str:
        if host != CLIENT:
            word = word.replace("0.0.0.0:", f"{service_address(self._pair, self._numbers[host])}:")
        for name, number in self._numbers.items():
            # a name in front of a port; not a part of another name or of a path
            address = proxy_address(self._pair, number)
            word = re.sub(rf"((?<=//)|(?<![\w/.-])){name}(?=:\d)", address, word)
        return word

    def background(self, host: str, file: Path, words: Sequence[str]) -> list[str]:
        """Return the command that starts these words, and keeps the process in a file."""
        return ["sh", "-ec", IN_THE_BACKGROUND, "sh", str(file), *self.command(host, words)]

    def cut(self, source: str, target: str) -> None:
        """Hold back what `source` sends to `target`."""
        self._ask("cut", source, target)

    def mend(self, source: str, target: str) -> None:
        """End the cut of what `source` sends to `target`."""
        self._ask("mend", source, target)

    def heal(self) -> None:
        """End all cuts."""
        for source, target in self.cuts():
            self.mend(source, target)

    def cuts(self) -> list[Link]:
        """Return the links of which one direction is cut, as source and target."""
        words = self._ask("cuts").split()
        return list(zip(words[::2], words[1::2], strict=True))

    def _ask(self, *words: str) -> str:
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(self._directory / CONTROL))
            control.sendall(" ".join(words).encode() + b"\n")
            return control.makefile().read()

    def close(self) -> None:
        """End the proxy and all processes, and wait until the last has ended."""
        with suppress(ProcessLookupError):
            self.anchor.send(signal.SIGTERM)
        while self.anchor.state is not None:
            time.sleep(0.01)


class LoopbackStarter:
    """Starts a proxy, and holds the pipe whose end is that of the network.

    Raises NoAddresses if the proxy finds none that are free.
    """

    def __init__(self, directory: Path, hosts: Sequence[str]) -> None:
        with (directory / "loopback.out").open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.loopback", str(directory), *hosts],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                cwd=Path(__file__).parents[2],
                start_new_session=True,  # Ctrl-C is for the starter
            )
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if said != READY:
            self._process.wait()
            self._close_pipes()
            raise NoAddresses(said or f"The proxy did not start; {output.name} says why.")
        line = Path(f"/proc/{self._process.pid}/stat").read_text()
        self.network = LoopbackNetwork(Process(line), hosts, directory)

    def keep(self) -> None:
        """Let the network outlive this process."""
        assert self._process.stdin is not None
        self._process.stdin.write("keep\n")
        self._process.stdin.close()

    def close(self) -> None:
        """End the network and wait until its proxy has ended."""
        with suppress(ProcessLookupError):
            self.network.anchor.send(signal.SIGTERM)
        self._process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class Proxy:
    """All links of a network."""

    def __init__(self, directory: Path, hosts: Sequence[str]) -> None:
        self._directory = directory
        self._hosts = hosts
        self._pair = 0
        self._cuts: set[Link] = set()
        self._healed = trio.Event()

    async def run(self) -> None:
        """Forward until the input ends or SIGTERM comes, then kill all processes."""
        try:
            taken = await self._take_addresses()
            async with trio.open_nursery() as nursery:
                for (number, host, port), listeners in taken.items():
                    forward = partial(self._forward, host, number, port)
                    nursery.start_soon(trio.serve_listeners, forward, listeners)
                control = socket.socket(socket.AF_UNIX)
                path = self._directory / CONTROL
                path.unlink(missing_ok=True)
                control.bind(str(path))
                control.listen()
                listener = trio.SocketListener(trio.socket.from_stdlib_socket(control))
                nursery.start_soon(trio.serve_listeners, self._obey, [listener])
                nursery.start_soon(self._end_with_input, nursery.cancel_scope)
                with trio.open_signal_receiver(signal.SIGTERM) as signals:
                    print(READY, flush=True)
                    async for _ in signals:
                        nursery.cancel_scope.cancel()
        finally:
            for host in self._hosts:
                process = self._process_of(host)
                if process is not None:
                    with suppress(ProcessLookupError):
                        process.send(signal.SIGKILL)

    async def _take_addresses(self) -> dict[tuple[int, str, int], list[trio.SocketListener]]:
        """Listen at the addresses of the first pair of blocks that is free. Raises NoAddresses."""
        for self._pair in range(PAIRS_MAX):
            taken: dict[tuple[int, str, int], list[trio.SocketListener]] = {}
            try:
                for number, host in enumerate(self._hosts, 1):
                    for port in PORTS:
                        address = proxy_address(self._pair, number)
                        listeners = await trio.open_tcp_listeners(port, host=address)
                        taken[number, host, port] = listeners
            except OSError as error:
                for listeners in taken.values():
                    for listener in listeners:
                        await listener.aclose()
                if error.errno != errno.EADDRINUSE:
                    raise NoAddresses(f"{address} cannot be used: {error}.") from None
            else:
                (self._directory / PAIR).write_text(str(self._pair))
                return taken
        raise NoAddresses(
            f"All {PAIRS_MAX} networks of loopback addresses are in use on this machine; end one "
            "with `scripts/cluster down`."
        )

    async def _end_with_input(self, scope: trio.CancelScope) -> None:
        read = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        if read.strip() != "keep":
            scope.cancel()

    async def _obey(self, stream: trio.SocketStream) -> None:
        async with stream:
            word, *link = (await stream.receive_some()).decode().split()
            if word == "cut":
                self._cuts.add((link[0], link[1]))
            elif word == "mend":
                self._cuts.discard((link[0], link[1]))
                self._healed.set()
                self._healed = trio.Event()
            else:
                await stream.send_all(" ".join(sum(sorted(self._cuts), ())).encode())

    async def _forward(self, host: str, number: int, port: int, client: trio.SocketStream) -> None:
        source = self._host_of(client.socket.getpeername()[1]) or CLIENT
        async with client:
            with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                await self._until_healed((source, host))
                server = await trio.open_tcp_stream(service_address(self._pair, number), port)
                async with server, trio.open_nursery() as nursery:
                    there, back = (source, host), (host, source)
                    nursery.start_soon(self._pump, client, server, there)
                    await self._pump(server, client, back)
                    nursery.cancel_scope.cancel()

    async def _pump(self, source: trio.SocketStream, target: trio.SocketStream, link: Link) -> None:
        """Forward one direction of a connection, to its end."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while chunk := await source.receive_some(CHUNK_BYTES):
                await self._until_healed(link)
                await target.send_all(chunk)
            await self._until_healed(link)
            await target.send_eof()

    async def _until_healed(self, link: Link) -> None:
        while link in self._cuts:
            await self._healed.wait()

    def _process_of(self, host: str) -> Process | None:
        file = self._directory / f"{host}.process"
        line = file.read_text() if file.exists() else ""
        if not line.endswith("\n"):
            return None
        process = Process(line)
        return process if process.state is not None else None

    def _host_of(self, port: int) -> str | None:
        """Return the host whose process has a socket with this local port; None for a client."""
        wanted = f":{port:04X}"
        inodes = {
            fields[9]
            for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
            if fields[1].endswith(wanted)
        }
        names = {f"socket:[{inode}]" for inode in inodes}
        for host in self._hosts:
            process = self._process_of(host)
            if process is None:
                continue
            for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
                with suppress(OSError):
                    if os.readlink(descriptor) in names:
                        return host
        return None


if __name__ == "__main__":
    try:
        trio.run(Proxy(Path(sys.argv[1]), sys.argv[2:]).run)
    except NoAddresses as error:
        print(error, flush=True)
        sys.exit(1)
