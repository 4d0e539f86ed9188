"""The way to the other brokers: the address, the TLS and the principal of each.

A broker registers with the name and the security protocol of its `inter.broker.listener.name`, and
whoever connects to it uses its own settings of the listener of that name. So brokers of one cluster
may differ while one after the other is restarted with another listener: the way from a plain
cluster to one with TLS (docs/security.md).

A certificate of the cluster's authority is not enough. The other side must also have the principal
of a broker (`Authorizer.is_broker`): clients may have certificates of the same authority.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.broker.cluster.image import BrokerImage
from odradek.broker.config.addresses import PLAINTEXT, SSL, Listener
from odradek.broker.environment.env import Connection, HandshakeFailed, Network
from odradek.broker.security.principal import Principal

if TYPE_CHECKING:
    from odradek.broker.tls.listener_tls import ListenerTls

LOGGER: Final = logging.getLogger(__name__)

IsBroker = Callable[[Principal, str, Principal | None], bool]
"""Returns True if a principal at a host is that of a broker; the last one is this broker's own."""


class PeerNetwork:
    """The connections of a broker to the others, each checked before it is used."""

    def __init__(
        self,
        network: Network,
        *,
        listeners: Sequence[Listener] = (),
        tls: "Mapping[str, ListenerTls] | None" = None,
        is_broker: IsBroker = lambda _principal, _host, _own: False,
    ) -> None:
        """`listeners` are those of this broker; brokers use the first among each other.

        `tls` is the TLS of those that have it, by name.
        """
        self._network = network
        self._own = listeners[0] if listeners else None
        self._plain = {each.name for each in listeners if each.protocol == PLAINTEXT}
        self._tls = tls or {}
        self._is_broker = is_broker
        self._warned: set[BrokerImage] = set()

    async def connect(self, broker: BrokerImage) -> Connection:
        """Open a connection to a broker. Raises `HandshakeFailed`, OSError."""
        if broker.peer_protocol == PLAINTEXT:
            self._check_plain(broker)
            return await self._network.connect(broker.peer_host, broker.peer_port)
        tls = self._tls_for(broker)
        contexts = tls.among_brokers()
        connection = await self._network.connect(
            broker.peer_host, broker.peer_port, tls=lambda: contexts.connecting
        )
        try:
            await connection.handshake()
            self._check_principal(tls, connection)
        except BaseException:
            await connection.aclose()
            raise
        return connection

    def _check_plain(self, broker: BrokerImage) -> None:
        """Raise `HandshakeFailed` unless this broker may connect without TLS."""
        if self._own is None or not self._own.has_tls:
            return
        if broker.peer_listener not in self._plain:
            raise HandshakeFailed(
                f"it serves brokers without TLS (listener {broker.peer_listener or '?'}), and this "
                f"one has no PLAINTEXT listener of that name: give it the same "
                f"inter.broker.listener.name, {self._own.name}"
            )
        if broker not in self._warned:
            self._warned.add(broker)
            LOGGER.warning(
                "broker %d still serves brokers without TLS (listener %s): restart it with "
                "inter.broker.listener.name=%s",
                broker.node_id,
                broker.peer_listener,
                self._own.name,
            )

    def _tls_for(self, broker: BrokerImage) -> "ListenerTls":
        """Return the TLS for a connection to a broker. Raises `HandshakeFailed`."""
        found = self._tls.get(broker.peer_listener)
        if found is None and self._own is not None:
            found = self._tls.get(self._own.name)
        if found is None or broker.peer_protocol != SSL:
            raise HandshakeFailed(
                f"it serves brokers with {broker.peer_protocol} (listener {broker.peer_listener}), "
                "and this one has no listener of that name: add it to listeners"
            )
        return found

    def _check_principal(self, tls: "ListenerTls", connection: Connection) -> None:
        """Raise `HandshakeFailed` unless the other side has the principal of a broker."""
        principal = tls.principal_of(connection.peer_certificate)
        host = connection.peer.rpartition(":")[0]
        if not self._is_broker(principal, host, tls.own_principal()):
            raise HandshakeFailed(f"its certificate is that of {no_broker(principal)}")


def no_broker(principal: Principal) -> str:
    """Return the end of a sentence about a principal that is none of a broker."""
    return (
        f"{principal}, which is no broker: a broker has the principal of this one, is one of "
        "super.users, or may CLUSTER_ACTION"
    )
