"""TLS of one listener: a context that is checked before it is used, and swapped as a whole.

`reload` makes a new context from the settings and files of now. Connections that are open keep the
old one; each new connection takes the newest. If anything is wrong with the new one (a file that is
half written, an expired certificate, the key of another one), the old one stays, and the error says
so. A new context is not used before it has agreed with itself on TLS, in memory.
"""

import datetime
import logging
import ssl
from typing import Final

from odradek.broker.config.settings import ConfigError, Value
from odradek.broker.config.tls import OF_LISTENERS, TlsSettings
from odradek.broker.security.principal import Principal
from odradek.broker.tls.cipher_suites import choose
from odradek.broker.tls.principal_names import PrincipalRules
from odradek.client.tls.contexts import load_identity, read_file, trust
from odradek.late import dataclass
from odradek.protocol.keystores import (
    CertifiedKey,
    KeystoreError,
    Stores,
    authorities_from,
    identity_from,
)

LOGGER: Final = logging.getLogger(__name__)

NONE: Final = "none"
VERIFY: Final = {
    NONE: ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
ROUNDS_MAX: Final = 10
"""The messages of each side of a handshake with oneself; it takes three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """The part of the settings that connections use."""

    context: ssl.SSLContext
    rules: PrincipalRules
    identity: CertifiedKey


class ListenerTls:
    """TLS of the listener `name`."""

    def __init__(self, name: str, settings: TlsSettings) -> None:
        """Read the files. Raises `ConfigError`, with the setting and its place."""
        self.name = name
        self._settings = settings
        self._made = self._make(settings)
        if why := self._made.identity.why_invalid(_now()):
            LOGGER.warning("listener %s: %s Clients will refuse it", name, why)

    def current(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        return self._made.context

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Return the principal of a client that has shown `certificate`. Raises `NoRule`."""
        return self._made.rules.principal_of(certificate)

    def check(self, settings: TlsSettings) -> None:
        """Raise `ConfigError` if new connections could not use these settings.

        It also reads the files of settings that stay: a new content may be what has changed.
        """
        self._make_valid(settings)

    def follow(self, settings: TlsSettings) -> None:
        """Use other settings for new connections, unless they are wrong."""
        if self._own(settings) != self._own(self._settings):
            self._settings = settings
            self.reload()

    def _own(self, settings: TlsSettings) -> list[Value]:
        return [settings.of_listener(self.name, setting) for setting in sorted(OF_LISTENERS)]

    def renew(self) -> None:
        """Use the files of now for new connections, after a change that may name them again."""
        self.reload(says_same=False)

    def reload(self, *, says_same: bool = True) -> bool:
        """Use the files of now for new connections. Return False if they are wrong.

        `says_same`: log also that nothing is new.
        """
        try:
            made = self._make_valid(self._settings)
        except ConfigError as error:
            LOGGER.error(
                "listener %s keeps its certificate of before, which expires at %s UTC: %s",
                self.name,
                f"{self._made.identity.ends:%Y-%m-%d %H:%M}",
                error,
            )
            return False
        is_other = made.identity != self._made.identity
        self._made = made
        if not is_other and not says_same:
            return True
        LOGGER.info(
            "listener %s has %s certificate, which expires at %s UTC",
            self.name,
            "a new" if is_other else "the same",
            f"{made.identity.ends:%Y-%m-%d %H:%M}",
        )
        return True

    def _make_valid(self, settings: TlsSettings) -> _Made:
        made = self._make(settings)
        if why := made.identity.why_invalid(_now()):
            raise ConfigError(self._with_place(settings, why))
        return made

    def _make(self, settings: TlsSettings) -> _Made:
        try:
            return self._to_made(settings)
        except (KeystoreError, ConfigError) as error:
            raise ConfigError(self._with_place(settings, str(error))) from None

    def _to_made(self, settings: TlsSettings) -> _Made:
        def text(setting: str) -> str:
            return str(settings.of_listener(self.name, setting))

        stores = _stores(settings, self.name)
        identity = identity_from(stores, read_file)
        if identity is None:
            raise ConfigError(
                f"Listener {self.name} has TLS and no certificate: set ssl.keystore.location, or "
                f"listener.name.{self.name.lower()}.ssl.keystore.location."
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A client that renegotiates makes the broker work, and the tickets of a session are two
        # messages that nobody uses.
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
        context.num_tickets = 0
        versions = [VERSIONS[each] for each in text("ssl.enabled.protocols").split(",")]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        choose(context, filter(None, text("ssl.cipher.suites").split(",")))
        load_identity(context, identity)
        authorities = authorities_from(stores, read_file)
        wish = text("ssl.client.auth")
        if authorities is not None:
            trust(context, authorities, stores)
        elif wish != NONE:
            raise ConfigError(
                f"ssl.client.auth is {wish}, and no authority for certificates of clients is "
                "named: set ssl.truststore.location."
            )
        _check_handshake(context, identity)
        context.verify_mode = VERIFY[wish]
        return _Made(
            context=context,
            rules=PrincipalRules(text("ssl.principal.mapping.rules")),
            identity=identity,
        )

    def _with_place(self, settings: TlsSettings, sentence: str) -> str:
        """Return the sentence with the place of the setting that it is about, if it has one."""
        for setting in _BLAMED:
            name = settings.name_given(self.name, setting)
            value = str(settings.of_listener(self.name, setting))
            is_about = setting in sentence or (value and sentence.startswith(value))
            if is_about and name in settings.places:
                return settings.blamed(name, sentence)
        return sentence


_BLAMED: Final = (
    "ssl.keystore.location",
    "ssl.truststore.location",
    "ssl.client.auth",
    "ssl.cipher.suites",
    "ssl.principal.mapping.rules",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.truststore.certificates",
    "ssl.key.password",
)
"""The settings that a sentence may be about."""


def _stores(settings: TlsSettings, listener: str) -> Stores:
    def text(setting: str) -> str:
        return str(settings.of_listener(listener, setting))

    return Stores(
        keystore_location=text("ssl.keystore.location"),
        keystore_password=text("ssl.keystore.password"),
        key_password=text("ssl.key.password"),
        key=text("ssl.keystore.key"),
        certificates=text("ssl.keystore.certificate.chain"),
        truststore_location=text("ssl.truststore.location"),
        truststore_password=text("ssl.truststore.password"),
        authorities=text("ssl.truststore.certificates"),
    )


def _check_handshake(server: ssl.SSLContext, identity: CertifiedKey) -> None:
    """Try a context with a client in memory. Raises `KeystoreError` if they do not agree."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        for _ in range(ROUNDS_MAX):
            left = [side for side in left if not _has_agreed(side)]
    except ssl.SSLError as error:
        raise KeystoreError(
            f"{identity.place}: no client could agree on TLS with this certificate and these "
            f"settings ({(error.reason or str(error)).lower().replace('_', ' ')})."
        ) from None
    if left:
        raise KeystoreError(f"{identity.place}: TLS does not come to an end with it.")


def _has_agreed(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
