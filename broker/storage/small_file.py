"""Small files of one msgpack map behind its CRC-32C: `checkpoint`, `topic.meta` and others.

Such a file is written under another name, flushed and renamed, so that there is always a complete
one. Its map has a `version`.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

import msgpack
from crc32c import crc32c

from odradek.broker.environment.env import Disk, File
from odradek.broker.environment.work import Work, whole

VERSION: Final = 1
BESIDE: Final = ".tmp"
_CRC: Final = struct.Struct(">I")


def encode(content: Mapping[str, object]) -> bytes:
    return whole(encoded(content))


def encoded(content: Mapping[str, object]) -> Work[bytes]:
    """Return the bytes of a file. The items of a list are packed one by one."""
    assert "version" not in content, content["version"]
    packer = msgpack.Packer(autoreset=False)
    packer.pack_map_header(1 + len(content))
    for key, value in {"version": VERSION, **content}.items():
        packer.pack(key)
        if isinstance(value, list):
            packer.pack_array_header(len(value))
            for item in value:
                yield 1
                packer.pack(item)
        else:
            packer.pack(value)
    packed: bytes = packer.bytes()
    return _CRC.pack(crc32c(packed)) + packed


def decode(data: bytes | bytearray) -> dict[str, Any] | None:
    """Return the map in a file's bytes, None if it is damaged or of a newer version."""
    packed = memoryview(data)[_CRC.size :]
    if len(data) < _CRC.size or crc32c(packed) != _CRC.unpack_from(data)[0]:
        return None
    try:
        content: dict[str, Any] = msgpack.unpackb(packed)
    except ValueError:  # four zeros are the right CRC of nothing
        return None
    return content if content["version"] == VERSION else None


async def read_bytes(disk: Disk, path: str) -> bytes | bytearray | None:
    """Return the bytes of a file, None if there is none. Raises OSError."""
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return await file.pread(0, file.size)
    finally:
        file.close()


async def write_beside(disk: Disk, path: str, data: bytes) -> None:
    """Write and flush a file under another name. Raises OSError; the old one then stays."""
    file = _open_beside(disk, path)
    try:
        file.append(data)
        await file.fsync()
    finally:
        file.close()


def place_beside(disk: Disk, path: str, data: bytes) -> None:
    """Write a file under another name, without a flush. Raises OSError."""
    file = _open_beside(disk, path)
    try:
        file.append(data)
    finally:
        file.close()


def _open_beside(disk: Disk, path: str) -> File:
    if disk.exists(path + BESIDE):
        disk.remove(path + BESIDE)
    return disk.open(path + BESIDE)


async def move_into_place(disk: Disk, path: str) -> None:
    """Replace a file by the one that was written beside it, durably.

    Raises OSError. It is then unknown which of the two is there after a crash.
    """
    disk.rename(path + BESIDE, path)
    await disk.fsync_dir(path.rpartition("/")[0])
