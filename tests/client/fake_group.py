"""The broker in memory with a coordinator of one group that has one member."""

from typing import Any

import trio

from odradek.client.grouping.subscriptions import encoded
from odradek.client.types import TopicPartition
from odradek.protocol.api import Api
from odradek.protocol.apis.group import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.protocol.apis.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.errors import ErrorCode
from tests.client.fake_broker import SERVED, FakeBroker

OWN: tuple[Api[Any, Any], ...] = (
    JOIN_GROUP,
    SYNC_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    LIST_OFFSETS,
)


class FakeGroup(FakeBroker):
    """`share` is what the member gets; None lets the member, as the leader, divide by itself."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, **options)
        self.generation = 0
        self.member_id = ""
        self.share: list[TopicPartition] | None = None
        self.is_rebalancing = False
        self.unstable: set[TopicPartition] = set()
        """The partitions whose stored offsets are in open transactions."""
        self.committed: dict[TopicPartition, int] = {}
        self.committed_epochs: dict[TopicPartition, int] = {}
        """The leader epochs that were stored with the offsets."""
        self._handlers |= {
            JOIN_GROUP.key: self._join,
            SYNC_GROUP.key: self._sync,
            HEARTBEAT.key: self._heartbeat,
            LEAVE_GROUP.key: self._leave,
            OFFSET_COMMIT.key: self._commit,
            OFFSET_FETCH.key: self._fetch_offsets,
            LIST_OFFSETS.key: self._list_offsets,
        }

    # For tests

    def rebalance(self, *share: TopicPartition) -> None:
        """Let the member join again, and give it these partitions."""
        self.share = list(share)
        self.is_rebalancing = True

    def expel(self) -> None:
        """Forget the member."""
        self.member_id = ""

    def said(self) -> list[str]:
        """The requests of the group so far, by name; repeated heartbeats once."""
        names: list[str] = []
        for request in self.requests:
            if request.api in OWN[:5] and names[-1:] != [request.api.name]:
                names.append(request.api.name)
        return names

    def served(self) -> tuple[Api[Any, Any], ...]:
        return (*SERVED, *OWN)

    # The APIs

    def _join(self, body: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
        member_id = body.member_id
        if code == ErrorCode.NONE and not member_id:
            code, member_id = ErrorCode.MEMBER_ID_REQUIRED, f"member-{len(self.requests)}"
        elif code == ErrorCode.NONE:
            self.member_id = member_id
            self.generation += 1
            self.is_rebalancing = False
        return JoinGroupResponse(
            error_code=code,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=body.protocols[0].name,
            leader=member_id,
            member_id=member_id,
            members=(
                JoinGroupResponseMember(member_id=member_id, metadata=body.protocols[0].metadata),
            ),
        )

    def _sync(self, body: SyncGroupRequest, code: ErrorCode) -> SyncGroupResponse:
        own = next(one for one in body.assignments if one.member_id == body.member_id)
        given = own.assignment if self.share is None else encoded(self.share)
        return SyncGroupResponse(error_code=code, assignment=given)

    def _judged(self, member_id: str, generation: int, code: ErrorCode) -> ErrorCode:
        if code == ErrorCode.NONE and (member_id, generation) != (self.member_id, self.generation):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return code

    def _heartbeat(self, body: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
        code = self._judged(body.member_id, body.generation_id, code)
        if code == ErrorCode.NONE and self.is_rebalancing:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return HeartbeatResponse(error_code=code)

    def _leave(self, body: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
        self.expel()
        return LeaveGroupResponse(error_code=code)

    def _commit(self, body: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
        code = self._judged(body.member_id, body.generation_id_or_member_epoch, code)
        topics = []
        for topic in body.topics:
            name, own_code = self.named(topic.name, topic.topic_id), code
            if not name:
                own_code = ErrorCode.UNKNOWN_TOPIC_ID
            for partition in topic.partitions:
                if own_code == ErrorCode.NONE:
                    place = TopicPartition(name, partition.partition_index)
                    self.committed[place] = partition.committed_offset
                    self.committed_epochs[place] = partition.committed_leader_epoch
            topics.append(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        OffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=own_code
                        )
                        for partition in topic.partitions
                    ),
                )
            )
        return OffsetCommitResponse(topics=tuple(topics))

    def _fetch_offsets(self, body: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
        groups = []
        for group in body.groups:
            if group.member_id is not None:
                code = self._judged(group.member_id, group.member_epoch, code)
            topics = tuple(
                OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        OffsetFetchResponsePartitions(
                            partition_index=number,
                            committed_offset=self.committed.get(
                                TopicPartition(self.named(topic.name, topic.topic_id), number), -1
                            ),
                            committed_leader_epoch=self.committed_epochs.get(
                                TopicPartition(self.named(topic.name, topic.topic_id), number), -1
                            ),
                            metadata="",
                            error_code=self._stored_code(
                                self.named(topic.name, topic.topic_id), number
                            ),
                        )
                        for number in topic.partition_indexes
                    ),
                )
                for topic in group.topics or ()
            )
            groups.append(
                OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=code)
            )
        return OffsetFetchResponse(groups=tuple(groups))

    def _stored_code(self, topic: str, number: int) -> ErrorCode:
        if TopicPartition(topic, number) in self.unstable:
            return ErrorCode.UNSTABLE_OFFSET_COMMIT
        return ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_ID

    def _list_offsets(self, body: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        ListOffsetsPartitionResponse(
                            partition_index=partition.partition_index,
                            error_code=code,
                            timestamp=-1,
                            offset=0,
                        )
                        for partition in topic.partitions
                    ),
                )
                for topic in body.topics
            )
        )
