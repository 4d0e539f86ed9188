"""Power cuts while directories make way, and what a rebuild finds after a power cut."""

import random
from pathlib import Path

import pytest
import trio

from odradek.broker.cluster.new_topic import WantedTopic
from odradek.broker.inspect.rebuild import Salvaged, Wishes, plan_rebuild
from odradek.broker.inspect.survey import survey_all
from tests.broker.cluster.test_topic_logs import Node, a_life, ends_with_power_off
from tests.fakes.disk import FakeDisk
from tests.fakes.turns import longest_turn

LOG_NAME = f"{0:020}.log"


async def forget(node: Node) -> None:
    """Have the store know no topic, as if it had been made anew."""
    await node.meta.txn((), dict.fromkeys((await node.meta.range("/"))[0]))


async def with_a_stranger() -> tuple[FakeDisk, bytes]:
    """A disk with the log of a topic that nobody knows any more, and the bytes of that log."""
    disk = FakeDisk()
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=1))
    await node.append("t", 0, b"acknowledged")
    await forget(node)
    disk.crash()
    return disk, disk.bytes_of(f"/data/t-0/{LOG_NAME}")


async def a_namesake(disk: FakeDisk) -> None:
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=2))
    await node.append("t", 0, b"another")
    await node.cluster.delete_topic("t")
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=1))


@pytest.mark.slow
async def test_a_power_cut_at_any_operation_keeps_a_log_that_is_in_the_way() -> None:
    disk, _ = await with_a_stranger()
    before = disk.operations
    await a_namesake(disk)
    for operation in range(disk.operations - before):
        for seed in (None, 1, 2):
            disk, kept = await with_a_stranger()
            disk.power_off_at(disk.operations + operation)
            assert await ends_with_power_off(a_namesake(disk))
            disk.crash(None if seed is None else random.Random(seed * 1000 + operation))
            node = await Node.start(disk)
            await node.cluster.ensure_topic("t")
            holders = [
                name
                for name in disk.listdir("/data")
                if "-0" in name
                and disk.exists(f"/data/{name}/{LOG_NAME}")
                and disk.bytes_of(f"/data/{name}/{LOG_NAME}") == kept
            ]
            # in its place only as long as no topic has the name
            assert holders == ["t-0.set-aside"], (operation, seed, disk.listdir("/data"))
            assert node.ends()["t-0"] in (0, 1)  # the namesake's own


def written_to(directory: Path, disk: FakeDisk, path: str = "/data") -> None:
    """Copy a disk in memory to a real one."""
    directory.mkdir()
    for name in disk.listdir(path):
        try:
            data = disk.bytes_of(f"{path}/{name}")
        except IsADirectoryError:
            written_to(directory / name, disk, f"{path}/{name}")
        else:
            (directory / name).write_bytes(data)


# by the last answer: is the topic's log with records found, and with how many partitions
FOUND = {"filled": 2, "filled again": 3}


async def test_a_rebuild_after_a_power_cut_at_any_operation_finds_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    disk = FakeDisk()
    await a_life(disk, lambda answer: None)
    seen = set()
    for operation in range(disk.operations):
        disk, answers = FakeDisk(), [""]
        disk.power_off_at(operation)
        assert await ends_with_power_off(a_life(disk, answers.append))
        disk.crash(random.Random(operation))
        if answers[-1] not in FOUND:
            continue
        names = disk.listdir("/data")
        if answers[-1] == "filled" and any(name.endswith(".deleted") for name in names):
            continue  # its deletion had begun
        directory = tmp_path / str(operation)
        written_to(directory, disk)
        found, _ = survey_all(str(directory))
        made = plan_rebuild(found, Salvaged(), Wishes(make_missing=True), random.Random(1))
        (rebuilt,) = made.topics
        assert len(rebuilt.topic.partitions) == FOUND[answers[-1]], operation
        assert rebuilt.are_configs_known, operation
        with_records = [one for one in found if one.size_bytes]
        assert with_records, operation
        assert all(one.identity is not None for one in with_records), operation
        seen.add(answers[-1])
    assert "filled" in seen


async def test_looking_for_what_is_left_of_a_topic_does_not_hold_the_loop() -> None:
    disk = FakeDisk()
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=1))
    for index in range(5_000):
        disk.mkdir(f"/data/others-{index}")
    with longest_turn() as longest:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.cluster.delete_topic, "t")
    assert longest.calls < 10_000, longest.calls
