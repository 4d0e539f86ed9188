"""Schemas of Apache Kafka 4.3.1 that the kafka-python wheel does not have, written down by hand.

The APIs of consumer groups (KIP-848), their records in `__consumer_offsets`, and
DescribeDelegationToken.
`tests/peers/test_group_schemas.py` compares them with the jars of a real Kafka.
"""

from typing import Any, Final


def field(name: str, kind: str, versions: str = "0+", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "versions": versions, **more}


def nullable(name: str, kind: str, versions: str = "0+", **more: Any) -> dict[str, Any]:
    return field(name, kind, versions, nullableVersions=versions, **more)


def tagged(name: str, kind: str, tag: int, since: str = "0+", **more: Any) -> dict[str, Any]:
    return field(name, kind, since, taggedVersions=since, tag=tag, **more)


TOPIC_PARTITIONS: Final = [field("TopicId", "uuid"), field("Partitions", "[]int32")]
NAMED_PARTITIONS: Final = [
    field("TopicId", "uuid"),
    field("TopicName", "string"),
    field("Partitions", "[]int32"),
]
DESCRIBED: Final = [
    field("TopicPartitions", "[]TopicPartitions", fields=NAMED_PARTITIONS),
]
DESCRIBED_MEMBER: Final = [
    field("MemberId", "string"),
    nullable("InstanceId", "string", default="null"),
    nullable("RackId", "string", default="null"),
    field("MemberEpoch", "int32"),
    field("ClientId", "string"),
    field("ClientHost", "string"),
    field("SubscribedTopicNames", "[]string"),
    nullable("SubscribedTopicRegex", "string", default="null"),
    field("Assignment", "Assignment", fields=DESCRIBED),
    field("TargetAssignment", "Assignment", fields=DESCRIBED),
    field("MemberType", "int8", "1+", default="-1"),
]
DESCRIBED_GROUP: Final = [
    field("ErrorCode", "int16"),
    nullable("ErrorMessage", "string", default="null"),
    field("GroupId", "string"),
    field("GroupState", "string"),
    field("GroupEpoch", "int32"),
    field("AssignmentEpoch", "int32"),
    field("AssignorName", "string"),
    field("Members", "[]Member", fields=DESCRIBED_MEMBER),
    field("AuthorizedOperations", "int32", default="-2147483648"),
]
PRINCIPAL: Final = [field("PrincipalType", "string"), field("PrincipalName", "string")]
APIS: Final[dict[str, dict[str, Any]]] = {
    "UnregisterBrokerRequest": {
        "apiKey": 64,
        "name": "UnregisterBrokerRequest",
        "validVersions": "0",
        "flexibleVersions": "0+",
        "fields": [field("BrokerId", "int32")],
    },
    "UnregisterBrokerResponse": {
        "apiKey": 64,
        "name": "UnregisterBrokerResponse",
        "validVersions": "0",
        "flexibleVersions": "0+",
        "fields": [
            field("ThrottleTimeMs", "int32"),
            field("ErrorCode", "int16"),
            nullable("ErrorMessage", "string"),
        ],
    },
    "DescribeDelegationTokenRequest": {
        "apiKey": 41,
        "name": "DescribeDelegationTokenRequest",
        "validVersions": "1-3",
        "flexibleVersions": "2+",
        "fields": [nullable("Owners", "[]DescribeDelegationTokenOwner", fields=PRINCIPAL)],
    },
    "DescribeDelegationTokenResponse": {
        "apiKey": 41,
        "name": "DescribeDelegationTokenResponse",
        "validVersions": "1-3",
        "flexibleVersions": "2+",
        "fields": [
            field("ErrorCode", "int16"),
            field(
                "Tokens",
                "[]DescribedDelegationToken",
                fields=[
                    *PRINCIPAL,
                    field("TokenRequesterPrincipalType", "string", "3+"),
                    field("TokenRequesterPrincipalName", "string", "3+"),
                    field("IssueTimestamp", "int64"),
                    field("ExpiryTimestamp", "int64"),
                    field("MaxTimestamp", "int64"),
                    field("TokenId", "string"),
                    field("Hmac", "bytes"),
                    field("Renewers", "[]DescribedDelegationTokenRenewer", fields=PRINCIPAL),
                ],
            ),
            field("ThrottleTimeMs", "int32"),
        ],
    },
    "ConsumerGroupHeartbeatRequest": {
        "apiKey": 68,
        "name": "ConsumerGroupHeartbeatRequest",
        "validVersions": "0-1",
        "flexibleVersions": "0+",
        "fields": [
            field("GroupId", "string"),
            field("MemberId", "string"),
            field("MemberEpoch", "int32"),
            nullable("InstanceId", "string", default="null"),
            nullable("RackId", "string", default="null"),
            field("RebalanceTimeoutMs", "int32", default=-1),
            nullable("SubscribedTopicNames", "[]string", default="null"),
            nullable("SubscribedTopicRegex", "string", "1+", default="null"),
            nullable("ServerAssignor", "string", default="null"),
            nullable(
                "TopicPartitions", "[]TopicPartitions", default="null", fields=TOPIC_PARTITIONS
            ),
        ],
    },
    "ConsumerGroupHeartbeatResponse": {
        "apiKey": 68,
        "name": "ConsumerGroupHeartbeatResponse",
        "validVersions": "0-1",
        "flexibleVersions": "0+",
        "fields": [
            field("ThrottleTimeMs", "int32"),
            field("ErrorCode", "int16"),
            nullable("ErrorMessage", "string", default="null"),
            nullable("MemberId", "string", default="null"),
            field("MemberEpoch", "int32"),
            field("HeartbeatIntervalMs", "int32"),
            nullable(
                "Assignment",
                "Assignment",
                default="null",
                fields=[field("TopicPartitions", "[]TopicPartitions", fields=TOPIC_PARTITIONS)],
            ),
        ],
    },
    "ConsumerGroupDescribeRequest": {
        "apiKey": 69,
        "name": "ConsumerGroupDescribeRequest",
        "validVersions": "0-1",
        "flexibleVersions": "0+",
        "fields": [field("GroupIds", "[]string"), field("IncludeAuthorizedOperations", "bool")],
    },
    "ConsumerGroupDescribeResponse": {
        "apiKey": 69,
        "name": "ConsumerGroupDescribeResponse",
        "validVersions": "0-1",
        "flexibleVersions": "0+",
        "fields": [
            field("ThrottleTimeMs", "int32"),
            field("Groups", "[]DescribedGroup", fields=DESCRIBED_GROUP),
        ],
    },
}

CURRENT_PARTITIONS: Final = [
    *TOPIC_PARTITIONS,
    {**tagged("AssignmentEpochs", "[]int32", 0), "nullableVersions": "0+"},
]
CLASSIC_MEMBER: Final = [
    field("SessionTimeoutMs", "int32"),
    field(
        "SupportedProtocols",
        "[]ClassicProtocol",
        fields=[field("Name", "string"), field("Metadata", "bytes")],
    ),
]
TOPIC_METADATA: Final = [
    field("TopicId", "uuid"),
    field("TopicName", "string"),
    field("NumPartitions", "int32"),
    field(
        "PartitionMetadata",
        "[]PartitionMetadata",
        fields=[field("Partition", "int32"), field("Racks", "[]string")],
    ),
]
RECORDS: Final[dict[str, list[dict[str, Any]]]] = {
    "ConsumerGroupMetadataKey": [field("GroupId", "string", "0")],
    "ConsumerGroupMetadataValue": [
        field("Epoch", "int32"),
        tagged("MetadataHash", "int64", 0, default=0),
    ],
    "ConsumerGroupPartitionMetadataKey": [field("GroupId", "string", "0")],
    "ConsumerGroupPartitionMetadataValue": [
        field("Topics", "[]TopicMetadata", fields=TOPIC_METADATA)
    ],
    "ConsumerGroupMemberMetadataKey": [
        field("GroupId", "string", "0"),
        field("MemberId", "string", "0"),
    ],
    "ConsumerGroupMemberMetadataValue": [
        nullable("InstanceId", "string"),
        nullable("RackId", "string"),
        field("ClientId", "string"),
        field("ClientHost", "string"),
        field("SubscribedTopicNames", "[]string"),
        nullable("SubscribedTopicRegex", "string"),
        field("RebalanceTimeoutMs", "int32", default=-1),
        nullable("ServerAssignor", "string"),
        {
            **tagged(
                "ClassicMemberMetadata",
                "ClassicMemberMetadata",
                0,
                fields=CLASSIC_MEMBER,
            ),
            "nullableVersions": "0+",
        },
    ],
    "ConsumerGroupTargetAssignmentMetadataKey": [field("GroupId", "string", "0")],
    "ConsumerGroupTargetAssignmentMetadataValue": [
        field("AssignmentEpoch", "int32"),
        tagged("AssignmentTimestamp", "int64", 0, default=0),
    ],
    "ConsumerGroupTargetAssignmentMemberKey": [
        field("GroupId", "string", "0"),
        field("MemberId", "string", "0"),
    ],
    "ConsumerGroupTargetAssignmentMemberValue": [
        field("TopicPartitions", "[]TopicPartition", fields=TOPIC_PARTITIONS)
    ],
    "ConsumerGroupCurrentMemberAssignmentKey": [
        field("GroupId", "string", "0"),
        field("MemberId", "string", "0"),
    ],
    "ConsumerGroupCurrentMemberAssignmentValue": [
        field("MemberEpoch", "int32"),
        field("PreviousMemberEpoch", "int32"),
        field("State", "int8"),
        field("AssignedPartitions", "[]TopicPartitions", fields=CURRENT_PARTITIONS),
        field("PartitionsPendingRevocation", "[]TopicPartitions", fields=CURRENT_PARTITIONS),
    ],
    "ConsumerGroupRegularExpressionKey": [
        field("GroupId", "string", "0"),
        field("RegularExpression", "string", "0"),
    ],
    "ConsumerGroupRegularExpressionValue": [
        field("Topics", "[]string"),
        field("Version", "int64"),
        field("Timestamp", "int64"),
    ],
}
"""The fields of each key and value. Kafka writes version 0 of each value, which is flexible."""
