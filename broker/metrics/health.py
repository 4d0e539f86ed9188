"""The health of a broker, in three answers for orchestrators.

- *live*: its loop turns. A broker that is not should be started again.
- *ready*: it is registered, a controller is known, what it coordinates is loaded, and it does not
  stop. A broker that is not should get no new clients. A moment without the metadata store is no
  reason: all brokers would be taken out at the same time.
- *health*: both, with reasons, and the partitions whose logs cannot be used.
"""

import json
from collections.abc import Iterator
from typing import Final

import trio

from odradek.broker.metrics.inside import Inside, offline
from odradek.protocol.http_server_end import JSON, HttpAnswer

LATE_SECONDS: Final = 5.0
"""The loop is stuck when it has not turned for this time."""
UNAVAILABLE: Final = 503


class Health:
    """Answers `/live`, `/ready` and `/health`."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    async def live(self, _accept: str) -> HttpAnswer:
        return _answer([*self._why_not_live()], "live")

    async def ready(self, _accept: str) -> HttpAnswer:
        return _answer([*self._why_not_ready()], "ready")

    async def health(self, _accept: str) -> HttpAnswer:
        """Return both, as JSON. The status is 503 where one of them does not hold."""
        not_live, not_ready = [*self._why_not_live()], [*self._why_not_ready()]
        report = {
            "live": not not_live,
            "ready": not not_ready,
            "reasons": [*not_live, *not_ready],
            "offline_partitions": sorted(map(str, offline(self._inside))),
        }
        status = UNAVAILABLE if report["reasons"] else 200
        return HttpAnswer(f"{json.dumps(report, indent=2)}\n".encode(), JSON, status)

    def _why_not_live(self) -> Iterator[str]:
        late = trio.current_time() - self._inside.loop_lag.turned_at
        if late > LATE_SECONDS:
            yield f"the loop has not turned for {late:.0f} s"

    def _why_not_ready(self) -> Iterator[str]:
        core, image = self._inside.core, self._inside.metadata.image
        here = image.broker(core.settings.now.node_id)
        if here is None:
            yield "the broker is not registered"
        elif here.is_leaving:
            yield "the broker stops"
        if image.controller_id < 0:
            yield "there is no controller"
        if core.transactions.is_loading:
            yield "transactional ids are being read"
        if core.groups.is_loading:
            yield "groups are being read"


def _answer(reasons: list[str], word: str) -> HttpAnswer:
    if reasons:
        text = "".join(f"{reason}\n" for reason in reasons)
        return HttpAnswer(text.encode(), status=UNAVAILABLE)
    return HttpAnswer(f"{word}\n".encode())
