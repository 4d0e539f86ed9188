"""DeleteRecords: a log begins later, because an administrator says so.

The *low watermark* is the lowest log start of the replicas whose brokers are there. Records below
it are on none of them. A follower reports its log start with each fetch, and learns the leader's
with the answer. While a deletion waits, the leader answers a follower that does not know the new
start at once, and the follower's next fetch then reports its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.partitions.partition import Partition

HIGH_WATERMARK: Final = -1
"""The offset of a request that deletes everything below the high watermark."""


async def delete_records(partition: Partition, offset: int) -> int:
    """Let the log begin at `offset`, unless it begins later already. It is durable on return.

    Return the offset that was meant. Raises KafkaError, and nothing is deleted: POLICY_VIOLATION
    for a topic that is only compacted, OFFSET_OUT_OF_RANGE for an offset above the high watermark,
    KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER.
    """
    config = partition.config
    if config.is_compacted and not config.is_limited:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{partition.topic} has cleanup.policy=compact, which keeps the last record of a key",
        )
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= partition.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition!r} has no offset {target} below its high watermark",
        )
    # A client that goes away must not leave a start that only memory has.
    with trio.CancelScope(shield=True):
        try:
            await partition.maintenance.delete_before(target, leader_epoch=partition.leader_epoch)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.log.name}: {error.strerror}"
            ) from error
    return target


def low_watermark(partition: Partition, is_there: Callable[[int], bool]) -> int:
    """Return the lowest log start of this replica and of the followers that are there.

    It is -1 while such a follower has not reported its log start in this leader epoch. Raises
    KafkaError as `Partition.check_available`.
    """
    partition.check_available()
    assert partition.lead is not None
    starts = [
        progress.log_start_offset
        for node, progress in partition.lead.followers.items()
        if is_there(node)
    ]
    return min([partition.log_start_offset, *starts])


async def deleted_everywhere(
    partition: Partition, offset: int, is_there: Callable[[int], bool]
) -> int:
    """Return the low watermark when it has reached `offset`. Raises as `low_watermark`."""
    marks, epoch = partition.marks, partition.leader_epoch
    while True:
        lowest = low_watermark(partition, is_there)
        if partition.leader_epoch != epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{partition.topic}-{partition.index} had another leader after epoch {epoch}",
            )
        if lowest >= offset:
            return lowest
        moved = trio.Event()
        marks.deletions[moved] = None
        marks.followers.notify()
        try:
            await moved.wait()
        finally:
            del marks.deletions[moved]
