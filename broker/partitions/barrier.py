"""A read barrier: proof that this broker still leads a partition, at some moment after the call.

A leader that was cut off does not know that another has been elected. What it remembers may be old:
a consumer that got an old position from it would process records twice. So an answer that others
must be able to rely on waits until enough in-sync replicas for min.insync.replicas have fetched in
this leader epoch since the request came. Another leader needs one of them, and that one would have
refused to fetch in the older epoch any more.

A follower fetches at least twice a second. While a barrier waits, the leader answers fetches at
once, so that the next ones come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.partitions.partition import Partition

PATIENCE_SECONDS: Final = 3.0


async def read_barrier(partition: Partition) -> None:
    """Wait for the proof. A partition with one replica needs none.

    Raises KafkaError: NOT_LEADER_OR_FOLLOWER if the lead ends, or if there is no proof in
    PATIENCE_SECONDS; and as `Partition.check_available`.
    """
    partition.check_available()
    lead = partition.lead
    assert lead is not None
    if lead.is_alone:
        return
    since, minimum = lead.fetch_count, partition.config.min_insync_replicas
    barriers = partition.marks.barriers
    with trio.move_on_after(PATIENCE_SECONDS):
        while partition.lead is lead and not lead.has_heard(since, minimum):
            heard = trio.Event()
            barriers[heard] = None
            partition.marks.followers.notify()
            try:
                await heard.wait()
            finally:
                del barriers[heard]
    partition.check_available()
    if partition.lead is not lead or not lead.has_heard(since, minimum):
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"too few followers of {partition.topic}-{partition.index} fetch from this broker to "
            "prove that it still leads",
        )
