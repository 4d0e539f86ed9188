"""The bytes of decided members of transaction groups, before and after they are forgotten.

Members write one record each to one partition, and their groups are committed. The memory is that
of the broker's process. The disk is the log of `__transaction_state`, and the checkpoint of the
partition, which has its producers. The broker is then started with an expiration of a millisecond,
and once more when all is forgotten, because Python does not return all of its memory.
"""

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from uuid import uuid4

import msgpack

from odradek.broker.storage.checkpoint import pack_entry
from odradek.broker.storage.producers import Producers
from odradek.broker.values.member_ids import member_id
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    LIST_TRANSACTIONS,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    ListTransactionsRequest,
)
from odradek.protocol.apis.txn import END_TXN, EndTxnMember, EndTxnRequest
from odradek.protocol.batch import read_header
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from scripts.benchmarks.figures import Figure
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.process import MIB, SETTLE_SECONDS, resident_mib
from scripts.benchmarks.raw_producer import RawProducer, ask, find_coordinator, together
from scripts.benchmarks.targets import OurProcess, wait_until_serving
from tests.broker.raw import RawClient

FAMILY: Final = "groups"
MEMBERS: Final = 100_000
QUICK_MEMBERS: Final = 2_000
IN_A_GROUP: Final = 1_000
CONNECTIONS: Final = 50
GIVE_UP_SECONDS: Final = 300.0
PAUSE_SECONDS: Final = 0.5
SOME_MS: Final = 1_700_000_000_000
FORGETFUL: Final = {
    "transaction.group.id.expiration.ms": "1",
    "producer.id.expiration.check.interval.ms": "500",
}


def measure_members(quick: bool) -> Iterator[Figure]:
    """Measure brokers of this project, each of which this process starts."""
    count = QUICK_MEMBERS if quick else MEMBERS
    what = f"of a decided member, {count:,} members"
    yield _figure(f"memory {what}: its producer in a partition", _producer_bytes(count))
    yield _figure(f"checkpoint {what}", _checkpoint_bytes(count))
    with TemporaryDirectory(prefix="odradek-bench-") as directory:
        data = Path(directory) / "data"
        process = OurProcess(data)
        try:
            yield from _kept(process, data, count, what)
        finally:
            process.kill()


def _kept(process: OurProcess, data: Path, count: int, what: str) -> Iterator[Figure]:
    empty, loaded, log_bytes, topic = _fill(process, data, count)
    yield _figure(f"memory {what}: in all", (loaded - empty) * MIB / count)
    yield _figure(f"log of the coordinator {what}", log_bytes / count)
    process.kill()
    for _ in range(2):
        again = OurProcess(data, FORGETFUL)
        again.launch()
        try:
            wait_until_serving(again)
            with RawClient(again) as client:
                _wait_until_forgotten(client, topic)
            time.sleep(SETTLE_SECONDS)
            left = resident_mib(again.pid)
            log_bytes = _log_bytes(data)
        finally:
            again.kill()
    yield _figure(f"memory {what}: in all, forgotten", (left - empty) * MIB / count)
    yield _figure(f"log of the coordinator {what}, forgotten", log_bytes / count)


def _fill(process: OurProcess, data: Path, count: int) -> tuple[float, float, int, str]:
    """Return the MiB without and with the members, the bytes of the log, and the topic."""
    process.launch()
    wait_until_serving(process)
    topic = new_topic(f"{process.host}:{process.port}", "members", partitions=1)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(process)) for _ in range(CONNECTIONS)]
        find_coordinator(clients[0], "members")
        _commit(clients, topic, "first", CONNECTIONS)
        time.sleep(SETTLE_SECONDS)
        empty, empty_bytes = resident_mib(process.pid), _log_bytes(data)
        for number in range(count // IN_A_GROUP):
            _commit(clients, topic, f"members-{number}", IN_A_GROUP)
        time.sleep(SETTLE_SECONDS)
        return empty, resident_mib(process.pid), _log_bytes(data) - empty_bytes, topic


def _commit(clients: list[RawClient], topic: str, name: str, count: int) -> None:
    """Commit a group, and wait until all is complete."""
    members = [RawProducer(transactional_id=f"{{{name}}}.{number}") for number in range(count)]
    for start in range(0, count, len(clients)):
        some = members[start : start + len(clients)]
        answers = together(clients, [member.init() for member in some])
        for member, answer in zip(some, answers, strict=True):
            member.take(answer)
        together(clients, [member.produce(topic, [0]) for member in some])
    listed = tuple(
        EndTxnMember(
            transactional_id=member.transactional_id,
            producer_id=member.producer_id,
            producer_epoch=member.epoch,
        )
        for member in members
    )
    request = EndTxnRequest(
        transactional_id=members[0].transactional_id,
        producer_id=-1,
        producer_epoch=-1,
        committed=True,
        members=listed,
        decision_id=uuid4(),
    )
    ask(clients[0], (END_TXN, 5, request))
    ask(clients[0], members[0].init())  # which waits until its transaction is complete


def _is_known(client: RawClient, topic: str) -> bool:
    """Return True if a coordinator knows an id, or the partition a producer."""
    everything = ListTransactionsRequest(state_filters=(), producer_id_filters=())
    listed = client.ask(LIST_TRANSACTIONS, 0, everything)
    if listed.error_code != ErrorCode.NONE or listed.transaction_states:
        return True
    wanted = DescribeProducersTopicRequest(name=topic, partition_indexes=(0,))
    answer = client.ask(DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=(wanted,)))
    (partition,) = answer.topics[0].partitions
    return partition.error_code != ErrorCode.NONE or bool(partition.active_producers)


def _wait_until_forgotten(client: RawClient, topic: str) -> None:
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while _is_known(client, topic):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the members are not forgotten in {GIVE_UP_SECONDS:g} s")
        time.sleep(PAUSE_SECONDS)  # between two looks


def _log_bytes(data: Path) -> int:
    """Return the bytes of the segments of the coordinator's partitions."""
    logs = data.glob(f"{TRANSACTION_STATE_TOPIC}-*/*.log")
    return sum(path.stat().st_size for path in logs)


def _producers(count: int) -> Producers:
    """Return the producers of a partition to which members have written a record each."""
    made = Producers()
    for first in range(0, count, IN_A_GROUP):
        numbers = range(first, first + IN_A_GROUP)
        for number in numbers:
            batch = encode_batch(
                [Record(key=None, value=b"x", timestamp_ms=SOME_MS + number)],
                producer_id=member_id(number),
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
            now_ms = SOME_MS + number
            made.add_batch(read_header(batch), first + number, now_ms, now_ms)
        for number in numbers:
            made.add_marker(
                producer_id=member_id(number),
                producer_epoch=1,
                coordinator_epoch=0,
                offset=first + IN_A_GROUP + number,
                timestamp_ms=SOME_MS + IN_A_GROUP + number,
                now_ms=SOME_MS + IN_A_GROUP + number,
            )
        made.high_watermark_is(2 * first + 2 * IN_A_GROUP)
    return made


def _producer_bytes(count: int) -> float:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        made = _producers(count)
        after, _ = tracemalloc.get_traced_memory()
        assert len(made.entries) == count
        return (after - before) / count
    finally:
        tracemalloc.stop()


def _checkpoint_bytes(count: int) -> float:
    packed = [pack_entry(each) for each in _producers(count).entries.values()]
    return len(msgpack.packb(packed)) / count


def _figure(name: str, value: float) -> Figure:
    return Figure(family=FAMILY, name=name, value=value, unit="B")
