"""The traffic of clients, by topic."""

from operator import attrgetter
from typing import Final

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside

COUNTERS: Final = (
    ("messagesin", "messages_in", "Records that clients have written."),
    ("bytesin", "bytes_in", "Bytes of the batches that clients have written."),
    ("bytesout", "bytes_out", "Bytes of the batches that clients have read."),
    ("totalproducerequests", "produce_requests", "Batches that clients have sent."),
    ("totalfetchrequests", "fetch_requests", "Reads of partitions for clients."),
    ("failedproducerequests", "failed_produce_requests", "Batches that were refused."),
    ("failedfetchrequests", "failed_fetch_requests", "Reads for clients that were refused."),
)
"""The end of a name, the attribute of `TopicTraffic`, and what it is."""


async def add_traffic(families: Families, inside: Inside, turns: Turns) -> None:
    columns = [
        (families.counter(f"kafka_server_brokertopicmetrics_{name}", about), attrgetter(attribute))
        for name, attribute, about in COUNTERS
    ]
    for topic, traffic in inside.core.partitions.traffic:
        await turns.take()
        labels = {"topic": topic}
        for family, count_of in columns:
            family.add(labels, count_of(traffic))
