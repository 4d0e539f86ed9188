"""`odradek storage backup`: a copy of a running broker, as of one moment."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from odradek.broker.api.context import RequestContext
from odradek.broker.api.log_dirs import alter_replica_log_dirs
from odradek.broker.cli import main
from odradek.broker.cluster.backup_point import (
    LOCK,
    META,
    POINT,
    BackupPoints,
    decode_point,
    point_file,
)
from odradek.broker.cluster.node_identity import NODE
from odradek.broker.cluster.store_embedded import NAMES
from odradek.broker.inspect import backup_command
from odradek.broker.storage.disk import SystemDisk
from odradek.broker.storage.files import LOG, file_path
from odradek.broker.storage.origin import DirectoryOrigin, write_origin
from odradek.broker.testing import BrokerDidNotStart, RunningBroker, run_broker
from odradek.client.blocking import Admin, Consumer, Producer, TopicPartition
from odradek.protocol.apis.log_dirs import AlterReplicaLogDirsRequest
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.fakes.disk import FakeDisk

TOPIC = "flights"
GROUP = "refunders"
SOURCE = TopicPartition("bookings", 0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with run_broker(data_dir=tmp_path_factory.mktemp("data")) as running:
        with Admin(running.address) as admin:
            admin.create_topic(TOPIC, partitions=2)
            admin.create_topic(SOURCE.topic, partitions=1)
        yield running


def backup(broker: RunningBroker, target: Path, *options: str) -> Result:
    words = ["storage", "backup", str(target), "--bootstrap", broker.address, *options]
    return CliRunner().invoke(main, words)


def values(address: str, index: int, *, topic: str = TOPIC) -> list[bytes | None]:
    """Return the committed values of a partition."""
    place = TopicPartition(topic, index)
    found: list[bytes | None] = []
    with Consumer(address) as consumer:
        end = consumer.end_offsets([place])[place]
        consumer.assign([place])
        consumer.seek_to_beginning()
        while consumer.position(place) < end:
            found += [record.value for record in consumer.poll()]
    return found


@pytest.mark.slow
def test_a_backup_of_a_running_broker_has_whole_transactions(
    broker: RunningBroker, tmp_path: Path
) -> None:
    """Each transaction writes its number to both partitions, and stores it as an offset."""
    enough, stop = threading.Event(), threading.Event()

    def write() -> None:
        with Producer(broker.address, transactional_id="writer") as producer:
            number = 0
            while not stop.is_set():
                number += 1
                with producer.transaction() as transaction:
                    for index in range(2):
                        transaction.send(TOPIC, b"%d" % number, partition=index)
                    transaction.send_offsets({SOURCE: number}, GROUP)
                if number > 50:
                    enough.set()

    with Admin(broker.address) as admin:
        admin.set_password("alice", "secret")
        users = admin.describe_users("alice")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert enough.wait(60)
        target = tmp_path / "backup"
        result = backup(broker, target, "--json")
    finally:
        stop.set()
        writer.join()
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert (facts["directory"], facts["node_id"]) == (str(target), 1)
    assert not (broker.data_dir / POINT).exists()
    assert CliRunner().invoke(main, ["log", "repair", str(target)]).exit_code == 0
    with run_broker(data_dir=target) as restored:
        with Producer(restored.address, transactional_id="writer"):
            pass  # which ends the transaction that was open
        first, second = values(restored.address, 0), values(restored.address, 1)
        assert first == second == [b"%d" % number for number in range(1, len(first) + 1)]
        assert len(first) >= 50
        with Admin(restored.address) as admin:
            assert admin.committed(GROUP)[SOURCE].offset == len(first)
            assert admin.describe_users() == users
        assert "ERROR" not in restored.log


def test_what_is_deleted_while_it_is_copied_is_in_the_backup(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Admin(broker.address) as admin, Producer(broker.address) as producer:
        admin.create_topic("short", partitions=1)
        producer.send("short", b"there", partition=0).result()

    def read_point(point: str, _read: Any = backup_command._read_point) -> Any:
        with Admin(broker.address) as admin:
            admin.delete_topics("short")
        return _read(point)

    monkeypatch.setattr(backup_command, "_read_point", read_point)
    result = backup(broker, tmp_path / "backup")
    assert result.exit_code == 0, result.output
    with run_broker(data_dir=tmp_path / "backup") as restored:
        assert values(restored.address, 0, topic="short") == [b"there"]


def test_a_broker_does_not_start_on_half_of_a_backup(tmp_path: Path) -> None:
    origin = DirectoryOrigin(
        command="odradek storage backup DIR",
        source="/data",
        fingerprint="",
        is_complete=False,
        at_ms=0,
    )
    trio.run(write_origin, SystemDisk(), str(tmp_path), origin)
    words = r"is unfinished: `odradek storage backup DIR` was interrupted"
    with pytest.raises(BrokerDidNotStart, match=words), run_broker(data_dir=tmp_path):
        pass
    result = CliRunner().invoke(main, ["storage", "rebuild", str(tmp_path)])
    assert "is unfinished" in result.output


def test_a_backup_goes_into_no_directory_that_has_something(
    broker: RunningBroker, tmp_path: Path
) -> None:
    (tmp_path / "mine").touch()
    result = backup(broker, tmp_path)
    assert result.exit_code == 1
    assert "is not empty: it has mine" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_second_backup_does_not_replace_a_whole_one(
    broker: RunningBroker, tmp_path: Path
) -> None:
    """It took the first for what an interrupted run had left, and removed it."""
    target = tmp_path / "backup"
    assert backup(broker, target).exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    result = backup(broker, target)
    assert result.exit_code == 1
    assert f"{target} is not empty: `odradek storage backup {target} " in result.output
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before
    assert not (broker.data_dir / POINT).exists()


def test_a_backup_does_not_go_into_the_directory_that_it_copies(broker: RunningBroker) -> None:
    target = broker.data_dir / "backup"
    result = backup(broker, target)
    assert f"{target} is inside of {broker.data_dir}: give another directory." in result.output
    assert not target.exists()


@pytest.mark.parametrize("name", ["mine", "backup-point/mine", "backup-point/1"])
def test_no_program_that_plays_a_broker_has_a_directory_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    precious = tmp_path / name / "precious"
    precious.mkdir(parents=True)

    async def answered(_bootstrap: str, _options: object) -> str:
        return str(tmp_path / name)

    monkeypatch.setattr(backup_command, "_make_point", answered)
    result = CliRunner().invoke(main, ["storage", "backup", str(tmp_path / "backup")])
    assert result.exit_code == 1
    assert precious.exists()


def test_a_backup_of_a_broker_that_does_not_run_says_what_to_do(tmp_path: Path) -> None:
    words = ["storage", "backup", str(tmp_path / "backup"), "--bootstrap", "127.0.0.1:1"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "To back up a broker that is stopped, copy its data directory." in result.output
    assert not (tmp_path / "backup").exists()


async def test_clients_of_other_machines_make_no_backup_points() -> None:
    core: Any = None
    context = RequestContext(core=core, api_version=2, client_id="", host="10.0.0.7")
    request = AlterReplicaLogDirsRequest(dirs=(), makes_backup_point=True)
    response = await alter_replica_log_dirs(context, request)
    assert response.backup_error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def points_on(disk: FakeDisk, *logs: Any) -> BackupPoints:
    partitions: Any = SimpleNamespace(all=lambda: logs)
    return BackupPoints(disk, "/data", partitions)


async def test_a_broker_of_a_cluster_refers_to_the_backup_of_a_cluster() -> None:
    """An adoption that was interrupted at its end has left `cluster.meta`, which is old."""
    disk = FakeDisk()
    disk.mkdir("/data")
    for name in (NODE, *NAMES):
        disk.open(f"/data/{name}").close()
    with pytest.raises(KafkaError, match=r"see the backup of a cluster in docs/cluster\.md"):
        await points_on(disk).make(node_id=1, now_ms=0)


async def test_a_backup_that_is_copied_is_not_taken_away_by_another_or_by_a_restart() -> None:
    disk = FakeDisk()
    disk.mkdir("/data")
    for name in NAMES:
        disk.open(f"/data/{name}").close()
    first = await points_on(disk).make(node_id=1, now_ms=1)
    path = f"/data/{POINT}/{LOCK}"
    disk.open(path).close()
    lock = disk.lock(path)
    with pytest.raises(KafkaError, match="Another backup of this broker is being copied"):
        await points_on(disk).make(node_id=1, now_ms=2)
    await points_on(disk).clear()  # as at a start
    assert disk.exists(f"{first}/{META}")
    lock.release()
    second = await points_on(disk).make(node_id=1, now_ms=3)
    assert second != first
    assert not disk.exists(first)


def segment(disk: FakeDisk, base_offset: int, content: bytes) -> Any:
    """Write a file of a log, as compaction does: beside the old one, which it replaces."""
    path = file_path("/data/t-0", base_offset, LOG)
    file = disk.open(path + ".new")
    file.append(content)
    file.close()
    disk.rename(path + ".new", path)
    return SimpleNamespace(base_offset=base_offset, size_bytes=len(content))


async def test_what_changes_while_links_are_made_in_turns_is_in_the_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The links of 10,000 partitions took two seconds, in which no client got an answer."""
    disk = FakeDisk()
    disk.mkdir("/data/t-0")
    for name in NAMES:
        disk.open(f"/data/{name}").close()
    log: Any = SimpleNamespace(
        directory="/data/t-0", log_start_offset=0, is_deleted=False, check_available=lambda: None
    )
    log.segments = [segment(disk, 0, b"old"), segment(disk, 5, b"")]

    class Place:
        topic, index = "t", 0

    place: Any = Place()
    place.log = log
    points = points_on(disk, place)
    in_turns = points._link_in_turns

    async def then_much_happens(links: Any) -> None:
        await in_turns(links)
        log.segments = [segment(disk, 0, b"compacted"), segment(disk, 5, b"six")]
        log.segments.append(segment(disk, 9, b"rolled"))

    monkeypatch.setattr(points, "_link_in_turns", then_much_happens)
    made = await points.make(node_id=1, now_ms=1)
    file = disk.open(f"{made}/{META}")
    meta = decode_point(await file.pread(0, file.size))
    assert meta is not None
    (found,) = meta.logs
    assert found.segments == [(0, 9), (5, 3), (9, 6)]
    for base, expected in ((0, b"compacted"), (5, b"six"), (9, b"rolled")):
        linked = disk.open(point_file(made, found.number, base))
        assert await linked.pread(0, linked.size) == expected


async def test_a_point_that_cannot_be_made_leaves_no_links_that_keep_deleted_segments() -> None:
    disk = FakeDisk()
    disk.mkdir("/data")  # without the files of the metadata
    with pytest.raises(KafkaError) as refused:
        await points_on(disk).make(node_id=1, now_ms=1)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not disk.exists(f"/data/{POINT}")


def test_what_a_killed_backup_has_left_goes_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / POINT).mkdir()
    (tmp_path / POINT / "0-00000000000000000000.log").touch()
    with run_broker(data_dir=tmp_path):
        assert not (tmp_path / POINT).exists()


def test_a_broker_of_another_node_id_does_not_start_on_a_directory(
    broker: RunningBroker, tmp_path: Path
) -> None:
    assert backup(broker, tmp_path / "backup").exit_code == 0
    with (
        pytest.raises(BrokerDidNotStart, match=r"is that of node\.id 1, and this broker has"),
        run_broker(data_dir=tmp_path / "backup", config={"node.id": "2"}),
    ):
        pass
