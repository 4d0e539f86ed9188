"""DeleteRecords: a log begins later, because an administrator says so.

The *low watermark* is the lowest log start of the replicas whose brokers are there. Records below
it are on none of them. A follower reports its log start with each fetch, and learns the leader's
with the answer. While a deletion waits, the leader answers a follower that does not know the new
start at once, and the follower's next fetch then reports its own.
"""

from collections.abc import Callable
from typing import Final

import trio

from odradek.broker.partitions.leader import Leader
from odradek.protocol.errors import ErrorCode, KafkaError

HIGH_WATERMARK: Final = -1
"""The offset of a request that deletes everything below the high watermark."""


async def delete_records(leader: Leader, offset: int) -> int:
    """Move the log start to `offset`, unless it is later already. It is durable on return.

    Return the offset that was meant. Raises KafkaError, and nothing is deleted: POLICY_VIOLATION
    for a topic that is only compacted, OFFSET_OUT_OF_RANGE for an offset above the high watermark,
    KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER.
    """
    config, high_watermark = leader.log.config, leader.marks.high_watermark
    if config.is_compacted and not config.is_limited:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{leader.by_id.topic} has cleanup.policy=compact, which keeps the last record of a "
            "key",
        )
    target = high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{leader.log.name} has no offset {target} below its high watermark, {high_watermark}",
        )
    # A client that goes away must not leave a start that only memory has.
    with trio.CancelScope(shield=True):
        try:
            await leader.maintenance.delete_before(target, check=leader.check)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{leader.log.name}: {error.strerror}"
            ) from error
    return target


def low_watermark(leader: Leader, is_there: Callable[[int], bool]) -> int:
    """Return the lowest log start of this replica and of the followers that are there.

    It is -1 while such a follower has not reported its log start in this leader epoch. Raises
    KafkaError as `Leader.check`.
    """
    leader.check()
    starts = [
        progress.log_start_offset
        for node, progress in leader.view.followers.items()
        if is_there(node)
    ]
    return min([leader.log.log_start_offset, *starts])


async def deleted_everywhere(leader: Leader, offset: int, is_there: Callable[[int], bool]) -> int:
    """Return the low watermark when it has reached `offset`. Raises as `low_watermark`."""
    while True:
        lowest = low_watermark(leader, is_there)
        # invariant administration 1
        if lowest >= offset:
            return lowest
        moved = trio.Event()
        leader.deletions[moved] = None
        leader.marks.followers.notify()
        try:
            await moved.wait()
        finally:
            del leader.deletions[moved]
