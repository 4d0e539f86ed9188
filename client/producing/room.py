"""The wait until a producer can take a record: its topic is known, and the buffer has room."""

import trio

from odradek.client.arguments import topic_named
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.metadata import Topic
from odradek.client.errors import BufferFull, TimedOut
from odradek.client.producing.accumulator import Accumulator


class Room:
    """Room for records in the buffer of one producer."""

    def __init__(self, cluster: Cluster, accumulator: Accumulator, max_block_ms: float) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._max_block_ms = max_block_ms

    async def wait(self, topic: str, *, until: float | None = None) -> None:
        """Wait for the topic, and then for room; see `Producer.wait_for_room`."""
        self._cluster.tasks.check_open()
        now = trio.current_time()
        if until is None:
            until = now + self._max_block_ms / 1000
        elif until <= now:
            reason = self._cluster.last_trouble
            raise TimedOut(
                f"a record for {topic!r} could not be taken within {self._max_block_ms} ms"
                + (f" ({reason})" if reason else ""),
                code=reason.code if reason else None,
            )
        await self.topic(topic, until=until)
        with trio.move_on_at(until):
            while not self._accumulator.has_room:
                self._accumulator.wake()
                await self._accumulator.wait_changed()
            return
        raise BufferFull(
            f"{self._accumulator.buffered_bytes} bytes wait for their acknowledgement, and none "
            f"came within {self._max_block_ms} ms; see whether the broker is alive, or "
            f"raise buffer_bytes"
        )

    async def topic(self, topic: str, *, until: float | None = None) -> Topic:
        """Return a topic's metadata. If necessary, let the broker create it, and wait for it."""
        return await self._cluster.topic(topic_named(topic), auto_create=True, until=until)
