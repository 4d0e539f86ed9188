"""The page of `odradek serve --web`: `odradek web` as a process beside the broker.

The broker opens its port, so that the address is known, and refused if it is taken, before anything
else is done. The process takes the open socket over. It ends with the broker, however that ends:
its standard input is a pipe whose other end only the broker has. What it writes to standard error
is lines of the broker's log, in the form that this has.
"""

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final, Self

import trio

from odradek.broker.config.addresses import Listener, printed
from odradek.broker.config.settings import ConfigError
from odradek.broker.environment.system import is_loopback, is_wildcard

LOGGER: Final = logging.getLogger(__name__)

BACKLOG: Final = 64
LINE_MAX_BYTES: Final = 4 * 1024
ELSEWHERE: Final = "start `odradek web` beside the broker"
OF_THE_USER: Final = frozenset({"ODRADEK_COMMAND_CONFIG", "ODRADEK_PROFILE"})
"""Variables that would give the page another user than its listener has."""


class PageProcess:
    def __init__(self, bound: socket.socket, host: str) -> None:
        self._socket = bound
        self._address = printed(host, bound.getsockname()[1])

    @classmethod
    def bind(cls, text: str, listeners: Sequence[Listener]) -> Self:
        """Open the port of a page at HOST:PORT. Raises `ConfigError`."""
        if _plain(listeners) is None:
            raise ConfigError(
                "--web needs a listener without TLS and passwords: "
                f"{ELSEWHERE}, with --command-config."
            )
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not (port.isascii() and port.isdigit()) or int(port) >= 2**16:
            raise ConfigError(f"--web takes HOST:PORT, not {text!r}.")
        if not is_loopback(host):
            raise ConfigError(
                f"--web serves this machine only, and others reach {host!r}: "
                f"{ELSEWHERE}, with TLS and passwords."
            )
        try:
            bound = socket.create_server(
                (host, int(port)),
                family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                backlog=BACKLOG,
            )
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigError(f"--web: {text} cannot be listened on: {why}.") from None
        return cls(bound, host)

    @property
    def link(self) -> str:
        return f"http://{self._address}/"

    async def run(self, listeners: Sequence[Listener]) -> None:
        """Run the page of a broker with these listeners until cancelled.

        If the page cannot start, or ends before, that is a line in the log, and the broker goes on.
        """
        listener = _plain(listeners)
        assert listener is not None, listeners
        host = "127.0.0.1" if is_wildcard(listener.host) else listener.host
        with self._socket:  # without a page browsers are refused, and do not wait
            try:
                status = await self._run_process(printed(host, listener.port))
            except* OSError as group:
                LOGGER.warning("the page cannot be started: %s", group.exceptions[0])
            else:
                LOGGER.warning("the page has ended with status %d", status)

    async def _run_process(self, bootstrap: str) -> int:
        """Run the process and return its status. Raises OSError if the system lets none start."""
        number = self._socket.fileno()
        command = [
            *(sys.executable, "-m", "odradek.broker", "web", "--until-stdin-ends"),
            *("--bootstrap", bootstrap, "--listen", self._address),
            *("--inherited-socket", str(number)),
        ]
        environment = {name: value for name, value in os.environ.items() if name not in OF_THE_USER}
        reading, writing = os.pipe()
        try:
            async with trio.open_nursery() as nursery:
                run = partial(
                    trio.run_process,
                    command,
                    stdin=reading,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=[number],
                    env=environment,
                    check=False,
                )
                process: trio.Process = await nursery.start(run)
                assert process.stderr is not None
                await _log_lines(process.stderr)
        finally:
            os.close(reading)
            os.close(writing)
        assert process.returncode is not None
        return process.returncode


async def _log_lines(stream: trio.abc.ReceiveStream) -> None:
    """Log the lines of a stream until its end."""
    rest = b""
    async for part in stream:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            _log_line(line)
        rest = rest[:LINE_MAX_BYTES]
    if rest:
        _log_line(rest)


def _log_line(line: bytes) -> None:
    LOGGER.warning("the page: %s", line.decode(errors="replace"))


def _plain(listeners: Sequence[Listener]) -> Listener | None:
    """Return the first listener to which a client needs nothing but the address."""
    return next((each for each in listeners if not each.has_tls and not each.has_sasl), None)
