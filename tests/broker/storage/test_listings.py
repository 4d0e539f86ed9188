"""The names of a directory that are read once: they are always those of the disk."""

import random

import pytest

from odradek.broker.storage.reserve import ReservedDisk
from tests.fakes.disk import FakeDisk

NAMES = ("00.log", "00.index", "checkpoint", "checkpoint.tmp")
KEPT, OTHER = "/data/t-0", "/data/t-1"


def a_disk() -> tuple[FakeDisk, ReservedDisk]:
    real = FakeDisk()
    for directory in (KEPT, OTHER):
        real.mkdir(directory)
    return real, ReservedDisk(real, "/data")


def test_the_names_of_a_directory_are_read_once() -> None:
    real, disk = a_disk()
    disk.open(f"{KEPT}/00.log").close()
    real.counts.clear()
    with disk.keep_names(KEPT):
        for _ in range(3):
            assert disk.listdir(KEPT) == ["00.log"]
            assert disk.exists(f"{KEPT}/00.log")
            assert not disk.exists(f"{KEPT}/checkpoint")
            assert disk.exists(KEPT)
            disk.mkdir(KEPT)
        disk.open(f"{KEPT}/00.log").close()
        assert disk.exists(f"{KEPT}/00.log")
    assert real.counts == {"listdir": 1, "open": 1}
    assert disk.exists(f"{KEPT}/00.log")
    assert real.counts["exists"] == 1


async def test_a_directory_that_is_not_there_is_as_without_reading_its_names() -> None:
    _, disk = a_disk()
    with disk.keep_names(KEPT):
        assert disk.listdir(KEPT) == []
        await disk.rmtree(KEPT)
        assert not disk.exists(KEPT)
        assert not disk.exists(f"{KEPT}/checkpoint")
        with pytest.raises(FileNotFoundError):
            disk.listdir(KEPT)
        disk.mkdir(KEPT)
        assert disk.exists(KEPT)
        disk.rename(KEPT, f"{KEPT}.set-aside")
        assert not disk.exists(KEPT)
    disk.open("/data/t-2").close()
    with disk.keep_names("/data/t-2"), pytest.raises(NotADirectoryError):
        disk.listdir("/data/t-2")


async def change_something(disk: ReservedDisk, rng: random.Random) -> None:
    """Change names in one of the directories, in one of the ways that there are."""
    directory = rng.choice((KEPT, KEPT, OTHER))
    path, target = (f"{directory}/{rng.choice(NAMES)}" for _ in range(2))
    if not disk.exists(path):
        disk.open(path).close()
        return
    match rng.randrange(4):
        case 0:
            disk.remove(path)
        case 1 if path != target:
            disk.rename(path, target)
        case 2 if not disk.exists(target):
            disk.link(path, target)
        case _:
            await disk.rmtree(path)


@pytest.mark.parametrize("seed", range(5))
async def test_names_that_are_kept_are_those_of_the_disk_after_any_change(seed: int) -> None:
    rng = random.Random(seed)
    real, disk = a_disk()
    with disk.keep_names(KEPT), disk.keep_names(KEPT):
        for _ in range(200):
            await change_something(disk, rng)
            assert disk.listdir(KEPT) == real.listdir(KEPT)
            for name in NAMES:
                assert disk.exists(f"{KEPT}/{name}") == real.exists(f"{KEPT}/{name}"), name
