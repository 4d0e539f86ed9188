"""The markers that are appended with their decision, and wait for it to become durable."""

from collections.abc import Collection

import trio

from odradek.broker.txn.markers import EarlyMarkers
from odradek.broker.values.topic_partition import TopicIdPartition


class MarkersUnderWay:
    """Early markers of one decision. `run` waits for them in a task of its own."""

    def __init__(self, markers: EarlyMarkers) -> None:
        self._markers = markers
        self._applied: Collection[TopicIdPartition] = ()
        self._ended = trio.Event()

    async def run(self) -> None:
        """Wait until the markers count. What is appended must take effect (KAFKA-17507)."""
        try:
            with trio.CancelScope(shield=True):
                self._applied = await self._markers.apply()
        finally:
            self._ended.set()

    async def wait(self) -> Collection[TopicIdPartition]:
        """Return the partitions that took their marker, when that is known."""
        await self._ended.wait()
        return self._applied
