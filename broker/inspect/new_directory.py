"""The data directory that an import or a backup makes: it is new or empty, and there is room."""

import contextlib
import os.path
from typing import Final

import click

from odradek.broker.inspect.progress import in_bytes
from odradek.broker.inspect.refusal import CannotCopy
from odradek.broker.storage.disk import SystemDisk
from odradek.broker.storage.files import parent_of
from odradek.broker.storage.origin import ORIGIN, DirectoryOrigin, read_origin, write_origin

HARMLESS: Final = frozenset({".lock", "lost+found"})
"""What an empty data directory may have."""
SPARE_BYTES: Final = 64 * 1024 * 1024
"""Room for indexes and for what a broker needs to start."""
SHOWN: Final = 5


def check_is_new(target: str) -> None:
    """Raise ClickException if a directory has anything but the start of an unfinished copy."""
    names = set(SystemDisk().listdir(target)) if os.path.isdir(target) else set()
    if ORIGIN not in names and names - HARMLESS:
        raise click.ClickException(
            f"{target} is not empty: it has {', '.join(sorted(names - HARMLESS)[:SHOWN])}. Give a "
            "new or an empty directory."
        )


def check_is_outside(target: str, source: str) -> None:
    """Raise `CannotCopy` if a directory is in the one that is copied into it."""
    if f"{os.path.realpath(target)}/".startswith(f"{os.path.realpath(source)}/"):
        raise CannotCopy([f"{target} is inside of {source}: give another directory."])


def check_room(target: str, size_bytes: int) -> None:
    """Say how much is to be copied. Raises `CannotCopy` if there is no room for it."""
    existing = target
    while not os.path.isdir(existing):
        existing = parent_of(existing)
    disk = SystemDisk()
    free = disk.free_bytes(existing)
    needed = max(size_bytes - disk.tree_bytes(target), 0) + SPARE_BYTES
    if needed > free:
        raise CannotCopy(
            [
                f"{existing} has {in_bytes(free)} free, and {in_bytes(needed)} are needed: make "
                "room, or give a directory on another disk."
            ]
        )
    click.echo(f"To copy: {in_bytes(size_bytes)}. Free there: {in_bytes(free)}.")


async def begin(disk: SystemDisk, target: str, origin: DirectoryOrigin) -> None:
    """Note that a directory is unfinished. What an earlier run has copied stays if it is the same.

    The directory is locked. Raises `CannotCopy` if it is complete, OSError.
    """
    earlier = await read_origin(disk, target)
    # invariant files 7: Only half of a copy is replaced by the next one.
    # plant a whole backup is taken for half of one by the next
    if disk.exists(f"{target}/{ORIGIN}") and (earlier is None or earlier.is_complete):
        made = "" if earlier is None else f": `{earlier.command}` has made it"
        raise CannotCopy([f"{target} is not empty{made}. Give a new or an empty directory."])
    if earlier is not None and earlier.fingerprint != origin.fingerprint:
        for name in disk.listdir(target):
            if name not in {*HARMLESS, ORIGIN}:
                await disk.rmtree(f"{target}/{name}")
    await write_origin(disk, target, origin)
    with contextlib.suppress(PermissionError):  # then it existed before
        await disk.fsync_dir(parent_of(target))
