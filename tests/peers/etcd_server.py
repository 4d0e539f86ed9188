"""A real etcd as processes: one node or several, on free loopback ports. `scripts/etcd` runs it.

The program is `ODRADEK_ETCD`, or `etcd` on the PATH if it is recent enough, or one that is built
from the Go module proxy, once, into `libs/etcd/` (not in git).
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import click

from tests.peers.jars import LIBS, PeersMissing
from tests.peers.kafka import DidNotStart, free_ports

SOURCE: Final = Path(__file__).parent / "etcd"
OLDEST: Final = (3, 5, 21)  # before it watches can lose events
VARIABLE: Final = "ODRADEK_ETCD"
BUILD_TIMEOUT_SECONDS: Final = 900
START_TIMEOUT_SECONDS: Final = 60
STOP_TIMEOUT_SECONDS: Final = 10
HOW_TO_GET_IT: Final = (
    f"etcd 3.5.21 or later is needed: put it on the PATH, name it in {VARIABLE}, or install "
    "Go 1.26 or later (https://go.dev/dl), with which it is built."
)


def etcd_program() -> Path:
    """The etcd of this machine, or the one that is built. Raises PeersMissing."""
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None or program_version(found) is None:
            raise PeersMissing(f"{VARIABLE}={named} is no etcd that runs here. {HOW_TO_GET_IT}")
        return Path(found)
    on_path = shutil.which("etcd")
    if on_path is not None and (program_version(on_path) or (0,)) >= OLDEST:
        return Path(on_path)
    return _built()


def program_version(program: str) -> tuple[int, ...] | None:
    """The version that a program prints as etcd does; None if it does not."""
    try:
        finished = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"^etcd Version: (\d+)\.(\d+)\.(\d+)", finished.stdout, re.MULTILINE)
    return tuple(map(int, found.groups())) if found and finished.returncode == 0 else None


def _built() -> Path:
    """The program of the module in `etcd/`; built unless this very module was built before."""
    if shutil.which("go") is None:
        raise PeersMissing(f"Not found: etcd and go. {HOW_TO_GET_IT}")
    files = [SOURCE / name for name in ("main.go", "go.mod", "go.sum")]
    wanted = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    directory = LIBS / "etcd"
    program, stamp = directory / "etcd", directory / ".complete"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs may start at once
        if not stamp.exists() or stamp.read_text() != wanted:
            click.echo("etcd: building it, which takes a minute or two the first time", err=True)
            _build(program)
            stamp.write_text(wanted)
    return program


def _build(program: Path) -> None:
    built = subprocess.run(
        ["go", "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(program), "."],
        cwd=SOURCE,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_SECONDS,
        check=False,
    )
    if built.returncode != 0:
        raise PeersMissing(f"etcd could not be built:\n{built.stdout}{built.stderr}")


class EtcdNode:
    """One member: its directory, its ports and, between `start` and `stop`, its process."""

    def __init__(
        self, name: str, directory: Path, scheme: str, client_port: int, peer_port: int
    ) -> None:
        self.name = name
        self.address = f"127.0.0.1:{client_port}"
        self.client_url = f"{scheme}://{self.address}"
        self.peer_url = f"http://127.0.0.1:{peer_port}"
        self.process: subprocess.Popen[bytes] | None = None
        self._directory = directory / name
        self._output = directory / f"{name}.out"

    def start(self, program: Path, cluster: str, options: Sequence[str]) -> None:
        """Start the process and do not wait until it serves."""
        command = [
            *(str(program), "--name", self.name, "--data-dir", str(self._directory)),
            *("--listen-client-urls", self.client_url, "--advertise-client-urls", self.client_url),
            *("--listen-peer-urls", self.peer_url),
            *("--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster", cluster, "--log-level", "warn", *options),
        ]
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def said(self) -> str:
        """The end of what it printed."""
        return self._output.read_text(errors="replace")[-4000:]

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """End the process as kill -9 does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """End the process in good order; kill it if that takes too long."""
        if self.process is not None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_TIMEOUT_SECONDS)
        self.kill()


class RealEtcd:
    """A cluster of etcd processes. As a context manager it is started, and gone in the end.

    `options` are etcd's own, the same for each node.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        nodes: int = 1,
        options: Sequence[str] = (),
        scheme: str = "http",
    ) -> None:
        self._program = etcd_program()
        self._temporary = None
        if data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(
                prefix="odradek-etcd-", ignore_cleanup_errors=True
            )
            data_dir = Path(self._temporary.name)
        self._data_dir = data_dir
        self._options = options
        self._scheme = scheme
        self.nodes = self._new_nodes(nodes)

    def _new_nodes(self, count: int) -> list[EtcdNode]:
        ports = free_ports(2 * count)  # all at once: no two nodes get the same
        return [
            EtcdNode(f"etcd{1 + index}", self._data_dir, self._scheme, client_port, peer_port)
            for index, (client_port, peer_port) in enumerate(
                zip(ports[::2], ports[1::2], strict=True)
            )
        ]

    @property
    def endpoints(self) -> list[str]:
        return [node.client_url for node in self.nodes]

    def start(self, node: EtcdNode) -> None:
        """Start one node and do not wait until it serves."""
        cluster = ",".join(f"{other.name}={other.peer_url}" for other in self.nodes)
        node.start(self._program, cluster, self._options)

    def wait_until_healthy(self) -> None:
        """Return when every node that was started reaches a leader. Raises DidNotStart."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        for node in self.nodes:
            while node.process is not None and not is_healthy(node.client_url):
                if node.process.poll() is not None or time.monotonic() > deadline:
                    raise DidNotStart(f"etcd did not start: {node.name}\n{node.said()}")
                time.sleep(0.05)  # between two questions, not for luck

    def close(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                node.send(signal.SIGCONT)
            node.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        try:
            self._start_on_ports_that_are_still_free()
        except BaseException:
            self.close()
            raise
        return self

    def _start_on_ports_that_are_still_free(self) -> None:
        for _ in range(2):
            try:
                return self._start_all()
            except DidNotStart as error:  # somebody else took the port meanwhile
                if "address already in use" not in str(error):
                    raise
                for node in self.nodes:
                    node.kill()
                    shutil.rmtree(self._data_dir / node.name, ignore_errors=True)
                self.nodes = self._new_nodes(len(self.nodes))
        self._start_all()

    def _start_all(self) -> None:
        for node in self.nodes:
            self.start(node)
        self.wait_until_healthy()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def is_healthy(url: str) -> bool:
    """Return True if a node answers a read, which needs a leader.

    A node that wants TLS or a password is taken for healthy when it answers at all.
    """
    body = json.dumps({"key": "AA==", "keys_only": True, "limit": "1"}).encode()
    try:
        with urllib.request.urlopen(f"{url}/v3/kv/range", data=body, timeout=2):
            return True
    except urllib.error.HTTPError:
        return False
    except urllib.error.URLError as error:
        return "SSL" in str(error.reason).upper()
    except OSError:
        return False


@click.command()
@click.option("--nodes", type=click.IntRange(1, 9), default=1, help="How many, of one cluster.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="An empty or new directory to keep; without it one that goes away.",
)
@click.option("--path", "only_path", is_flag=True, help="Print the program, and start nothing.")
def main(nodes: int, data_dir: Path | None, only_path: bool) -> None:
    """Run an etcd: find it (ODRADEK_ETCD, PATH) or build it, and print its endpoints."""
    try:
        if only_path:
            click.echo(etcd_program())
            return
        if data_dir is not None:
            data_dir.mkdir(parents=True, exist_ok=True)
            if any(data_dir.iterdir()):
                raise click.ClickException(f"{data_dir} is not empty: give a new directory.")
        with RealEtcd(data_dir, nodes=nodes) as etcd:
            click.echo(",".join(etcd.endpoints))
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            click.echo("Serving. Ctrl-C stops it.", err=True)
            signal.pause()
    except (PeersMissing, DidNotStart) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)


if __name__ == "__main__":
    main(prog_name="scripts/etcd")
