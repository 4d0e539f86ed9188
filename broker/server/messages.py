"""The messages of one connection: requests are parsed and answers built, and their memory counted.

A message of at most `ITEMS_AT_ONCE` items is parsed or built in the loop, at once. A larger one is
not, so that others are served meanwhile. The objects of a large request have an account of their
own (`memory.py`), because they take far more memory than its bytes.
"""

import math
from functools import partial
from typing import Any, Final

import trio

from odradek.broker.environment.env import Buffer, Offload
from odradek.broker.quotas.throttle import Throttle
from odradek.broker.server.memory import Memory, Share
from odradek.protocol.connection import REQUEST_ITEMS_MAX, Request, ServerProtocol
from odradek.protocol.streams import Cursor, TooManyItemsError

ITEMS_AT_ONCE: Final = 1_500
"""The most items of a message that is parsed or built in the loop itself: a few milliseconds."""

ITEM_BYTES: Final = 200
"""The size of an item of a request as an object, besides its bytes in the frame."""


class Messages:
    """The parser and builder of one connection."""

    def __init__(
        self,
        protocol: ServerProtocol,
        memory: Memory,
        share: Share,
        offload: Offload,
        throttle: Throttle,
    ) -> None:
        """`offload` runs what parses or builds a message of many items."""
        self._protocol = protocol
        self._memory = memory
        self._share = share
        self._offload = offload
        self._throttle = throttle
        self.waiting_since = math.inf
        """The time of trio's clock since when a request waits to be parsed; infinity if none."""
        self.objects_bytes = 0
        """The size of the objects of the request that is being served, if it has many items."""

    async def parse(self, frame: memoryview) -> Request:
        """Return the request in a frame. Raises ProtocolError."""
        self._throttle.request_bytes = len(frame)
        try:
            return self._protocol.parse(Cursor(frame, items_max=ITEMS_AT_ONCE))
        except TooManyItemsError:
            return await self._parse_many(frame)

    async def _parse_many(self, frame: memoryview) -> Request:
        items_max = min(REQUEST_ITEMS_MAX, len(frame))  # an item has at least one byte
        self.waiting_since = trio.current_time()
        await self._memory.parsed.room()
        self.waiting_since = math.inf
        self.objects_bytes = items_max * ITEM_BYTES
        self._memory.parsed.take(self.objects_bytes)
        cursor = Cursor(frame, items_max=REQUEST_ITEMS_MAX)
        request = await self._offload(partial(self._protocol.parse, cursor))
        too_many_bytes = self.objects_bytes - (REQUEST_ITEMS_MAX - cursor.items_left) * ITEM_BYTES
        self.objects_bytes -= too_many_bytes
        self._memory.parsed.give_back(too_many_bytes)
        return request

    async def keep_objects(self) -> int:
        """Count the objects of a request like its bytes, until its answer. Return their size."""
        size_bytes = self.objects_bytes
        await self._share.room(size_bytes)
        self._share.hold(size_bytes)
        self.forget_objects()
        return size_bytes

    def forget_objects(self) -> None:
        """Release the memory of a request's objects, as it has been served."""
        if self.objects_bytes:
            self._memory.parsed.give_back(self.objects_bytes)
            self.objects_bytes = 0

    def build_at_once(self, request: Request, answer: Any) -> list[Buffer]:
        """Return a small answer, uncounted. Raises TooManyItemsError if it has many items."""
        if self._throttle.until:
            answer = self._throttle.with_time(answer)
        return self._protocol.build_response(request, answer, items_max=ITEMS_AT_ONCE)

    async def build(self, request: Request, answer: Any, reserved_bytes: int = 0) -> list[Buffer]:
        """Return an answer. Its bytes count from now on in place of those reserved for it."""
        try:
            parts = self.build_at_once(request, answer)
        except TooManyItemsError:
            if self._throttle.until:
                answer = self._throttle.with_time(answer)
            parts = await self._offload(partial(self._protocol.build_response, request, answer))
        self._share.hold(sum(map(len, parts)))
        if reserved_bytes:
            self._share.release(reserved_bytes)  # which wakes those that wait for it
        return parts
