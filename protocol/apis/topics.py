"""Creating and deleting topics, and adding partitions.

CreateTopics (key 19), versions 2-7, flexible from 5.

- 5: the response has the number of partitions, the replication factor and the settings.
- 6: the client knows THROTTLING_QUOTA_EXCEEDED. 7: the response has the topic id.

DeleteTopics (key 20), versions 1-6, flexible from 4.

- 5: an error message, and THROTTLING_QUOTA_EXCEEDED.
- 6: topics by name or by id. Before, by name only, in another field.

CreatePartitions (key 37), versions 0-3, flexible from 2.

- 3: the client knows THROTTLING_QUOTA_EXCEEDED.
"""

from typing import Final
from uuid import UUID

from odradek.protocol.api import Api
from odradek.protocol.schema import (
    ZERO_UUID,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    uuid,
)


@message
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: tuple[int, ...] = array("int32")


@message
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(nullable=0)


@message
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: tuple[CreatableReplicaAssignment, ...] = array(CreatableReplicaAssignment)
    configs: tuple[CreatableTopicConfig, ...] = array(CreatableTopicConfig)


@message
class CreateTopicsRequest:
    topics: tuple[CreatableTopic, ...] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(default=False)


@message
class CreatableTopicConfigs:
    name: str = string(since=5)
    value: str | None = string(since=5, nullable=5)
    read_only: bool = boolean(since=5)
    config_source: int = int8(default=-1, since=5)
    is_sensitive: bool = boolean(since=5)


@message
class CreatableTopicResult:
    name: str = string()
    topic_id: UUID = uuid(default=ZERO_UUID, since=7)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    topic_config_error_code: int = int16(default=0, since=5, tag=0)
    num_partitions: int = int32(default=-1, since=5)
    replication_factor: int = int16(default=-1, since=5)
    configs: tuple[CreatableTopicConfigs, ...] | None = array(
        CreatableTopicConfigs, default=(), since=5, nullable=5
    )


@message
class CreateTopicsResponse:
    throttle_time_ms: int = int32(default=0)
    topics: tuple[CreatableTopicResult, ...] = array(CreatableTopicResult)


@message
class DeleteTopicState:
    name: str | None = string(default=None, since=6, nullable=6)
    topic_id: UUID = uuid(since=6)


@message
class DeleteTopicsRequest:
    topics: tuple[DeleteTopicState, ...] = array(DeleteTopicState, default=(), since=6)
    topic_names: tuple[str, ...] = array("string", default=(), until=5)
    timeout_ms: int = int32()


@message
class DeletableTopicResult:
    name: str | None = string(nullable=6)
    topic_id: UUID = uuid(default=ZERO_UUID, since=6)
    error_code: int = int16()
    error_message: str | None = string(default=None, since=5, nullable=5)


@message
class DeleteTopicsResponse:
    throttle_time_ms: int = int32(default=0)
    responses: tuple[DeletableTopicResult, ...] = array(DeletableTopicResult)


@message
class CreatePartitionsAssignment:
    broker_ids: tuple[int, ...] = array("int32")


@message
class CreatePartitionsTopic:
    name: str = string()
    count: int = int32()
    assignments: tuple[CreatePartitionsAssignment, ...] | None = array(
        CreatePartitionsAssignment, nullable=0
    )


@message
class CreatePartitionsRequest:
    topics: tuple[CreatePartitionsTopic, ...] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@message
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)


@message
class CreatePartitionsResponse:
    throttle_time_ms: int = int32(default=0)
    results: tuple[CreatePartitionsTopicResult, ...] = array(CreatePartitionsTopicResult)


CREATE_TOPICS: Final = Api(
    key=19,
    name="CreateTopics",
    min_version=2,
    max_version=7,
    flexible_from=5,
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
)
DELETE_TOPICS: Final = Api(
    key=20,
    name="DeleteTopics",
    min_version=1,
    max_version=6,
    flexible_from=4,
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
)
CREATE_PARTITIONS: Final = Api(
    key=37,
    name="CreatePartitions",
    min_version=0,
    max_version=3,
    flexible_from=2,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
)
