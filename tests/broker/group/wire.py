"""A client that speaks the group APIs in any version, to any broker at an address."""

import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from odradek.protocol.api import Api
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.group import (
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from odradek.protocol.apis.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.connection import ClientProtocol
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from tests.broker.raw import RawClient

PATIENCE_SECONDS: Final = 60.0
PRESENT_MS: Final = 300_000
"""Longer than any test takes, so that no session ends because a disk was slow."""
NOT_YET: Final[Collection[int]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""The errors of a broker while a topic or a coordinator is new."""


def versions(api: Any) -> range:
    return range(api.min_version, api.max_version + 1)


def _code(answer: Any) -> int:
    return int(answer.error_code)


class WireClient(RawClient):
    def __init__(self, bootstrap: str, client_id: str = "wire") -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE_SECONDS)
        self._connection = ClientProtocol(client_id)

    def until_ready(
        self,
        api: Api[Any, Any],
        version: int,
        message: object,
        code: Callable[[Any], int],
        not_yet: Collection[int] = NOT_YET,
    ) -> Any:
        """Ask until the answer's code is not that of something which is still being made."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while code(answer := self.ask(api, version, message)) in not_yet:
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)  # between two questions, not for luck
        return answer

    # what must be there

    def create_topic(self, name: str, partitions: int = 2) -> None:
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
        )
        answer = self.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(topic,)))
        assert answer.topics[0].error_code == ErrorCode.NONE
        while self.metadata(name).error_code != ErrorCode.NONE:
            pass

    def metadata(self, topic: str) -> Any:
        wanted = MetadataRequestTopic(name=topic)
        request = MetadataRequest(topics=(wanted,), allow_auto_topic_creation=False)
        return self.ask(METADATA, 12, request).topics[0]

    def coordinator_of(self, group_id: str, kind: int = 0) -> None:
        """Ask until there is one: the question makes the state topic."""
        request = FindCoordinatorRequest(key=group_id, key_type=kind)
        self.until_ready(FIND_COORDINATOR, 3, request, _code)
        if kind == 0:
            described = DescribeGroupsRequest(groups=(group_id,))
            self.until_ready(DESCRIBE_GROUPS, 5, described, lambda a: int(a.groups[0].error_code))

    # membership

    def join(
        self,
        group_id: str,
        member_id: str = "",
        *,
        version: int = 9,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"meta"),),
        session_ms: int = PRESENT_MS,
        protocol_type: str = "consumer",
    ) -> Any:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=PRESENT_MS,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=tuple(
                JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols
            ),
        )
        return self.ask(JOIN_GROUP, version, request)

    def sync(
        self,
        group_id: str,
        joined: Any,
        assignments: Mapping[str, bytes] | None = None,
        *,
        version: int = 5,
        generation: int | None = None,
        instance: str | None = None,
    ) -> Any:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id if generation is None else generation,
            member_id=joined.member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in (assignments or {}).items()
            ),
        )
        return self.ask(SYNC_GROUP, version, request)

    def heartbeat(self, group_id: str, joined: Any, *, version: int = 4, **changes: Any) -> int:
        fields = {
            "group_id": group_id,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
        } | changes
        return int(self.ask(HEARTBEAT, version, HeartbeatRequest(**fields)).error_code)

    def leave(self, group_id: str, member_id: str, *, version: int = 5) -> Any:
        request = LeaveGroupRequest(
            group_id=group_id, member_id=member_id, members=(MemberIdentity(member_id=member_id),)
        )
        return self.ask(LEAVE_GROUP, version, request)

    def member(self, group_id: str, *, version: int = 9, **options: Any) -> Any:
        """A member alone in its group, with an assignment; the answer to its JoinGroup."""
        joined = self.join(group_id, version=version, **options)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = self.join(group_id, joined.member_id, version=version, **options)
        assert joined.error_code == ErrorCode.NONE, joined
        synced = self.sync(group_id, joined, {joined.member_id: b"mine"})
        assert synced.error_code == ErrorCode.NONE
        return joined

    # offsets

    def heartbeat_of_consumer(
        self,
        group_id: str,
        member_id: str,
        epoch: int = 0,
        *,
        topics: Sequence[str] | None = None,
        regex: str | None = None,
        owned: Mapping[UUID, Sequence[int]] | None = None,
        version: int = 1,
        **changes: Any,
    ) -> Any:
        """ConsumerGroupHeartbeat with everything that a member that joins must send."""
        fields: dict[str, Any] = {"rebalance_timeout_ms": PRESENT_MS, **changes}
        if version >= 1:
            fields["subscribed_topic_regex"] = regex
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=None if topics is None else tuple(topics),
            topic_partitions=tuple(
                ConsumerGroupHeartbeatRequestTopicPartitions(
                    topic_id=topic_id, partitions=tuple(indexes)
                )
                for topic_id, indexes in (owned or {}).items()
            ),
            **fields,
        )
        return self.until_ready(CONSUMER_GROUP_HEARTBEAT, version, request, _code)

    def commit(
        self,
        group_id: str,
        topic: str,
        offset: int,
        *,
        version: int = 9,
        partition: int = 0,
        metadata: str | None = "",
        topic_id: Any = ZERO_UUID,
        **who: Any,
    ) -> int:
        """The error code of the one partition."""
        each = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=0,
            committed_metadata=metadata,
        )
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=(OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=(each,)),),
            **{"member_id": "", **who},
        )
        answer = self.ask(OFFSET_COMMIT, version, request)
        return int(answer.topics[0].partitions[0].error_code)

    def fetch(
        self,
        group_id: str,
        topic: str,
        *,
        version: int = 9,
        partition: int = 0,
        require_stable: bool = False,
        topic_id: Any = ZERO_UUID,
    ) -> Any:
        """The answer for the one partition."""
        if version >= 8:
            of_topic = OffsetFetchRequestTopics(
                name=topic, topic_id=topic_id, partition_indexes=(partition,)
            )
            group = OffsetFetchRequestGroup(group_id=group_id, topics=(of_topic,))
            request = OffsetFetchRequest(groups=(group,), require_stable=require_stable)
            answer = self.ask(OFFSET_FETCH, version, request).groups[0]
        else:
            old = OffsetFetchRequestTopic(name=topic, partition_indexes=(partition,))
            request = OffsetFetchRequest(
                group_id=group_id, topics=(old,), require_stable=require_stable
            )
            answer = self.ask(OFFSET_FETCH, version, request)
        assert answer.error_code == ErrorCode.NONE
        return answer.topics[0].partitions[0]

    # transactions

    def producer(self, transactional_id: str) -> Any:
        """A transactional producer: the answer to InitProducerId."""
        self.coordinator_of(transactional_id, kind=1)
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        return self.until_ready(INIT_PRODUCER_ID, 4, request, _code)

    def add_offsets(self, transactional_id: str, producer: Any, group_id: str) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=group_id,
        )
        return int(self.until_ready(ADD_OFFSETS_TO_TXN, 3, request, _code).error_code)

    def commit_in_transaction(
        self,
        transactional_id: str,
        producer: Any,
        group_id: str,
        topic: str,
        offset: int,
        *,
        version: int = 3,
        partition: int = 0,
        metadata: str = "",
        **who: Any,
    ) -> int:
        """The error code of the one partition."""
        each = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=(TxnOffsetCommitRequestTopic(name=topic, partitions=(each,)),),
            **who,
        )

        def code(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        # while the transaction before is being completed
        concurrent = {ErrorCode.CONCURRENT_TRANSACTIONS}
        return code(self.until_ready(TXN_OFFSET_COMMIT, version, request, code, concurrent))

    def end(
        self, transactional_id: str, producer: Any, *, committed: bool, version: int = 3
    ) -> Any:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )
        return self.until_ready(END_TXN, version, request, _code)
