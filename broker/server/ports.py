"""The ports of a broker: those of its listeners for clients, and the one for other brokers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import trio

from odradek.broker.api.context import Core
from odradek.broker.cluster.image import BrokerImage, Endpoint
from odradek.broker.config.addresses import (
    PLAINTEXT,
    SASL_PLAINTEXT,
    SASL_SSL,
    SSL,
    Listener,
    printed,
)
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.environment.env import Env
from odradek.broker.security.principal import ANONYMOUS, Principal
from odradek.broker.server.known_client import ListenerSecurity
from odradek.broker.server.server import Server
from odradek.late import dataclass

if TYPE_CHECKING:
    from odradek.broker.config.sasl_listeners import Login, SaslOfListener
    from odradek.broker.oauth.listener_oauth import ListenerOAuth
    from odradek.broker.server.listener_sasl import ListenerSasl
    from odradek.broker.tls.listener_tls import ListenerTls

Port = tuple[str, int, Callable[[], None]]
"""The host and port of a listener, and the function that opens it."""


class CannotServe(Exception):
    """The directory or the address cannot be used: one sentence for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The addresses of a broker."""

    listeners: tuple[Listener, ...]
    """At the host of the first, other brokers are served."""
    peer_port: int | None = None
    """The port on which other brokers are served; None without any."""
    tls: "Mapping[str, ListenerTls]" = field(default_factory=dict)
    """The TLS of the listeners that have it, by name."""
    sasl: "Mapping[str, SaslOfListener]" = field(default_factory=dict)
    """The SASL of the listeners that have it, by name."""
    oauth: "Mapping[str, ListenerOAuth]" = field(default_factory=dict)
    """The OAUTHBEARER of the listeners that have it, by name."""

    @property
    def login(self) -> "Login | None":
        """The login of this broker at the others; None where they do not log in."""
        found = self.sasl.get(self.listeners[0].name)
        return None if found is None else found.login

    @property
    def peer_protocol(self) -> str:
        """The security protocol of `peer_port`.

        Without a login brokers know each other by certificates, also where clients have passwords.
        """
        has_tls = self.listeners[0].has_tls
        if self.login is None:
            return SSL if has_tls else PLAINTEXT
        return SASL_SSL if has_tls else SASL_PLAINTEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The ports that a broker has, and the broker as it registers.

    The port for brokers is open: they connect as soon as they see the registration. `client_ports`
    open those for clients. Before it is registered and leads what it is elected for, a broker could
    give answers that are wrong and final.
    """

    listeners: tuple[Listener, ...]
    here: BrokerImage
    client_ports: Sequence[Callable[[], None]]

    def open_client_ports(self) -> None:
        for open_port in self.client_ports:
            open_port()


async def _securities_of(
    env: Env, config: BrokerConfig, address: Address, core: Core
) -> Mapping[str, ListenerSecurity]:
    """Return what each listener asks of its clients, by name."""
    if address.sasl:
        await core.users.make_secret()
    return {
        each.name: ListenerSecurity(
            name=each.name,
            tls=address.tls.get(each.name),
            sasl=_sasl_of(env, config, address, each.name, core) if each.has_sasl else None,
        )
        for each in address.listeners
    }


def _security_for_brokers(
    env: Env, config: BrokerConfig, address: Address, core: Core
) -> ListenerSecurity:
    """Return what `peer_port` asks of other brokers."""
    name = address.listeners[0].name
    tls = address.tls.get(name)
    has_login = address.login is not None
    return ListenerSecurity(
        tls=None if tls is None else tls.for_brokers(),
        sasl=_sasl_of(env, config, address, name, core) if has_login else None,
    )


def _sasl_of(
    env: Env, config: BrokerConfig, address: Address, name: str, core: Core
) -> "ListenerSasl":
    from odradek.broker.server.listener_sasl import ListenerSasl, mechanisms_of

    settings = address.sasl[name]
    return ListenerSasl(
        settings,
        mechanisms=mechanisms_of(
            settings,
            core.users,
            core.authorizer.check_current,
            lambda: address.oauth[name].mechanism(env.clock),
        ),
        failure_seconds=config.connection_failed_authentication_delay_ms / 1000,
        clock=env.clock,
        offload=env.offload,
    )


async def bind_all(
    nursery: trio.Nursery,
    env: Env,
    config: BrokerConfig,
    address: Address,
    core: Core,
    server: Server,
    peer_server: Server,
) -> Bound:
    securities = await _securities_of(env, config, address, core)
    nursery.start_soon(server.watch)
    listening, client_ports = [], []
    for listener in address.listeners:
        host, port, open_port = await nursery.start(
            _listen,
            server,
            listener.host,
            listener.port,
            securities[listener.name],
        )
        client_ports.append(open_port)
        listening.append(
            replace(
                listener,
                host=host,
                port=port,
                advertised_host=listener.advertised_host or host,
                advertised_port=listener.advertised_port or port,
            )
        )
    first, login = listening[0], address.login
    peer_port = 0
    if address.peer_port is not None:
        nursery.start_soon(peer_server.watch)
        _, peer_port, open_port = await nursery.start(
            *(_listen, peer_server, address.listeners[0].host, address.peer_port),
            _security_for_brokers(env, config, address, core),
        )
        open_port()
    here = BrokerImage(
        node_id=config.node_id,
        host=first.advertised_host,
        port=first.advertised_port,
        peer_host=first.advertised_host if address.peer_port is not None else "",
        peer_port=peer_port,
        peer_listener=first.name if address.peer_port is not None else "",
        peer_protocol=address.peer_protocol,
        peer_principal="" if login is None else str(login.principal),
        has_transaction_groups=True,
        knows_acls=True,
        knows_quotas=True,
        knows_users=True,
        rack=config.broker_rack or None,
        listeners=tuple(
            Endpoint(name=each.name, host=each.advertised_host, port=each.advertised_port)
            for each in listening
        ),
    )
    return Bound(listeners=tuple(listening), here=here, client_ports=client_ports)


async def _listen(
    server: Server,
    host: str,
    port: int,
    security: ListenerSecurity,
    task_status: trio.TaskStatus[Port] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one listener. Started with the host and port that it has, and what opens it."""

    def started(host: str, port: int, open_port: Callable[[], None]) -> None:
        def open_or_explain() -> None:
            try:
                open_port()
            except OSError as error:
                raise _not_listened_on(host, port, error) from None

        task_status.started((host, port, open_or_explain))

    try:
        await server.serve(host, port, started=started, security=security)
    except* OSError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise _not_listened_on(host, port, error) from None


def _not_listened_on(host: str, port: int, error: BaseException) -> CannotServe:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CannotServe(
        f"{printed(host, port)} cannot be listened on: {reason}; choose another --listen."
    )


def own_principal(address: Address) -> Callable[[], Principal | None]:
    """Return what returns the principal of this broker on the listener for brokers."""
    if address.login is not None:
        principal = address.login.principal
        return lambda: principal
    tls = address.tls.get(address.listeners[0].name)
    return (lambda: ANONYMOUS) if tls is None else tls.own_principal
