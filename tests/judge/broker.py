"""A broker as a story sees it: each step sends one request and writes down what was answered.

Nothing is tracked that a broker should know, with one exception: a batch's sequence follows the
last one that was taken from the same producer id and epoch in the same partition, unless a story
says which it wants.

After EndTxn a step waits until the coordinator has written Complete*, because what is answered in
between is a matter of milliseconds on both; `settle=False` does not wait.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.group_offsets import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.schema import ZERO_UUID
from tests.judge.answers import (
    Where,
    by_topic,
    codes_of_added,
    codes_of_found,
    codes_of_produced,
    codes_of_topics,
    listed,
    markers_of,
    one_code,
    one_name,
    produced,
)
from tests.judge.asker import Asker, Identity
from tests.judge.names import code_name
from tests.judge.reading import (
    describe_batch,
    describe_state,
    fetch,
    list_offset,
    read_log,
)

__all__ = ["Broker", "Identity", "Where"]

TIMEOUT_MS: Final = 60_000
PRODUCE_TIMEOUT_MS: Final = 5_000
NO_PATIENCE_MS: Final = 20
"""A broker asks its own coordinator again for as long (KAFKA-18654): where nothing is to be waited
for, it need not."""
GROUP_VERSION: Final = 8
"""The last version of OffsetFetch that names topics by name and has what is asked for."""


class Broker(Asker):
    """One broker in one story, with a method for each kind of step."""

    def __init__(self, host: str, port: int, prefix: str = "") -> None:
        super().__init__(host, port, prefix)
        self._sequences: dict[tuple[int, int, Where], int] = {}
        self._values = 0

    # Transactions

    def init(
        self,
        name: str | None,
        *,
        version: int = 4,
        timeout_ms: int = TIMEOUT_MS,
        expected: Identity | None = None,
    ) -> Identity:
        """InitProducerId. The identity is -1/-1 after an error."""
        producer = expected or Identity(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.wire_id(name),
            transaction_timeout_ms=timeout_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
        )
        what = f"init v{version} {self.quote(name)}"
        if timeout_ms != TIMEOUT_MS:
            what += f" {timeout_ms}ms"
        if expected is not None:
            what += f" expects {self.identity_of(producer)}"
        response = self.ask(
            what,
            INIT_PRODUCER_ID,
            version,
            request,
            lambda r: self.with_identity(r, r.producer_epoch),
            one_code,
        )
        if response is None:
            return Identity(-1, -1)
        return Identity(response.producer_id, response.producer_epoch)

    def add(
        self,
        name: str,
        producer: Identity,
        partitions: Sequence[Where],
        *,
        version: int = 3,
        verify_only: bool = False,
    ) -> bool:
        """Send AddPartitionsToTxn. Return True if every partition got NONE."""
        topics = tuple(
            AddPartitionsToTxnTopic(name=self.names.on_wire(topic), partitions=tuple(indexes))
            for topic, indexes in by_topic(partitions).items()
        )
        if version >= 4:
            request = AddPartitionsToTxnRequest(
                transactions=(
                    AddPartitionsToTxnTransaction(
                        transactional_id=self.must_id(name),
                        producer_id=producer.producer_id,
                        producer_epoch=producer.epoch,
                        verify_only=verify_only,
                        topics=topics,
                    ),
                )
            )
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.must_id(name),
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=topics,
            )
        verb = "verify" if verify_only else "add"
        identity = self.identity_of(producer)
        what = f"{verb} v{version} {self.quote(name)} {identity} {listed(partitions)}"
        response = self.ask(
            what, ADD_PARTITIONS_TO_TXN, version, request, self._added, codes_of_added
        )
        return response is not None and set(codes_of_added(response)) <= {ErrorCode.NONE}

    def _added(self, response: Any) -> str:
        said = [] if response.error_code == ErrorCode.NONE else [code_name(response.error_code)]
        topics = [t for r in response.results_by_transaction for t in r.topic_results]
        topics += response.results_by_topic_v3_and_below
        return " ".join(
            said
            + self.codes(
                (topic.name, result.partition_index, result.partition_error_code)
                for topic in topics
                for result in topic.results_by_partition
            )
        )

    def add_offsets(self, name: str, producer: Identity, group: str, *, version: int = 3) -> bool:
        """Send AddOffsetsToTxn. Return True if it got NONE."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.must_id(name),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=self.wire_group(group),
        )
        identity = self.identity_of(producer)
        what = f"add_offsets v{version} {self.quote(name)} {identity} {self.quote(group)}"
        response = self.ask(what, ADD_OFFSETS_TO_TXN, version, request, one_name, one_code)
        return response is not None and bool(response.error_code == ErrorCode.NONE)

    def commit_offsets(
        self,
        name: str,
        producer: Identity,
        group: str,
        offsets: Mapping[Where, int],
        *,
        version: int = 3,
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
    ) -> bool:
        """Send TxnOffsetCommit. Return True if every partition got NONE."""
        request = TxnOffsetCommitRequest(
            transactional_id=self.must_id(name),
            group_id=self.wire_group(group),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            topics=tuple(
                TxnOffsetCommitRequestTopic(
                    name=self.names.on_wire(topic),
                    partitions=tuple(
                        TxnOffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offsets[topic, index],
                            committed_metadata="",
                        )
                        for index in indexes
                    ),
                )
                for topic, indexes in by_topic(list(offsets)).items()
            ),
        )
        pairs = " ".join(f"{topic}-{index}={offset}" for (topic, index), offset in offsets.items())
        identity = self.identity_of(producer)
        what = f"commit_offsets v{version} {self.quote(name)} {identity} {group} {pairs}"
        if (generation, member, instance) != (-1, "", None):
            what += f" as {self.names.member(member)!r} of {generation} ({instance})"
        response = self.ask(
            what, TXN_OFFSET_COMMIT, version, request, self._topics_answer, codes_of_topics
        )
        return response is not None and set(codes_of_topics(response)) <= {ErrorCode.NONE}

    def _topics_answer(self, response: Any) -> str:
        return " ".join(
            self.codes(
                (topic.name, partition.partition_index, partition.error_code)
                for topic in response.topics
                for partition in topic.partitions
            )
        )

    def end(
        self, name: str, producer: Identity, *, commit: bool, version: int = 3, settle: bool = True
    ) -> Identity:
        """Send EndTxn. Return the identity to go on with: `producer` after an error."""
        request = EndTxnRequest(
            transactional_id=self.must_id(name),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        verb = "commit" if commit else "abort"
        what = f"{verb} v{version} {self.quote(name)} {self.identity_of(producer)}"
        response = self.ask(
            what,
            END_TXN,
            version,
            request,
            lambda r: self.with_identity(r, r.producer_epoch),
            one_code,
        )
        if settle:
            self.settle(name)
        if response is None or response.error_code != ErrorCode.NONE or version < 5:
            return producer
        return Identity(response.producer_id, response.producer_epoch)

    def write_markers(
        self,
        producer: Identity,
        partitions: Sequence[Where],
        *,
        commit: bool,
        coordinator_epoch: int = -1,
        transaction_version: int = 0,
        version: int = 2,
    ) -> bool:
        """Send WriteTxnMarkers as an administrator. Return True if every partition got NONE."""
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=commit,
            topics=tuple(
                WritableTxnMarkerTopic(
                    name=self.names.on_wire(topic), partition_indexes=tuple(indexes)
                )
                for topic, indexes in by_topic(partitions).items()
            ),
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        what = f"markers v{version} {'COMMIT' if commit else 'ABORT'} {self.identity_of(producer)}"
        what += f" by {coordinator_epoch} TV{transaction_version} {listed(partitions)}"
        response = self.ask(
            what,
            WRITE_TXN_MARKERS,
            version,
            WriteTxnMarkersRequest(markers=(marker,)),
            lambda r: " ".join(self.codes(markers_of(r))),
        )
        return response is not None and all(code == 0 for _, _, code in markers_of(response))

    # Records

    def produce(
        self,
        name: str | None,
        producer: Identity,
        topic: str,
        partition: int = 0,
        *,
        version: int = 11,
        count: int = 1,
        sequence: int | None = None,
        skipped: int = 0,
        is_transactional: bool = True,
    ) -> int:
        """Produce one batch of `count` records with values of their own; its base offset or -1.
        The sequence is the next one, and `skipped` more, unless it is given."""
        key = (producer.producer_id, producer.epoch, (topic, partition))
        if sequence is None:
            sequence = self._sequences.get(key, 0) + skipped if producer.producer_id >= 0 else -1
        values = [f"r{self._values + index}" for index in range(count)]
        self._values += count
        batch = encode_batch(
            [
                Record(key=None, value=value.encode(), timestamp_ms=int(time.time() * 1000))
                for value in values
            ],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        identity = self.identity_of(producer)
        what = f"produce v{version} {self.quote(name)} {identity} {topic}-{partition}"
        what += f" #{sequence} {','.join(values)}" + ("" if is_transactional else " plain")
        response = self.send_batch(what, name, topic, partition, batch, version=version)
        if response is None or response.error_code != ErrorCode.NONE:
            return -1
        self._sequences[key] = sequence + count
        return int(response.base_offset)

    def send_batch(
        self,
        what: str,
        name: str | None,
        topic: str,
        partition: int,
        batch: bytes | bytearray | None,
        *,
        version: int = 11,
        acks: int = -1,
        client_id: str | None = None,
    ) -> Any:
        """Produce any bytes. The partition's answer, None if there was none."""
        request = ProduceRequest(
            transactional_id=self.wire_id(name),
            acks=acks,
            timeout_ms=PRODUCE_TIMEOUT_MS if self.patience_seconds else NO_PATIENCE_MS,
            topic_data=(
                TopicProduceData(
                    name=self.names.on_wire(topic),
                    topic_id=self.names.topic_ids.get(topic, ZERO_UUID),
                    partition_data=(PartitionProduceData(index=partition, records=batch),),
                ),
            ),
        )
        if acks == 0:
            self.line.send(PRODUCE, version, request)
            self.say(f"{what} acks=0")
            return None
        response = self.ask(what, PRODUCE, version, request, produced, codes_of_produced, client_id)
        return None if response is None else response.responses[0].partition_responses[0]

    # Looking

    def settle(self, name: str) -> None:
        """Wait until what was decided for this transactional id has all its markers."""
        self.states.settle(self.names.on_wire(name))

    def wait_for(self, name: str, state: str, *, count: int = 1) -> None:
        """Wait until the coordinator has written this state last, and at least `count` records
        since the story began ("Dead" is the tombstone of an expired id)."""
        self.states.wait_for(self.names.on_wire(name), state, count=count)
        self.say(f"{name} is {state}")

    def look(self, topic: str, partition: int = 0, *, offset: int = 0, version: int = 12) -> None:
        """Read as a read_committed consumer: high watermark, LSO, aborted list, batches."""
        wire = self.names.on_wire(topic)
        answer = fetch(self.line, wire, partition, offset, committed=True, version=version)
        said = [code_name(answer.error_code)]
        said += [f"hw {answer.high_watermark}", f"lso {answer.last_stable_offset}"]
        for aborted in answer.aborted_transactions or ():
            whose = self.names.producer(aborted.producer_id)
            said.append(f"aborted {whose}@{aborted.first_offset}")
        offsets = [str(header.base_offset) for header, _ in iter_batches(answer.records or b"")]
        said.append(f"batches [{' '.join(offsets)}]")
        self.say(f"look {topic}-{partition} from {offset} -> {' '.join(said)}")

    def end_offsets(self, topic: str, partition: int = 0) -> None:
        """ListOffsets: the end, for both isolation levels."""
        wire = self.names.on_wire(topic)
        code, end = list_offset(self.line, wire, partition, -1)
        stable_code, stable = list_offset(self.line, wire, partition, -1, committed=True)
        codes = f"{code_name(code)} {code_name(stable_code)}"
        self.say(f"end of {topic}-{partition} -> {codes} {end} stable {stable}")

    def committed(self, group: str, partitions: Sequence[Where], *, stable: bool = False) -> None:
        """OffsetFetch. `stable` asks for what no open transaction may still change; an answer that
        it is not there yet is then the final one."""
        topics = tuple(
            OffsetFetchRequestTopics(
                name=self.names.on_wire(topic), partition_indexes=tuple(indexes)
            )
            for topic, indexes in by_topic(partitions).items()
        )
        asked = OffsetFetchRequestGroup(group_id=self.names.on_wire(group), topics=topics)
        request = OffsetFetchRequest(groups=(asked,), require_stable=stable)

        def answer(response: Any) -> str:
            of_group = response.groups[0]
            said = [] if of_group.error_code == 0 else [code_name(of_group.error_code)]
            for topic in of_group.topics:
                for found in topic.partitions:
                    where = f"{self.names.here(topic.name)}-{found.partition_index}"
                    code = code_name(found.error_code)
                    said.append(f"{where}={found.committed_offset} {code}")
            return " ".join(said)

        what = f"committed {group} {listed(partitions)}" + (" stable" if stable else "")
        self.ask(
            what, OFFSET_FETCH, GROUP_VERSION, request, answer, lambda r: [r.groups[0].error_code]
        )

    def find(self, key: str, *, key_type: int = 1, version: int = 4) -> None:
        """FindCoordinator; where it is is not written down, there is one broker."""
        keys = (self.names.on_wire(key),)
        request = FindCoordinatorRequest(
            key=keys[0] if version < 4 else "",
            key_type=key_type,
            coordinator_keys=keys if version >= 4 else (),
        )
        self.ask(
            f"find v{version} {self.quote(key)} type {key_type}",
            FIND_COORDINATOR,
            version,
            request,
            lambda r: " ".join(map(code_name, codes_of_found(r))),
            codes_of_found,
        )

    def write_down_the_end(self) -> None:
        """The logs of every topic of the story, and what the coordinators wrote about its
        transactional ids and its groups' offsets."""
        for wire in self.states.ids:
            for value in self.states.records(wire):
                state = describe_state(self.names, value)
                self.say(f"state {self.names.here(wire)}: {state}")
        for batch_of_offsets in self.offsets.describe(self.names):
            self.say(f"offsets: {batch_of_offsets}")
        for topic, count in self.topics_made.items():
            for partition in range(count):
                for header, batch in read_log(self.line, self.names.on_wire(topic), partition):
                    what = describe_batch(self.names, header, batch)
                    self.say(f"log {topic}-{partition}: {what}")
                self.look(topic, partition)
