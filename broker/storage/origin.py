"""The origin of a data directory that a command has made: the file `origin.meta`.

`odradek storage import` and `odradek storage backup` write it before anything else, unfinished, and
again in the end. A broker and its commands refuse a directory that is unfinished: it lacks a part,
and what it lacks would look lost. The command itself finds here how far it has come.
"""

from typing import Final

from odradek.broker.environment.env import Disk
from odradek.broker.storage import small_file
from odradek.late import dataclass

ORIGIN: Final = "origin.meta"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryOrigin:
    """The source of the contents of a data directory."""

    command: str
    """The command that made it, for a person to repeat."""
    source: str
    fingerprint: str
    """What the source was when it was read; another one if it has changed since."""
    is_complete: bool
    at_ms: int


def encode_origin(origin: DirectoryOrigin) -> bytes:
    return small_file.encode(
        {
            "command": origin.command,
            "source": origin.source,
            "fingerprint": origin.fingerprint,
            "complete": origin.is_complete,
            "at_ms": origin.at_ms,
        }
    )


def decode_origin(data: bytes | bytearray) -> DirectoryOrigin | None:
    """Return the origin in a file's bytes; None if it is damaged or of a newer version."""
    content = small_file.decode(data)
    if content is None:
        return None
    return DirectoryOrigin(
        command=content["command"],
        source=content["source"],
        fingerprint=content["fingerprint"],
        is_complete=content["complete"],
        at_ms=content["at_ms"],
    )


async def read_origin(disk: Disk, directory: str) -> DirectoryOrigin | None:
    """Return the origin of a data directory; None if it has none, or a damaged one.

    Raises OSError.
    """
    data = await small_file.read_bytes(disk, f"{directory}/{ORIGIN}")
    return None if data is None else decode_origin(data)


async def write_origin(disk: Disk, directory: str, origin: DirectoryOrigin) -> None:
    """Write the file, durably. Raises OSError."""
    path = f"{directory}/{ORIGIN}"
    await small_file.write_beside(disk, path, encode_origin(origin))
    await small_file.move_into_place(disk, path)


def unfinished(directory: str, data: bytes | bytearray) -> str | None:
    """Return why a directory with this file cannot be used; None if it can."""
    origin = decode_origin(data)
    if origin is None:
        return (
            f"{directory}/{ORIGIN} is damaged, so it is not known if the command that made the "
            "directory has ended: remove the file if it has."
        )
    if origin.is_complete:
        return None
    return (
        f"{directory} is unfinished: `{origin.command}` was interrupted, and what is there is not "
        "all. Run that command again, or remove the directory."
    )
