"""What a broker notes in its data directory for the next start: the file `last-run`.

The boot id of the system tells the next start whether the system was started anew meanwhile, which
decides how torn a log may be (`recovery.py`). It is on disk before anything is appended under it.
An unknown boot id, ours or the noted one, counts as a new start. That is the safe side: an ordinary
power failure is never taken for damage, and what is cut off then is kept in files beside.

The partitions that were found damaged are noted too. A later start reads all of their logs, and
judges them as if the broker had been killed: neither a clean stop nor a new start of the system may
turn damage into something that a crash explains.

The content is msgpack behind a CRC-32C, as that of `checkpoint`.
"""

import struct
from dataclasses import dataclass
from typing import Any, Final

import msgpack
from crc32c import crc32c

from odradek.broker.env import Disk

LAST_RUN: Final = "last-run"
BESIDE: Final = "last-run.tmp"
VERSION: Final = 1
_CRC: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """`damaged` has the names of the partitions' directories."""

    boot_id: str | None = None
    damaged: frozenset[str] = frozenset()


async def read_last_run(disk: Disk, directory: str) -> LastRun:
    """Return what is noted, nothing if the file is missing or damaged. Raises OSError."""
    path = f"{directory}/{LAST_RUN}"
    if not disk.exists(path):
        return LastRun()
    file = disk.open(path)
    try:
        data = memoryview(await file.pread(0, file.size))
    finally:
        file.close()
    if len(data) < _CRC.size or crc32c(data[_CRC.size :]) != _CRC.unpack_from(data)[0]:
        return LastRun()
    content: dict[str, Any] = msgpack.unpackb(data[_CRC.size :])
    if content["version"] != VERSION:
        return LastRun()
    return LastRun(boot_id=content["boot_id"], damaged=frozenset(content["damaged"]))


async def write_last_run(disk: Disk, directory: str, run: LastRun) -> None:
    """Note it, on disk on return. Raises OSError."""
    content: bytes = msgpack.packb(
        {"version": VERSION, "boot_id": run.boot_id, "damaged": sorted(run.damaged)}
    )
    beside = f"{directory}/{BESIDE}"
    if disk.exists(beside):
        disk.remove(beside)
    file = disk.open(beside)
    try:
        file.append(_CRC.pack(crc32c(content)) + content)
        await file.fsync()
    finally:
        file.close()
    disk.rename(beside, f"{directory}/{LAST_RUN}")
    await disk.fsync_dir(directory)
