"""The keys of tokens as they are now: read in the background, and kept while they cannot be read.

They are read at the start, then every `refresh_seconds`. A token whose key is not there has them
read at once, because a token server that changes its keys signs with a new one soon. But a stranger
can send such tokens, too: so it is once in `ONCE_IN_SECONDS`, however many come, and each waits for
the keys that are being read. After a failure the pause doubles, from `backoff_seconds` on.
"""

import logging
import math
from typing import Final

import trio

from odradek.broker.oauth.key_places import CannotRead, KeyPlace
from odradek.broker.oauth.signing_keys import SigningKeys, WrongKeys, parse_keys
from odradek.late import dataclass

LOGGER: Final = logging.getLogger(__name__)

ONCE_IN_SECONDS: Final = 10.0
READ_SECONDS: Final = 10.0
"""The time that the keys may take to arrive."""
WAIT_SECONDS: Final = 3.0
"""The time that a client waits for newer keys. It has 10 s for everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """The times between two readings."""

    refresh_seconds: float
    backoff_seconds: float
    backoff_max_seconds: float


class KeySource:
    """The keys of one place. `run` reads them."""

    def __init__(
        self, place: KeyPlace, pauses: Pauses, *, listener: str, keys: SigningKeys | None = None
    ) -> None:
        """`keys` are those that were read already."""
        self.keys = SigningKeys() if keys is None else keys
        self._place = place
        self._pauses = pauses
        self._listener = listener
        self._is_wanted = keys is None
        self._asked_at = -math.inf
        self._wake = trio.Event()
        self._end_of_reading = trio.Event()

    async def run(self) -> None:
        """Read the keys, again and again, until cancelled."""
        backoff = self._pauses.backoff_seconds
        pause = 0.0 if self._is_wanted else self._pauses.refresh_seconds
        while True:
            with trio.move_on_after(pause):
                await self._wake.wait()
            self._wake = trio.Event()
            if await self._renew():
                backoff, pause = self._pauses.backoff_seconds, self._pauses.refresh_seconds
            else:
                pause = min(backoff, self._pauses.backoff_max_seconds)
                backoff = 2 * pause

    def renew(self) -> None:
        """Read the keys now, in `run`: an administrator asks for it."""
        self._wake.set()

    async def wait_newer(self) -> None:
        """Wait for the keys that are being read for a token whose key is not there.

        They are read if the last such token was `ONCE_IN_SECONDS` ago; otherwise it returns at
        once, or with those who wait.
        """
        now = trio.current_time()
        if now >= self._asked_at + ONCE_IN_SECONDS and not self._is_wanted:
            self._asked_at = now
            self._is_wanted = True
            self._wake.set()
        if self._is_wanted:
            with trio.move_on_after(WAIT_SECONDS):
                await self._end_of_reading.wait()

    async def _renew(self) -> bool:
        """Read the keys. Return False if that failed: the keys of before stay."""
        why = f"no answer in {READ_SECONDS:g} s"
        try:
            with trio.move_on_after(READ_SECONDS):
                keys = parse_keys(await self._place.read())
                why = ""
                self._take(keys)
        except (CannotRead, WrongKeys) as error:
            why = str(error)
        except Exception:
            # A bug of ours or of a library: other listeners, and the keys of before, go on.
            LOGGER.exception("a bug in the broker: the keys of %s cannot be read", self._place)
            return False
        finally:
            self._is_wanted = False
            self._end_of_reading.set()
            self._end_of_reading = trio.Event()
        if why:
            LOGGER.warning(
                "listener %s: the keys of tokens cannot be read from %s: %s; %s",
                self._listener,
                self._place,
                why,
                f"the {len(self.keys)} of before are used" if self.keys else "all are refused",
            )
        return not why

    def _take(self, keys: SigningKeys) -> None:
        if keys == self.keys:
            return
        self.keys = keys
        LOGGER.info(
            "listener %s: %d keys of tokens from %s%s",
            self._listener,
            len(keys),
            self._place,
            f" ({keys.left_out} that verify no token are left out)" if keys.left_out else "",
        )
