"""The format of a data directory: the file `format.meta`.

It has one number. A broker and its commands read it before anything else in the directory, and
refuse a directory whose number is higher than theirs. A later version raises the number when an
earlier one would misread what it writes. Version 0.1.0 wrote format 1 without the file, so a
directory that has none gets it.

The content is msgpack behind a CRC-32C, as in `checkpoint`. It is the one file whose own form never
changes.

A directory that a command has not finished (`origin.py`) is refused in the same place.
"""

import contextlib
import logging
from typing import Final

from odradek.broker.environment.env import Disk
from odradek.broker.storage import small_file
from odradek.broker.storage.disk import read_only
from odradek.broker.storage.origin import ORIGIN, unfinished
from odradek.broker.storage.reserve import DISK_FULL

LOGGER: Final = logging.getLogger(__name__)
FORMAT: Final = 2
"""The newest format that this version reads."""
FIRST_FORMAT: Final = 1
"""The format of a directory in which nothing depends on a journal."""
JOURNAL_FORMAT: Final = 2
"""An earlier version would take its logs for whole after a power failure, without the journal. A
clean stop ends that (`note_no_journal`)."""
FILE: Final = "format.meta"


class UnknownFormat(Exception):
    """A data directory is of a newer or unknown format, or unfinished: a sentence for a person."""


async def claim_format(disk: Disk, directory: str) -> None:
    """Check the format of a data directory that a broker is to use, and note it if it is new.

    Raises `UnknownFormat`, OSError.
    """
    disk.mkdir(directory)
    origin = await small_file.read_bytes(disk, f"{directory}/{ORIGIN}")
    # invariant files 4: A directory that `odradek storage import` or `backup` has not finished is
    # used by no broker: what it lacks would look lost.
    # plant a broker starts on half of an import
    if origin is not None:
        _check_origin(directory, origin)
    path = f"{directory}/{FILE}"
    data = await small_file.read_bytes(disk, path)
    if data is not None:
        _check(path, data)
        return
    try:
        await _write_number(disk, directory, FIRST_FORMAT)
    except OSError as error:
        if error.errno not in DISK_FULL:  # what is there is served all the same
            raise
        LOGGER.warning("%s is to be written at the next start: %s", path, error)


async def note_journal(disk: Disk, directory: str) -> None:
    """Note that the directory has a journal, before the first one begins. Raises OSError."""
    # invariant journal 5: A version that does not know the journal refuses a directory whose logs
    # may need one: from before its first record until a clean stop has removed it.
    # plant an older version starts on a directory that has a journal
    # plant an older version starts on a directory whose journal may still count
    # plant an older version starts on a directory with kept files of the journal
    number = await _read_number(disk, directory)
    if number is None or number < JOURNAL_FORMAT:
        await _write_number(disk, directory, JOURNAL_FORMAT)


async def note_no_journal(disk: Disk, directory: str) -> None:
    """Note that the directory has no journal any more, and that no log needs one. Raises OSError.

    A version that does not know the journal may use the directory then.
    """
    if await _read_number(disk, directory) == JOURNAL_FORMAT:
        await _write_number(disk, directory, FIRST_FORMAT)


def check_format(directory: str) -> None:
    """Check the format of a data directory that a command reads.

    Raises `UnknownFormat`, OSError.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _check_origin(directory, bytes(read_only(f"{directory}/{ORIGIN}")))
    path = f"{directory}/{FILE}"
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _check(path, bytes(read_only(path)))


def encode_format(number: int) -> bytes:
    return small_file.encode({"format": number})


async def _read_number(disk: Disk, directory: str) -> int | None:
    """Return the number of the directory; None if there is none that can be read."""
    data = await small_file.read_bytes(disk, f"{directory}/{FILE}")
    content = None if data is None else small_file.decode(data)
    return None if content is None else content["format"]


async def _write_number(disk: Disk, directory: str, number: int) -> None:
    path = f"{directory}/{FILE}"
    await small_file.write_beside(disk, path, encode_format(number))
    await small_file.move_into_place(disk, path)


def _check_origin(directory: str, data: bytes | bytearray) -> None:
    reason = unfinished(directory, data)
    if reason is not None:
        raise UnknownFormat(reason)


def _check(path: str, data: bytes | bytearray) -> None:
    content = small_file.decode(data)
    if content is None:
        raise UnknownFormat(
            f"{path} is damaged, so the format of the data directory is not known: restore it from "
            "a backup, or remove it if no newer version of Odradek has used the directory."
        )
    number = content["format"]
    if number > FORMAT:
        raise UnknownFormat(
            f"{path} says that the data directory has format {number}, and this version of Odradek "
            f"reads formats up to {FORMAT}: use the version that wrote it, or a newer one."
        )
