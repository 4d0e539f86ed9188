"""The questions to the brokers, asked at intervals, once for all browsers.

Each source has a section of the board and looks at intervals of its own. An error of one is a
sentence in the row `status` of its section: a broker that does not answer, or a right that is
missing. What was seen before stays.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

import trio

from odradek.client.administration.admin import Admin
from odradek.client.cli.common import sentence
from odradek.client.cluster.nursery import ClientNursery
from odradek.client.config import system_wall_ms
from odradek.client.errors import OdradekError, Refused
from odradek.client.web.board import Board

LOGGER: Final = logging.getLogger(__name__)

STATUS: Final = "status"


class PageSource(ABC):
    """A part of the page: what it asks the brokers, and what it puts on the board."""

    section: ClassVar[str]
    every_s: ClassVar[float]

    @abstractmethod
    async def look(self, admin: Admin, board: Board) -> str | None:
        """Ask, and put the answers on the board. Return a sentence about what is missing, if any.

        Raises `OdradekError`.
        """


class Poller:
    def __init__(
        self, board: Board, sources: Sequence[PageSource], changed: Callable[[], None]
    ) -> None:
        """`changed` is called when the board may have changed."""
        self._board = board
        self._sources = sources
        self._changed = changed
        self._since: dict[str, int] = {}
        """When a section has begun to fail."""

    async def run(self, admin: Admin) -> None:
        """Look until cancelled."""
        async with ClientNursery() as nursery:
            for source in self._sources:
                nursery.start_soon(self._repeat, source, admin)

    async def _repeat(self, source: PageSource, admin: Admin) -> None:
        following = trio.current_time()
        while True:
            await self.look(source, admin)
            following = max(following + source.every_s, trio.current_time())
            await trio.sleep_until(following)

    async def look(self, source: PageSource, admin: Admin) -> None:
        """Call a source once, and note its error."""
        section = source.section
        try:
            missing = await source.look(admin, self._board)
        except OdradekError as error:
            if section not in self._since:
                LOGGER.warning("%s: %s", section, error)
            self._note(section, str(error), is_refusal=isinstance(error, Refused))
        else:
            if missing is None:
                self._since.pop(section, None)
                self._board.put(STATUS, section, {"is_well": True, "sentence": None})
            else:
                self._note(section, missing, is_refusal=True)
        self._changed()

    def _note(self, section: str, text: str, *, is_refusal: bool) -> None:
        since_ms = self._since.setdefault(section, system_wall_ms())
        self._board.put(
            STATUS,
            section,
            {
                "is_well": False,
                "is_refusal": is_refusal,
                "since_ms": since_ms,
                "sentence": sentence(text),
            },
        )
