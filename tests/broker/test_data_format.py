"""The format of a data directory: one number, which a version that does not know it obeys."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.storage.data_format import (
    FILE,
    FIRST_FORMAT,
    FORMAT,
    UnknownFormat,
    claim_format,
    encode_format,
)
from odradek.broker.testing import BrokerDidNotStart, RunningBroker, run_broker
from odradek.client.blocking import Producer
from tests.fakes.disk import FakeDisk, until_power_off

NEWER = encode_format(FORMAT + 1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that has stopped, with a record in a topic."""
    with run_broker(data_dir=tmp_path_factory.mktemp("newer")) as broker:
        with Producer(broker.address) as producer:
            producer.send("t", b"v", partition=0).result()
        broker.stop()
        yield broker


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_a_directory_of_a_newer_format_is_refused_and_nothing_in_it_changes(
    broker: RunningBroker,
) -> None:
    """An earlier version took whatever it could read of it."""
    directory = broker.data_dir
    assert (directory / FILE).read_bytes() == encode_format(FIRST_FORMAT)
    (directory / FILE).write_bytes(NEWER)
    before = tree(directory)
    sentence = f"says that the data directory has format {FORMAT + 1}, and this version"
    with pytest.raises(BrokerDidNotStart, match=sentence) as refused:
        broker.start()
    assert "Traceback" not in str(refused.value)
    assert len(str(refused.value).strip().splitlines()) == 1
    segment = directory / "t-0" / f"{0:020}.log"
    for arguments in (
        ["log", "dump", directory],
        ["log", "dump", directory / "t-0"],
        ["log", "dump", segment],
        ["log", "repair", directory, "--cut"],
        ["log", "repair", directory / "t-0", "--cut"],
        ["storage", "rebuild", directory],
        ["security", "export", directory / "security.json", "--data-dir", directory],
    ):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert (result.exit_code, sentence in result.output) == (1, True), arguments
    assert tree(directory) == before
    (directory / FILE).write_bytes(encode_format(FORMAT))
    broker.start()
    broker.stop()


@pytest.mark.slow
def test_a_format_that_cannot_be_read_is_no_old_one(broker: RunningBroker) -> None:
    path = broker.data_dir / FILE
    for damaged in (b"", bytes(4), NEWER[:-1], encode_format(FORMAT)[:-1] + b"\x07"):
        path.write_bytes(damaged)
        with pytest.raises(BrokerDidNotStart, match=r"format\.meta is damaged"):
            broker.start()
    path.write_bytes(encode_format(FORMAT))


def test_a_directory_of_version_0_1_0_gets_the_number(broker: RunningBroker) -> None:
    (broker.data_dir / FILE).unlink()
    broker.start()
    broker.stop()
    assert (broker.data_dir / FILE).read_bytes() == encode_format(FIRST_FORMAT)


async def test_a_power_cut_at_any_operation_leaves_a_directory_that_can_be_claimed() -> None:
    disk = FakeDisk()
    await claim_format(disk, "/data")
    for operation in range(disk.operations):
        disk = FakeDisk()
        disk.power_off_at(operation)
        with until_power_off():
            await claim_format(disk, "/data")
        disk.crash()
        await claim_format(disk, "/data")
        assert disk.bytes_of(f"/data/{FILE}") == encode_format(FIRST_FORMAT)


async def test_a_full_disk_keeps_no_directory_of_an_earlier_version_from_being_served() -> None:
    disk = FakeDisk()
    disk.fail("append", errno.ENOSPC)
    await claim_format(disk, "/data")
    await claim_format(disk, "/data")
    disk.kill()
    file = disk.open(f"/data/{FILE}")
    await file.truncate(0)
    file.append(NEWER)
    with pytest.raises(UnknownFormat):
        await claim_format(disk, "/data")
