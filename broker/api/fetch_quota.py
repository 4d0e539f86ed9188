"""The quota of what a client reads.

A client that is over its quota gets an answer without topics, at once, and waits. Nothing is read
for it. Otherwise an answer may have as many bytes of records as a client may use at once, and the
first batch whole. So a client with a quota that is less than one batch makes progress, too.
"""

from collections.abc import Sequence
from dataclasses import replace

from odradek.broker.api.context import RequestContext
from odradek.broker.partitions.fetch_polling import poll
from odradek.broker.partitions.fetch_readings import Reading, Source
from odradek.broker.partitions.fetch_traffic import count_fetched
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
    size_bytes = await count_fetched(readings, found)
    if accounts is not None and most is not None:
        # The connection is not held for this answer: the next one is without topics, as in Kafka.
        accounts.use(CONSUMER_BYTE_RATE, user, client_id, size_bytes)
    return readings, found
