"""A clean stop gives the directory back to versions that know no journal; a kill does not."""

from dataclasses import replace
from typing import Final

import pytest

from odradek.broker.storage import data_format
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.storage.data_format import (
    FILE,
    FIRST_FORMAT,
    JOURNAL_FORMAT,
    UnknownFormat,
    claim_format,
    encode_format,
)
from odradek.broker.storage.journal_replay import journal_names
from odradek.broker.storage.last_run import LAST_RUN, read_last_run, write_last_run
from tests.broker.storage.journaled import begun, journaled, values
from tests.broker.storage.samples import DIRECTORY, Machine, batch
from tests.broker.storage.stories import KEEPING, Story, crash, told
from tests.fakes.disk import FakeDisk

WITHOUT: Final = LogConfig(flush=FlushPolicy.ACK)


def number_on(disk: FakeDisk) -> int:
    found = disk.bytes_of(f"{DIRECTORY}/{FILE}")
    (number,) = (n for n in (FIRST_FORMAT, JOURNAL_FORMAT) if found == encode_format(n))
    return number


async def use_it(story: Story) -> None:
    """Write, stop in good order, start again and write."""
    machine = story.machine
    await claim_format(machine.disk, DIRECTORY)
    partition = await begun(machine)
    story.acknowledged_offset = 1
    for value in "ab":
        partition.leader().append_from_client(batch(value))
        await story.acknowledge(partition)
    partition = await machine.restart()
    partition.leader().append_from_client(batch("c"))
    await story.acknowledge(partition)


async def run_earlier_version(machine: Machine) -> Machine:
    """Start as a version that neither knows the journal nor notes anything of it."""
    noted = await read_last_run(machine.disk, DIRECTORY)
    noted = replace(noted, uses_journal=False, journal_life=0, unrestored={})
    await write_last_run(machine.disk, DIRECTORY, noted)
    return Machine(disk=machine.disk, clock=machine.clock, config=WITHOUT)


async def test_after_a_clean_stop_a_version_without_a_journal_takes_the_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(journaled())
    await use_it(story)
    assert number_on(story.machine.disk) == JOURNAL_FORMAT
    await story.machine.stop()
    assert number_on(story.machine.disk) == FIRST_FORMAT
    with monkeypatch.context() as earlier:
        earlier.setattr(data_format, "FORMAT", FIRST_FORMAT)
        await claim_format(story.machine.disk, DIRECTORY)
    machine = await run_earlier_version(story.machine)
    partition = await machine.start()
    partition.leader().append_from_client(batch("d"))
    await partition.leader().wait_committed()
    machine.disk.remove(f"{DIRECTORY}/{LAST_RUN}")  # nothing but the files says what counts
    await claim_format(machine.disk, DIRECTORY)
    machine.config = story.machine.config
    machine.disk.make_durable()
    partition = await machine.restart_after_power_loss()
    assert await values(partition) == [0, 1, 2, 3, 4]
    assert number_on(machine.disk) == JOURNAL_FORMAT


async def test_after_a_kill_a_version_without_a_journal_refuses_the_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(journaled())
    await use_it(story)
    story.machine.disk.kill()
    monkeypatch.setattr(data_format, "FORMAT", FIRST_FORMAT)
    with pytest.raises(UnknownFormat, match="has format 2"):
        await claim_format(story.machine.disk, DIRECTORY)
    plain = Machine()
    await claim_format(plain.disk, DIRECTORY)
    await begun(plain)
    await claim_format(plain.disk, DIRECTORY)
    assert number_on(plain.disk) == FIRST_FORMAT


@pytest.mark.parametrize("keeping", KEEPING)
async def test_a_crash_at_every_operation_of_a_stop_and_a_start(keeping: str) -> None:
    """Where the directory is given back nothing of a journal is there, and nothing is lost."""
    whole = Story(journaled())
    await use_it(whole)
    numbers = set()
    for operation in range(whole.machine.disk.operations + 1):
        story = await told(Story(journaled()), use_it, until=operation)
        disk = story.machine.disk
        crash(disk, keeping, operation)
        await claim_format(disk, DIRECTORY)
        number = number_on(disk)
        if number == FIRST_FORMAT:
            assert journal_names(disk, DIRECTORY) == [], operation
            story.machine = await run_earlier_version(story.machine)
        partition = await story.machine.start()
        found = await values(partition)
        assert len(found) >= story.acknowledged_offset, (operation, number)
        if found:
            numbers.add((number, found[-1]))
    assert (FIRST_FORMAT, 2) in numbers, numbers
    assert (JOURNAL_FORMAT, 3) in numbers, numbers


async def test_a_directory_with_a_kept_file_is_not_given_back() -> None:
    machine = journaled()
    await begun(machine)
    machine.disk.open(f"{DIRECTORY}/journal-7.kept").close()
    await machine.stop()
    assert number_on(machine.disk) == JOURNAL_FORMAT
    await machine.restart()
    await machine.stop()
    assert number_on(machine.disk) == FIRST_FORMAT
