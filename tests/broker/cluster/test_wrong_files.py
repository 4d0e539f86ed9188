"""Files of a data directory that are damaged, exchanged, older or missing, one at a time.

Whatever the file and whatever happened to it: the broker starts, every other partition is served
completely, and the partition of the file is either right or offline, with a line that names it.
"""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest
import trio

from odradek.broker.cluster.new_topic import WantedTopic
from odradek.broker.cluster.two_copies import DamagedStore
from odradek.broker.inspect.repair import repair, survey_log
from odradek.broker.partitions.partition import Partition
from odradek.broker.storage import small_file
from odradek.protocol.batch import crc_is_good, iter_batches
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.cluster.test_topic_logs import Node
from tests.broker.storage.samples import Client, batch, read_all
from tests.fakes.clock import START_MS
from tests.fakes.disk import FakeDisk

pytestmark = pytest.mark.slow

DATA: Final = "/data"
VICTIM: Final = ("t", 0)
SIBLING: Final = ("t", 1)
ALL: Final = (VICTIM, SIBLING, ("other", 0))
DELETED_BELOW: Final = 3
SMALL_FILES: Final = ("checkpoint", "topic.meta", "log-start")
SEGMENT_FILES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")

Bytes = dict[str, bytes]
Served = list[tuple[int, bytes]]


async def served_by(partition: Partition) -> Served:
    """Return what a read_committed consumer gets, which checks the CRC of each batch."""
    found: Served = []
    offset = partition.log_start_offset
    while offset < partition.last_stable_offset:
        result = await partition.leader().read(offset, 1 << 20, read_committed=True)
        for header, data in iter_batches(result.records):
            if not crc_is_good(data, header):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
            found.append((header.base_offset, bytes(data)))
            offset = header.next_offset
        found += [(aborted.first_offset, b"aborted") for aborted in result.aborted]
    return sorted(found)


def write(partition: Partition, name: str, count: int) -> None:
    """Append batches of equal sizes, some in transactions, some aborted: others than elsewhere."""
    for number in range(count):
        partition.leader().append_from_client(batch(f"{name} {number:06}" + "x" * 200))
        epoch = partition.log_end_offset
        client = Client(partition, producer_id=7, epoch=epoch, is_transactional=True)
        client.send(f"{name} {number:06} in a transaction")
        client.end(committed=(number + partition.index) % 2 == 0)


@dataclass
class Directory:
    """A data directory, with what its partitions have served, and an older copy of its files."""

    disk: FakeDisk
    served: dict[tuple[str, int], Served]
    older: dict[str, Bytes]


def files_of(disk: FakeDisk) -> dict[str, Bytes]:
    found = {str(where): disk.files(directory(where), "") for where in ALL}
    own = {f"../{name}": data for name, data in disk.files(DATA, "").items()}
    return {where: {**files, **own} for where, files in found.items()}


def directory(where: tuple[str, int]) -> str:
    return f"{DATA}/{where[0]}-{where[1]}"


async def made(*, is_killed: bool) -> Directory:
    disk = FakeDisk()
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=2))
    await node.cluster.create_topic(WantedTopic(name="other", partition_count=1))
    for where in ALL:
        partition = node.partitions.get_replica(*where)
        write(partition, f"{where[0]}{where[1]} first", 15)
        partition.log.roll()
        write(partition, f"{where[0]}{where[1]} second", 15)
        await partition.flush()
        await partition.maintenance.checkpoint()
    older = files_of(disk)
    for where in ALL:
        partition = node.partitions.get_replica(*where)
        await partition.maintenance.delete_before(DELETED_BELOW)
        write(partition, f"{where[0]}{where[1]} third", 5)
        await partition.flush()
    served = {where: await served_by(node.partitions.get_replica(*where)) for where in ALL}
    if not is_killed:
        await node.partitions.close()
    disk.kill()
    return Directory(disk, served, older)


@pytest.fixture(scope="module")
def whole() -> dict[bool, Directory]:
    """Return a directory after a clean stop, and one after a kill, to be copied."""
    return {is_killed: trio.run(partial(made, is_killed=is_killed)) for is_killed in (False, True)}


def put(disk: FakeDisk, path: str, content: bytes) -> None:
    disk.remove(path)
    disk.open(path).append(content)


def emptied(here: Directory, name: str) -> bytes:
    return b""


def bytes_of(here: Directory, name: str) -> bytes:
    """Return the bytes of a file of the victim, or with `../` of the data directory."""
    if name.startswith("../"):
        return here.disk.bytes_of(f"{DATA}/{name.removeprefix('../')}")
    return here.disk.bytes_of(f"{directory(VICTIM)}/{name}")


def truncated(here: Directory, name: str) -> bytes:
    data = bytes_of(here, name)
    return data[: len(data) * 2 // 3]


def flipped(here: Directory, name: str) -> bytes:
    data = bytearray(bytes_of(here, name))
    data[len(data) // 2] ^= 1
    return bytes(data)


def zeroed(here: Directory, name: str) -> bytes:
    return bytes(len(bytes_of(here, name)))


def longer(here: Directory, name: str) -> bytes:
    return bytes_of(here, name) + b"more"


def exchanged(here: Directory, name: str) -> bytes:
    return here.disk.bytes_of(f"{directory(SIBLING)}/{name}")


def older(here: Directory, name: str) -> bytes:
    return here.older[str(VICTIM)].get(name, b"")


def missing(here: Directory, name: str) -> bytes | None:
    return None


Damage = Callable[[Directory, str], bytes | None]
DAMAGES: Final[tuple[Damage, ...]] = (
    emptied, truncated, flipped, zeroed, longer, exchanged, older, missing,
)  # fmt: skip


async def served_or_refused(node: Node, where: tuple[str, int]) -> Served | ErrorCode:
    try:
        partition = node.partitions.get_replica(*where)
        assert partition.log_start_offset == DELETED_BELOW, where
        return await served_by(partition)
    except KafkaError as error:
        return error.code


def names_like(here: Directory, kind: str) -> list[str]:
    """Return the victim's files of a kind that have bytes."""
    found = here.disk.files(directory(VICTIM), kind)
    return [name for name, data in found.items() if data]


async def check_repair(disk: FakeDisk, right: Served, *, is_other: bool) -> None:
    """Check that `odradek log repair` sees what is wrong, and mends it without inventing anything.

    `is_other`: the batches are those of another log, and it takes them for right when told to.
    """
    found = await survey_log(disk, directory(VICTIM))
    assert found.is_damaged
    await repair(disk, found, leaves_out=not found.overlaps, now_ms=START_MS)
    assert not (await survey_log(disk, directory(VICTIM))).is_damaged
    disk.kill()
    node = await Node.start(disk)
    partition = node.partitions.get_replica(*VICTIM)
    assert partition.log_start_offset >= DELETED_BELOW
    for header, data in await read_all(partition):
        assert (header.base_offset, data) in right or not header.record_count or is_other


@pytest.mark.parametrize("kind", [*SMALL_FILES, *SEGMENT_FILES])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_a_wrong_file_takes_no_other_partition_offline_and_is_not_served_as_right(
    is_killed: bool,
    damage: Damage,
    kind: str,
    whole: dict[bool, Directory],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in (0, -1):
        here = copy.deepcopy(whole[is_killed])
        names = names_like(here, kind)
        name = names[number]
        if number and not names[1:]:
            break
        content = damage(here, name)
        path = f"{directory(VICTIM)}/{name}"
        if content is None:
            here.disk.remove(path)
        else:
            put(here.disk, path, content)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            node = await Node.start(here.disk)
        for where in ALL:
            found, right = await served_or_refused(node, where), here.served[where]
            if isinstance(found, ErrorCode):
                assert where == VICTIM, (name, where, found)
                assert found in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE)
                is_rot = damage is flipped and kind == ".log"  # the scrubber finds it
                assert is_rot or "t-0" in caplog.text, name
                here.disk.kill()
                is_other = damage is exchanged and kind == ".log"
                await check_repair(here.disk, right, is_other=is_other)
                break
            if is_killed and kind == ".log" and where == VICTIM:
                right = right[: len(found)]  # the last batches may look like a torn write
            assert found == right, (name, where, len(found), len(right))


@pytest.mark.parametrize("name", ["cluster.meta", "cluster.meta.copy", "last-run"])
@pytest.mark.parametrize(
    "damage", [d for d in DAMAGES if d is not exchanged], ids=lambda damage: damage.__name__
)
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_one_wrong_file_of_the_data_directory_loses_nothing(
    is_killed: bool, damage: Damage, name: str, whole: dict[bool, Directory]
) -> None:
    here = copy.deepcopy(whole[is_killed])
    content = damage(here, f"../{name}")
    here.disk.remove(f"{DATA}/{name}")
    if content is not None:
        here.disk.open(f"{DATA}/{name}").append(content)
    if damage is longer and name == "cluster.meta.copy":  # no crash explains it
        with pytest.raises(DamagedStore, match="Restore cluster"):
            await Node.start(here.disk)
        return
    for _ in range(2):
        node = await Node.start(here.disk)
        for where in ALL:
            assert await served_or_refused(node, where) == here.served[where], (name, where)
        here.disk.kill()


@pytest.mark.parametrize(
    "content", [{}, {"topic_id": b"short"}, {"topic_id": bytes(16), "segments": 5}], ids=str
)
@pytest.mark.parametrize("name", ["checkpoint", "topic.meta"])
async def test_a_file_that_makes_no_sense_takes_its_partition_offline_and_no_other(
    name: str,
    content: dict[str, object],
    whole: dict[bool, Directory],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker did not start, with a traceback that named no file."""
    here = copy.deepcopy(whole[False])
    put(here.disk, f"{directory(VICTIM)}/{name}", small_file.encode(content))
    with caplog.at_level(logging.WARNING):
        node = await Node.start(here.disk)
    for where in ALL:
        found = await served_or_refused(node, where)
        right = ErrorCode.KAFKA_STORAGE_ERROR if where == VICTIM else here.served[where]
        assert found == right, where
    assert f"t-0 is offline, and nothing in its directory is changed: {DATA}/t-0" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("which", [0, -1])
async def test_a_segment_that_is_lost_with_its_checkpoint_is_named(
    whole: dict[bool, Directory], which: int, is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The log was shorter, and no line said so."""
    disk = copy.deepcopy(whole[is_killed].disk)
    lost = list(disk.files(directory(VICTIM), ".log"))[which]
    for name in (lost, "checkpoint"):
        disk.lose(f"{directory(VICTIM)}/{name}")
    await Node.start(disk)
    assert f"{directory(VICTIM)}/{lost} is missing, and so are the checkpoint" in caplog.text
    assert "begin empty" not in caplog.text
