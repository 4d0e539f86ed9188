"""One group as an immutable value: its members, their votes, its leader, its generation.

Every change returns a new value, so that a reader sees all of a change or nothing of it. `members`
is in the order in which the members joined. Nothing here depends on the order of a set.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Final

from odradek.broker.group.state import GroupState
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError

NO_MEMBERS: Final[Mapping[str, "Member"]] = MappingProxyType({})
MEMBER_BASE_BYTES: Final = 512
"""The size that a member counts for, without its protocols and assignment, in memory limits."""
PROTOCOL_BASE_BYTES: Final = 144
"""The size that a protocol of a member counts for, without its name and metadata."""


@dataclass(frozen=True, slots=True)
class MemberProtocol:
    """A way to assign partitions that a member supports, with the member's subscription."""

    name: str
    metadata: bytes

    @property
    def size_bytes(self) -> int:
        """The size that it counts for in memory limits."""
        return PROTOCOL_BASE_BYTES + len(self.name) + len(self.metadata)


def have_common_protocol(
    names: Iterable[str], of_members: Iterable[Sequence[MemberProtocol]]
) -> bool:
    """Return True if all members have a protocol of the same one of these names."""
    # Each member is looked at once. Clients choose the names, and how many members there are.
    common = set(names)
    for protocols in of_members:
        if not common:
            break
        common.intersection_update([each.name for each in protocols])
    return bool(common)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    """In the member's order of preference."""
    assignment: bytes = b""
    size_bytes: int = field(init=False, compare=False, default=0)
    """The size that it counts for in memory limits."""

    def __post_init__(self) -> None:
        protocols = sum(each.size_bytes for each in self.protocols)
        size_bytes = MEMBER_BASE_BYTES + protocols + len(self.assignment)
        object.__setattr__(self, "size_bytes", size_bytes)

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def metadata(self, protocol: str | None) -> bytes:
        """Return its subscription under `protocol`; empty if it does not support that one."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    group_id: str
    state: GroupState = GroupState.EMPTY
    state_since_ms: int = -1
    """Wall-clock milliseconds. The retention of an empty group's offsets begins here."""
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: Mapping[str, Member] = field(default_factory=lambda: NO_MEMBERS)
    joined: frozenset[str] = frozenset()
    """Members that have sent JoinGroup for the next generation and wait for its answer."""
    unsynced: frozenset[str] = frozenset()
    """Members of this generation that have not yet asked for their assignment."""
    promised: frozenset[str] = frozenset()
    """Member ids that were given out with MEMBER_ID_REQUIRED and have not joined yet."""

    @property
    def size_bytes(self) -> int:
        promised = MEMBER_BASE_BYTES * len(self.promised)
        return promised + sum(member.size_bytes for member in self.members.values())

    @property
    def have_all_joined(self) -> bool:
        return len(self.joined) == len(self.members) and not self.promised

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of its members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def member_id_of(self, group_instance_id: str) -> str | None:
        return next(
            (
                member.member_id
                for member in self.members.values()
                if member.group_instance_id == group_instance_id
            ),
            None,
        )

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise KafkaError unless the group has this member.

        UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id (KIP-345).
        """
        member = self.members.get(member_id)
        if group_instance_id is not None and (
            member is None or member.group_instance_id != group_instance_id
        ):
            holder = self.member_id_of(group_instance_id)
            if holder is not None:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"{group_instance_id!r} is now the member {holder!r} of {self.group_id!r}",
                )
            member = None
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{self.group_id!r} has no member {member_id!r} ({group_instance_id!r})",
            )

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return True if a member with these protocols may join: all must have one in common."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        return protocol_type == self.protocol_type and have_common_protocol(
            names, (member.protocols for member in self._all)
        )

    def selected_protocol(self) -> str:
        """Return the protocol with the most votes among those that every member supports.

        A member votes for the first of its protocols that is a candidate. Of two protocols with as
        many votes, the one with the vote of the oldest member wins.
        """
        assert self.members, self
        votes: dict[str, int] = {}
        candidates = set.intersection(*({p.name for p in member.protocols} for member in self._all))
        for member in self._all:
            vote = next(each.name for each in member.protocols if each.name in candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=votes.__getitem__)

    @property
    def _all(self) -> Iterable[Member]:
        return self.members.values()

    # what a change makes of it

    def in_state(self, state: GroupState, now_ms: int) -> "ClassicGroup":
        return replace(self, state=state, state_since_ms=now_ms)

    def with_protocol(self, name: str) -> "ClassicGroup":
        return replace(self, protocol_name=name)

    def with_promised(self, member_id: str) -> "ClassicGroup":
        return replace(self, promised=self.promised | {member_id})

    def with_joined(self, member: Member, protocol_type: str) -> "ClassicGroup":
        """Return the group with a new or updated member, which waits for the next generation."""
        return replace(
            self,
            protocol_type=self.protocol_type if self.members else protocol_type,
            leader_id=self.leader_id or member.member_id,
            members={**self.members, member.member_id: member},
            joined=self.joined | {member.member_id},
            promised=self.promised - {member.member_id},
        )

    def with_replaced(self, old_id: str, member: Member) -> "ClassicGroup":
        """Return the group with a static member replaced. The new one has not joined yet."""
        members = {
            member.member_id if member_id == old_id else member_id: (
                member if member_id == old_id else each
            )
            for member_id, each in self.members.items()
        }
        unsynced = {member.member_id} if old_id in self.unsynced else set()
        return replace(
            self,
            leader_id=member.member_id if self.leader_id == old_id else self.leader_id,
            members=members,
            joined=self.joined - {old_id},
            unsynced=(self.unsynced - {old_id}) | unsynced,
        )

    def with_joining(self, member_id: str) -> "ClassicGroup":
        return replace(self, joined=self.joined | {member_id})

    def without(self, gone: Iterable[str]) -> "ClassicGroup":
        """Return the group without these members. If the leader goes, the oldest member leads."""
        leaving = frozenset(gone)
        members = {key: member for key, member in self.members.items() if key not in leaving}
        leader_id = self.leader_id if self.leader_id in members else next(iter(members), None)
        return replace(
            self,
            leader_id=leader_id,
            members=members,
            joined=self.joined - leaving,
            unsynced=self.unsynced - leaving,
            promised=self.promised - leaving,
        )

    def with_leader_that_joined(self) -> "ClassicGroup":
        """Return the group with a leader that has joined again, if any member has."""
        if self.leader_id in self.joined:
            return self
        leader_id = next((each for each in self.members if each in self.joined), self.leader_id)
        return replace(self, leader_id=leader_id)

    def with_next_generation(self, state: GroupState, now_ms: int) -> "ClassicGroup":
        """Return the group in its next generation, in which no member has synced yet."""
        return replace(
            self,
            state=state,
            state_since_ms=now_ms,
            generation_id=self.generation_id + 1,
            protocol_name=self.selected_protocol() if self.members else None,
            joined=frozenset(),
            unsynced=frozenset(self.members),
        )

    def with_synced(self, member_id: str) -> "ClassicGroup":
        return replace(self, unsynced=self.unsynced - {member_id})

    def with_assignment(self, assignment: Mapping[str, bytes]) -> "ClassicGroup":
        """Return the group with this assignment; a member that it does not name gets nothing."""
        members = {
            member_id: replace(member, assignment=assignment.get(member_id, b""))
            for member_id, member in self.members.items()
        }
        return replace(self, members=members)
