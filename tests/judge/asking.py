"""Steps for stories that look closer than `Broker`'s own: requests of several partitions, every
field of a Produce answer, reads of any range, several markers at once.

Batches are a minute old, so a time in an answer is clearly that of the batch or of the broker.
"""

import copy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.protocol.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from odradek.protocol.apis.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
)
from odradek.protocol.apis.txn import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.batch import iter_batches
from odradek.protocol.control import read_marker
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.schema import ZERO_UUID
from tests.broker.raw import RawClient
from tests.judge.broker import Broker, Identity, Where
from tests.judge.names import code_name

AGE_MS: Final = 60_000
"""How old the records of these stories are."""
RECENT_MS: Final = AGE_MS // 2
PRODUCE_BY_ID: Final = 13
MAX_BYTES: Final = 1 << 20
PATIENCE_MS: Final = 10_000
TIMEOUT_MS: Final = 5_000
NOBODY: Final = Identity(-1, -1)


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch for one partition: `count` records from `sequence` on."""

    where: Where
    producer: Identity = NOBODY
    sequence: int = 0
    count: int = 1
    is_transactional: bool = False
    timestamp_ms: int | None = None
    """Of its first record, each further one is a millisecond later. None: a minute ago."""

    def encode(self) -> bytearray:
        first_ms = now_ms() - AGE_MS if self.timestamp_ms is None else self.timestamp_ms
        return encode_batch(
            [
                Record(None, f"#{self.sequence}+{index}".encode(), timestamp_ms=first_ms + index)
                for index in range(self.count)
            ],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=self.sequence if self.producer.producer_id != -1 else -1,
            is_transactional=self.is_transactional,
        )

    def describe(self, broker: Broker) -> str:
        topic, partition = self.where
        producer = broker.names.identity(self.producer.producer_id, self.producer.epoch)
        kind = " txn" if self.is_transactional else ""
        return f"{topic}-{partition} {producer} #{self.sequence}+{self.count}{kind}"


def produce_request(
    broker: Broker,
    name: str | None,
    batches: Sequence[Batch],
    *,
    acks: int = -1,
    timeout_ms: int = TIMEOUT_MS,
) -> ProduceRequest:
    """One Produce request with all of these batches."""
    by_topic: dict[str, list[PartitionProduceData]] = {}
    for batch in batches:
        topic, partition = batch.where
        data = PartitionProduceData(index=partition, records=batch.encode())
        by_topic.setdefault(topic, []).append(data)
    return ProduceRequest(
        transactional_id=broker.wire_id(name),
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=tuple(
            TopicProduceData(
                name=broker.names.on_wire(topic),
                topic_id=broker.names.topic_ids.get(topic, ZERO_UUID),
                partition_data=tuple(data),
            )
            for topic, data in by_topic.items()
        ),
    )


def send_at_once(
    broker: Broker, name: str | None, batches: Sequence[Batch], *, version: int
) -> None:
    """A Produce request for each batch, all of them before the first answer."""
    with RawClient(broker) as client:
        for batch in batches:
            client.request(PRODUCE, version, produce_request(broker, name, [batch]))
        for batch in batches:
            response = client.response()
            found = response.responses[0]
            said = _produced(broker, version, found, found.partition_responses[0])
            broker.say(f"in flight v{version} {batch.describe(broker)} -> {said}")


def send(
    broker: Broker,
    name: str | None,
    *batches: Batch,
    version: int,
    acks: int = -1,
    timeout_ms: int = TIMEOUT_MS,
    is_counted: bool = False,
) -> list[PartitionProduceResponse]:
    """One Produce request; the answers of its partitions, none if there was no answer.

    With `is_counted` there are many, and only the codes are counted.
    """
    request = produce_request(broker, name, batches, acks=acks, timeout_ms=timeout_ms)
    words = " | ".join(batch.describe(broker) for batch in batches)
    if is_counted:
        words = f"{len(batches)} batches"
    what = f"produce v{version} {quoted(name)} {words}"
    if acks != -1:
        what += f" acks={acks}"
    if timeout_ms != TIMEOUT_MS:
        what += f" within {timeout_ms} ms"

    def said(response: Any) -> str:
        if is_counted:
            codes = [code_name(code) for code in _codes_of_produced(response)]
            return " ".join(f"{codes.count(code)} {code}" for code in sorted(set(codes)))
        return " | ".join(
            sorted(
                _produced(broker, version, topic, found)
                for topic in response.responses
                for found in topic.partition_responses
            )
        )

    response = broker.ask(what, PRODUCE, version, request, said, _codes_of_produced)
    return (
        [p for topic in response.responses for p in topic.partition_responses] if response else []
    )


def quoted(name: str | None) -> str:
    """A name as it stands in a transcript: a long one is only counted."""
    if name is None:
        return "null"
    return name if 0 < len(name) <= 40 else f"({len(name)} characters)"


def _codes_of_produced(response: Any) -> Sequence[int]:
    return [p.error_code for topic in response.responses for p in topic.partition_responses]


def _produced(broker: Broker, version: int, topic: Any, found: PartitionProduceResponse) -> str:
    is_named = version < PRODUCE_BY_ID
    name = broker.names.here(topic.name) if is_named else broker.names.topic_id(topic.topic_id)
    said = [f"{name}-{found.index}"]
    said.append(f"@{found.base_offset}" if found.error_code == 0 else code_name(found.error_code))
    if found.error_code != 0 and found.base_offset != -1:
        said.append(f"base {found.base_offset}")
    if found.log_append_time_ms != -1:
        is_recent = found.log_append_time_ms > now_ms() - RECENT_MS
        said.append("broker's time" if is_recent else "batch's time")
    if found.log_start_offset != -1:
        said.append(f"start {found.log_start_offset}")
    if found.record_errors:
        said.append(f"records {[error.batch_index for error in found.record_errors]}")
    return " ".join(said)


def read(
    broker: Broker,
    topic: str,
    partition: int = 0,
    offset: int = 0,
    *,
    committed: bool = True,
    version: int = 12,
    max_bytes: int = MAX_BYTES,
    wait_ms: int = 0,
    client_id: str | None = None,
) -> PartitionData | None:
    """Fetch one partition and write down everything that is said of it."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms else 0,
        max_bytes=MAX_BYTES,
        isolation_level=int(committed),
        topics=(
            FetchTopic(
                topic=broker.names.on_wire(topic),
                topic_id=broker.names.topic_ids.get(topic, ZERO_UUID),
                partitions=(wanted,),
            ),
        ),
    )
    what = f"read v{version} {topic}-{partition} from {offset}" + (" committed" * committed)
    if max_bytes != MAX_BYTES:
        what += f" max {max_bytes}"
    response = broker.ask(
        what,
        FETCH,
        version,
        request,
        lambda answer: _read(broker, answer),
        client_id=client_id,
    )
    return response.responses[0].partitions[0] if response and response.responses else None


def _read(broker: Broker, response: Any) -> str:
    if not response.responses:
        return code_name(response.error_code)
    found = response.responses[0].partitions[0]
    said = [
        code_name(found.error_code),
        f"hw {found.high_watermark} lso {found.last_stable_offset} start {found.log_start_offset}",
    ]
    if found.aborted_transactions is None:
        said.append("aborted null")
    for aborted in found.aborted_transactions or ():
        said.append(f"aborted {broker.names.producer(aborted.producer_id)}@{aborted.first_offset}")
    for header, batch in iter_batches(found.records or b""):
        kind = ""
        if header.is_control:
            kind = " COMMIT" if read_marker(batch).committed else " ABORT"
        said.append(f"[{header.base_offset}..{header.last_offset}{kind}]")
    return " ".join(said)


def reading_meanwhile(
    broker: Broker, topic: str, partition: int, offset: int, *, version: int
) -> Callable[[], None]:
    """Fetch on a connection of its own and wait for news; what is returned writes the answer down.

    Whether the broker has got the question before the story's next step is left to chance: the
    answer must be the same.
    """
    reader = copy.copy(broker)
    reader.transcript = []
    thread = threading.Thread(
        target=lambda: read(
            reader,
            topic,
            partition,
            offset,
            version=version,
            wait_ms=PATIENCE_MS,
            client_id="reader",
        )
    )
    thread.start()

    def answer() -> None:
        thread.join()
        broker.transcript += reader.transcript

    return answer


def offset_at(
    broker: Broker,
    topic: str,
    partition: int = 0,
    *,
    timestamp: int,
    committed: bool = True,
    version: int = 7,
    says: str = "",
) -> None:
    """ListOffsets. `says` stands for a timestamp that is not the same in every run."""
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=(ListOffsetsTopic(name=broker.names.on_wire(topic), partitions=(wanted,)),),
    )
    what = f"offset v{version} {topic}-{partition} at {says or timestamp}"
    what += " committed" * committed

    def answer(response: Any) -> str:
        found = response.topics[0].partitions[0]
        said = f"{code_name(found.error_code)} {found.offset}"
        if timestamp >= 0 and found.timestamp >= 0:
            later_ms = found.timestamp - timestamp
            said += " later" if later_ms % AGE_MS else f" {later_ms // AGE_MS} minutes later"
        return said

    broker.ask(what, LIST_OFFSETS, version, request, answer)


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker of a WriteTxnMarkers request."""

    producer: Identity
    partitions: Sequence[Where]
    commit: bool = True
    coordinator_epoch: int = 0
    transaction_version: int = 0


def mark(
    broker: Broker,
    *markers: Marker,
    version: int = 1,
    is_counted: bool = False,
    has_shared: bool = False,
) -> list[str]:
    """WriteTxnMarkers, with an answer for every marker and partition; the codes' names.

    With `is_counted` partitions and codes are many and only counted. `has_shared`: a partition is
    one of the whole broker, its number depends on names and is not said.
    """
    request = WriteTxnMarkersRequest(
        markers=tuple(
            WritableTxnMarker(
                producer_id=marker.producer.producer_id,
                producer_epoch=marker.producer.epoch,
                transaction_result=marker.commit,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version if version >= 2 else 0,
                topics=tuple(
                    WritableTxnMarkerTopic(
                        name=broker.names.on_wire(topic), partition_indexes=tuple(indexes)
                    )
                    for topic, indexes in _by_topic(marker.partitions).items()
                ),
            )
            for marker in markers
        )
    )
    words = " | ".join(_marker(broker, marker, version) for marker in markers)
    codes: list[str] = []

    def answer(response: Any) -> str:
        said = []
        for found in response.markers:
            results = [(t.name, each) for t in found.topics for each in t.partitions]
            codes.extend(code_name(each.error_code) for _, each in results)
            lines = sorted(
                f"{broker.names.here(name)}-{each.partition_index} {code_name(each.error_code)}"
                for name, each in results
            )
            said.append(" ".join((broker.names.producer(found.producer_id), *lines)))
        if is_counted:
            return " ".join(f"{codes.count(code)} {code}" for code in sorted(set(codes)))
        if has_shared:
            return " ".join(sorted(codes))
        return " | ".join(sorted(said))

    if is_counted or has_shared:
        words = f"{sum(len(marker.partitions) for marker in markers)} partitions"
    broker.ask(f"mark v{version} {words}", WRITE_TXN_MARKERS, version, request, answer)
    return codes


def _marker(broker: Broker, marker: Marker, version: int) -> str:
    producer = broker.names.identity(marker.producer.producer_id, marker.producer.epoch)
    verb = "COMMIT" if marker.commit else "ABORT"
    where = " ".join(f"{topic}-{index}" for topic, index in marker.partitions)
    generation = f" TV{marker.transaction_version}" if version >= 2 else ""
    return f"{verb} {producer} by {marker.coordinator_epoch}{generation} {where}"


def producers(broker: Broker, topic: str, partition: int = 0) -> None:
    """DescribeProducers: what the partition knows of each. Coordinator epochs go by their sign."""
    request = DescribeProducersRequest(
        topics=(
            DescribeProducersTopicRequest(
                name=broker.names.on_wire(topic), partition_indexes=(partition,)
            ),
        )
    )

    def answer(response: Any) -> str:
        found = response.topics[0].partitions[0]
        said = [
            f"{broker.names.identity(each.producer_id, each.producer_epoch)} #{each.last_sequence}"
            + (f" open @{each.current_txn_start_offset}" * (each.current_txn_start_offset != -1))
            + (" marked" * (each.coordinator_epoch >= 0))
            for each in found.active_producers
        ]
        return " | ".join((code_name(found.error_code), *sorted(said)))

    broker.ask(f"producers of {topic}-{partition}", DESCRIBE_PRODUCERS, 0, request, answer)


def describe(broker: Broker, *names: str) -> None:
    """DescribeTransactions: state, identity, partitions of each."""
    request = DescribeTransactionsRequest(
        transactional_ids=tuple(broker.names.on_wire(name) for name in names)
    )

    def answer(response: Any) -> str:
        said = []
        for found in response.transaction_states:
            where = sorted(
                f"{broker.names.here(topic.topic)}-{index}"
                for topic in found.topics
                for index in topic.partitions
            )
            producer = broker.names.identity(found.producer_id, found.producer_epoch)
            code = code_name(found.error_code)
            said.append(
                " ".join(
                    (
                        code,
                        found.transaction_state,
                        *([producer] if found.error_code == 0 else []),
                        *where,
                    )
                )
            )
        return " | ".join(said)

    broker.ask(f"describe {len(names)} ids", DESCRIBE_TRANSACTIONS, 0, request, answer)


def _by_topic(partitions: Sequence[Where]) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
