"""The way to the other brokers: the address, the security and the principal of each.

A broker registers with the name and the security protocol of its `inter.broker.listener.name`, and
whoever connects to it uses its own settings of the listener of that name. So brokers of one cluster
may differ while one after the other is restarted with another listener: the way from a plain
cluster to one with TLS or passwords (docs/security.md).

A certificate of the cluster's authority is not enough, and neither is a password. The other side
must also have the principal of a broker (`Authorizer.is_broker`): clients may have certificates of
the same authority. Where brokers log in, the side that is connected to shows none, so its
registration says which it has: whoever writes to the metadata store owns the cluster anyhow.

An open connection is judged again and again (`PeerStream.why_distrusted`), as those are that others
have opened (`Server.watch`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import trio

from odradek.broker.cluster.image import BrokerImage
from odradek.broker.config.addresses import PLAINTEXT, SSL, WITH_SASL, WITH_TLS, Listener
from odradek.broker.environment.env import Connection, HandshakeFailed, Network
from odradek.broker.security.principal import Principal, parse_principal
from odradek.late import dataclass

if TYPE_CHECKING:
    from odradek.broker.cluster.peer_login import PeerLogin
    from odradek.broker.tls.listener_tls import ListenerTls

LOGGER: Final = logging.getLogger(__name__)

REFUSED_SECONDS: Final = 1.0
"""The time after which a broker that was not trusted, or that let this one not in, is tried again.
Those who would connect to it meanwhile have the same error at once."""

IsBroker = Callable[[Principal, str, Principal | None], bool]
"""Returns True if a principal at a host is that of a broker; the last one is this broker's own."""


class Distrusted(HandshakeFailed):
    """The other side is no broker: the end of a sentence that begins with who it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStream:
    """A connection to a broker that was trusted when it was opened."""

    stream: Connection
    login: "PeerLogin | None"
    """The login that comes before any other request but ApiVersions, if the other side asks."""
    why_distrusted: Callable[[], str] | None
    """Returns the reason for which the other side is no broker any more; "" if it is one. None:
    nothing is known of it, so nothing can change."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The reason why a broker could not be used, and the time at which it is tried again."""

    why: str
    until: float


class PeerNetwork:
    """The connections of a broker to the others, each checked before it is used."""

    def __init__(
        self,
        network: Network,
        *,
        listeners: Sequence[Listener] = (),
        tls: "Mapping[str, ListenerTls] | None" = None,
        logins: "Mapping[str, PeerLogin] | None" = None,
        is_broker: IsBroker = lambda _principal, _host, _own: False,
    ) -> None:
        """`listeners` are those of this broker; brokers use the first among each other.

        `tls` is the TLS of those that have it, by name, and `logins` what this broker logs in with
        at those of others that have such a name.
        """
        self._network = network
        self._own = listeners[0] if listeners else None
        self._listeners = {each.name: each for each in listeners}
        self._tls = tls or {}
        self._logins = logins or {}
        self._is_broker = is_broker
        self._warned: set[BrokerImage] = set()
        self._refusals: dict[int, _Refusal] = {}

    async def connect(self, broker: BrokerImage) -> PeerStream:
        """Open a connection to a broker. Raises `HandshakeFailed`, OSError."""
        if broker.peer_protocol == PLAINTEXT:
            self._check_plain(broker)
            stream = await self._network.connect(broker.peer_host, broker.peer_port)
            return PeerStream(stream=stream, login=None, why_distrusted=None)
        listener = self._listener_for(broker)
        login = self._login_for(broker, listener) if broker.peer_protocol in WITH_SASL else None
        tls = self._tls[listener.name] if broker.peer_protocol in WITH_TLS else None
        authorities = None if tls is None else tls.authorities
        stream = await self._open(broker, tls)

        def why_distrusted() -> str:
            if tls is not None and tls.authorities != authorities:
                return "it was trusted by authorities that this broker had before"
            if login is not None:
                return self._why_registered_is_none(broker, stream, login)
            assert tls is not None, broker.peer_protocol
            return self._why_certified_is_none(tls, stream)

        try:
            if why := why_distrusted():
                raise Distrusted(why)
        except BaseException:
            await stream.aclose()
            raise
        return PeerStream(stream=stream, login=login, why_distrusted=why_distrusted)

    async def _open(self, broker: BrokerImage, tls: "ListenerTls | None") -> Connection:
        """Open a connection, and agree on TLS if there is one. Raises `HandshakeFailed`."""
        if tls is None:
            return await self._network.connect(broker.peer_host, broker.peer_port)
        contexts = tls.among_brokers()
        stream = await self._network.connect(
            broker.peer_host, broker.peer_port, tls=lambda: contexts.connecting
        )
        try:
            await stream.handshake()
        except BaseException:
            await stream.aclose()
            raise
        return stream

    def refusal_of(self, broker: BrokerImage) -> str:
        """Return why a broker is not to be tried now; "" if it may be."""
        found = self._refusals.get(broker.node_id)
        return "" if found is None or trio.current_time() >= found.until else found.why

    def note_refused(self, broker: BrokerImage, why: str) -> None:
        """Note that a broker is not trusted, or lets this one not in. Each reason is logged once.

        `why` is a sentence that begins with the broker.
        """
        known = self._refusals.get(broker.node_id)
        if known is None or known.why != why:
            LOGGER.warning("%s; it is tried again and again", why)
        until = trio.current_time() + REFUSED_SECONDS
        self._refusals[broker.node_id] = _Refusal(why, until)

    def note_trusted(self, broker: BrokerImage) -> None:
        """Note that a connection to a broker can be used."""
        if self._refusals.pop(broker.node_id, None) is not None:
            LOGGER.info("broker %d can be used again", broker.node_id)

    def _check_plain(self, broker: BrokerImage) -> None:
        """Raise `HandshakeFailed` unless this broker may connect without TLS and passwords."""
        own = self._own
        if own is None or own.protocol == PLAINTEXT:
            return
        lacks = "TLS" if own.has_tls else "SASL"
        if not self._has(broker.peer_listener, PLAINTEXT):
            raise HandshakeFailed(
                f"it serves brokers without {lacks} (listener {broker.peer_listener or '?'}), and "
                "this one has no PLAINTEXT listener of that name: give it the same "
                f"inter.broker.listener.name, {own.name}"
            )
        if broker not in self._warned:
            self._warned.add(broker)
            LOGGER.warning(
                "broker %d still serves brokers without %s (listener %s): restart it with "
                "inter.broker.listener.name=%s",
                broker.node_id,
                lacks,
                broker.peer_listener,
                own.name,
            )

    def _has(self, name: str, protocol: str) -> bool:
        """Return True if this broker has a listener of that name with that protocol."""
        found = self._listeners.get(name)
        return found is not None and found.protocol == protocol

    def _listener_for(self, broker: BrokerImage) -> Listener:
        """Return the listener whose settings count for a broker. Raises `HandshakeFailed`."""
        found = self._listeners.get(broker.peer_listener, self._own)
        if found is not None:
            # On a listener of SASL_SSL whose brokers do not log in they show certificates.
            is_by_certificate = broker.peer_protocol == SSL and found.name in self._tls
            if is_by_certificate or found.protocol == broker.peer_protocol:
                return found
        raise HandshakeFailed(
            f"it serves brokers with {broker.peer_protocol} (listener {broker.peer_listener}), "
            "and this one has no listener of that name: add it to listeners"
        )

    def _login_for(self, broker: BrokerImage, listener: Listener) -> "PeerLogin":
        """Return what this broker logs in with at another. Raises `HandshakeFailed`."""
        found = self._logins.get(listener.name)
        if found is None:
            raise HandshakeFailed(
                f"brokers log in at it (listener {broker.peer_listener}), and this one has no name "
                "and password for that: set sasl.mechanism.inter.broker.protocol and "
                f"listener.name.{listener.name.lower()}.<mechanism>.sasl.jaas.config"
            )
        return found

    def _why_registered_is_none(
        self, broker: BrokerImage, stream: Connection, login: "PeerLogin"
    ) -> str:
        """Return why the principal that a broker has registered is none of a broker, or ""."""
        try:
            principal = parse_principal(broker.peer_principal)
        except ValueError:
            return "it has registered without the principal by which it logs in"
        if self._is_broker(principal, _host_of(stream), login.principal):
            return ""
        return f"it logs in as {no_broker(principal)}"

    def _why_certified_is_none(self, tls: "ListenerTls", stream: Connection) -> str:
        """Return why the principal in a certificate is none of a broker; "" if it is one.

        Raises `HandshakeFailed` if no rule matches its name.
        """
        principal = tls.principal_of(stream.peer_certificate)
        if self._is_broker(principal, _host_of(stream), tls.own_principal()):
            return ""
        return f"its certificate is that of {no_broker(principal)}"


def _host_of(stream: Connection) -> str:
    return stream.peer.rpartition(":")[0]


def no_broker(principal: Principal) -> str:
    """Return the end of a sentence about a principal that is none of a broker."""
    return (
        f"{principal}, which is no broker: a broker has the principal of this one, is one of "
        "super.users, or may CLUSTER_ACTION"
    )
