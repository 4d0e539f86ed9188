"""The broker's settings: Kafka's property names, Kafka's defaults, and a few of our own.

A setting is declared here only if the broker reads it. `unused.py` declares those of Kafka's that
are accepted and change nothing. Any other name is refused like a misspelling.

Differs from Kafka: `num.partitions` is 4; state topics have one replica, as there is one broker;
`group.initial.rebalance.delay.ms` is 0, as in Kafka's own quick start; a group has at most 1,000
members. The settings that only this broker has are marked `ours`.

`scripts/fix` writes `docs/configuration.md` from these declarations.
"""

import functools
from dataclasses import field
from typing import Final

from odradek.broker.config.diagnostics import DiagnosticSettings
from odradek.broker.config.records import inherited_last
from odradek.broker.config.settings import (
    Setting,
    Value,
    boolean,
    double,
    int32,
    int64,
    password,
    settings_of,
    string,
    words,
)
from odradek.broker.config.tls import split_listener_name, tls_last
from odradek.late import dataclass

KIB: Final = 1024
MIB: Final = 1024 * KIB
SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
CLEANUP_POLICIES: Final = ("delete", "compact", "compact,delete", "delete,compact")
PARTITIONS_MAX: Final = 10_000
"""The largest default number of partitions."""
REPLICAS_MAX: Final = 32_767


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(DiagnosticSettings):
    """All settings of `odradek serve`, checked. `settling.py` makes an instance."""

    given: frozenset[str] = field(default=frozenset(), compare=False)
    """The settings that the file or the command line gave, by Kafka's name."""

    # identity
    node_id: int = int32(1, low=0, about="The id of this broker in answers to clients.")
    log_dirs: str = string(
        "",
        about=(
            "The directory that keeps everything; `--data-dir` overrules it. Unset, it is "
            "./odradek-data."
        ),
    )

    broker_rack: str = string(
        "",
        about=(
            "The rack, or zone, in which this broker stands. The replicas of a new partition are "
            "in different racks, as far as there are enough."
        ),
    )

    # the metadata store of a cluster
    etcd_endpoints: str = words(
        "",
        ours=True,
        about=(
            "The addresses of the etcd that keeps the cluster's metadata, as http://HOST:PORT or "
            "https://HOST:PORT. Unset, this broker is alone and keeps them in its own files."
        ),
    )
    etcd_key_prefix: str = string(
        "/odradek",
        ours=True,
        about="What the names of all keys in etcd begin with: clusters may share an etcd.",
    )
    etcd_user: str = string("", ours=True, about="The user of etcd, if it asks for one.")
    etcd_password: str = password("", ours=True, about="The password of `etcd.user`.")
    etcd_tls_ca: str = string(
        "",
        ours=True,
        about=(
            "A file with the certificates that etcd's are signed by. Unset, those that the "
            "machine trusts count."
        ),
    )
    etcd_tls_cert: str = string(
        "", ours=True, about="A file with the certificate that etcd is shown, if it asks for one."
    )
    etcd_tls_key: str = string("", ours=True, about="A file with the key of `etcd.tls.cert`.")

    # access control
    authorizer_class_name: str = string(
        "",
        choices=("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        may_be_empty=True,
        about=(
            "Switches access control on: clients may do only what ACL entries allow. The only "
            "authoriser is `org.apache.kafka.metadata.authorizer.StandardAuthorizer`. Unset, "
            "everybody may do everything."
        ),
    )
    super_users: str = string(
        "",
        may_be_empty=True,
        about="Who may do everything: principals such as `User:alice`, separated by semicolons.",
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, about="Allow everybody to use a resource that no ACL entry is about."
    )

    # topics
    num_partitions: int = int32(
        4,
        low=1,
        high=PARTITIONS_MAX,
        about="Partitions of a topic that is created without a number of them.",
    )
    max_broker_partitions: int = int32(
        20_000,
        low=1,
        ours=True,
        about=("The most partitions that all topics may have together, but for the broker's own."),
    )
    auto_create_topics_enable: bool = boolean(
        True, about="Create a topic when a client asks for one that is not there."
    )
    delete_topic_enable: bool = boolean(True, about="Let clients delete topics.")
    default_replication_factor: int = int32(
        1,
        low=1,
        high=REPLICAS_MAX,
        about="Replicas of a topic that is created without a number of them; 3 in a cluster.",
    )
    min_insync_replicas: int = int32(
        1, low=1, about="An acks=all write is refused while fewer replicas than this are in sync."
    )

    # cluster
    inter_broker_listener_port: int = int32(
        9093,
        low=0,
        high=65535,
        ours=True,
        about="The port on which a broker of a cluster serves the other brokers.",
    )
    broker_session_timeout_ms: int = int32(
        3 * SECOND_MS,
        low=SECOND_MS,
        about=(
            "Another leader is elected when a broker has not kept its registration alive for this "
            "time."
        ),
    )
    replica_lag_time_max_ms: int = int64(
        3_500,
        low=1,
        about=(
            "A replica leaves the in-sync set when it has not had everything that its leader has "
            "for this time."
        ),
    )

    # logs
    log_flush: str = string(
        "journal",
        choices=("journal", "ack", "os"),
        ours=True,
        about=(
            "`journal`: a write is on disk before it is answered; small writes to many partitions "
            "share one flush, that of a journal in the data directory. Stop the broker in good "
            "order before version 0.1.0 uses the directory again: it does not know the journal. "
            "`ack`: the same without a journal, each log is flushed by itself. `os`: the operating "
            "system writes it to disk later, as with Kafka's defaults."
        ),
    )
    log_segment_bytes: int = int32(
        1024 * MIB,
        low=16 * KIB,
        about="A segment of a partition's log is closed before it is larger than this.",
    )
    log_roll_ms: int = int64(
        7 * DAY_MS, low=1, about="A segment is closed when its first record is this old."
    )
    log_retention_ms: int = int64(
        7 * DAY_MS,
        low=-1,
        about=("Closed segments are deleted when their newest record is this old; -1 keeps them."),
    )
    log_retention_bytes: int = int64(
        -1,
        about=(
            "The oldest closed segments are deleted while the partition has more bytes than"
            " this; below 0 it has no limit."
        ),
    )
    log_retention_check_interval_ms: int = int64(
        5 * MINUTE_MS,
        low=1,
        about="The interval at which retention deletes segments.",
    )
    log_index_interval_bytes: int = int32(
        4 * KIB,
        low=0,
        about="An entry is added to the offset index after so many bytes of records.",
    )
    log_index_size_max_bytes: int = int32(
        10 * MIB,
        low=4,
        about="The largest size of an index; a segment is closed when its index is full.",
    )
    log_message_timestamp_type: str = string(
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        about=(
            "The timestamp of a record: the producer's (CreateTime), or when it was "
            "appended (LogAppendTime)."
        ),
    )
    log_message_timestamp_before_max_ms: int = int64(
        2**63 - 1,
        low=0,
        about="A record is refused if its timestamp is further in the past than this.",
    )
    log_message_timestamp_after_max_ms: int = int64(
        HOUR_MS,
        low=0,
        about="A record is refused if its timestamp is further in the future than this.",
    )
    message_max_bytes: int = int32(
        MIB + 12, low=0, about="The largest record batch that is accepted, in its compressed size."
    )
    log_cleanup_policy: str = words(
        "delete",
        choices=CLEANUP_POLICIES,
        may_be_empty=True,
        about=(
            "How old records are removed: `delete` by age and size, `compact` keeps the newest"
            " of each key, or both. An empty list keeps all."
        ),
    )
    log_cleaner_backoff_ms: int = int64(
        15 * SECOND_MS, low=1, about="The interval at which logs to compact are searched."
    )
    log_cleaner_dedupe_buffer_size: int = int64(
        128 * MIB, low=KIB, about="Memory for the keys of a log that is being compacted."
    )
    log_cleaner_delete_retention_ms: int = int64(
        DAY_MS,
        low=0,
        about=(
            "A deletion (a record without a value) stays for at least this time in a compacted log."
        ),
    )
    log_cleaner_max_compaction_lag_ms: int = int64(
        2**63 - 1, low=1, about="A record is compacted at the latest after this time."
    )
    log_cleaner_min_cleanable_ratio: float = double(
        0.5,
        low=0,
        high=1,
        about="A log is compacted when this part of it has not been compacted yet.",
    )
    log_cleaner_min_compaction_lag_ms: int = int64(
        0, low=0, about="A record is not compacted before this time has passed."
    )
    log_scrub_interval_ms: int = int64(
        DAY_MS,
        low=1,
        ours=True,
        about="Closed segments are read through for damage once in this time.",
    )
    log_scrub_max_bytes_per_second: int = int64(
        16 * MIB, low=1, ours=True, about="How fast closed segments are read through for damage."
    )
    log_reserve_bytes: int = int64(
        8 * MIB,
        low=0,
        high=64 * MIB,
        ours=True,
        about="Room on the disk that is kept for deletions and checkpoints when the disk is full.",
    )
    producer_id_expiration_ms: int = int32(
        DAY_MS,
        low=1,
        about=(
            "A partition forgets an idempotent producer that has written nothing for this time."
        ),
    )
    producer_id_expiration_check_interval_ms: int = int32(
        10 * MINUTE_MS, low=1, about="The interval at which producers are forgotten."
    )

    max_producers_per_partition: int = int32(
        50_000,
        low=1,
        ours=True,
        about=(
            "The most producers that a partition remembers. For another one it forgets the one "
            "that has written nothing for the longest time, never one with an open transaction."
        ),
    )

    # connections
    socket_request_max_bytes: int = int32(
        100 * MIB, low=1, about="A connection is closed if it announces a larger request."
    )
    socket_response_max_bytes: int = int32(
        100 * MIB,
        low=1,
        ours=True,
        about=("A request whose answer would be larger is refused; a Fetch has fetch.max.bytes."),
    )
    connections_max_idle_ms: int = int64(
        10 * MINUTE_MS, low=1, about="A connection is closed when it has been idle for this time."
    )
    connections_max_frame_ms: int = int64(
        30 * SECOND_MS,
        low=1,
        ours=True,
        about=(
            "A connection is closed if a request that has begun is not complete after this time."
        ),
    )
    max_connections: int = int32(
        2**31 - 1,
        low=1,
        about=(
            "The most connections at once; the limit of open files may be lower. A few more are"
            " served from the machine itself, so that nobody is locked out."
        ),
    )
    max_connections_per_ip: int = int32(
        2**31 - 1,
        low=0,
        about="The most connections of one address at once, authenticated or not.",
    )
    max_connections_per_ip_overrides: str = words(
        "",
        may_be_empty=True,
        about="Addresses that have another bound than `max.connections.per.ip`, as ADDRESS:COUNT.",
    )
    connection_failed_authentication_delay_ms: int = int32(
        100,
        low=0,
        high=MINUTE_MS,
        about=(
            "The time between a wrong password and its answer. The connection is closed a tenth of "
            "a second after the answer, so that the client can read it."
        ),
    )
    queued_max_request_bytes: int = int64(
        256 * MIB,
        low=1,
        about="Memory for requests that are read or worked on; a request that needs more waits.",
    )
    fetch_max_bytes: int = int32(
        55 * MIB,
        low=1024,
        high=64 * MIB,
        about="The most bytes of records in one answer to a Fetch.",
    )

    # transactions
    transaction_max_timeout_ms: int = int32(
        15 * MINUTE_MS, low=1, about="The longest transaction time-out that a producer may ask for."
    )
    transactional_id_expiration_ms: int = int32(
        7 * DAY_MS, low=1, about="A transactional id that is unused for this time is forgotten."
    )
    transaction_group_id_expiration_ms: int = int32(
        HOUR_MS,
        low=1,
        ours=True,
        about=(
            "As transactional.id.expiration.ms and producer.id.expiration.ms, for the members of "
            "transaction groups."
        ),
    )
    transactional_ids_max_bytes: int = int64(
        256 * MIB,
        low=64 * KIB,
        ours=True,
        about=(
            "Memory for the transactional ids of this broker: 2 KiB and the text of each, and 512 "
            "bytes for each partition of its transaction. For another one, or another partition, "
            "those that would expire next are forgotten, never one in use."
        ),
    )
    transaction_concurrent_wait_ms: int = int32(
        SECOND_MS,
        low=0,
        ours=True,
        about=(
            "How long a request waits for the transaction before it to end, before it is "
            "answered CONCURRENT_TRANSACTIONS."
        ),
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        about=(
            "Check with the coordinator that a transactional batch belongs to an open transaction."
        ),
    )
    transaction_two_phase_commit_enable: bool = boolean(
        False, about="Let producers prepare transactions that do not time out (KIP-939)."
    )
    transaction_abort_on_disconnect: bool = boolean(
        False,
        ours=True,
        about=(
            "Abort an open transaction when the last connection of its producer is closed, "
            "and not at its time-out."
        ),
    )
    transaction_state_log_num_partitions: int = int32(
        50,
        low=1,
        high=PARTITIONS_MAX,
        about="Partitions of __transaction_state when it is created.",
    )
    transaction_state_log_segment_bytes: int = int32(
        100 * MIB, low=16 * KIB, about="The segment size of __transaction_state."
    )
    transaction_state_log_replication_factor: int = int32(
        1, low=1, high=REPLICAS_MAX, about="Replicas of __transaction_state; 3 in a cluster."
    )
    transaction_state_log_min_isr: int = int32(
        1,
        low=1,
        high=REPLICAS_MAX,
        about="Replicas of a state topic that must be in sync; 2 in a cluster.",
    )

    # groups
    offsets_topic_num_partitions: int = int32(
        50, low=1, high=PARTITIONS_MAX, about="Partitions of __consumer_offsets when it is created."
    )
    offsets_topic_segment_bytes: int = int32(
        100 * MIB, low=16 * KIB, about="The segment size of __consumer_offsets."
    )
    offsets_topic_replication_factor: int = int32(
        1, low=1, high=REPLICAS_MAX, about="Replicas of __consumer_offsets; 3 in a cluster."
    )
    offsets_retention_minutes: int = int32(
        7 * 24 * 60,
        low=1,
        about="The offsets of a group without members are forgotten after this time.",
    )
    offsets_retention_check_interval_ms: int = int64(
        10 * MINUTE_MS, low=1, about="The interval at which offsets are forgotten."
    )
    offset_metadata_max_bytes: int = int32(
        4096, low=0, about="The largest note that a client may store with an offset."
    )
    group_initial_rebalance_delay_ms: int = int32(
        0, low=0, about="How long the first rebalance of a new group waits for more members."
    )
    group_min_session_timeout_ms: int = int32(
        6 * SECOND_MS, low=1, about="The shortest session time-out that a member may ask for."
    )
    group_max_session_timeout_ms: int = int32(
        30 * MINUTE_MS, low=1, about="The longest session time-out that a member may ask for."
    )
    group_max_size: int = int32(1000, low=1, about="The most members of a group.")


@functools.cache
def broker_settings() -> dict[str, Setting]:
    """Return the broker's settings, by Kafka's name."""
    return tls_last(inherited_last(settings_of(BrokerConfig)))


def may_be_empty() -> frozenset[str]:
    """Return the names of the settings whose value may be an empty text."""
    return frozenset(name for name, it in broker_settings().items() if it.may_be_empty)


def setting_of(name: str) -> Setting | None:
    """Return the broker's setting of this name, also for one that a listener has for itself."""
    own = split_listener_name(name)
    return broker_settings().get(name if own is None else own[1])


def value_of(config: BrokerConfig, name: str) -> Value:
    """Return the value of the setting with Kafka's name `name`."""
    own = split_listener_name(name)
    if own is not None:
        given = config.own_of_listeners.get(name)  # it may be that of a mechanism
        return config.of_listener(*own) if given is None else given
    value: Value = getattr(config, name.replace(".", "_"))
    return value
