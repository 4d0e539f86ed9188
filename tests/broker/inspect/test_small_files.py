"""`odradek log repair` and small files that are damaged, or those of another partition."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
import trio
from click.testing import CliRunner

from odradek.broker.inspect.log_command import log
from odradek.broker.inspect.repair import repair, survey_log
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.checkpoint import decode_checkpoint, encode_checkpoint
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.disk import SystemDisk
from odradek.broker.storage.identity import Identity, encode_identity
from odradek.broker.storage.log_start import LOG_START
from odradek.broker.values.topic_partition import TopicPartition
from tests.broker.storage.samples import (
    DIRECTORY,
    PARTITION_DIRECTORY,
    TOPIC,
    TOPIC_ID,
    Machine,
    batch,
    read_all,
)
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk

IDENTITY = Identity(
    where=TopicPartition(TOPIC, 0),
    topic_id=TOPIC_ID,
    partition_count=2,
    configs={},
    cluster_id="c" * 22,
)
DELETED_BELOW = 3


def put(disk: FakeDisk, name: str, content: bytes) -> None:
    disk.remove(f"{PARTITION_DIRECTORY}/{name}")
    disk.open(f"{PARTITION_DIRECTORY}/{name}").append(content)


def foreign(content: bytes, *, topic_id: UUID = TOPIC_ID) -> bytes:
    """Return the checkpoint of the other partition of the topic."""
    checkpoint = decode_checkpoint(content)
    assert checkpoint is not None
    elsewhere = TopicPartition(TOPIC, 1)
    return encode_checkpoint(replace(checkpoint, where=elsewhere, topic_id=topic_id))


def flipped(content: bytes) -> bytes:
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)


async def filled(machine: Machine) -> list[bytes]:
    machine.partitions = Partitions(disk=machine.disk, directory=DIRECTORY, clock=machine.clock)
    partition = await machine.partitions.open(TOPIC, TOPIC_ID, 0, machine.config, identity=IDENTITY)
    await machine.partitions.run_notes.on_all_open()
    for number in range(9):
        partition.leader().append_from_client(batch(f"{number}"))
    await partition.flush()
    await partition.maintenance.delete_before(DELETED_BELOW)
    served = [data for _, data in await read_all(partition)]
    await machine.stop()
    return served


@pytest.mark.parametrize("leaves_out", [False, True])
@pytest.mark.parametrize(
    ("name", "wrong", "sentence"),
    [
        ("checkpoint", foreign, "checkpoint is that of departures-1"),
        ("checkpoint", flipped, "checkpoint is damaged."),
        (
            "topic.meta",
            lambda _: encode_identity(replace(IDENTITY, where=TopicPartition("u", 0))),
            "topic.meta is that of u-0.",
        ),
        ("topic.meta", flipped, "topic.meta is damaged."),
        (LOG_START, flipped, "log-start is damaged, or that of another partition."),
    ],
)
async def test_a_repair_sees_a_wrong_small_file_and_puts_it_aside(
    name: str, wrong: object, sentence: str, leaves_out: bool
) -> None:
    machine = Machine()
    served = await filled(machine)
    assert not (await survey_log(machine.disk, PARTITION_DIRECTORY)).is_damaged
    assert callable(wrong)
    content = wrong(machine.disk.bytes_of(f"{PARTITION_DIRECTORY}/{name}"))
    put(machine.disk, name, content)
    found = await survey_log(machine.disk, PARTITION_DIRECTORY)
    assert [problem[: len(sentence)] for problem in found.problems] == [sentence]
    now_ms = machine.clock.wall_ms()
    kept = await repair(machine.disk, found, leaves_out=leaves_out, now_ms=now_ms)
    assert kept == [f"{PARTITION_DIRECTORY}/{name}.set-aside"]
    assert machine.disk.bytes_of(kept[0]) == content
    assert not (await survey_log(machine.disk, PARTITION_DIRECTORY)).is_damaged
    partition = await machine.start()
    assert [data for _, data in await read_all(partition)] == served
    assert partition.log_start_offset == DELETED_BELOW


async def test_a_repair_says_that_a_log_may_be_another_one_and_takes_it_when_told() -> None:
    machine = Machine()
    served = await filled(machine)
    name = f"{0:020}.log"
    put(machine.disk, name, flipped(machine.disk.bytes_of(f"{PARTITION_DIRECTORY}/{name}")))
    found = await survey_log(machine.disk, PARTITION_DIRECTORY)
    assert any("it is the file of another log" in problem for problem in found.problems)
    now_ms = machine.clock.wall_ms()
    await repair(machine.disk, found, leaves_out=True, now_ms=now_ms)
    partition = await machine.start()
    left = [data for header, data in await read_all(partition) if header.record_count]
    assert len(left) == len(served) - 1
    assert set(left) < set(served)


async def test_the_command_shows_the_wrong_file_and_what_the_choices_do(tmp_path: Path) -> None:
    partitions = Partitions(disk=SystemDisk(), directory=str(tmp_path), clock=FakeClock())
    for index in range(2):
        partition = await partitions.open(TOPIC, TOPIC_ID, index, LogConfig())
        partition.leader().append_from_client(batch(f"{index}"))
    await partitions.run_notes.on_all_open()
    await partitions.close()
    first, second = (tmp_path / f"{TOPIC}-{index}" / "checkpoint" for index in range(2))
    second.write_bytes(first.read_bytes())

    async def run(*words: str) -> tuple[int, str]:
        words = ("repair", str(tmp_path), *words)
        result = await trio.to_thread.run_sync(CliRunner().invoke, log, words)
        return result.exit_code, result.output

    code, output = await run()
    assert code == 1
    assert f"{tmp_path}/{TOPIC}-1 is damaged" in output
    assert f"checkpoint is that of {TOPIC}-0" in output
    assert "--cut, --leave-out: both read the log anew" in output
    assert (await run("--cut"))[0] == 0
    assert "No log is damaged" in (await run())[1]
