"""The limits of everything that clients can make groups store."""

from typing import Final

from odradek.late import dataclass

KIB: Final = 1024
MIB: Final = 1024 * KIB

GROUP_ID_MAX_BYTES: Final = 1 * KIB
NAME_MAX_CHARACTERS: Final = 249
"""The limit for group instance ids, protocol types and names of protocols, as for topics."""
CLIENT_ID_MAX_CHARACTERS: Final = 249
"""A longer client id is cut off."""
REGEX_MAX_CHARACTERS: Final = 4 * KIB
PROTOCOLS_MAX: Final = 64
MEMBER_MAX_BYTES: Final = 1 * MIB
"""The limit for the metadata of all protocols of one member, and for its assignment."""
GROUP_MAX_BYTES: Final = 16 * MIB
"""The limit for all members of one classic group."""
CONSUMER_GROUP_MAX_BYTES: Final = 64 * MIB
"""The limit for all members of one group of the new protocol, with the partitions that they own."""
MEMBERSHIP_MAX_BYTES: Final = 256 * MIB
"""The limit for all members of all groups of this broker."""
GROUPS_MAX: Final = 100_000
BATCH_MAX_BYTES: Final = 512 * KIB
"""The limit for one batch of records. A batch of one record may be larger."""
OFFSETS_MAX_BYTES: Final = 256 * MIB
"""The limit for all offsets of this broker, stored and pending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """The settings that each group of the new protocol (KIP-848) may have of its own."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


# invariant bounds 2
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Kafka's properties with Kafka's defaults, except for two.

    Differs from Kafka: `group.initial.rebalance.delay.ms` is 0 (Kafka: 3000), because the users of
    a small broker start their consumers one by one and do not want to wait. `group.max.size` is
    1000 (Kafka: no limit).

    The `consumer` settings are for groups of the new protocol (KIP-848).
    """

    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 30 * 60_000
    group_max_size: int = 1_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_migration_policy: str = "bidirectional"
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50

    @property
    def of_consumer_groups(self) -> ConsumerGroupConfig:
        """Return the settings of a group that has none of its own."""
        return ConsumerGroupConfig(
            session_timeout_ms=self.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=self.group_consumer_heartbeat_interval_ms,
            assignment_interval_ms=self.group_consumer_assignment_interval_ms,
        )
