"""TLS of one listener: a context that is checked before it is used, and swapped as a whole.

`reload` makes a new context from the settings and files of now. Connections that are open keep the
old one; each new connection takes the newest. If anything is wrong with the new one (a file that is
half written, an expired certificate, the key of another one), the old one stays, and the error says
so. A new context is not used before it has agreed with itself on TLS, in memory.

`watch` calls it, too, when a file has changed: by a new file under its name, by new bytes, or by a
link that leads elsewhere, as Kubernetes has them. Twice it must have found the same: a file may be
half written.

Where authorities are named, brokers may use the listener's certificate among each other, too
(`peer_contexts.py`): both sides show one, unless brokers log in with passwords. It is made, checked
and swapped with that for clients.
"""

import datetime
import logging
import os
import ssl
from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

from odradek.broker.config.settings import ConfigError, Value
from odradek.broker.config.tls import OF_LISTENERS, TlsSettings, own_name
from odradek.broker.environment.env import HandshakeFailed
from odradek.broker.security.principal import ANONYMOUS, Principal
from odradek.broker.tls.cipher_suites import choose
from odradek.broker.tls.peer_contexts import (
    NoPeerTls,
    PeerContexts,
    check_handshake,
    peer_contexts,
    without_costs,
)
from odradek.broker.tls.principal_names import PrincipalRules
from odradek.client.tls.contexts import load_identity, read_regular_file, trust
from odradek.client.tls.secret_files import has_open_key, warning_about
from odradek.late import dataclass
from odradek.protocol.keystores import (
    CertifiedKey,
    KeystoreError,
    Stores,
    authorities_from,
    identity_from,
)

LOGGER: Final = logging.getLogger(__name__)

DAY_SECONDS: Final = 24 * 3600
LOOK_SECONDS: Final = 15.0
"""The time between two looks at the files."""
WARNED_BEFORE: Final = datetime.timedelta(days=14)
CLIENT_AUTH: Final = "ssl.client.auth"
NONE: Final = "none"
VERIFY: Final = {
    NONE: ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
PEM_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
PEM_END: Final = "-----END CERTIFICATE-----"
_Mark = tuple[int, int, int]
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """The part of the settings that connections use."""

    context: ssl.SSLContext
    rules: PrincipalRules
    identity: CertifiedKey
    among_brokers: PeerContexts | NoPeerTls
    own: Principal | None
    """The principal in the certificate; None if no rule matches its name."""
    authorities: str | None
    """The certificates that sign those of the other side, as PEM."""
    key_files: tuple[str, ...]
    """The files in which a key stands without a password."""


class ListenerTls:
    """TLS of the listener `name`."""

    def __init__(
        self,
        name: str,
        settings: TlsSettings,
        *,
        is_for_brokers: bool = False,
        has_sasl: bool = False,
        has_login: bool = False,
    ) -> None:
        """Read the files. Raises `ConfigError`, with the setting and its place.

        `is_for_brokers`: it is that of `inter.broker.listener.name`. `has_sasl`: clients
        authenticate by SASL after the handshake. `has_login`: so do brokers, among each other.
        """
        self.name = name
        self._has_sasl = has_sasl
        self._has_login = has_login
        self._is_for_brokers = is_for_brokers
        self._settings = settings
        self._marks = _marks_of(self._files)
        self._made = self._make(settings)
        self._warn_of_modes()
        wish = settings.of_listener(name, CLIENT_AUTH)
        if wish != self._client_auth(settings):
            LOGGER.warning(
                "listener %s asks clients for no certificate, as they authenticate by SASL: "
                "ssl.client.auth=%s counts for listeners of SSL only, as in Kafka; "
                "%s counts for this one",
                name,
                wish,
                own_name(name, CLIENT_AUTH),
            )

    async def watch(self) -> None:
        """Follow the files, and warn daily of a certificate that ends soon, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_files)
            while True:
                self._warn_of_end()
                await trio.sleep(DAY_SECONDS)

    async def _follow_files(self) -> None:
        before = self._marks
        while True:
            await trio.sleep(LOOK_SECONDS)
            try:
                # A disk may stand still.
                marks = await trio.to_thread.run_sync(
                    _marks_of, self._files, abandon_on_cancel=True
                )
            except RuntimeError:  # no thread can start now
                continue
            if marks == before != self._marks:
                self.reload(says_same=False)
            before = marks

    @property
    def _files(self) -> tuple[str, ...]:
        """The files with what new connections use."""
        stores = _stores(self._settings, self.name)
        return tuple(filter(None, (stores.keystore_location, stores.truststore_location)))

    def _warn_of_end(self) -> None:
        identity, now = self._made.identity, _now()
        if why := identity.why_invalid(now):
            who = "Clients and other brokers" if self._is_for_brokers else "Clients"
            LOGGER.warning("listener %s: %s %s will refuse it", self.name, why, who)
        elif identity.ends - now < WARNED_BEFORE:
            LOGGER.warning(
                "listener %s: the certificate in %s expires at %s UTC: replace it",
                self.name,
                identity.place,
                f"{identity.ends:%Y-%m-%d %H:%M}",
            )

    def _warn_of_modes(self) -> None:
        """Warn of keys that other users of this machine may read."""
        for file in self._made.key_files:
            if warning := warning_about(file):
                LOGGER.warning("listener %s: %s", self.name, warning)

    def current(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        return self._made.context

    @property
    def ends(self) -> datetime.datetime:
        """The time at which its certificate expires."""
        return self._made.identity.ends

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Return the principal of a client that has shown `certificate`. Raises `NoRule`."""
        return self._made.rules.principal_of(certificate)

    def for_brokers(self) -> "PeerTls":
        """Return the TLS of the port on which other brokers are served."""
        return PeerTls(self)

    def own_principal(self) -> Principal | None:
        """Return the principal that this broker's certificate has; None if no rule matches it."""
        return self._made.own

    @property
    def authorities(self) -> str | None:
        """The certificates that sign those of clients and of other brokers, as PEM."""
        return self._made.authorities

    def among_brokers(self) -> PeerContexts:
        """Return the contexts for the next connection between brokers. Raises `NoPeerTls`."""
        found = self._made.among_brokers
        if isinstance(found, NoPeerTls):
            raise NoPeerTls(str(found))
        return found

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
        self._marks = _marks_of(self._files)
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
        self._warn_of_modes()
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
        is_known_by_it = self._is_for_brokers and not self._has_login
        if is_known_by_it and made.own != self._made.own:
            # The other brokers would close the connections of this one, and it would go on alone.
            raise ConfigError(
                self._with_place(
                    settings,
                    f"{made.identity.place}: the certificate is that of {made.own}, and that of "
                    f"before is that of {self._made.own}, by which the other brokers know this "
                    "one. Make both names known to them, and restart this broker for the new one "
                    "(docs/security.md).",
                )
            )
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
        key_files: list[str] = []
        identity = identity_from(stores, partial(_read_noting_key, key_files))
        if identity is None:
            raise ConfigError(
                f"Listener {self.name} has TLS and no certificate: set ssl.keystore.location, or "
                f"listener.name.{self.name.lower()}.ssl.keystore.location."
            )
        authorities = authorities_from(stores, read_regular_file)

        def prepare(context: ssl.SSLContext) -> ssl.SSLContext:
            without_costs(context)
            versions = [VERSIONS[each] for each in text("ssl.enabled.protocols").split(",")]
            context.minimum_version, context.maximum_version = min(versions), max(versions)
            choose(context, filter(None, text("ssl.cipher.suites").split(",")))
            load_identity(context, identity)
            return context

        context = prepare(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        wish = self._client_auth(settings)
        if authorities is not None:
            trust(context, authorities, stores)
        elif wish != NONE:
            raise ConfigError(
                f"ssl.client.auth is {wish}, and no authority for certificates of clients is "
                "named: set ssl.truststore.location."
            )
        check_handshake(context, identity)
        context.verify_mode = VERIFY[wish]
        rules = PrincipalRules(text("ssl.principal.mapping.rules"))
        among_brokers: PeerContexts | NoPeerTls
        try:
            if authorities is None:
                raise NoPeerTls(
                    "ssl.truststore.location does not name the authority that signs the "
                    "certificates of brokers"
                )
            among_brokers = peer_contexts(
                prepare,
                lambda context: trust(context, authorities, stores),
                identity,
                authorities=authorities,
                checks_host=bool(text("ssl.endpoint.identification.algorithm")),
                now=_now(),
                asked=VERIFY[wish] if self._has_login else ssl.CERT_REQUIRED,
            )
        except NoPeerTls as error:
            among_brokers = error
        made = _Made(
            context=context,
            rules=rules,
            identity=identity,
            among_brokers=among_brokers,
            own=_own_principal(rules, identity),
            authorities=authorities,
            key_files=tuple(key_files),
        )
        if self._is_for_brokers:
            self._check_for_brokers(made)
        return made

    def _client_auth(self, settings: TlsSettings) -> str:
        """Return what counts for certificates of clients.

        With SASL it is the listener's own `ssl.client.auth` only, as in Kafka.
        """
        if self._has_sasl and settings.name_given(self.name, CLIENT_AUTH) == CLIENT_AUTH:
            return NONE
        return str(settings.of_listener(self.name, CLIENT_AUTH))

    def _check_for_brokers(self, made: _Made) -> None:
        """Raise `ConfigError` if brokers could not use this among each other."""
        if isinstance(made.among_brokers, NoPeerTls):
            raise ConfigError(
                f"Brokers cannot use listener {self.name} among each other: {made.among_brokers}."
            )
        if self._has_login:
            return
        if made.own is None:
            raise ConfigError(
                "ssl.principal.mapping.rules has no rule that matches the name in this broker's "
                f"own certificate ({made.identity.place})."
            )
        # Every certificate without a subject has the empty name, those of clients, too.
        if not made.own.name or made.own == ANONYMOUS:
            raise ConfigError(
                f"{made.identity.place}: the name in this broker's certificate makes the principal "
                f"{made.own}, by which brokers cannot be told from clients. Give the certificate "
                "a subject that those of clients do not have, and see what "
                "ssl.principal.mapping.rules makes of it."
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


class PeerTls:
    """The TLS of a listener, as other brokers are served with it.

    Each must show a certificate, unless brokers log in with passwords.
    """

    def __init__(self, tls: ListenerTls) -> None:
        self.name = f"{tls.name} for brokers"
        self._tls = tls

    def current(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        return self._tls.among_brokers().accepting

    @property
    def authorities(self) -> str | None:
        """The certificates that sign those of other brokers, as PEM."""
        return self._tls.authorities

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Return the principal of a broker that has shown `certificate`. Raises `NoRule`."""
        return self._tls.principal_of(certificate)


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


def _read_noting_key(key_files: list[str], path: str) -> bytes:
    """Return the content of a file. Note it if a key stands in it without a password."""
    content = read_regular_file(path)
    if has_open_key(content):
        key_files.append(path)
    return content


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


def _own_principal(rules: PrincipalRules, identity: CertifiedKey) -> Principal | None:
    """Return the principal of the first certificate of a chain; None if no rule matches it."""
    first = identity.chain.decode().partition(PEM_END)[0] + PEM_END
    try:
        return rules.principal_of(ssl.PEM_cert_to_DER_cert(first[first.index(PEM_BEGIN) :]))
    except HandshakeFailed:
        return None


def _marks_of(files: Sequence[str]) -> list[_Mark | None]:
    """Return what tells each file from the one that it was before; None for one that is missing."""
    found: list[_Mark | None] = []
    for file in files:
        try:
            status = os.stat(file)
        except (OSError, ValueError):
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_ino, status.st_size))
    return found


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
