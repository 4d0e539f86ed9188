"""How much groups may ask of this broker: what a client can make grow has its limit here."""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

GROUP_ID_MAX_BYTES: Final = 1 * KIB
NAME_MAX_CHARACTERS: Final = 249
"""Of a group instance id, a protocol type, a protocol's name: as long as a topic's may be."""
CLIENT_ID_MAX_CHARACTERS: Final = 249
"""What is kept of a client id; the rest is cut off."""
PROTOCOLS_MAX: Final = 64
MEMBER_MAX_BYTES: Final = 1 * MIB
"""The metadata of all protocols of one member; also the assignment of one member."""
GROUP_MAX_BYTES: Final = 16 * MIB
"""All members of one group."""
MEMBERSHIP_MAX_BYTES: Final = 256 * MIB
"""All members of all groups of this broker."""
GROUPS_MAX: Final = 100_000
BATCH_MAX_BYTES: Final = 512 * KIB
"""Of keys and values in one batch of records; a single record may be larger."""
OFFSETS_MAX_BYTES: Final = 256 * MIB
"""All offsets of this broker, stored and pending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Kafka's properties and Kafka's defaults, but for two.

    Differs from Kafka: `group.initial.rebalance.delay.ms` is 0 (Kafka: 3000), as people who start a
    small broker start their consumers one by one and do not want to wait; `group.max.size` is 1000
    (Kafka: no limit).
    """

    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 30 * 60_000
    group_max_size: int = 1_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
