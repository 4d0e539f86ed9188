"""`odradek storage import`: the directory of a real Kafka that was killed, as `make.py` kept it.

The broker that opens the result is simulated, at the time at which Kafka was killed: nothing has
expired. What it must have is what clients have read from a Kafka on a copy of the directory.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
import trio
from click.testing import CliRunner, Result

from odradek.broker.cli import main
from odradek.broker.inspect import transfer
from odradek.broker.inspect.importing import kafka_metadata
from odradek.broker.inspect.inspection import FoundBatch, batches_in
from odradek.broker.inspect.repair import survey_log
from odradek.broker.storage.data_format import UnknownFormat, claim_format
from odradek.broker.storage.disk import SystemDisk, read_only
from odradek.broker.testing import RunningBroker, run_broker
from odradek.client import Completion, PreparedTransaction, TopicPartition
from odradek.client.blocking import Acl, Admin, ScramUser
from odradek.protocol import kraft_records as kraft
from odradek.protocol import wire
from odradek.protocol.batch import set_base_offset
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.schema import ZERO_UUID
from tests.broker.inspect.importing import kafka_contents as c
from tests.broker.inspect.importing import make
from tests.secured_broker import ANONYMOUS, AUTHORIZER
from tests.simulation.machine import DIRECTORY, START_MS
from tests.simulation.world import World

EXTRA: Final = {"node.id": str(c.NODE_ID), "transaction.two.phase.commit.enable": "true"}


class SaslBroker(RunningBroker):
    """A broker whose only listener has SASL."""

    listener = "SASL_PLAINTEXT"


@dataclass(frozen=True)
class Kafka:
    logs: Path
    facts: make.Facts


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Kafka:
    return Kafka(*make.unpack(make.ARCHIVE, tmp_path_factory.mktemp("kafka")))


@pytest.fixture
def copied(kafka: Kafka, tmp_path: Path) -> Path:
    """A copy of Kafka's directory that a test may change."""
    return Path(shutil.copytree(kafka.logs, tmp_path / "kafka"))


@pytest.fixture(scope="module")
def imported(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("imported") / "data"
    result = storage_import(kafka.logs, target, "--yes")
    assert result.exit_code == 0, result.output
    return target


def storage_import(source: Path, target: Path, *options: str) -> Result:
    return CliRunner().invoke(
        main, ["storage", "import", str(source), "--data-dir", str(target), *options]
    )


@asynccontextmanager
async def opened(directory: Path, facts: make.Facts) -> AsyncIterator[World]:
    """Run a simulated broker on the files of a data directory, at the time of Kafka's end."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=1, properties=EXTRA)
        machine = world.machines[1]
        machine.config = replace(machine.config, node_id=c.NODE_ID)
        machine.clock.skew_ms = facts["made_ms"] - START_MS
        for path in sorted(directory.rglob("*")):  # noqa: ASYNC240
            place = f"{DIRECTORY}/{path.relative_to(directory)}"
            if path.is_dir():
                machine.disk.mkdir(place)
            elif path.name != ".lock":
                file = machine.disk.open(place)
                file.append(path.read_bytes())
                file.close()
        machine.disk.make_durable()
        await world.start()
        yield world
        assert world.trace.tracebacks == []
        nursery.cancel_scope.cancel()


async def test_clients_read_what_they_read_from_kafka(kafka: Kafka, imported: Path) -> None:
    async with opened(imported, kafka.facts) as world:
        with trio.fail_after(100):
            found = await make.facts_of(world)
        for what in ("ids", "groups", "transactions"):
            assert found[what] == {name: kafka.facts[what][name] for name in found[what]}
        for place, partition in kafka.facts["partitions"].items():
            assert found["partitions"][place] == partition, place


async def test_settings_are_taken_over(kafka: Kafka, imported: Path) -> None:
    async with opened(imported, kafka.facts) as world, world.admin() as admin:
        for topic, wanted in (
            (c.SPREAD, c.SPREAD_CONFIGS),
            (c.COMPACTED.topic, c.COMPACTED_CONFIGS),
            (c.ONCE_COMPACTED.topic, {"cleanup.policy": "delete"}),
        ):
            configs = (await admin.describe_topic_configs(topic))[topic]
            assert {name: configs[name].value for name in wanted} == wanted
        cluster = await admin.describe_cluster_configs()
        assert {name: cluster[name].value for name in c.CLUSTER_CONFIGS} == c.CLUSTER_CONFIGS
        group = (await admin.describe_group_configs(c.CONSUMER))[c.CONSUMER]
        assert {name: group[name].value for name in c.GROUP_CONFIGS} == c.GROUP_CONFIGS
        described = await admin.describe_cluster()
        assert [node.node_id for node in described.brokers] == [c.NODE_ID]


async def test_groups_have_their_members(kafka: Kafka, imported: Path) -> None:
    async with opened(imported, kafka.facts) as world, world.admin() as admin:
        for name, kind in ((c.CLASSIC, "classic"), (c.CONSUMER, "consumer")):
            group = await admin.describe_group(name)
            assert (group.group_type, len(group.members)) == (kind, 1)


async def test_open_transactions_are_ended_by_the_successors_of_their_producers(
    kafka: Kafka, imported: Path
) -> None:
    place = TopicPartition(c.TRANSACTIONS, 0)
    async with opened(imported, kafka.facts) as world:
        async with world.producer(
            transactional_id=c.PREPARED, two_phase_commit=True, keep_prepared=True
        ) as producer:
            decided = PreparedTransaction.parse(kafka.facts["prepared"])
            assert await producer.complete(decided) is Completion.COMMITTED
        async with (
            world.producer(transactional_id=c.LEFT) as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send(c.TRANSACTIONS, b"new", partition=0)
        values = [record[2] for record in await make.read(world, place, "read_committed")]
        wanted = [c.COMMITTED, c.PREPARED, c.DECIDED, "new"]
        assert values == [make.text_of(value.encode()) for value in wanted]
        async with world.admin() as admin:
            pending = await admin.committed(c.PENDING)
            assert pending[c.RECORDS].offset == 1


def contents(directory: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file."""
    return {
        str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in directory.rglob("*")
    }


def test_kafkas_directory_stays_as_it_is(copied: Path, tmp_path: Path) -> None:
    before = contents(copied)
    assert storage_import(copied, tmp_path / "data", "--yes").exit_code == 0
    assert contents(copied) == before


def test_a_second_run_finds_it_done(copied: Path, tmp_path: Path) -> None:
    target = tmp_path / "data"
    assert storage_import(copied, target, "--yes").exit_code == 0
    before = contents(target)
    second = storage_import(copied, target, "--json")
    assert second.exit_code == 0
    assert "It is done:" in second.stderr
    facts = json.loads(second.stdout)
    assert (facts["written"], facts["node_id"]) == (False, c.NODE_ID)
    assert c.SPREAD in [topic["topic"] for topic in facts["topics"]]
    assert contents(target) == before
    os.utime(copied / "records-0" / f"{0:020}.log")
    third = storage_import(copied, target)
    assert third.exit_code == 1
    assert "has changed since it was imported" in third.output


@pytest.mark.parametrize("changes", [False, True])
def test_an_import_that_was_interrupted_can_be_repeated(
    copied: Path, tmp_path: Path, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, changes: bool
) -> None:
    target, made = tmp_path / "data", list[str]()
    whole = transfer.Transfer._read

    async def interrupted(self: Any, directory: str, *arguments: Any, **more: Any) -> None:
        made.append(directory)
        if len(made) == 6:
            raise KeyboardInterrupt
        await whole(self, directory, *arguments, **more)

    monkeypatch.setattr(transfer.Transfer, "_read", interrupted)
    assert storage_import(copied, target, "--yes").exit_code == 130
    with pytest.raises(UnknownFormat, match="is unfinished: `odradek storage import"):
        trio.run(claim_format, SystemDisk(), str(target))
    if changes:  # Kafka has run meanwhile
        os.utime(copied / "records-0" / f"{0:020}.log")
    first, made[:] = made[:5], [""] * 10
    result = storage_import(copied, target, "--yes")
    assert result.exit_code == 0, result.output
    again = set(made) & set(first)
    assert again == (set(first) if changes else set())
    trio.run(claim_format, SystemDisk(), str(target))
    names = {path.name for path in target.glob("*-[0-9]*")}
    assert set(kafka.facts["partitions"]) < names


def test_nothing_is_written_before_a_person_agrees_to_what_is_left_out(
    copied: Path, tmp_path: Path
) -> None:
    credential = kraft.UserScramCredentialRecord(
        name="eve", mechanism=9, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
    )
    add_metadata(copied, credential, kind=11)
    for options in ((), ("--dry-run",)):
        result = storage_import(copied, tmp_path / "data", *options)
        assert "the user eve with the SCRAM mechanism 9" in result.output
        assert not (tmp_path / "data").exists()


def test_all_that_is_not_served_here_is_named_before_anything_is_written(
    copied: Path, tmp_path: Path
) -> None:
    token = kraft.DelegationTokenRecord(
        owner="User:ada", requester="User:ada", renewers=(), token_id="token",
        issue_timestamp=0, max_timestamp=0, expiration_timestamp=0,
    )  # fmt: skip
    add_metadata(copied, token, kind=10)
    logs = copied.glob("__consumer_offsets-*/*.log")
    path = next(each for each in sorted(logs) if each.stat().st_size > 0)
    for version, group in ((11, b"sharers"), (17, b"streamers")):
        key = struct.pack(">hh", version, len(group)) + group
        append(path, Record(key=key, value=b"", timestamp_ms=0))
    result = storage_import(copied, tmp_path / "data", "--dry-run")
    for words in (
        "delegation tokens: 1",
        "share groups: sharers",
        "streams groups (KIP-1071): streamers",
    ):
        assert words in result.output
    assert not (tmp_path / "data").exists()


def test_acl_entries_are_taken_over(copied: Path, tmp_path: Path) -> None:
    entry = kraft.AccessControlEntryRecord(
        id=UUID(int=1), resource_type=2, resource_name="spread", pattern_type=3,
        principal="User:ada", host="*", operation=3, permission_type=3,
    )  # fmt: skip
    add_metadata(copied, entry, kind=18)
    add_metadata(copied, replace(entry, id=UUID(int=2), operation=4, permission_type=2), kind=18)
    add_metadata(copied, replace(entry, id=UUID(int=3), operation=5), kind=18)
    add_metadata(copied, kraft.RemoveAccessControlEntryRecord(id=UUID(int=3)), kind=19)
    result = storage_import(copied, tmp_path / "data", "--yes")
    assert result.exit_code == 0, result.output
    assert "ACL entries: 2." in result.output
    settings = {**EXTRA, "authorizer.class.name": AUTHORIZER, "super.users": ANONYMOUS}
    with (
        run_broker(data_dir=tmp_path / "data", config=settings) as broker,
        Admin(broker.address) as admin,
    ):
        assert admin.describe_acls() == [
            Acl("topic", "spread", "User:ada", "read"),
            Acl("topic", "spread", "User:ada", "write", "deny"),
        ]


def test_quotas_are_taken_over(copied: Path, tmp_path: Path) -> None:
    def record(kind: str, value: float, *parts: tuple[str, str | None], gone: bool = False) -> None:
        entity = tuple(
            kraft.QuotaEntity(entity_type=each, entity_name=name) for each, name in parts
        )
        found = kraft.ClientQuotaRecord(entity=entity, key=kind, value=value, remove=gone)
        add_metadata(copied, found, kind=14)

    record("consumer_byte_rate", 7.0, ("client-id", None), ("user", "eve"))
    record("producer_byte_rate", 8.0, ("client-id", None), ("user", "eve"))
    record("producer_byte_rate", 0.0, ("user", "eve"), ("client-id", None), gone=True)
    record("connection_creation_rate", 9.0, ("ip", "10.0.0.7"))
    record("connection_creation_rate", 9.0, ("ip", "old.example"))
    record("request_percentage", 5.0, ("user", "gone"))
    record("request_percentage", 5.0, ("user", "gone"), gone=True)
    record("request_percentage", 5e-324, ("user", "shut"))
    record("connection_creation_rate", 1e-7, ("ip", None))
    result = storage_import(copied, tmp_path / "data", "--yes")
    assert result.exit_code == 0, result.output
    assert "the quotas of old.example, which is no address" in result.output
    assert "the quota request_percentage" in result.output
    assert "the quota connection_creation_rate" in result.output
    with (
        run_broker(data_dir=tmp_path / "data", config=EXTRA) as broker,
        Admin(broker.address) as admin,
    ):
        found = {each[:3]: dict(each.values) for each in admin.describe_quotas()}
    assert (
        found.items()
        >= {
            ("eve", "", None): {"consumer_byte_rate": 7.0},
            (None, None, "10.0.0.7"): {"connection_creation_rate": 9.0},
        }.items()
    )
    assert len(found) == 3  # one is of the Kafka itself
    assert ("gone", None, None) not in found


def test_users_keep_their_passwords(copied: Path, tmp_path: Path) -> None:
    gone = kraft.UserScramCredentialRecord(
        name="bob", mechanism=2, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
    )
    add_metadata(copied, gone, kind=11)
    removed = kraft.RemoveUserScramCredentialRecord(name="bob", mechanism=2)
    add_metadata(copied, removed, kind=22)
    result = storage_import(copied, tmp_path / "data", "--yes")
    assert result.exit_code == 0, result.output
    assert f"Users (SCRAM), with their passwords: {c.USER}." in result.output
    with (
        run_broker(data_dir=tmp_path / "data", config=EXTRA, kind=SaslBroker) as broker,
        Admin(
            broker.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username=c.USER,
            sasl_password=c.USER,
        ) as admin,
    ):
        assert admin.describe_users() == [ScramUser(c.USER, {"SCRAM-SHA-256": 4096})]


def test_a_kafka_that_runs_is_not_imported(copied: Path, tmp_path: Path) -> None:
    lock = copied / ".lock"
    lock.touch()
    holds = (
        "import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.lockf(f,fcntl.LOCK_EX); print(); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holds, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        result = storage_import(copied, tmp_path / "data", "--yes")
        running.communicate(b"\n")
    assert f"A Kafka runs on {copied}" in result.output
    assert not (tmp_path / "data").exists()


def test_a_batch_that_a_kill_has_cut_short_goes(copied: Path, tmp_path: Path) -> None:
    path = copied / "records-0" / f"{0:020}.log"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 10)
    assert storage_import(copied, tmp_path / "data", "--yes").exit_code == 0
    found = trio.run(survey_log, SystemDisk(), str(tmp_path / "data" / "records-0"))
    assert not found.is_damaged
    assert found.log_end_offset == 20  # the last batch has five records
    assert path.stat().st_size == size - 10


def test_room_that_kafka_has_preallocated_is_no_damage(copied: Path, tmp_path: Path) -> None:
    path = copied / "records-0" / f"{0:020}.log"
    with path.open("ab") as file:
        file.write(bytes(100_000))
    assert storage_import(copied, tmp_path / "data", "--yes").exit_code == 0
    found = trio.run(survey_log, SystemDisk(), str(tmp_path / "data" / "records-0"))
    assert (found.is_damaged, found.log_end_offset) == (False, 25)


def test_a_damaged_log_is_refused_and_named(copied: Path, tmp_path: Path) -> None:
    path = copied / "records-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    result = storage_import(copied, tmp_path / "data", "--yes")
    assert result.exit_code == 1
    assert f"{path} is damaged at byte 0, offset 0" in result.output


def test_a_partition_without_its_directory_is_refused(copied: Path, tmp_path: Path) -> None:
    shutil.rmtree(copied / "spread-1")
    result = storage_import(copied, tmp_path / "data", "--yes")
    assert "Topic spread has 3 partitions, and there is no directory for: 1." in result.output
    assert not (tmp_path / "data").exists()


def test_partitions_in_two_directories_are_imported(copied: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    shutil.copy(copied / "meta.properties", second)
    (copied / "spread-1").rename(second / "spread-1")
    (copied / "spread-2.0123456789abcdef0123456789abcdef-delete").mkdir()
    target = tmp_path / "data"
    words = ["storage", "import", str(copied), str(second), "--data-dir", str(target), "--yes"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert "-delete" in result.output
    assert (target / "spread-1" / "topic.meta").exists()


def test_nothing_is_imported_into_kafkas_own_directory(copied: Path) -> None:
    before = contents(copied)
    for target in (copied, copied / "odradek"):
        result = storage_import(copied, target, "--yes")
        assert f"{target} is inside of {copied}: give another directory." in result.output
    assert contents(copied) == before


def test_a_directory_that_is_not_kafkas_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    result = storage_import(tmp_path / "source", tmp_path / "data")
    assert "is no log directory of Apache Kafka: it has no meta.properties." in result.output


def test_a_kafka_of_several_nodes_is_refused(copied: Path, tmp_path: Path) -> None:
    registered = kraft.RegisterBrokerRecord(
        broker_id=8, incarnation_id=ZERO_UUID, broker_epoch=1, end_points=(), features=(), rack=None
    )
    add_metadata(copied, registered, kind=0, version=3)
    result = storage_import(copied, tmp_path / "data", "--yes")
    assert "The cluster has the brokers 7, 8, and only a Kafka of one node" in result.output
    assert not (tmp_path / "data").exists()


def test_records_of_a_kind_after_kafka_4_3_are_not_skipped(copied: Path, tmp_path: Path) -> None:
    add_metadata(copied, kraft.EndTransactionRecord(), kind=99)
    result = storage_import(copied, tmp_path / "data", "--yes")
    assert "has a record that this version cannot read" in result.output


def test_a_metadata_transaction_counts_once_it_has_ended(copied: Path) -> None:
    directory = str(copied / kafka_metadata.METADATA)
    removed = next(iter(kafka_metadata.read_metadata(directory).topics))
    for end, kind, counts in (
        (kraft.AbortTransactionRecord(), 25, False),
        (kraft.EndTransactionRecord(), 24, True),
    ):
        add_metadata(copied, kraft.BeginTransactionRecord(), kind=23)
        add_metadata(copied, kraft.RemoveTopicRecord(topic_id=removed), kind=9)
        assert removed in kafka_metadata.read_metadata(directory).topics
        add_metadata(copied, end, kind=kind)
        assert (removed not in kafka_metadata.read_metadata(directory).topics) == counts


def add_metadata(logs: Path, record: Any, *, kind: int, version: int = 0) -> None:
    """Append a record to Kafka's metadata log."""
    path = sorted((logs / kafka_metadata.METADATA).glob("*.log"))[-1]
    frame = bytes([1, kind, version])
    body = b"".join(wire.build(record, version, True).finish())
    append(path, Record(key=None, value=frame + body, timestamp_ms=0))


def append(path: Path, record: Record) -> None:
    """Append a record to a log that has some."""
    last = [each for each in batches_in(read_only(str(path))) if isinstance(each, FoundBatch)][-1]
    batch = bytearray(encode_batch([record]))
    set_base_offset(batch, last.header.next_offset, last.header.partition_leader_epoch)
    with path.open("ab") as file:
        file.write(batch)
