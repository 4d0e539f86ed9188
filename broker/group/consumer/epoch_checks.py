"""The epochs of members fence the offsets that they store and read. Pure."""

from odradek.broker.group.consumer.consumer_group import ConsumerGroup, ConsumerMember, state_of
from odradek.broker.group.consumer.state import ConsumerEvent, decide_for
from odradek.broker.group.member_requests import Committing
from odradek.protocol.errors import ErrorCode, KafkaError


def check_commit(group: ConsumerGroup, committing: Committing, *, in_transaction: bool) -> None:
    """Raise KafkaError unless a request may store these offsets now.

    UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (ILLEGAL_GENERATION for a member that uses the classic
    protocol), and UNSUPPORTED_VERSION for a request that is too old to know member epochs.
    """
    state, claim = state_of(group), committing.claim
    epoch = claim.generation_id
    if epoch < 0 and not group.members:
        decide_for(state, ConsumerEvent.COMMIT_AS_STRANGER)
        return
    names_member = bool(claim.member_id) or claim.group_instance_id is not None
    if in_transaction and epoch == -1 and not names_member:
        decide_for(state, ConsumerEvent.COMMIT_IN_TRANSACTION_AS_STRANGER)
        return
    decide_for(state, ConsumerEvent.COMMIT)
    member = group.member(claim.member_id)
    is_classic = member.classic is not None
    if not in_transaction and not is_classic and not committing.knows_member_epochs:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group "
            "protocol",
        )
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise _stale(member, f"{epoch} is newer than current member epoch {member.epoch}.")
    # A commit that was sent before the member learned of its next epoch is welcome, as long as
    # it has owned the partition since then (KIP-1251).
    for (topic, index), offset in committing.offsets.items():
        since = member.epoch_of(offset.topic_id, index)
        # invariant consumer-groups 3: A commit with an older epoch is taken only for partitions
        # that the member has owned since then (KIP-1251).
        # plant an older epoch stores offsets of partitions that the member got later
        if since is None or epoch < since:
            raise _stale(
                member, f"{epoch} is older than the assignment of {topic}-{index} ({since})."
            )


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Raise KafkaError as `check_commit` unless a member may read offsets."""
    if member_id is None and member_epoch < 0:
        return
    member = group.member(member_id or "")
    if member_epoch != member.epoch:
        raise _stale(
            member, f"{member_epoch} does not match the expected member epoch {member.epoch}."
        )


def _stale(member: ConsumerMember, problem: str) -> KafkaError:
    if member.classic is not None:
        return KafkaError(ErrorCode.ILLEGAL_GENERATION, f"The received generation id {problem}")
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, f"The received member epoch {problem}")
