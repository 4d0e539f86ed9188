"""The order in which passwords are hashed: one at a time, and a turn for each address.

A hash takes a tenth of a second and 32 MiB. A client without a place is disconnected without an
answer, before anything is looked up. Clients come again after that; a refusal in words would end
them, though their password is right.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from odradek.broker.environment.address_queue import AddressQueue, NoPlace
from odradek.protocol.errors import ProtocolError

PLACES_OF_ADDRESS: Final = 8
PLACES: Final = 64
"""The clients that wait for their turn: the last one has it before its 10 seconds are over."""


class PasswordQueue:
    """The clients of one listener whose passwords are to be hashed."""

    def __init__(self) -> None:
        self._queue = AddressQueue(at_once=1, places=PLACES, places_of_address=PLACES_OF_ADDRESS)

    @property
    def waiting(self) -> int:
        """The number of strangers that wait."""
        return self._queue.waiting

    @asynccontextmanager
    async def turn(self, address: str, *, is_known: bool) -> AsyncIterator[None]:
        """Wait for the turn of a client, and have it inside.

        Raises ProtocolError if there is no place for it.
        """
        try:
            async with self._queue.turn(address, is_known=is_known):
                yield
        except NoPlace:
            raise ProtocolError("too many passwords wait to be hashed") from None
