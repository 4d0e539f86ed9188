"""The leader epochs that a reader names, compared with those of this log."""

from typing import Final

from odradek.broker.partitions.leader import Leader
from odradek.protocol.apis.fetch import EpochEndOffset, FetchPartition
from odradek.protocol.errors import ErrorCode, KafkaError

NOT_SAID: Final = -1


def check_leader_epoch(leader: Leader, believed: int) -> None:
    """Compare the client's leader epoch with the partition's.

    Raises KafkaError: FENCED_LEADER_EPOCH if the client's is older, UNKNOWN_LEADER_EPOCH if it is
    newer.
    """
    if believed == NOT_SAID:
        return
    if believed < leader.leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"The leader epoch is {leader.leader_epoch}; {believed} is over.",
        )
    if believed > leader.leader_epoch:
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"The leader epoch here is {leader.leader_epoch}, not {believed} yet.",
        )


def where_it_parted(leader: Leader, wanted: FetchPartition) -> EpochEndOffset | None:
    """Return the last epoch and offset that this log and the reader's share, if they diverged."""
    if wanted.last_fetched_epoch <= NOT_SAID:
        return None
    epoch, end_offset = leader.log.epochs.end_offset(
        wanted.last_fetched_epoch, leader.log.log_end_offset
    )
    if epoch == NOT_SAID or end_offset == NOT_SAID:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "That leader epoch is not known here.")
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None
