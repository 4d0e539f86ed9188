"""The handlers, one per API, which translate between the wire and the core."""

from types import MappingProxyType
from typing import Final

from odradek.broker.api.alter_configs import (
    alter_configs,
    incremental_alter_configs,
    list_config_resources,
)
from odradek.broker.api.configs import describe_configs
from odradek.broker.api.context import Handler
from odradek.broker.api.coordinator import find_coordinator
from odradek.broker.api.delete_records import delete_records
from odradek.broker.api.elections import elect_leaders
from odradek.broker.api.features import update_features
from odradek.broker.api.fetch import fetch
from odradek.broker.api.group import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from odradek.broker.api.group_consumer import consumer_group_describe, consumer_group_heartbeat
from odradek.broker.api.group_offsets import offset_commit, offset_fetch
from odradek.broker.api.log_dirs import alter_replica_log_dirs, describe_log_dirs
from odradek.broker.api.markers import write_txn_markers
from odradek.broker.api.metadata import describe_cluster, metadata
from odradek.broker.api.offset_delete import offset_delete
from odradek.broker.api.offsets import list_offsets, offset_for_leader_epoch
from odradek.broker.api.produce import produce
from odradek.broker.api.producers import describe_producers
from odradek.broker.api.quorum import describe_quorum
from odradek.broker.api.quotas import describe_client_quotas
from odradek.broker.api.reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from odradek.broker.api.replica_fetch import replica_fetch
from odradek.broker.api.security import (
    create_acls,
    delete_acls,
    describe_acls,
    describe_delegation_token,
    describe_user_scram_credentials,
)
from odradek.broker.api.topic_partitions import describe_topic_partitions
from odradek.broker.api.topics import create_partitions, create_topics, delete_topics
from odradek.broker.api.transactions import describe_transactions, list_transactions
from odradek.broker.api.txn import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
)
from odradek.broker.api.txn_offsets import txn_offset_commit
from odradek.broker.api.versions import api_versions

HANDLERS: Final[MappingProxyType[int, Handler]] = MappingProxyType(
    {
        0: produce,
        1: fetch,
        2: list_offsets,
        3: metadata,
        8: offset_commit,
        9: offset_fetch,
        10: find_coordinator,
        11: join_group,
        12: heartbeat,
        13: leave_group,
        14: sync_group,
        15: describe_groups,
        16: list_groups,
        18: api_versions,
        19: create_topics,
        20: delete_topics,
        21: delete_records,
        22: init_producer_id,
        23: offset_for_leader_epoch,
        24: add_partitions_to_txn,
        25: add_offsets_to_txn,
        26: end_txn,
        27: write_txn_markers,
        28: txn_offset_commit,
        29: describe_acls,
        30: create_acls,
        31: delete_acls,
        32: describe_configs,
        33: alter_configs,
        34: alter_replica_log_dirs,
        35: describe_log_dirs,
        37: create_partitions,
        41: describe_delegation_token,
        42: delete_groups,
        43: elect_leaders,
        44: incremental_alter_configs,
        45: alter_partition_reassignments,
        46: list_partition_reassignments,
        47: offset_delete,
        48: describe_client_quotas,
        50: describe_user_scram_credentials,
        55: describe_quorum,
        57: update_features,
        60: describe_cluster,
        61: describe_producers,
        65: describe_transactions,
        66: list_transactions,
        68: consumer_group_heartbeat,
        69: consumer_group_describe,
        74: list_config_resources,
        75: describe_topic_partitions,
    }
)
"""The handler of each API, by its key."""

PEER_HANDLERS: Final[MappingProxyType[int, Handler]] = MappingProxyType(
    {
        1: replica_fetch,
        18: api_versions,
        24: add_partitions_to_txn,
        27: write_txn_markers,
        61: describe_producers,
    }
)
"""The handler of each API that brokers use among each other, on a listener of their own."""
