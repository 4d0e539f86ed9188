"""The batches of open transactions that a consumer in commit order keeps until their markers.

They are kept in memory up to a bound. Above it the largest transactions are written to files, until
half of the bound is free. A file has no name: the operating system removes it when the process
ends, in whatever way. A file gets pieces until it has `FILE_BYTES`, and is closed when no piece of
it is needed any more. So one long transaction holds back at most its own files.

Reading and writing these files is not handed to a thread: they are in the page cache as a rule. A
piece has a checksum of its own, because a batch's CRC does not cover its offset.
"""

import tempfile
from collections.abc import Iterator
from os import PathLike
from typing import IO, Final

from crc32c import crc32c

from odradek.client.errors import Refused
from odradek.late import dataclass

FILE_BYTES: Final = 64 << 20
PIECE_BYTES: Final = 1 << 20
"""The size at which a piece is written. It has at least one batch."""


class SpoolFailed(Refused):
    """Batches could not be written to a file or read from it. They are fetched again."""


class _File:
    def __init__(self, directory: str | PathLike[str] | None) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(  # noqa: SIM115 - closed by the spool
            dir=directory, buffering=0
        )
        self.size_bytes = 0
        self.pieces = 0


@dataclass(frozen=True, slots=True)
class _Piece:
    file: _File
    position: int
    size_bytes: int
    checksum: int


class Kept:
    """The batches of one open transaction in one partition."""

    __slots__ = ("_pieces", "_recent", "_spool", "first_offset", "memory_bytes", "producer_epoch")

    def __init__(self, spool: "Spool", first_offset: int) -> None:
        self.first_offset = first_offset
        """The first offset that was not delivered."""
        self.producer_epoch = -1
        self.memory_bytes = 0
        self._spool = spool
        self._pieces: list[_Piece] = []
        self._recent: list[bytes] = []

    @property
    def is_empty(self) -> bool:
        """Return True if it has no batch."""
        return not self._pieces and not self._recent

    def add(self, batch: memoryview) -> None:
        """Keep a copy of a batch. Raises `SpoolFailed` if there is no room for it."""
        self._recent.append(bytes(batch))
        self.memory_bytes += len(batch)
        self._spool.note_added(self, len(batch))

    def read(self) -> Iterator[bytes]:
        """Yield the batches in order, several at a time, and free them. Raises `SpoolFailed`."""
        while self._pieces:
            yield self._spool.read(self._pieces[0])
            self._spool.free(self._pieces.pop(0))
        recent, self._recent = self._recent, []
        self._spool.memory_bytes -= self.memory_bytes
        self.memory_bytes = 0
        self._spool.forget(self)
        yield from recent

    def free(self) -> None:
        """Forget the batches."""
        for piece in self._pieces:
            self._spool.free(piece)
        self._spool.memory_bytes -= self.memory_bytes
        self._pieces, self._recent, self.memory_bytes = [], [], 0
        self._spool.forget(self)

    def spill(self) -> None:
        """Write what is in memory to files. Raises `SpoolFailed`; nothing is lost then."""
        while self._recent:
            count, size_bytes = 0, 0
            while count < len(self._recent) and size_bytes < PIECE_BYTES:
                size_bytes += len(self._recent[count])
                count += 1
            self._pieces.append(self._spool.write(b"".join(self._recent[:count])))
            del self._recent[:count]
            self.memory_bytes -= size_bytes
            self._spool.memory_bytes -= size_bytes


class Spool:
    """The memory and the files of one consumer."""

    def __init__(self, memory_max_bytes: int, directory: str | PathLike[str] | None) -> None:
        self.memory_bytes = 0
        self._memory_max_bytes = memory_max_bytes
        self._directory = directory
        self._in_memory: dict[Kept, None] = {}
        self._files: dict[_File, None] = {}
        self._current: _File | None = None

    @property
    def file_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self._files)

    def note_added(self, kept: Kept, size_bytes: int) -> None:
        """Count a batch, and write the largest transactions to files above the bound."""
        self._in_memory[kept] = None
        self.memory_bytes += size_bytes
        if self.memory_bytes <= self._memory_max_bytes:
            return
        for largest in sorted(self._in_memory, key=lambda kept: -kept.memory_bytes):
            largest.spill()
            del self._in_memory[largest]
            if self.memory_bytes <= self._memory_max_bytes // 2:
                return

    def forget(self, kept: Kept) -> None:
        """Forget a transaction, of which nothing is in memory any more."""
        self._in_memory.pop(kept, None)

    def write(self, batches: bytes) -> _Piece:
        """Write a piece. Raises `SpoolFailed`."""
        try:
            if self._current is None or self._current.size_bytes >= FILE_BYTES:
                self._current = _File(self._directory)
                self._files[self._current] = None
            file = self._current
            file.file.seek(file.size_bytes)
            written = 0
            while written < len(batches):
                written += file.file.write(memoryview(batches)[written:])
        except OSError as error:
            raise SpoolFailed(
                f"open transactions need more than transaction_buffer_bytes "
                f"({self._memory_max_bytes}), and cannot be written to a file in "
                f"{self._place}: {error}; free room there, or give the consumer another "
                f"spill_directory or a larger transaction_buffer_bytes; nothing is lost: they are "
                f"fetched again"
            ) from error
        piece = _Piece(file, file.size_bytes, len(batches), crc32c(batches))
        file.size_bytes += len(batches)
        file.pieces += 1
        return piece

    def read(self, piece: _Piece) -> bytes:
        """Return the batches of a piece. Raises `SpoolFailed`."""
        try:
            piece.file.file.seek(piece.position)
            found = bytearray()
            while len(found) < piece.size_bytes:
                more = piece.file.file.read(piece.size_bytes - len(found))
                if not more:
                    break
                found += more
        except OSError as error:
            raise self._damaged(error) from error
        # invariant commit-order 2: What cannot be kept is fetched again, from the progress on.
        # plant a damaged file of open transactions is read as it is
        if len(found) < piece.size_bytes or crc32c(found) != piece.checksum:
            raise self._damaged("its contents have changed")
        return bytes(found)

    def _damaged(self, why: object) -> SpoolFailed:
        return SpoolFailed(
            f"the file in {self._place} that keeps open transactions cannot be read: {why}; "
            f"nothing is lost: they are fetched again"
        )

    @property
    def _place(self) -> str:
        return str(self._directory or tempfile.gettempdir())

    def free(self, piece: _Piece) -> None:
        """Forget a piece. The file of the last one is closed, which removes it."""
        file = piece.file
        file.pieces -= 1
        if not file.pieces:
            if file is self._current:
                self._current = None
            self._files.pop(file, None)
            file.file.close()

    def close(self) -> None:
        """Close all files, which removes them."""
        for file in self._files:
            file.file.close()
        self._files = {}
        self._current = None
