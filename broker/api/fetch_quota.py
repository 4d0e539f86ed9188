"""The quota of what a client reads, and the count of it.

A client that is over its quota gets an answer without topics, at once, and waits. Nothing is read
for it. Otherwise an answer may have as many bytes of records as a client may use at once, and the
first batch whole. So a client with a quota that is less than one batch makes progress, too.
"""

from collections.abc import Sequence
from dataclasses import replace

from odradek.broker.api.context import RequestContext
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.fetch_polling import poll
from odradek.broker.partitions.fetch_readings import Reading, Source
from odradek.broker.partitions.traffic import EXPECTED_OF_FETCH
from odradek.broker.quotas.entities import CONSUMER_BYTE_RATE
from odradek.protocol.apis.fetch import FetchRequest, PartitionData


def must_wait(context: RequestContext) -> bool:
    """Return True, and hold the connection, if the client has read more than its quota."""
    accounts = context.throttle.accounts
    if accounts is None:
        return False
    user, client_id = context.principal.name, context.client_id
    seconds = accounts.wait_seconds(CONSUMER_BYTE_RATE, user, client_id)
    context.throttle.hold(CONSUMER_BYTE_RATE, seconds)
    return seconds > 0


async def poll_within_quota(
    context: RequestContext, request: FetchRequest, source: Source
) -> tuple[Sequence[Reading], list[PartitionData]]:
    """Read as `poll` does, as many bytes as the client may have at once, and count them."""
    accounts = context.throttle.accounts
    user, client_id = context.principal.name, context.client_id
    most = None if accounts is None else accounts.most_at_once(user, client_id)
    if most is not None and request.max_bytes > most:
        request = replace(request, max_bytes=max(1, int(most)))
    readings, found = await poll(request, source, context.allowance, context.core.config)
    size_bytes = await _count(readings, found)
    if accounts is not None and most is not None:
        # The connection is not held for this answer: the next one is without topics, as in Kafka.
        accounts.use(CONSUMER_BYTE_RATE, user, client_id, size_bytes)
    return readings, found


async def _count(readings: Sequence[Reading], found: Sequence[PartitionData]) -> int:
    """Count what was read for the topics. Return the size of the records."""
    turns = Turns()
    whole_bytes = 0
    for reading, data in zip(readings, found, strict=True):
        await turns.take()
        if reading.leader is None:
            continue
        size_bytes = len(data.records or b"")
        whole_bytes += size_bytes
        traffic = reading.leader.traffic
        traffic.fetch_requests += 1
        traffic.bytes_out += size_bytes
        if data.error_code and data.error_code not in EXPECTED_OF_FETCH:
            traffic.failed_fetch_requests += 1
    return whole_bytes
