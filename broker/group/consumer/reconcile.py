"""The way of a member from what it owns to its target, one step for each heartbeat (KIP-848).

             must revoke some             has revoked them
    STABLE -------------------> UNREVOKED ----------------+
      |  ^                                                |
      |  |  all of its target is free                     v
      |  +------------------------------- the epoch is the target's, and it gets what is free
      |                                                   |
      +---- some of its target has an owner ------> UNRELEASED: the rest follows as it gets free

A member that must revoke keeps its epoch. Its answer has only what it keeps. It has revoked when
its heartbeat lists the partitions that it owns, and none of those is among them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from odradek.broker.environment.work import Work
from odradek.broker.group.consumer.consumer_group import (
    NO_EPOCHS,
    ConsumerMember,
    Epochs,
    MemberProgress,
    Partitions,
)
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError

OwnerOf = Callable[[UUID, int], str | None]
"""Returns the id of the member that owns a partition, or has not yet revoked it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The partitions of a member in an epoch, and the topics that it reads."""

    epoch: int
    partitions: Partitions
    topic_ids: frozenset[UUID]


def reconciled_member(
    member: ConsumerMember,
    target: Target,
    *,
    owned: Partitions | None,
    owner_of: OwnerOf,
    must_fit_topics: bool,
) -> Work[ConsumerMember]:
    """Return the member one step closer to its target, or as it was.

    `owned`: what its heartbeat lists; None if that has not changed. `must_fit_topics`: its
    subscription has changed, so topics that it does not read any more are revoked even though the
    target is not computed yet. Raises KafkaError(FENCED_MEMBER_EPOCH) for an unknown progress.
    """
    match member.progress:
        case MemberProgress.STABLE:
            if member.epoch != target.epoch:
                return (yield from _next(member, target, owned, owner_of))
            return _fitting(member, target, owned) if must_fit_topics else member
        case MemberProgress.UNREVOKED_PARTITIONS:
            if _owns_any(owned, member.revoking):
                return _fitting(member, target, owned) if must_fit_topics else member
            return (yield from _next(member, target, owned, owner_of))
        case MemberProgress.UNRELEASED_PARTITIONS:
            return (yield from _next(member, target, owned, owner_of))
    if owned is None or any(owned.values()):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin.",
        )
    return (yield from _next(member, target, owned, owner_of))


def _owns_any(owned: Partitions | None, partitions: Epochs) -> bool:
    """Return True unless the member has reported that it owns none of `partitions`."""
    if owned is None:
        return True
    return any(
        not partitions.get(topic_id, {}).keys().isdisjoint(indexes)
        for topic_id, indexes in owned.items()
    )


def _next(
    member: ConsumerMember, target: Target, owned: Partitions | None, owner_of: OwnerOf
) -> Work[ConsumerMember]:
    yield 1 + len(target.partitions) // 20
    wanted = {
        topic_id: indexes
        for topic_id, indexes in target.partitions.items()
        if topic_id in target.topic_ids
    }
    kept: dict[UUID, dict[int, int]] = {}
    leaving: dict[UUID, dict[int, int]] = {}
    for topic_id, epochs in member.assigned.items():
        yield 1 + len(epochs) // 5
        for index, epoch in epochs.items():
            side = kept if index in wanted.get(topic_id, ()) else leaving
            side.setdefault(topic_id, {})[index] = epoch
    # invariant consumer-groups 1: A partition has one owner: the next one gets it once the previous
    # one has reported that it has revoked it, or was removed.
    # plant a partition moves before its owner has revoked it
    # plant a partition is given to a member while another one owns it
    if leaving and _owns_any(owned, leaving):
        return replace(
            member.at_epoch(member.epoch),
            progress=MemberProgress.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=leaving,
        )
    # A partition that the member itself has just revoked, and should own again, is free.
    is_waiting = False
    for topic_id, indexes in wanted.items():
        yield 1 + len(indexes) // 5
        for index in sorted(indexes - kept.get(topic_id, {}).keys()):
            # invariant consumer-groups 1
            if owner_of(topic_id, index) in (None, member.member_id):
                kept.setdefault(topic_id, {})[index] = target.epoch
            else:
                is_waiting = True
    return replace(
        member.at_epoch(target.epoch),
        progress=MemberProgress.UNRELEASED_PARTITIONS if is_waiting else MemberProgress.STABLE,
        assigned=kept,
        revoking=NO_EPOCHS,
    )


def _fitting(member: ConsumerMember, target: Target, owned: Partitions | None) -> ConsumerMember:
    """Return the member without the topics that it does not read any more."""
    leaving = {
        topic_id: epochs
        for topic_id, epochs in member.assigned.items()
        if topic_id not in target.topic_ids
    }
    if not leaving:
        return member
    kept = {key: epochs for key, epochs in member.assigned.items() if key not in leaving}
    revoking: dict[UUID, Mapping[int, int]] = dict(member.revoking)
    for topic_id, epochs in leaving.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **epochs}
    if _owns_any(owned, revoking):
        return replace(
            member.at_epoch(member.epoch),
            progress=MemberProgress.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=revoking,
        )
    return replace(member.at_epoch(member.epoch), assigned=kept)


def is_part_of(owned: Partitions | None, assigned: Epochs) -> bool:
    """Return True if the member lists what it owns, and all of it is assigned to it."""
    if owned is None:
        return False
    return all(indexes <= assigned.get(topic_id, {}).keys() for topic_id, indexes in owned.items())


def without_conflicts(members: Iterable[ConsumerMember]) -> dict[str, ConsumerMember]:
    """Return members that were read, of which no two own the same partition.

    Where a damaged record was left out of the log, two may. The later one then owns nothing, and is
    fenced by its next heartbeat: it gives up all that it has, and joins again.
    """
    taken: set[tuple[UUID, int]] = set()
    found = {}
    for member in members:
        places = _places(member)
        if taken.isdisjoint(places):
            taken.update(places)
            found[member.member_id] = member
        else:
            found[member.member_id] = replace(
                member, progress=MemberProgress.UNKNOWN, assigned=NO_EPOCHS, revoking=NO_EPOCHS
            )
    return found


class Owners:
    """The owner of each partition of a group, which follows from its members."""

    def __init__(self) -> None:
        self._owners: dict[tuple[UUID, int], str] = {}

    def owner_of(self, topic_id: UUID, index: int) -> str | None:
        return self._owners.get((topic_id, index))

    def replace(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Follow the change of a member, which may be new or gone."""
        if before is after:
            return
        if before is not None:
            for place in _places(before):
                owner = self._owners.pop(place, before.member_id)  # one look-up: ids are slow
                if owner != before.member_id:
                    self._owners[place] = owner
        if after is not None:
            for place in _places(after):
                owner = self._owners.setdefault(place, after.member_id)
                assert owner == after.member_id, (place, owner, after)


def _places(member: ConsumerMember) -> list[tuple[UUID, int]]:
    return [
        (topic_id, index)
        for owned in (member.assigned, member.revoking)
        for topic_id, epochs in owned.items()
        for index in epochs
    ]
