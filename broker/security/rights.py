"""The rights that requests need: each is an operation on a type of resource."""

from typing import Final, NamedTuple

from odradek.broker.security.acls import AclOperation, ResourceKind


class Right(NamedTuple):
    """An operation on resources of a type."""

    operation: AclOperation
    kind: ResourceKind

    def __str__(self) -> str:
        return f"{self.operation.name} {self.kind.name}"


CLUSTER: Final = ResourceKind.CLUSTER
GROUP: Final = ResourceKind.GROUP
TOPIC: Final = ResourceKind.TOPIC
TRANSACTIONAL_ID: Final = ResourceKind.TRANSACTIONAL_ID

ALTER_CLUSTER: Final = Right(AclOperation.ALTER, CLUSTER)
ALTER_CLUSTER_CONFIGS: Final = Right(AclOperation.ALTER_CONFIGS, CLUSTER)
CLUSTER_ACTION: Final = Right(AclOperation.CLUSTER_ACTION, CLUSTER)
CREATE_CLUSTER: Final = Right(AclOperation.CREATE, CLUSTER)
DELETE_CLUSTER: Final = Right(AclOperation.DELETE, CLUSTER)
DESCRIBE_CLUSTER: Final = Right(AclOperation.DESCRIBE, CLUSTER)
DESCRIBE_CLUSTER_CONFIGS: Final = Right(AclOperation.DESCRIBE_CONFIGS, CLUSTER)
IDEMPOTENT_WRITE: Final = Right(AclOperation.IDEMPOTENT_WRITE, CLUSTER)

ALTER_GROUP_CONFIGS: Final = Right(AclOperation.ALTER_CONFIGS, GROUP)
DELETE_GROUP: Final = Right(AclOperation.DELETE, GROUP)
DESCRIBE_GROUP: Final = Right(AclOperation.DESCRIBE, GROUP)
DESCRIBE_GROUP_CONFIGS: Final = Right(AclOperation.DESCRIBE_CONFIGS, GROUP)
READ_GROUP: Final = Right(AclOperation.READ, GROUP)

ALTER_TOPIC: Final = Right(AclOperation.ALTER, TOPIC)
ALTER_TOPIC_CONFIGS: Final = Right(AclOperation.ALTER_CONFIGS, TOPIC)
CREATE_TOPIC: Final = Right(AclOperation.CREATE, TOPIC)
DELETE_TOPIC: Final = Right(AclOperation.DELETE, TOPIC)
DESCRIBE_TOPIC: Final = Right(AclOperation.DESCRIBE, TOPIC)
DESCRIBE_TOPIC_CONFIGS: Final = Right(AclOperation.DESCRIBE_CONFIGS, TOPIC)
READ_TOPIC: Final = Right(AclOperation.READ, TOPIC)
WRITE_TOPIC: Final = Right(AclOperation.WRITE, TOPIC)

DESCRIBE_ID: Final = Right(AclOperation.DESCRIBE, TRANSACTIONAL_ID)
TWO_PHASE_COMMIT: Final = Right(AclOperation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID)
WRITE_ID: Final = Right(AclOperation.WRITE, TRANSACTIONAL_ID)
