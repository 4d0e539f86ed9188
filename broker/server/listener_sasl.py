"""SASL of one listener: its mechanisms, and what all its clients share."""

from collections.abc import Callable, Mapping

from odradek.broker.cluster.users import ClusterUsers
from odradek.broker.config.sasl import OAUTHBEARER, PLAIN
from odradek.broker.config.sasl_listeners import SaslOfListener
from odradek.broker.environment.env import Clock, Offload
from odradek.broker.security.mechanism import (
    Answer,
    Challenge,
    Costly,
    Mechanism,
    Rejection,
    Success,
    Waiting,
)
from odradek.broker.security.plain import Plain
from odradek.broker.security.scram_exchange import Scram
from odradek.broker.security.scram_users import Users
from odradek.broker.server.password_queue import PasswordQueue


class ListenerSasl:
    """The mechanisms of the listener `name`."""

    def __init__(
        self,
        settings: SaslOfListener,
        *,
        mechanisms: Mapping[str, Mechanism],
        failure_seconds: float,
        clock: Clock,
        offload: Offload,
    ) -> None:
        """`failure_seconds` is the time between a wrong password and its answer."""
        self.name = settings.name
        self.mechanisms = mechanisms
        self.failure_seconds = failure_seconds
        self._session_ms = settings.session_ms
        self._clock = clock
        self._offload = offload
        self._queue = PasswordQueue()

    @property
    def names(self) -> tuple[str, ...]:
        """The mechanisms that clients may choose, as SaslHandshake answers them."""
        return tuple(self.mechanisms)

    async def finish(
        self, answer: Answer, *, address: str, is_known: bool
    ) -> Challenge | Success | Rejection:
        """Return an answer that a mechanism has given as a function.

        `address` is that of the client, which `is_known` if it authenticates again. Raises
        ProtocolError if too many others wait.
        """
        if isinstance(answer, Costly):
            return answer.known() or await self._compute(answer, address, is_known)
        if isinstance(answer, Waiting):
            return await answer.function()
        return answer

    async def _compute(self, answer: Costly, address: str, is_known: bool) -> Success | Rejection:
        async with self._queue.turn(address, is_known=is_known):
            found = answer.known()  # another client may have shown the same password meanwhile
            if found is None:
                found = await self._offload(answer.function)
                answer.note(found)
            return found

    def session_ms(self, mechanism: str, success: Success) -> int:
        """Return how long the session of a client lasts from now on; 0 if it has no end."""
        lasts = self._session_ms.get(mechanism, 0)
        if success.expires_at_ms is None:
            return lasts
        left = max(1, success.expires_at_ms - self._clock.wall_ms())
        return min(lasts, left) if lasts else left


def mechanisms_of(
    settings: SaslOfListener,
    users: ClusterUsers,
    check_current: Callable[[], None],
    oauth: Callable[[], Mechanism],
) -> dict[str, Mechanism]:
    """Return the mechanisms of a listener, by name, in the order of its setting.

    `check_current` raises ProtocolError while the users that this broker knows may be old ones.
    `oauth` returns OAUTHBEARER, if the listener has it.
    """

    def current_users() -> Users:
        check_current()
        return users.users

    def mechanism(name: str) -> Mechanism:
        if name == PLAIN:
            plain = Plain(settings.passwords, key=users.new_key())
            settings.users_file.call_with_each(plain.use)
            return plain
        if name == OAUTHBEARER:
            return oauth()
        return Scram(name, users=current_users, secret=lambda: users.secret, nonce=users.new_nonce)

    return {name: mechanism(name) for name in settings.mechanisms}
