"""`odradek log repair`: cut, leave out, and crashes of the command."""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
import trio
from click.testing import CliRunner, Result

from odradek.broker.inspect.log_command import log
from odradek.broker.inspect.repair import repair, survey_log
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.upkeep.scrubber import Scrubber
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.damage import DamagedLog
from odradek.broker.storage.disk import SystemDisk
from odradek.protocol.batch import read_header
from tests.broker.storage.samples import PARTITION_DIRECTORY, TOPIC_ID, Client, Machine, read_all
from tests.broker.storage.test_damage import FIELDS, files, starts
from tests.broker.storage.test_recovery import contents, filled, kept_files
from tests.fakes.disk import until_power_off

pytestmark = pytest.mark.slow

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)


@dataclass
class Broken:
    """A log in which a batch in the middle was damaged after a kill."""

    machine: Machine
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """All written batches, with their base offsets."""
    offset: int = 0
    path: str = ""
    position: int = 0


async def broken(field_name: str = "payload", *, segment: int = 2) -> Broken:
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    client = Client(partition, producer_id=8)
    for number in range(20):
        client.send(f"later {number}")
    await partition.flush()
    found = Broken(machine)
    found.batches = [(header.base_offset, data) for header, data in await read_all(partition)]
    found.path = partition.log.segments[segment].path()
    found.position = list(starts(machine, found.path))[3]
    found.offset = read_header(machine.disk.bytes_of(found.path), found.position).base_offset
    machine.disk.kill()
    machine.disk.damage(found.path, found.position + FIELDS[field_name])
    with pytest.raises(DamagedLog):
        await machine.start()
    machine.disk.kill()
    return found


async def mend(machine: Machine, *, leaves_out: bool) -> None:
    found = await survey_log(machine.disk, PARTITION_DIRECTORY)
    await repair(machine.disk, found, leaves_out=leaves_out, now_ms=machine.clock.wall_ms())
    assert not (await survey_log(machine.disk, PARTITION_DIRECTORY)).is_damaged


async def good(partition: Partition) -> list[tuple[int, bytes]]:
    """Return the batches with records that a reader gets."""
    found = await read_all(partition, max_bytes=300)
    return [(header.base_offset, data) for header, data in found if header.record_count]


@pytest.mark.parametrize("field_name", [name for name in FIELDS if name != "leader epoch"])
@pytest.mark.parametrize("segment", [0, 2, -1])
async def test_leaving_out_keeps_every_good_batch(field_name: str, segment: int) -> None:
    case = await broken(field_name, segment=segment)
    await mend(case.machine, leaves_out=True)
    for restart in (case.machine.start, case.machine.restart, case.machine.restart_after_kill):
        partition = await restart()
        assert await good(partition) == [b for b in case.batches if b[0] != case.offset]
        await Scrubber(
            case.machine.partitions.kept_logs, case.machine.partitions.on_damage
        ).scrub_all()
        assert partition.log.failure is None
        last = case.batches[-1][0]  # nothing good behind it says how many offsets it had
        assert partition.log_end_offset == (last if case.offset == last else last + 1)
    assert list(kept_files(case.machine)) == [f"{case.offset:020}.cut"]
    partition.leader().append_from_client(Client(partition, producer_id=9).make("goes on"))
    await partition.flush()


@pytest.mark.parametrize("field_name", ["payload", "length", "base offset"])
async def test_cutting_keeps_what_is_cut_and_serves_what_is_in_front(field_name: str) -> None:
    case = await broken(field_name)
    before = files(case.machine)
    await mend(case.machine, leaves_out=False)
    partition = await case.machine.start()
    assert await good(partition) == [b for b in case.batches if b[0] < case.offset]
    assert partition.log_end_offset == case.offset
    kept = kept_files(case.machine)
    logs = {name: data for name, data in before.items() if name.endswith(".log")}
    behind = {f"{name[:20]}.cut": logs[name] for name in logs if int(name[:20]) > case.offset}
    torn = logs[case.path.rpartition("/")[2]][case.position :]
    assert kept == {f"{case.offset:020}.cut": torn, **behind}
    with_anew = await contents(partition)
    case.machine.disk.crash()
    assert await contents(await case.machine.start()) == with_anew


async def test_a_fallen_leader_epoch_costs_the_one_batch_that_is_damaged() -> None:
    case = await broken("leader epoch")
    await mend(case.machine, leaves_out=True)
    assert await good(await case.machine.start()) == [
        b for b in case.batches if b[0] != case.offset
    ]


async def test_a_missing_file_in_the_middle_is_left_out() -> None:
    case = await broken()
    case.machine.disk.damage(case.path, case.position + FIELDS["payload"])  # whole again
    case.machine.disk.remove(case.path)
    first = int(case.path.rpartition("/")[2][:20])
    with pytest.raises(DamagedLog):
        await case.machine.start()
    case.machine.disk.kill()
    await mend(case.machine, leaves_out=True)
    partition = await case.machine.start()
    found = await good(partition)
    assert [b for b in found if b[0] < first] == [b for b in case.batches if b[0] < first]
    assert found[-1] == case.batches[-1]


async def test_offsets_that_a_checkpoint_knows_are_not_used_again_after_a_repair() -> None:
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    await partition.checkpoint()
    end, path = partition.log_end_offset, partition.log.active.path()
    await machine.stop()
    file = machine.disk.open(path)
    await file.truncate(file.size - 1)
    with pytest.raises(DamagedLog):
        await machine.start()
    machine.disk.kill()
    await mend(machine, leaves_out=True)
    partition = await machine.start()
    assert partition.log_end_offset == end


@pytest.mark.parametrize("leaves_out", [True, False])
async def test_a_crash_of_the_repair_at_every_operation_loses_nothing(leaves_out: bool) -> None:
    for operation in range(200):
        case = await broken()
        disk = case.machine.disk
        await _note_damage(case.machine)
        before = {name: data for name, data in files(case.machine).items() if name.endswith(".log")}
        for name in before:
            await disk.open(f"{PARTITION_DIRECTORY}/{name}").fsync()
        disk.power_off_at(disk.operations + operation)
        has_ended = False
        with until_power_off():
            await mend(case.machine, leaves_out=leaves_out)
            has_ended = True
        if operation % 2:
            disk.kill()
        else:
            disk.crash(Random(operation))
        await mend(case.machine, leaves_out=leaves_out)
        partition = await case.machine.start()
        stays = [
            b for b in case.batches if b[0] < case.offset or (leaves_out and b[0] > case.offset)
        ]
        assert await good(partition) == stays
        everything = b"".join(files(case.machine).values())
        assert all(data in everything for _, data in case.batches if _ != case.offset)
        damaged = before[case.path.rpartition("/")[2]][case.position :][:70]
        assert damaged in everything
        if has_ended:
            return
    raise AssertionError("the repair has more operations than that")


async def _note_damage(machine: Machine) -> None:
    with pytest.raises(DamagedLog) as caught:
        await machine.start()
    machine.partitions.keep_offline("departures", TOPIC_ID, 0, caught.value)
    await machine.partitions.run_notes.on_all_open()
    machine.disk.kill()


# the command


async def run(*arguments: str) -> Result:
    """Run the command in a thread, because it has its own event loop."""
    return await trio.to_thread.run_sync(CliRunner().invoke, log, ["repair", *arguments])


async def on_disk(tmp_path: Path, case: Broken) -> Path:
    """Copy the directory of a fake disk to the real one."""
    directory = tmp_path / "departures-0"
    directory.mkdir()
    for name, data in files(case.machine).items():
        (directory / name).write_bytes(data)
    return directory


async def test_the_command_shows_what_is_wrong_and_changes_nothing(tmp_path: Path) -> None:
    case = await broken()
    directory = await on_disk(tmp_path, case)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    for arguments in ([str(directory)], [str(tmp_path)], ["--cut", "--dry-run", str(directory)]):
        result = await run(*arguments)
        assert result.exit_code == 1
        assert f"bytes {case.position} to" in result.output
        assert f"Offset {case.offset} cannot be read" in result.output
        assert "producer 5 epoch 0" in result.output, result.output
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


async def test_torn_transactions_need_a_second_flag(tmp_path: Path) -> None:
    directory = await on_disk(tmp_path, await broken())
    assert "add --tear" in (await run("--leave-out", str(directory))).output
    result = await run("--leave-out", "--tear", str(directory))
    assert result.exit_code == 0, result.output
    assert "repaired" in result.output
    assert "No log is damaged" in (await run(str(directory))).output


async def test_it_refuses_while_a_broker_runs(tmp_path: Path) -> None:
    directory = await on_disk(tmp_path, await broken())
    lock = SystemDisk().lock(f"{tmp_path}/.lock")
    result = await run("--cut", str(directory))
    assert result.exit_code == 1
    assert "A broker runs on" in result.output
    lock.release()
