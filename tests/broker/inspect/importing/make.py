"""Makes a directory of a real Kafka that was killed, for the tests of the import.

`python -m tests.broker.inspect.importing.make` writes `kafka-4.3.1.tar.xz`: the log directory as
kill -9 left it, and `facts.json`, what a client reads from a Kafka that is started on a copy of it.
It needs what `scripts/test --peers` needs.

One thing is done by hand afterwards: the markers of one transaction, and the record that it is
complete, are cut off. So the directory is that of a Kafka that was killed behind a decision.
"""

import io
import json
import shutil
import tarfile
import tempfile
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import trio

from odradek.broker.inspect.inspection import FoundBatch, batches_in, describe_record
from odradek.broker.storage.disk import read_only
from odradek.client import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition, Transaction
from odradek.client.config import GroupProtocol
from tests.broker.inspect.importing import kafka_contents as c
from tests.peers.kafka import RealKafka, run_tool

ARCHIVE: Final = Path(__file__).parent / "kafka-4.3.1.tar.xz"
FACTS: Final = "facts.json"
LEFT_OUT: Final = (".index", ".timeindex")
"""Kafka preallocates these, and the import does not read them."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
Facts = dict[str, Any]


async def write(address: str, open_to_the_end: AsyncExitStack, log_dir: Path) -> Facts:
    """Write the contents. What must be open when Kafka is killed is entered for good."""
    async with Admin(address) as admin:
        await _topics(admin)
        await _records(address)
        await _trim(address, admin, log_dir)
        await _compact(address, admin)
        await admin.alter_cluster_configs(c.CLUSTER_CONFIGS)
        await admin.alter_group_configs(c.CONSUMER, c.GROUP_CONFIGS)
        await admin.delete_topics(c.DELETED)
    for name, ends in ((c.COMMITTED, True), (c.ABORTED, False)):
        async with Producer(address, transactional_id=name) as producer:
            await _transaction(producer, name, ends=ends)
    facts: Facts = {}
    await _groups(address, open_to_the_end)
    async with (
        _left_open(address, c.PREPARED, two_phase_commit=True) as producer,
        producer.transaction() as transaction,
    ):
        await _send(transaction, c.PREPARED)
        facts["prepared"] = str(await transaction.prepare())
    left = await open_to_the_end.enter_async_context(_left_open(address, c.LEFT))
    transaction = await open_to_the_end.enter_async_context(left.transaction())
    await _send(transaction, c.LEFT)
    await transaction.send_offsets({c.RECORDS: 2}, c.PENDING)
    await transaction.flush()
    async with Producer(address, transactional_id=c.DECIDED) as producer:
        await _transaction(producer, c.DECIDED, ends=True)
    return facts


async def _topics(admin: Admin) -> None:
    for name in (c.RECORDS.topic, c.TRIMMED.topic, c.DELETED):
        await admin.create_topic(name, partitions=1, configs=c.FOR_EVER)
    await admin.create_topic(c.SPREAD, partitions=3, configs=c.SPREAD_CONFIGS)
    await admin.create_topic(c.TRANSACTIONS, partitions=2, configs=c.FOR_EVER)
    for name in (c.COMPACTED.topic, c.ONCE_COMPACTED.topic):
        await admin.create_topic(name, partitions=1, configs=c.COMPACTED_CONFIGS)


async def _records(address: str) -> None:
    for codec in CODECS:
        async with Producer(address, compression=codec) as producer:
            for number in range(4):
                headers = [("codec", codec.encode()), ("null", None)]
                value = f"record {number} " * 20
                await producer.send(
                    c.RECORDS.topic, value.encode(), key=codec.encode(), headers=headers
                )
            await producer.send(c.RECORDS.topic, None, key=codec.encode())
            for partition in range(3):
                await producer.send(c.SPREAD, codec.encode(), partition=partition)
            await producer.flush()
    async with Producer(address) as producer:
        for number in range(40):
            await producer.send(c.TRIMMED.topic, b"record %d" % number, partition=0)
        await (await producer.send(c.DELETED, b"deleted with its topic", partition=0))


async def _trim(address: str, admin: Admin, log_dir: Path) -> None:
    await admin.delete_records({c.TRIMMED: c.TRIMMED_AT})
    wanted = f"{c.TRIMMED.topic} 0 {c.TRIMMED_AT}"
    await _until(lambda: wanted in (log_dir / "log-start-offset-checkpoint").read_text())


async def _compact(address: str, admin: Admin) -> None:
    """Write rounds of the same keys, and wait until Kafka has compacted them.

    Each round is a segment, begins with a key of its own, and is too large to be merged with
    another one. So of a segment the first batch stays, and the last ones go with their offsets.
    """
    # Without a producer id, whose last batch would stay; and each record is a batch.
    plain = confluent_kafka.Producer({"bootstrap.servers": address, "batch.num.messages": 1})
    for number in range(c.ROUNDS):
        for place in (c.COMPACTED, c.ONCE_COMPACTED):
            plain.produce(place.topic, b"first", b"first of %d" % number, 0)
            for key in range(c.KEYS):
                plain.produce(place.topic, c.large(number, key), b"%d" % key, 0)
        plain.flush()
        await trio.sleep(1.5)  # longer than `segment.ms`
    for place in (c.COMPACTED, c.ONCE_COMPACTED):
        with trio.fail_after(60):
            while len(await read(Clients(address), place)) > c.LEFT_MAX:  # noqa: ASYNC110
                await trio.sleep(0.2)
    await admin.alter_topic_configs(
        c.ONCE_COMPACTED.topic, {"cleanup.policy": "delete", "retention.ms": "-1"}
    )


async def _send(transaction: Transaction, value: str) -> None:
    for partition in range(2):
        await transaction.send(c.TRANSACTIONS, value.encode(), partition=partition)


async def _transaction(producer: Producer, value: str, *, ends: bool) -> None:
    async with producer.transaction() as transaction:
        await _send(transaction, value)
        await transaction.flush()
        if not ends:
            await transaction.abort()


@asynccontextmanager
async def _left_open(
    address: str, name: str, *, two_phase_commit: bool = False
) -> AsyncIterator[Producer]:
    async with Producer(
        address,
        transactional_id=name,
        transaction_timeout_ms=c.OPEN_MS,
        two_phase_commit=two_phase_commit,
    ) as producer:
        yield producer


async def _groups(address: str, open_to_the_end: AsyncExitStack) -> None:
    stored = {c.RECORDS: OffsetAndMetadata(c.STORED, metadata=c.METADATA)}
    async with Consumer(address, group_id=c.ALONE) as consumer:
        await consumer.commit(stored)
    async with Consumer(address, group_id=c.PENDING) as consumer:
        await consumer.commit({c.RECORDS: 1})
    protocols: dict[str, GroupProtocol] = {c.CLASSIC: "classic", c.CONSUMER: "consumer"}
    for name, protocol in protocols.items():
        consumer = Consumer(address, group_id=name, group_protocol=protocol)
        await open_to_the_end.enter_async_context(consumer)
        owned: list[TopicPartition] = []
        consumer.subscribe(c.RECORDS.topic, on_assigned=owned.extend)
        with trio.fail_after(60):
            while not owned:
                await consumer.poll()
        await consumer.commit(stored)


async def _until(is_so: Any) -> None:
    with trio.fail_after(60):
        while not is_so():  # noqa: ASYNC110
            await trio.sleep(0.1)


class Clients:
    """Clients of a real broker. A simulated world makes its own by the same names."""

    def __init__(self, address: str) -> None:
        self._address = address

    def admin(self) -> Admin:
        return Admin(self._address)

    def consumer(self, **options: Any) -> Consumer:
        return Consumer(self._address, **options)


async def read(
    clients: Any, place: TopicPartition, isolation: str = "read_uncommitted"
) -> list[Any]:
    """Return the records of a partition: offset, key, value, time and headers, fit for JSON."""
    found: list[Any] = []
    async with clients.admin() as admin, clients.consumer(isolation_level=isolation) as consumer:
        ends = await admin.list_offsets({place: "latest"}, isolation_level=isolation)
        consumer.assign([place])
        await consumer.seek_to_beginning()
        with trio.fail_after(60):
            while await consumer.position(place) < ends[place].offset:
                found += [_plain(record) for record in await consumer.poll()]
    return found


def _plain(record: Any) -> list[Any]:
    headers = [[name, text_of(value)] for name, value in record.headers]
    return [record.offset, text_of(record.key), text_of(record.value), record.timestamp_ms, headers]


def text_of(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


async def facts_of(clients: Any) -> Facts:
    """Return what a client reads: partitions, groups and transactions."""
    facts: Facts = {"partitions": {}, "groups": {}, "transactions": {}, "ids": {}}
    async with clients.admin() as admin:
        with trio.fail_after(60):  # its markers are written after the start
            while (  # noqa: ASYNC110
                await admin.describe_transaction(c.DECIDED)
            ).state != "CompleteCommit":
                await trio.sleep(0.1)
            both = [TopicPartition(c.TRANSACTIONS, index) for index in range(2)]
            while any(  # noqa: ASYNC110
                found.offset < c.TRANSACTIONS_END
                for found in (
                    await admin.list_offsets(
                        dict.fromkeys(both, "latest"), isolation_level="read_uncommitted"
                    )
                ).values()
            ):
                await trio.sleep(0.1)
        names = await admin.list_topics()
        for topic in await admin.describe_topics(*names):
            facts["ids"][topic.name] = str(topic.topic_id)
            for index in range(len(topic.partitions)):
                place = TopicPartition(topic.name, index)
                first = await admin.list_offsets({place: "earliest"})
                stable = await admin.list_offsets(
                    {place: "latest"}, isolation_level="read_committed"
                )
                last = await admin.list_offsets(
                    {place: "latest"}, isolation_level="read_uncommitted"
                )
                committed = await read(clients, place, "read_committed")
                facts["partitions"][str(place)] = {
                    "first": first[place].offset,
                    "stable": stable[place].offset,
                    "last": last[place].offset,
                    "records": await read(clients, place),
                    "committed": [record[0] for record in committed],
                }
        for name in (c.CLASSIC, c.CONSUMER, c.ALONE, c.PENDING):
            committed_offsets = await admin.committed(name, require_stable=False)
            facts["groups"][name] = [
                [str(place), found.offset, found.metadata]
                for place, found in sorted(committed_offsets.items())
            ]
        for name in (c.COMMITTED, c.ABORTED, c.LEFT, c.PREPARED, c.DECIDED):
            found = await admin.describe_transaction(name)
            facts["transactions"][name] = [
                found.state,
                found.producer_id,
                found.producer_epoch,
                sorted(map(str, found.partitions)),
            ]
    return facts


def cut_markers(log_dir: Path) -> None:
    """Leave the transaction of `DECIDED` as it is between its decision and its markers."""
    for index in range(2):
        _cut_last(log_dir / f"{c.TRANSACTIONS}-{index}", lambda batch: batch.header.is_control)
    for directory in log_dir.glob("__transaction_state-*"):
        _cut_last(directory, _completes)


def _completes(batch: FoundBatch) -> bool:
    found = [describe_record(record, "__transaction_state") for record in batch.records()]
    return any(
        each.get("transactional_id") == c.DECIDED and each.get("state") == "CompleteCommit"
        for each in found
    )


def _cut_last(directory: Path, is_it: Any) -> None:
    """Cut the last batch of a log off if it is one that is looked for."""
    path = sorted(directory.glob("*.log"))[-1]
    batches = [each for each in batches_in(read_only(str(path))) if isinstance(each, FoundBatch)]
    if batches and is_it(batches[-1]):
        with path.open("r+b") as file:
            file.truncate(batches[-1].position)


def make_directory(directory: Path) -> tuple[Path, Facts]:
    """Run Kafka, kill it, read what a second one has on a copy. Return the log directory."""
    directory.mkdir(exist_ok=True)
    kafka = RealKafka(directory, settings=c.SETTINGS)
    kafka.format()
    kafka.start()
    try:
        config = ("kafka.admin.ConfigCommand", "--bootstrap-server", kafka.address, "--alter")
        scram = f"SCRAM-SHA-256=[iterations=4096,password={c.USER}]"
        entity = ("--entity-type", "users", "--entity-name", c.USER, "--add-config")
        run_tool(*config, *entity, scram)
        run_tool(*config, *entity, "producer_byte_rate=100000")

        async def write_and_kill() -> Facts:
            with trio.CancelScope() as clients:
                async with AsyncExitStack() as open_to_the_end:
                    facts = await write(kafka.address, open_to_the_end, kafka.log_dir)
                    kafka.kill()
                    clients.cancel()  # they find no broker to tell that they leave
                    await trio.lowlevel.checkpoint()
            return facts

        facts = trio.run(write_and_kill)
    finally:
        kafka.kill()
    facts["made_ms"] = time.time_ns() // 1_000_000
    cut_markers(kafka.log_dir)
    with tempfile.TemporaryDirectory() as beside:
        copy = Path(beside) / "kafka"
        shutil.copytree(
            directory, copy, ignore=shutil.ignore_patterns(*map("*{}".format, LEFT_OUT))
        )
        second = RealKafka(copy, settings=c.SETTINGS)
        second.start()
        try:
            facts |= trio.run(facts_of, Clients(second.address))
        finally:
            second.kill()
    return kafka.log_dir, facts


def pack(log_dir: Path, facts: Facts, path: Path) -> None:
    with tarfile.open(path, "w:xz", preset=9) as archive:
        contents = json.dumps(facts).encode()
        member = tarfile.TarInfo(FACTS)
        member.size = len(contents)
        archive.addfile(member, io.BytesIO(contents))
        for found in sorted(log_dir.rglob("*")):
            if not found.name.endswith(LEFT_OUT):
                archive.add(found, f"logs/{found.relative_to(log_dir)}", recursive=False)


def unpack(path: Path, directory: Path) -> tuple[Path, Facts]:
    """Return the log directory, and the facts."""
    with tarfile.open(path) as archive:
        archive.extractall(directory, filter="data")
    return directory / "logs", json.loads((directory / FACTS).read_bytes())


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        log_dir, facts = make_directory(Path(directory))
        pack(log_dir, facts, ARCHIVE)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
