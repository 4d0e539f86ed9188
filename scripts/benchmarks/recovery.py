"""Restart of a coordinator with much state: 25,000 and 100,000 transactional ids, then groups.

Each id has four records. While the broker is stopped, they are written into its log files, in the
format that both brokers share, one record in a batch, as separate decisions write them. The broker
is started once, so that the files become its own, and killed. The next start is measured, from
before the process starts until each of the fifty partitions has answered for one of its ids. During
that time another client sends a request now and then; its longest wait is a row as well.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from odradek.broker.group.store import OffsetEntry, StoredOffset, write_entry
from odradek.broker.txn import store
from odradek.broker.txn.transaction import State, TransactionMetadata
from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import TopicIdPartition, TopicPartition
from odradek.protocol.apis.group_offsets import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from odradek.protocol.apis.metadata import METADATA, MetadataRequest
from odradek.protocol.apis.transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.state_topics import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    state_partition,
)
from scripts.benchmarks.figures import Figure, below
from scripts.benchmarks.process import MIB, processor_seconds, resident_mib
from scripts.benchmarks.raw_producer import GROUP, TRANSACTION, Question, find_coordinator
from scripts.benchmarks.targets import Process, Target, wait_until_serving
from tests.broker.raw import RawClient

FAMILY: Final = "recovery"
COUNTS: Final = (25_000, 100_000)
QUICK_COUNTS: Final = (5_000,)
RECORDS: Final = 4
PARTITIONS: Final = 50
SEGMENT: Final = "00000000000000000000.log"
LIMIT_SECONDS: Final = 3.0
GIVE_UP_SECONDS: Final = 300.0
PAUSE_SECONDS: Final = 0.005
NOT_YET: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
PLACES: Final = frozenset(
    {
        TopicIdPartition.of("payments", 0, UUID(int=1)),
        TopicIdPartition.of("payments", 1, UUID(int=1)),
        TopicIdPartition.of("ledger", 3, UUID(int=2)),
    }
)
STATES: Final = (State.EMPTY, State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A state topic: its records, its coordinator's key type, and the test that it is loaded."""

    name: str
    topic: str
    key_type: int
    record: Callable[[str, int, int, int], Record]
    """Arguments: the id, its number, the number of its record, and the time in ms."""
    question: Callable[[str], Question]
    code: Callable[[Any], int]


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure a broker that this process started. A foreign broker's files are not written."""
    if target.new_process is None:
        return
    for kind in KINDS:
        for count in QUICK_COUNTS if quick else COUNTS:
            with target.new_process() as process:
                yield from _measured(process, kind, count)


def _measured(process: Process, kind: Kind, count: int) -> Iterator[Figure]:
    ids = [f"service-{number}" for number in range(count)]
    first_of = {state_partition(each, PARTITIONS): each for each in reversed(ids)}
    _make_topic(process, kind)
    empty_mib = resident_mib(process.pid)
    process.kill()
    plant(process.log_dir, kind, ids)
    _launch(process, kind, first_of)
    process.kill()
    seconds, longest_ms = _launch(process, kind, first_of)
    computed_seconds = processor_seconds(process.pid)
    a_piece = (resident_mib(process.pid) - empty_mib) * MIB / count
    what = f"{count:,} {kind.name} x {RECORDS} records"
    yield _figure(f"start until loaded, {what}", seconds, "s", LIMIT_SECONDS)
    yield _figure(f"the same, processor time, {what}", computed_seconds, "s")
    yield _figure(f"longest wait of another client, {what}", longest_ms, "ms")
    yield _figure(f"memory of each once loaded, {what}", a_piece, "B")


def _make_topic(process: Process, kind: Kind) -> None:
    process.launch()
    wait_until_serving(process)
    with RawClient(process) as connection:
        find_coordinator(connection, "anybody", kind.key_type)
    deadline = time.monotonic() + GIVE_UP_SECONDS
    for place in range(PARTITIONS):
        while not (process.log_dir / f"{kind.topic}-{place}").is_dir():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{kind.topic}-{place} was not made")
            time.sleep(PAUSE_SECONDS)


def plant(log_dir: Path, kind: Kind, ids: list[str]) -> None:
    """Write the records of `ids`, the first record of all ids before the second."""
    logs: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    places = [state_partition(each, PARTITIONS) for each in ids]
    now_ms = time.time_ns() // 1_000_000
    for step in range(RECORDS):
        for number, each in enumerate(ids):
            log = logs[places[number]]
            record = kind.record(each, number, step, now_ms)
            log.append(bytes(encode_batch([record], base_offset=len(log), leader_epoch=0)))
    for place, log in enumerate(logs):
        (log_dir / f"{kind.topic}-{place}" / SEGMENT).write_bytes(b"".join(log))


def _launch(process: Process, kind: Kind, first_of: dict[int, str]) -> tuple[float, float]:
    """Return the seconds until all is loaded, and the longest wait of another client in ms."""
    started = time.perf_counter()
    process.launch()
    longest_s = 0.0
    with _connected(process) as asking, _connected(process) as other:
        for each in first_of.values():
            while kind.code(asking.ask(*kind.question(each))) in NOT_YET:
                asked = time.perf_counter()
                other.ask(METADATA, 4, MetadataRequest(topics=()))
                now = time.perf_counter()
                longest_s = max(longest_s, now - asked)
                time.sleep(PAUSE_SECONDS)  # the probing must not take the broker's time
                if now - started > GIVE_UP_SECONDS:
                    raise TimeoutError(f"{each} is not loaded in {GIVE_UP_SECONDS:g} s")
    return time.perf_counter() - started, longest_s * 1000


@contextlib.contextmanager
def _connected(process: Process) -> Iterator[RawClient]:
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            client = RawClient(process)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)  # a pause between two probes
        else:
            break
    with client:
        yield client


def _transaction(transactional_id: str, number: int, step: int, now_ms: int) -> Record:
    state = STATES[step % len(STATES)]
    client = ClientIdentity(client_id=f"worker-{number % 100}", host="127.0.0.1")
    transaction = TransactionMetadata(
        producer_id=number,
        producer_epoch=step,
        last_producer_epoch=step - 1,
        previous_producer_id=number,
        timeout_ms=60_000,
        state=state,
        started_ms=now_ms,
        updated_ms=now_ms,
        transaction_version=2,
        client=client,
    )
    if state in (State.ONGOING, State.PREPARE_COMMIT):
        transaction = replace(transaction, partitions=PLACES)
    return store.encode(transactional_id, transaction)


def _offset(group_id: str, number: int, step: int, now_ms: int) -> Record:
    stored = StoredOffset(offset=number + step, leader_epoch=0, commit_timestamp_ms=now_ms)
    return write_entry(OffsetEntry(group_id, TopicPartition("payments", 0), stored), now_ms)


def _describe(transactional_id: str) -> Question:
    return (
        DESCRIBE_TRANSACTIONS,
        0,
        DescribeTransactionsRequest(transactional_ids=(transactional_id,)),
    )


def _fetch(group_id: str) -> Question:
    topics = (OffsetFetchRequestTopic(name="payments", partition_indexes=(0,)),)
    return OFFSET_FETCH, 6, OffsetFetchRequest(group_id=group_id, topics=topics)


KINDS: Final = (
    Kind(
        name="transactional ids",
        topic=TRANSACTION_STATE_TOPIC,
        key_type=TRANSACTION,
        record=_transaction,
        question=_describe,
        code=lambda answer: int(answer.transaction_states[0].error_code),
    ),
    Kind(
        name="groups",
        topic=CONSUMER_OFFSETS_TOPIC,
        key_type=GROUP,
        record=_offset,
        question=_fetch,
        code=lambda answer: int(answer.error_code),
    ),
)


def _figure(name: str, value: float, unit: str, limit: float | None = None) -> Figure:
    floor = None if limit is None else below(limit)
    return Figure(family=FAMILY, name=name, value=value, unit=unit, floor=floor)
