"""What a broker needs from outside: clock, network, disk, randomness, metadata store.

Everything else in the broker is ordinary code over these few calls, so that a whole cluster can run
in one process on a simulated network, disk and clock. Structure (nurseries, events, sleeping,
timeouts) is plain trio: its clock is replaced under simulation.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970: for timestamps of records and retention, never for timeouts."""


class File(Protocol):
    """An open file. Appending is a page-cache write and takes microseconds; the rest may wait."""

    @property
    def size(self) -> int: ...

    def append(self, *buffers: Buffer) -> int:
        """Write all of them at the end and return the offset where they start.

        Raises OSError; then none of the bytes count: the size is what it was.
        """

    def write_at(self, offset: int, data: Buffer) -> None: ...

    def allocate(self, size: int) -> None:
        """Make an empty file `size` bytes long, with room on the disk for all of it.

        Raises OSError.
        """

    async def pread(self, offset: int, size: int) -> bytes | bytearray:
        """Up to `size` bytes, fewer only at the end of the file; the caller's alone."""

    async def pread_once(self, offset: int, size: int) -> bytes | bytearray:
        """As `pread`, but what was not in memory before does not stay there."""

    async def truncate(self, size: int) -> None: ...

    async def fsync(self) -> None:
        """Return when everything written before the call is on disk (fdatasync)."""

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """A directory tree. A path is absolute or relative to the process, with `/`."""

    def open(self, path: str) -> File:
        """Open for reading and writing, made if it is not there."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Bytes in a file, without opening it."""

    def listdir(self, path: str) -> list[str]:
        """Names, sorted."""

    def mkdir(self, path: str) -> None:
        """Parents too; no error if it is there."""

    def rename(self, source: str, target: str) -> None:
        """Give `source` the name `target`; what had that name before is gone."""

    def remove(self, path: str) -> None: ...

    async def rmtree(self, path: str) -> None:
        """Remove a directory and all in it, or a file so large that removing it takes long."""

    async def fsync_dir(self, path: str) -> None:
        """Return when the names in a directory are on disk: what was made, renamed, removed."""

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock that the operating system ends with the process.

        Raises BlockingIOError if another process has it.
        """

    def free_bytes(self, path: str) -> int: ...

    def boot_id(self) -> str | None:
        """What names the time since the system was started; None if it does not say.

        As long as it is the same, everything that was ever written is still in the files.
        """


class OtherEnd(Enum):
    """What is known of the other side of a connection."""

    IS_THERE = "is there"
    HAS_ENDED = "has ended"
    """It sends no more. It may have gone, or it may still read (a half-close)."""
    HAS_GONE = "has gone"
    """The connection was reset: nothing reaches it any more."""


class Connection(Protocol):
    """A byte stream to one peer."""

    @property
    def peer(self) -> str:
        """`host:port` of the other side."""

    @property
    def other_end(self) -> OtherEnd:
        """Seen without reading: bytes that have arrived stay where they are."""

    async def receive_into(self, buffer: memoryview) -> int:
        """Up to len(buffer) bytes; 0 at the end. Raises trio.BrokenResourceError on a reset."""

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        """All of them, gathered, without joining them first."""

    async def aclose(self) -> None: ...


class Network(Protocol):
    async def connect(self, host: str, port: int) -> Connection: ...

    async def listen(
        self,
        host: str,
        port: int,
        handler: Callable[[Connection], Awaitable[None]],
        *,
        started: Callable[[str, int], None],
    ) -> None:
        """Serve until cancelled; each connection gets its own task. Port 0 picks one.

        `started` is called once with the host and port that are listened on.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Versioned:
    """A value of the metadata store: when the key was made and last changed."""

    value: bytes
    create_revision: int
    mod_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """A condition of a transaction; a revision of 0 means that the key is not there."""

    key: str
    mod_revision: int | None = None
    create_revision: int | None = None


class MetaStore(Protocol):
    """Small, strongly consistent key-value store with revisions, as etcd's.

    `puts` of None delete. Leases and watches come with the cluster.
    """

    async def range(self, prefix: str) -> tuple[dict[str, Versioned], int]:
        """Every key that starts with `prefix`, in order, and the store's revision."""

    async def txn(
        self, compares: Sequence[Compare], puts: dict[str, bytes | None]
    ) -> tuple[bool, int]:
        """Apply `puts` if all `compares` hold; whether they did, and the revision afterwards.

        Durable when it returns.
        """


class Offload(Protocol):
    """Runs a pure function that takes long: in a thread, or inline under simulation."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


async def inline(function: Callable[[], T]) -> T:
    """Run a function where it is called."""
    return function()


def _went_on(_point: str) -> None:
    """Nothing happens at a fault point unless somebody asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Env:
    clock: Clock
    net: Network
    disk: Disk
    meta: MetaStore
    rng: random.Random
    offload: Offload
    reached: Callable[[str], None] = _went_on
    """Called with the name of a fault point: a place where a test may want the broker to die."""
