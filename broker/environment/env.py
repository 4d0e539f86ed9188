"""The environment of a broker: clock, network, disk, randomness, metadata store.

The rest of the broker reaches the machine through these calls only, so that a whole cluster can run
in one process on a simulated network, disk and clock. Structure (nurseries, events, sleeping,
timeouts) is plain trio: its clock is replaced under simulation.
"""

import errno
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeVar

from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.plain_produce import IN_PYTHON, PlainSteps

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of a call that did nothing, because the process or the machine has too many files open."""
FsyncEnded = Callable[[BaseException | None], None]
"""A function that is called at the end of an fsync, with the error if there was one."""


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Return milliseconds since 1970: for timestamps and retention, never for time-outs."""


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
        """Make a shorter file `size` bytes long, with room on the disk for all of it.

        Raises OSError.
        """

    async def pread(self, offset: int, size: int) -> bytes | bytearray:
        """Read up to `size` bytes, fewer only at the end of the file, into memory of their own."""

    async def pread_once(self, offset: int, size: int) -> bytes | bytearray:
        """Read as `pread` does, without leaving the file in the page cache."""

    async def truncate(self, size: int) -> None: ...

    async def fsync(self) -> None:
        """Return when everything written before the call is on disk (fdatasync)."""

    def start_fsync(self, done: FsyncEnded) -> None:
        """Start what `fsync` waits for, without a task.

        At its end `done` is called once, in the loop. Raises OSError if it cannot even be started;
        then `done` is not called.
        """

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class DiskUsage(NamedTuple):
    """The disk of a directory, whose absolute path is `path`."""

    path: str
    total_bytes: int
    free_bytes: int


class Disk(Protocol):
    """A directory tree. A path is absolute or relative to the process, with `/`."""

    def open(self, path: str, *, is_private: bool = False) -> File:
        """Open a file for reading and writing; create it if it does not exist.

        `is_private`: only the user of this process may read it, also if it was there before.
        """

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Return the size of a file in bytes, without opening it."""

    def modified_ms(self, path: str) -> int:
        """Return when a file was written last, in milliseconds since 1970."""

    def set_modified_ms(self, path: str, moment_ms: int) -> None:
        """Set the time at which a file was written last."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def mkdir(self, path: str) -> None:
        """Create a directory and its parents; no error if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Rename `source` to `target`, and replace a file of that name."""

    def link(self, source: str, target: str) -> None:
        """Link a file under a second name. Raises OSError, also if the file system has no links."""

    def remove(self, path: str) -> None: ...

    async def rmtree(self, path: str) -> None:
        """Remove a directory and all in it, or a file so large that removing it takes long."""

    async def fsync_dir(self, path: str) -> None:
        """Return when creations, renamings and removals in a directory are on disk.

        Waits while no file descriptor is left. Raises OSError.
        """

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock that the operating system ends with the process.

        Raises BlockingIOError if another process has it.
        """

    def free_bytes(self, path: str) -> int: ...

    def usage(self, path: str) -> DiskUsage:
        """Return the size of the disk that has a directory, and what is free there."""

    def boot_id(self) -> str | None:
        """Return the id of the time since the system was started; None if the system has none.

        As long as it is the same, everything that was ever written is still in the files.
        """


class HandshakeFailed(Exception):
    """No TLS with the other side: the end of a sentence that begins with who it is."""


def nothing_noted() -> None:
    """Do nothing: the progress of a handshake is of no interest."""


class OtherEnd(Enum):
    """The state of the other side of a connection, as far as it is known."""

    IS_THERE = "is there"
    HAS_ENDED = "has ended"
    """It sends no more. It may have gone, or it may still read (a half-close)."""
    HAS_GONE = "has gone"
    """The connection was reset: nothing reaches it any more."""


Take = Callable[[memoryview], tuple[int, bool]]
"""Takes whole frames from the beginning of what has arrived, and returns the number of their bytes.

The second result is True if the rest is a part of a frame that it would take, too. The bytes may be
changed, and are the caller's again after the `end_turn` that follows."""


class Connection(Protocol):
    """A byte stream to one peer."""

    @property
    def peer(self) -> str:
        """`host:port` of the other side."""

    @property
    def is_local(self) -> bool:
        """True if the other side is on this machine."""

    @property
    def other_end(self) -> OtherEnd:
        """Seen without reading: bytes that have arrived stay where they are."""

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate that the other side has shown in the handshake, in DER."""

    async def handshake(self, note_progress: Callable[[], None] = nothing_noted) -> None:
        """Agree on TLS, if the listener has it; otherwise do nothing. Call it before anything else.

        `note_progress` is called after each step that the client cannot take with a single byte.
        Raises `HandshakeFailed`, and trio.BrokenResourceError if the client goes without a byte.
        """

    async def receive_into(self, buffer: memoryview) -> int:
        """Receive up to len(buffer) bytes and return their number; 0 at the end.

        Raises trio.BrokenResourceError on a reset.
        """

    async def receive_untaken(self, take: Take, max_bytes: int) -> bytearray:
        """Wait, while `take` is given what arrives. Return what it does not take; empty at the end.

        That is at most `max_bytes`. Frames that are taken cost no task: many connections are served
        in one turn, which the listener's `end_turn` ends. Raises trio.BrokenResourceError on a
        reset.
        """

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        """Send all parts in order, without joining them first."""

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        """Send what can be sent without waiting, and return the rest. Raises as `send_all`."""

    async def aclose(self) -> None: ...


Bound = Callable[[str, int, Callable[[], None]], None]
"""Called with the host and port of a listener, and a function that opens it.

Connections are refused until that is called. It raises OSError."""


TlsContext = Callable[[], ssl.SSLContext]
"""Returns the context for the next connection: the certificate may be another one by then."""


class Network(Protocol):
    async def connect(self, host: str, port: int, *, tls: TlsContext | None = None) -> Connection:
        """Open a connection. With `tls`, call `Connection.handshake` next. Raises OSError."""

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
        """Serve until cancelled; each connection gets its own task. Port 0 picks one.

        `started` is called once, when the port is taken. `end_turn` is called after the frames of
        some connections were taken (`Connection.receive_untaken`), before anything else happens.
        With `tls`, the handler begins with `Connection.handshake`. Raises OSError.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Versioned:
    """A value of the metadata store, with the revisions that created and last changed its key."""

    value: bytes
    create_revision: int
    mod_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """A condition of a transaction; a revision of 0 means that the key is not there."""

    key: str
    mod_revision: int | None = None
    create_revision: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All changes that one revision made to the watched keys; None for a deleted key.

    An item without keys is a progress notice: the watch has returned every change up to `revision`.
    """

    revision: int
    values: Mapping[str, Versioned | None]


class StoreUnreachable(KafkaError):
    """The metadata store cannot be reached. Certainly nothing was written."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, message)


class OutcomeUnknown(KafkaError):
    """The answer to a transaction was lost. It was applied, or not, or may be applied later."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class Unreadable(KafkaError):
    """A value in the metadata store is none that a broker writes: damaged, or of another program.

    What it was before still counts where that is known.
    """

    def __init__(self, key: str, why: object) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The metadata store has a value of {key[:300]} that this broker cannot read "
            f"({str(why)[:200] or 'it is not msgpack'}). Another program has written it, or it is "
            "damaged: restore or delete the key.",
        )


class LeaseExpired(Exception):
    """The lease is not known to the metadata store. The keys attached to it are deleted."""


class Compacted(Exception):
    """The metadata store has forgotten the changes that a watch begins with: list the keys anew."""


NO_PUTS: Final[Mapping[str, bytes | None]] = MappingProxyType({})


class MetaStore(Protocol):
    """Small, strongly consistent key-value store with revisions, leases and watches, as etcd's.

    Every call raises `StoreUnreachable` if the store cannot be reached. `guarded_write.py` has the
    transaction that ends with a known outcome.
    """

    @property
    def max_operations(self) -> int | None:
        """The largest number of `compares`, and of `puts`, in a transaction; None if any."""

    async def range(self, prefix: str) -> tuple[dict[str, Versioned], int]:
        """Return every key that starts with `prefix`, in order, and the store's revision."""

    async def txn(
        self,
        compares: Sequence[Compare],
        puts: Mapping[str, bytes | None],
        *,
        lease: int | None = None,
        lasting: Mapping[str, bytes | None] = NO_PUTS,
    ) -> tuple[bool, int]:
        """Apply `puts` and `lasting` if all `compares` hold. Return True if so, and the revision.

        It is durable on return. A value of None deletes. The keys of `puts` are attached to
        `lease`; without one, and always for those of `lasting`, they are detached from the lease
        that they had. Raises `OutcomeUnknown`, `LeaseExpired`,
        and KafkaError if the store refuses or its disk failed: then nothing was written.
        """

    async def grant_lease(self, ttl_s: int) -> int:
        """Return a new lease. Its keys are deleted when it was not kept for `ttl_s`, or later."""

    async def keep_lease(self, lease: int) -> int:
        """Renew a lease. Return the store's revision, which shows a watch that is silent.

        Raises `LeaseExpired`.
        """

    async def show_progress(self) -> None:
        """Cause a progress notice of each watch that is well. A failure is logged."""

    async def revoke_lease(self, lease: int) -> None:
        """End a lease now, and delete its keys. A lease that has expired is no error."""

    def watch(
        self, prefix: str, from_revision: int
    ) -> AbstractAsyncContextManager[AsyncIterator[Changes]]:
        """Watch every key that starts with `prefix`, from a revision on.

        The iterator has one item for each revision that changes such a key, in order. It begins
        with a progress notice if nothing has changed since. It raises `Compacted`, and
        `StoreUnreachable` when the connection is lost: then watch again from the revision after the
        last item. After a cancelled `anext` it cannot be used any more. A watch can also become
        silent without an error. Replace it when `keep_lease` shows a revision that it does not
        reach, after `show_progress` neither.
        """


def check_operations(
    compares: Sequence[Compare], puts: Mapping[str, bytes | None], most: int | None
) -> None:
    """Check a transaction against `MetaStore.max_operations`: its caller must split it."""
    count = max(len(compares), len(puts))
    assert most is None or count <= most, f"{count} operations in a transaction; {most} at most"


class Offload(Protocol):
    """Runs a pure function that takes long: in a thread, or inline under simulation."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


async def inline(function: Callable[[], T]) -> T:
    """Run a function where it is called."""
    return function()


def _went_on(_point: str) -> None:
    """Do nothing at a fault point: the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Env:
    clock: Clock
    net: Network
    disk: Disk
    meta: MetaStore
    rng: random.Random
    offload: Offload
    plain_steps: PlainSteps = IN_PYTHON
    """The steps of the lane. They are in C where that is installed (`compiled.py`)."""
    reached: Callable[[str], None] = _went_on
    """Called with the name of a fault point: a place where a test may kill the broker."""
