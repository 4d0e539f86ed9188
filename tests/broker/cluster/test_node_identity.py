"""A data directory is used by the broker that it belongs to, and by no other."""

import random

import pytest

from odradek.broker.cluster.node_identity import WrongDirectory, check_alone, claim_directory
from odradek.broker.cluster.store_embedded import EmbeddedStore
from tests.fakes.disk import FakeDisk, PowerOff


async def claim(disk: FakeDisk, *, cluster_id: str = "c", node_id: int = 1) -> str:
    rng = random.Random(node_id)
    return await claim_directory(disk, "/data", cluster_id=cluster_id, node_id=node_id, rng=rng)


async def test_a_directory_keeps_its_id() -> None:
    disk = FakeDisk()
    first = await claim(disk)
    disk.crash()
    assert await claim(disk) == first


@pytest.mark.parametrize(
    ("other", "word"), [({"cluster_id": "d"}, "cluster"), ({"node_id": 2}, "node.id")]
)
async def test_a_directory_of_another_broker_is_refused(other: dict[str, str], word: str) -> None:
    disk = FakeDisk()
    await claim(disk)
    with pytest.raises(WrongDirectory, match=word):
        await claim(disk, **other)  # type: ignore[arg-type]


async def test_a_broker_alone_and_one_of_a_cluster_do_not_take_each_others_directory() -> None:
    disk = FakeDisk()
    (await EmbeddedStore.open(disk, "/data")).close()
    with pytest.raises(WrongDirectory, match=r"cluster\.meta"):
        await claim(disk)
    disk = FakeDisk()
    check_alone(disk, "/data")
    await claim(disk)
    with pytest.raises(WrongDirectory, match=r"etcd\.endpoints"):
        check_alone(disk, "/data")


async def test_a_damaged_identity_is_refused() -> None:
    disk = FakeDisk()
    await claim(disk)
    disk.damage("/data/node.meta", 9)
    with pytest.raises(WrongDirectory, match="damaged"):
        await claim(disk)


async def test_an_identity_of_four_zeros_is_damaged() -> None:
    """They are the right checksum of nothing, and the broker ended with a traceback."""
    disk = FakeDisk()
    disk.mkdir("/data")
    disk.open("/data/node.meta").append(bytes(4))
    with pytest.raises(WrongDirectory, match="damaged"):
        await claim(disk)


async def test_a_power_cut_at_any_operation_leaves_a_directory_that_can_be_claimed() -> None:
    disk = FakeDisk()
    await claim(disk)
    for operation in range(disk.operations):
        for seed in (None, 1, 2):
            disk = FakeDisk()
            disk.power_off_at(operation)
            with pytest.raises(PowerOff):
                await claim(disk)
            disk.crash(None if seed is None else random.Random(seed))
            await claim(disk)
