"""A connection that must wait because its client has used more than its quota (KIP-219).

The answer to the request goes at once, and says for how long the connection will not be read.
Meanwhile its answers are sent, and its end is noticed. The other connections of the client go on
until their next request that counts.
"""

from dataclasses import replace
from typing import Any, Final

import trio

from odradek.broker.quotas.accounts import WAIT_MAX_SECONDS, QuotaAccounts
from odradek.broker.quotas.entities import REQUEST_PERCENTAGE
from odradek.broker.quotas.loop_times import LoopTime


class Throttle:
    """The wait of one connection."""

    __slots__ = ("_asker", "_loop_time", "accounts", "request_bytes", "until")

    def __init__(self, accounts: QuotaAccounts | None = None) -> None:
        """Without accounts nothing is counted: of brokers among each other, say."""
        self.accounts = accounts
        self.until = 0.0
        """The time of trio's clock until which the connection is not read; 0 if it is."""
        self.request_bytes = 0
        """The size of the request that is being served."""
        self._loop_time: LoopTime | None = None
        self._asker = ("", "")
        """The user and the client id of the last request whose time is measured."""

    def hold(self, kind: str, seconds: float) -> None:
        """Do not read the connection for so long, or for as long as before if that is longer.

        `kind` is that of the quota.
        """
        if seconds > 0:
            seconds = min(seconds, WAIT_MAX_SECONDS)
            self.until = max(self.until, trio.current_time() + seconds)
            if self.accounts is not None:
                self.accounts.note_wait(kind, seconds)

    def use(self, kind: str, user: str, client_id: str, amount: float) -> None:
        """Count what the client uses of a quota, and hold the connection if it is too much."""
        if self.accounts is not None:
            self.hold(kind, self.accounts.use(kind, user, client_id, amount))

    def use_loop_time(self, user: str, client_id: str) -> None:
        """Count the time of the request before this one, for the client that has sent that."""
        accounts = self.accounts
        if accounts is None:
            return
        if self._loop_time is not None:
            accounts.use(REQUEST_PERCENTAGE, *self._asker, self._loop_time.take())
        elif accounts.find(REQUEST_PERCENTAGE, user, client_id) is not None:
            self._loop_time = accounts.loop_times.join()
        else:
            return
        self._asker = user, client_id
        self.use(REQUEST_PERCENTAGE, user, client_id, 0.0)

    def leave(self) -> None:
        """Count the time of the last request. Call it in the task that has served the connection.

        Otherwise a client that opens a connection for each request would use nothing.
        """
        if self._loop_time is not None and self.accounts is not None:
            rest = self.accounts.loop_times.leave()
            self.accounts.use(REQUEST_PERCENTAGE, *self._asker, rest)

    @property
    def left_ms(self) -> int:
        """The milliseconds for which the connection is not read. At least 1 while it is not."""
        left_seconds = self.until - trio.current_time()
        return max(1, round(left_seconds * 1000)) if left_seconds > 0 else 0

    def with_time(self, answer: Any) -> Any:
        """Return an answer that says how long the connection is not read, if it has a place."""
        if not hasattr(answer, "throttle_time_ms"):
            return answer
        left_ms = self.left_ms
        if left_ms <= answer.throttle_time_ms:
            return answer
        return replace(answer, throttle_time_ms=left_ms)

    async def wait(self) -> None:
        """Return when the connection may be read again."""
        await trio.sleep_until(self.until)
        self.until = 0.0


class NeverHeld(Throttle):
    """That of requests without a connection of their own. They share it, so it must not change."""

    __slots__ = ()

    def hold(self, kind: str, seconds: float) -> None:
        assert seconds <= 0, f"nothing is counted for these requests, and they wait {seconds} s"


NOT_THROTTLED: Final = NeverHeld()
"""Of requests without a connection. It is never held, as nothing is counted for it."""
