"""The lag of groups: how far their offsets are from the last record that they can read.

It ends where a reader of committed records can get. Markers and aborted records at the end of a log
are no lag, and neither is what an open transaction holds back: a group cannot read it.

The coordinator of a group needs the log of a partition for it, as the leader or a follower. For
others it has the offset alone. They are counted: sums are too small where there are some.
"""

from collections import Counter, defaultdict

from odradek.broker.environment.turns import Turns
from odradek.broker.group.store import StoredOffset
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import KafkaError
from odradek.protocol.schema import ZERO_UUID

OF_GROUP = "kafka_consumergroup_"
ABOUT = {
    "members": "Members of the group.",
    "current_offset": "The stored offset.",
    "lag": "Offsets up to the last record that the group can read.",
    "lag_sum": "The same of all partitions that have a replica on this broker.",
}
UNKNOWN = "odradek_group_partitions_without_lag"
SECONDS = "odradek_group_lag_seconds"
REBALANCES = "odradek_group_rebalances"
STEPS = 5


async def add_lags(families: Families, inside: Inside, turns: Turns) -> None:
    core, ends = inside.core, inside.probes.ends
    ends.begin()
    for name, about in ABOUT.items():
        families.gauge(f"{OF_GROUP}{name}", about)
    families.gauge(SECONDS, "The age of the oldest record that the group has not read.")
    families.gauge(UNKNOWN, "Partitions with an offset of the group, whose log is not here.")
    families.counter(REBALANCES, "The times that groups divided their partitions anew.")
    for group_id, member_count, offsets in core.groups.offsets_of_all():
        families.gauge(f"{OF_GROUP}members", "", member_count, consumergroup=group_id)
        lags: dict[str, int] = defaultdict(int)
        seconds: dict[str, float] = defaultdict(float)
        unknown: Counter[str] = Counter()
        for where, stored in offsets:
            await turns.take(STEPS)
            lag, age = await _lag_of(inside, where, stored)
            _add_one(families, inside, group_id, where, stored.offset, lag)
            if lag is not None:
                lags[where.topic] += lag
                seconds[where.topic] = max(seconds[where.topic], age)
            elif _exists(inside, where, stored):
                unknown[where.topic] += 1
        for topic, lag in lags.items():
            labels = {"consumergroup": group_id, "topic": topic}
            families.gauge(f"{OF_GROUP}lag_sum", "", lag, **labels)
            families.gauge(SECONDS, "", seconds[topic], **labels)
        for topic, count in unknown.items():
            families.gauge(UNKNOWN, "", count, consumergroup=group_id, topic=topic)
    for cause, count in sorted(core.groups.rebalances.items()):
        families.counter(REBALANCES, "", count, cause=cause.value)


def _exists(inside: Inside, where: TopicPartition, stored: StoredOffset) -> bool:
    """Return False if the topic was deleted, also if there is another one of its name."""
    topic = inside.metadata.image.topics.get(where.topic)
    return (
        topic is not None
        and where.partition < len(topic.partitions)
        and stored.topic_id in (ZERO_UUID, topic.topic_id)
    )


async def _lag_of(
    inside: Inside, where: TopicPartition, stored: StoredOffset
) -> tuple[int | None, float]:
    """Return the lag in offsets and in seconds. The first is None if it is not known here."""
    ends = inside.probes.ends
    partition = inside.core.partitions.find(where)
    if partition is None or stored.topic_id not in (ZERO_UUID, partition.topic_id):
        return None, 0.0
    try:
        lag = await ends.end_of(partition) - max(stored.offset, partition.log_start_offset)
        if lag <= 0:
            return 0, 0.0
        since_ms = await ends.time_of(partition, stored.offset)
    except KafkaError:  # its disk has failed, or it is deleted
        return None, 0.0
    age_ms = 0 if since_ms < 0 else inside.core.clock.wall_ms() - since_ms
    return lag, max(0, age_ms) / 1000


def _add_one(
    families: Families,
    inside: Inside,
    group_id: str,
    where: TopicPartition,
    offset: int,
    lag: int | None,
) -> None:
    if not inside.core.config.metrics_partitions:
        return
    labels = {"consumergroup": group_id, "topic": where.topic, "partition": str(where.partition)}
    families.gauge(f"{OF_GROUP}current_offset", "", offset, **labels)
    if lag is not None:
        families.gauge(f"{OF_GROUP}lag", "", lag, **labels)
