"""Logs that are lost: the directory of a partition is gone, or has no segment any more.

Somebody removed it, a disk is not mounted, or a backup was restored in part. It looks like the
directory of a log that is not made yet, so the broker notes which logs it has made
(`cluster/made_logs.py`) and asks here if they are there.

A person who has given up a lost log says so with a file in its directory (`give_up`). The broker
then makes the log anew, empty, if the partition has no other replica.
"""

import contextlib
from typing import Final

from odradek.broker.environment.env import Disk
from odradek.broker.storage.checkpoint import read_checkpoint
from odradek.broker.storage.files import LOG, offsets_in, parent_of

GIVEN_UP: Final = "given-up"
"""An empty file: the log that was in this directory is lost, and may begin anew."""
SET_ASIDE: Final = ".set-aside"
ASIDE_MAX_CHARACTERS: Final = 200
"""Characters of a directory's name that are kept when it is set aside: a name has at most 255."""


async def has_log(disk: Disk, directory: str) -> bool:
    """Return True if a directory has a log. Raises OSError.

    Every log has a segment, unless a crash has interrupted a cut that removes all of them
    (`cut.py`).
    """
    try:
        names = disk.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if offsets_in(names, LOG):
        return True
    checkpoint = await read_checkpoint(disk, directory)
    return checkpoint is not None and checkpoint.is_cut


async def give_up(disk: Disk, directory: str) -> str | None:
    """Allow the broker to make a lost log anew, durably. Raises OSError.

    What is left in its directory is moved away. Return the path that it has then, if there is any.
    """
    assert not await has_log(disk, directory), directory
    aside = None
    with contextlib.suppress(FileNotFoundError):
        if set(disk.listdir(directory)) - {GIVEN_UP}:
            aside = set_aside(disk, directory)
    disk.mkdir(directory)
    disk.open(f"{directory}/{GIVEN_UP}").close()
    await disk.fsync_dir(directory)
    await disk.fsync_dir(parent_of(directory))
    return aside


def is_given_up(disk: Disk, directory: str) -> bool:
    return disk.exists(f"{directory}/{GIVEN_UP}")


async def forget_given_up(disk: Disk, directory: str) -> None:
    """Remove the permission once the log has begun anew, durably. Raises OSError."""
    if is_given_up(disk, directory):
        await disk.fsync_dir(directory)  # the new segment first
        disk.remove(f"{directory}/{GIVEN_UP}")


def aside_name(name: str, number: int) -> str:
    """Return the name for a directory that is set aside. No partition's directory ends so."""
    repeated = "" if number == 1 else f".{number}"
    return f"{name[:ASIDE_MAX_CHARACTERS]}{repeated}{SET_ASIDE}"


def set_aside(disk: Disk, directory: str) -> str:
    """Rename the directory of a partition, and return its new path. Raises OSError."""
    parent, _, name = directory.rpartition("/")
    number = 1
    while disk.exists(f"{parent}/{aside_name(name, number)}"):
        number += 1
    aside = f"{parent}/{aside_name(name, number)}"
    disk.rename(directory, aside)
    return aside
