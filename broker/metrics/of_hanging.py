"""Transactions that hang: they are open in a partition, and no coordinator will end them.

The rule is that of `odradek txn hanging` and of Kafka's tool: nothing was written in it for
`transaction.max.timeout.ms`, and no transactional id has the partition in its transaction. A
broker knows only the ids that it coordinates. Where others may have the id, a transaction is
counted as one of `elsewhere`: it has outlived every time-out, so it hangs, or commits in two
phases.
"""

from collections.abc import Sequence
from typing import Final

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside
from odradek.broker.partitions.partition import Partition
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC

HERE: Final = "here"
ELSEWHERE: Final = "elsewhere"

LateTransaction = tuple[Partition, int]
"""A partition, and the id of a producer whose transaction outlives each time-out there."""


async def add_hanging(
    families: Families, inside: Inside, turns: Turns, late: Sequence[LateTransaction]
) -> None:
    """Add how many of the late transactions hang."""
    hanging = {HERE: 0, ELSEWHERE: 0}
    if late:
        has_all = _coordinates_all(inside)
        owners = {}
        for view in inside.core.transactions.transactions():
            await turns.take()
            owners[view.transaction.producer_id] = view
        for partition, producer_id in late:
            await turns.take()
            if partition.leading is None:
                continue
            owner = owners.get(producer_id)
            if owner is None:
                hanging[HERE if has_all else ELSEWHERE] += 1
            elif partition.by_id not in owner.partitions:
                hanging[HERE] += 1
    for coordinator, count in hanging.items():
        families.gauge(
            "odradek_txn_hanging",
            "Transactions that are open in partitions led here, and that no coordinator will end.",
            count,
            coordinator=coordinator,
        )


def _coordinates_all(inside: Inside) -> bool:
    """Return True if this broker coordinates every transactional id, and has read them."""
    topic = inside.metadata.image.topics.get(TRANSACTION_STATE_TOPIC)
    node_id = inside.core.settings.now.node_id
    if inside.core.transactions.is_loading:
        return False
    return topic is None or all(each.leader == node_id for each in topic.partitions)
