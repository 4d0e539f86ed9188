"""The requests of group members and their answers, independent of the wire's versions."""

from collections.abc import Callable, Mapping
from dataclasses import field
from uuid import UUID

from odradek.broker.config.settings import INT64_MAX
from odradek.broker.group.classic_group import ClassicGroup, MemberProtocol
from odradek.broker.group.store import NO_EXPIRY, StoredOffset
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The member, instance and generation in a request, which the group checks first."""

    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """JoinGroup. `member_id` is empty for a member that has none yet."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    requires_known_member_id: bool
    """True if a new member gets only an id at first, and must join again with it (KIP-394)."""
    can_skip_assignment: bool
    """True if the client understands `skip_assignment` in the answer (KIP-814)."""
    may_see: Callable[[str], bool] = field(default=lambda _: True, compare=False)
    """Returns True for a topic that the client may describe."""
    rights: object = field(default=None, compare=False)
    """Another object whenever `may_see` may return something else (`Access.rights`)."""


class MemberIdRequiredError(KafkaError):
    """MEMBER_ID_REQUIRED, with the id for the next JoinGroup."""

    def __init__(self, member_id: str) -> None:
        super().__init__(ErrorCode.MEMBER_ID_REQUIRED, f"join again as {member_id!r}")
        self.member_id = member_id


class UnnamedRefusalError(KafkaError):
    """A group of the new protocol refuses a JoinGroup. The answer names no member, as Kafka's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The answer to JoinGroup. Only the leader's answer has `members`."""

    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Syncing:
    """SyncGroup. Only the leader's request has `assignments`."""

    group_id: str
    claim: Claim
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffset:
    """A stored offset; -1 if there is none. `error` is NONE or UNSTABLE_OFFSET_COMMIT."""

    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: UUID = ZERO_UUID
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Committing:
    """Offsets to store for a group, and the claim of the sender."""

    group_id: str
    claim: Claim
    """For a group of the new protocol its generation is the member's epoch."""
    offsets: Mapping[TopicPartition, StoredOffset]
    """As they will be stored, with the time of the request."""
    knows_member_epochs: bool = True
    """False for a request of a version before the new protocol (OffsetCommit 2-8)."""


def expiry_ms(now_ms: int, retention_ms: int) -> int:
    """Return when an offset expires; -1 for a retention of -1, the broker's own."""
    return NO_EXPIRY if retention_ms < 0 else min(now_ms + retention_ms, INT64_MAX)


def join_answer(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> Joined:
    """Return the answer to the JoinGroup of a member in the group's generation."""
    members: tuple[JoinedMember, ...] = ()
    if member_id == group.leader_id:
        members = tuple(
            JoinedMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                metadata=each.metadata(group.protocol_name),
            )
            for each in group.members.values()
        )
    return Joined(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id or "",
        member_id=member_id,
        members=members,
        skip_assignment=skip_assignment,
    )


def sync_answer(group: ClassicGroup, member_id: str) -> Synced:
    """Return the answer to the SyncGroup of a member: its part of the group's assignment."""
    return Synced(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=group.members[member_id].assignment,
    )
