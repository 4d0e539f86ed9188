"""The APIs that the broker serves, in the order of their keys: made by scripts/fix.

`late_table.py` says what it is for. A row has the key, the name, the module, the versions that
ApiVersions lists, and the listeners.
"""

from typing import Final

from odradek.broker.api.late_table import ApiRow
from odradek.broker.api.listeners import Listeners

ROWS: Final = (
    ApiRow(0, "Produce", "produce", 0, 13, Listeners.CLIENTS),
    ApiRow(1, "Fetch", "fetch", 4, 18, Listeners.CLIENTS),
    ApiRow(1, "Fetch", "replica_fetch", 4, 18, Listeners.BROKERS),
    ApiRow(2, "ListOffsets", "offsets", 1, 11, Listeners.CLIENTS),
    ApiRow(3, "Metadata", "metadata", 0, 13, Listeners.CLIENTS),
    ApiRow(8, "OffsetCommit", "offset_commit", 2, 10, Listeners.CLIENTS),
    ApiRow(9, "OffsetFetch", "offset_fetch", 1, 10, Listeners.CLIENTS),
    ApiRow(10, "FindCoordinator", "coordinator", 0, 6, Listeners.CLIENTS),
    ApiRow(11, "JoinGroup", "group_members", 0, 9, Listeners.CLIENTS),
    ApiRow(12, "Heartbeat", "group_members", 0, 4, Listeners.CLIENTS),
    ApiRow(13, "LeaveGroup", "group_members", 0, 5, Listeners.CLIENTS),
    ApiRow(14, "SyncGroup", "group_members", 0, 5, Listeners.CLIENTS),
    ApiRow(15, "DescribeGroups", "group_administration", 0, 6, Listeners.CLIENTS),
    ApiRow(16, "ListGroups", "group_administration", 0, 5, Listeners.CLIENTS),
    ApiRow(17, "SaslHandshake", "sasl", 0, 1, Listeners.CLIENTS),
    ApiRow(18, "ApiVersions", "versions", 0, 4, Listeners.ALL),
    ApiRow(19, "CreateTopics", "topics", 2, 7, Listeners.CLIENTS),
    ApiRow(20, "DeleteTopics", "topics", 1, 6, Listeners.CLIENTS),
    ApiRow(21, "DeleteRecords", "delete_records", 0, 2, Listeners.CLIENTS),
    ApiRow(22, "InitProducerId", "txn", 0, 5, Listeners.CLIENTS),
    ApiRow(23, "OffsetForLeaderEpoch", "offsets", 2, 4, Listeners.CLIENTS),
    ApiRow(24, "AddPartitionsToTxn", "add_to_txn", 0, 5, Listeners.ALL),
    ApiRow(25, "AddOffsetsToTxn", "add_to_txn", 0, 4, Listeners.CLIENTS),
    ApiRow(26, "EndTxn", "txn", 0, 5, Listeners.CLIENTS),
    ApiRow(27, "WriteTxnMarkers", "markers", 1, 2, Listeners.ALL),
    ApiRow(28, "TxnOffsetCommit", "txn_offsets", 0, 5, Listeners.CLIENTS),
    ApiRow(29, "DescribeAcls", "describe_acls", 1, 3, Listeners.CLIENTS),
    ApiRow(30, "CreateAcls", "acls", 1, 3, Listeners.CLIENTS),
    ApiRow(31, "DeleteAcls", "acls", 1, 3, Listeners.CLIENTS),
    ApiRow(32, "DescribeConfigs", "configs", 1, 4, Listeners.CLIENTS),
    ApiRow(33, "AlterConfigs", "alter_configs", 0, 2, Listeners.CLIENTS),
    ApiRow(34, "AlterReplicaLogDirs", "log_dirs", 1, 2, Listeners.CLIENTS),
    ApiRow(35, "DescribeLogDirs", "log_dirs", 1, 5, Listeners.CLIENTS),
    ApiRow(36, "SaslAuthenticate", "sasl", 0, 2, Listeners.CLIENTS),
    ApiRow(37, "CreatePartitions", "create_partitions", 0, 3, Listeners.CLIENTS),
    ApiRow(41, "DescribeDelegationToken", "security", 1, 3, Listeners.CLIENTS),
    ApiRow(42, "DeleteGroups", "group_administration", 0, 2, Listeners.CLIENTS),
    ApiRow(43, "ElectLeaders", "elections", 0, 2, Listeners.CLIENTS),
    ApiRow(44, "IncrementalAlterConfigs", "alter_configs", 0, 1, Listeners.CLIENTS),
    ApiRow(45, "AlterPartitionReassignments", "reassignments", 0, 1, Listeners.CLIENTS),
    ApiRow(46, "ListPartitionReassignments", "reassignments", 0, 0, Listeners.CLIENTS),
    ApiRow(47, "OffsetDelete", "offset_delete", 0, 0, Listeners.CLIENTS),
    ApiRow(48, "DescribeClientQuotas", "quotas", 0, 1, Listeners.CLIENTS),
    ApiRow(49, "AlterClientQuotas", "alter_quotas", 0, 1, Listeners.CLIENTS),
    ApiRow(50, "DescribeUserScramCredentials", "security", 0, 0, Listeners.CLIENTS),
    ApiRow(55, "DescribeQuorum", "quorum", 0, 2, Listeners.CLIENTS),
    ApiRow(57, "UpdateFeatures", "features", 0, 2, Listeners.CLIENTS),
    ApiRow(60, "DescribeCluster", "describe_cluster", 0, 2, Listeners.CLIENTS),
    ApiRow(61, "DescribeProducers", "producers", 0, 0, Listeners.ALL),
    ApiRow(64, "UnregisterBroker", "known_brokers", 0, 0, Listeners.CLIENTS),
    ApiRow(65, "DescribeTransactions", "transactions", 0, 0, Listeners.CLIENTS),
    ApiRow(66, "ListTransactions", "transactions", 0, 2, Listeners.CLIENTS),
    ApiRow(68, "ConsumerGroupHeartbeat", "group_consumer", 0, 1, Listeners.CLIENTS),
    ApiRow(69, "ConsumerGroupDescribe", "consumer_group_describe", 0, 1, Listeners.CLIENTS),
    ApiRow(74, "ListConfigResources", "config_resources", 0, 1, Listeners.CLIENTS),
    ApiRow(75, "DescribeTopicPartitions", "topic_partitions", 0, 0, Listeners.CLIENTS),
)
