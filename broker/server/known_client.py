"""Clients of connections that are served, and what their listener asks of them before."""

from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.environment.env import TlsContext
from odradek.broker.security.principal import ANONYMOUS, Principal
from odradek.late import dataclass

if TYPE_CHECKING:
    from odradek.broker.server.listener_sasl import ListenerSasl
    from odradek.broker.server.sasl_session import SaslSession


class ServedTls(Protocol):
    """The TLS of a listener."""

    @property
    def name(self) -> str: ...

    @property
    def current(self) -> TlsContext: ...

    @property
    def authorities(self) -> str | None:
        """The certificates that sign those of clients, as PEM."""

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Return the principal of a client by its certificate. Raises `HandshakeFailed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """The conditions under which a listener serves a client."""

    name: str | None = None
    """The name of the listener, if it has one."""
    tls: ServedTls | None = None
    sasl: "ListenerSasl | None" = None

    @property
    def shown_name(self) -> str | None:
        """The name for the log, also that of the port between brokers."""
        if self.name is not None:
            return self.name
        if self.tls is not None:
            return self.tls.name
        return None if self.sasl is None else f"{self.sasl.name} for brokers"


NO_SECURITY: Final = ListenerSecurity()
"""Nothing: every client is served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClient:
    """The client of a connection that is served."""

    principal: Principal = ANONYMOUS
    session: "SaslSession | None" = None
    """Its session, if it has authenticated by SASL."""
    software: tuple[str, str] = ("", "")
    """The name and the version of its software, if it has said them before that."""


class NotAuthenticated(Exception):
    """The client has not authenticated: the end of a sentence for the log."""

    def __init__(self, why: str, *, cause: str) -> None:
        """`cause` groups such log lines, and has no words of the client (`log_lines.py`)."""
        super().__init__(why)
        self.cause = cause


class Gone(Exception):
    """The client has ended the connection before it had authenticated."""


UNKNOWN: Final = KnownClient()
"""A client that need not say who it is."""
