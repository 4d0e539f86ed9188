"""The APIs that the broker serves, by key."""

from typing import Any, Final

from odradek.protocol.api import Api
from odradek.protocol.apis.acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from odradek.protocol.apis.client_quotas import DESCRIBE_CLIENT_QUOTAS
from odradek.protocol.apis.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
from odradek.protocol.apis.coordinator import FIND_COORDINATOR
from odradek.protocol.apis.credentials import (
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from odradek.protocol.apis.delete_records import DELETE_RECORDS
from odradek.protocol.apis.elections import ELECT_LEADERS
from odradek.protocol.apis.features import UPDATE_FEATURES
from odradek.protocol.apis.fetch import FETCH
from odradek.protocol.apis.group import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
)
from odradek.protocol.apis.group_consumer import CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT
from odradek.protocol.apis.group_offsets import OFFSET_COMMIT, OFFSET_FETCH
from odradek.protocol.apis.log_dirs import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS
from odradek.protocol.apis.metadata import DESCRIBE_CLUSTER, METADATA
from odradek.protocol.apis.offset_delete import OFFSET_DELETE
from odradek.protocol.apis.offsets import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.quorum import DESCRIBE_QUORUM
from odradek.protocol.apis.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
)
from odradek.protocol.apis.topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from odradek.protocol.apis.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    INIT_PRODUCER_ID_2PC,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
)
from odradek.protocol.apis.versions import API_VERSIONS

_ALL: Final[tuple[Api[Any, Any], ...]] = (
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    FIND_COORDINATOR,
    JOIN_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    SYNC_GROUP,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DELETE_RECORDS,
    INIT_PRODUCER_ID,
    OFFSET_FOR_LEADER_EPOCH,
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    WRITE_TXN_MARKERS,
    TXN_OFFSET_COMMIT,
    DESCRIBE_ACLS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
    CREATE_PARTITIONS,
    DESCRIBE_DELEGATION_TOKEN,
    DELETE_GROUPS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    OFFSET_DELETE,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DESCRIBE_QUORUM,
    UPDATE_FEATURES,
    DESCRIBE_CLUSTER,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    CONSUMER_GROUP_HEARTBEAT,
    CONSUMER_GROUP_DESCRIBE,
    LIST_CONFIG_RESOURCES,
    DESCRIBE_TOPIC_PARTITIONS,
)

APIS: Final[dict[int, Api[Any, Any]]] = {api.key: api for api in _ALL}

APIS_WITH_2PC: Final[dict[int, Api[Any, Any]]] = APIS | {22: INIT_PRODUCER_ID_2PC}
"""The same APIs with the unstable version 6 of InitProducerId (KIP-939)."""
