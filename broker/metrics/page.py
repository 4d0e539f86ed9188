"""The page `/metrics`: read what is counted, in turns, and format it outside the loop.

Nothing is counted for the page: it reads plain attributes of the parts, and for the lag of groups
the ends of logs. One scrape is made at a time, so that many that ask cost no more than one. If it
waits for a disk that stands still, the others do not wait for it without end: they would take all
places of the listener, and `/live` would have none.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import trio
from prometheus_client.exposition import choose_encoder

from odradek.broker.environment.env import Offload
from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside
from odradek.broker.metrics.of_cluster import add_cluster
from odradek.broker.metrics.of_connections import add_connections
from odradek.broker.metrics.of_groups import add_groups
from odradek.broker.metrics.of_lags import add_lags
from odradek.broker.metrics.of_partitions import add_partitions
from odradek.broker.metrics.of_process import add_process, of_process
from odradek.broker.metrics.of_requests import add_requests
from odradek.broker.metrics.of_security import add_security
from odradek.broker.metrics.of_store import add_store
from odradek.broker.metrics.of_traffic import add_traffic
from odradek.broker.metrics.of_transactions import add_transactions
from odradek.protocol.http_server_end import HttpAnswer

Source = Callable[[Families, Inside, Turns], Awaitable[None]]
SOURCES: Final[Sequence[Source]] = (
    add_process,
    add_store,
    add_connections,
    add_security,
    add_cluster,
    add_requests,
    add_traffic,
    add_partitions,
    add_transactions,
    add_groups,
    add_lags,
)

SCRAPE_SECONDS: Final = 30.0
"""The time that a scrape may take, with its wait for the one before."""
TOO_LATE: Final = HttpAnswer(b"the broker is too busy for a scrape, or its disk is\n", status=503)


def encoder_for(accept: str) -> tuple[Callable[[Any], bytes], str]:
    """Return what formats a scrape for a header Accept, and the type of its content."""
    try:
        return choose_encoder(accept)
    except TypeError:  # prometheus_client compares numbers with a version that is none
        return choose_encoder("")


class MetricsPage:
    def __init__(self, inside: Inside, offload: Offload) -> None:
        self._inside = inside
        self._offload = offload
        self._scraping = trio.Lock()

    async def get(self, accept: str) -> HttpAnswer:
        """Return a scrape, in the format that its header Accept prefers."""
        encode, content_type = encoder_for(accept)
        with trio.move_on_after(SCRAPE_SECONDS):
            async with self._scraping:
                families = Families()
                families.take(await self._offload(of_process))
                turns = Turns()
                for add in SOURCES:
                    await add(families, self._inside, turns)
                body = await self._offload(partial(encode, families))
            return HttpAnswer(body, content_type)
        return TOO_LATE
