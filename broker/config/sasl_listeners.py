"""The settings of SASL of one listener, checked: mechanisms, users of PLAIN, sessions.

Brokers use one listener's settings among each other (`inter.broker.listener.name`). With
`sasl.mechanism.inter.broker.protocol` a broker logs in at the others by the name and the password
that the line of JAAS of that mechanism has, as in Kafka.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from odradek.broker.config.addresses import AddressSettings, Listener
from odradek.broker.config.sasl import MECHANISMS, OAUTHBEARER, PLAIN
from odradek.broker.config.settings import ConfigError, shortened
from odradek.broker.config.tls import TlsSettings, own_name
from odradek.broker.config.users_file import SETTING, ReadText, UsersFile
from odradek.broker.security.principal import USER, Principal
from odradek.late import dataclass
from odradek.protocol.jaas import (
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasError,
    parse_jaas,
)

JAAS: Final = "sasl.jaas.config"
USER_OPTION: Final = "user_"
BETWEEN: Final = "sasl.mechanism.inter.broker.protocol"
MODULES: Final = {
    PLAIN: PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    OAUTHBEARER: OAUTHBEARER_MODULE,
}
"""The only modules that a line of JAAS may name. They stand for what is built in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The name and the password by which this broker logs in at the others."""

    mechanism: str
    username: str
    password: str = field(repr=False)

    @property
    def principal(self) -> Principal:
        """The principal that this broker has where it has logged in."""
        return Principal(USER, self.username)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslOfListener:
    """SASL of one listener."""

    name: str
    mechanisms: tuple[str, ...]
    """In the order of the setting, which is that of the answer to SaslHandshake."""
    passwords: Mapping[str, str] = field(repr=False)
    """The users of PLAIN."""
    users_file: UsersFile
    """Those of a file, if there is one."""
    session_ms: Mapping[str, int]
    """How long a session of each mechanism lasts; 0 is for ever."""
    login: Login | None = None
    """The login of this broker at others that use a listener of this name among each other."""


def sasl_of(settings: AddressSettings, listener: str, read: ReadText) -> SaslOfListener:
    """Return what the settings say of a listener. Raises `ConfigError`, with setting and place."""
    enabled = str(settings.of_listener(listener, "sasl.enabled.mechanisms"))
    mechanisms = tuple(each.upper() for each in enabled.split(","))
    for name in mechanisms:
        if name not in MECHANISMS:
            given = settings.name_given(listener, "sasl.enabled.mechanisms")
            raise ConfigError(
                settings.blamed(
                    given,
                    f"{given} has {shortened(name)}; the mechanisms that this broker has are "
                    f"{', '.join(MECHANISMS)}.",
                )
            )
    _check_place_of_jaas(settings, listener)
    passwords: dict[str, str] = {}
    login = None
    for mechanism in MECHANISMS:
        options = _jaas(settings, listener, mechanism)
        if mechanism == PLAIN:
            users = {n.removeprefix(USER_OPTION): p for n, p in options.items() if _is_user(n)}
            passwords = users
        if mechanism == settings.sasl_mechanism_inter_broker_protocol:
            login = _login(settings, listener, mechanism, options)
        if mechanism == OAUTHBEARER and options:
            name = own_name(listener, f"{mechanism.lower()}.{JAAS}")
            raise ConfigError(
                settings.blamed(
                    name,
                    f"{name} has the option {shortened(next(iter(options)))}, and the module has "
                    "none here: tokens are checked by the settings sasl.oauthbearer.*.",
                )
            )
    users_file = UsersFile(listener, settings, read)
    if PLAIN in mechanisms and not passwords and users_file.hashes is None:
        raise ConfigError(
            f"Listener {listener} has the mechanism PLAIN and no users: give "
            f"{own_name(listener, f'plain.{JAAS}')}, or {SETTING}."
        )
    return SaslOfListener(
        name=listener,
        mechanisms=mechanisms,
        passwords=passwords,
        users_file=users_file,
        session_ms={
            each: int(settings.of_mechanism(listener, each, "connections.max.reauth.ms"))
            for each in mechanisms
        },
        login=login,
    )


def check_between_brokers(
    settings: AddressSettings, between: Listener, sasl: SaslOfListener | None
) -> None:
    """Raise `ConfigError` if the brokers of a cluster could not use a listener among each other.

    `sasl` is that of the listener `between`, if it has SASL.
    """
    if sasl is None:
        return
    mechanism = settings.sasl_mechanism_inter_broker_protocol
    if not mechanism and not between.has_tls:
        raise ConfigError(
            f"Brokers use listener {between.name} among each other, which has SASL and no TLS: set "
            f"{BETWEEN}, to SCRAM-SHA-512 for example, and "
            f"{own_name(between.name, f'scram-sha-512.{JAAS}')} with the username and the password "
            "by which this broker logs in at the others."
        )
    if mechanism and mechanism not in sasl.mechanisms:
        given = settings.name_given(between.name, "sasl.enabled.mechanisms")
        raise ConfigError(
            settings.blamed(
                BETWEEN,
                f"{BETWEEN} is {mechanism}, which listener {between.name} does not have for the "
                f"other brokers: {given} is {','.join(sasl.mechanisms)}.",
            )
        )
    if mechanism and sasl.login is None:
        name = own_name(between.name, f"{mechanism.lower()}.{JAAS}")
        raise ConfigError(
            settings.blamed(
                name if name in settings.places else BETWEEN,
                f"{BETWEEN} is {mechanism}, and {name} does not say by which name this broker logs "
                f'in at the others: it is {MODULES[mechanism]} required username="NAME" '
                'password="PASSWORD";',
            )
        )


def _login(
    settings: TlsSettings, listener: str, mechanism: str, options: Mapping[str, str]
) -> Login | None:
    """Return what a line of JAAS has for this broker itself. Raises `ConfigError`."""
    username, password = (options.get(each) for each in ("username", "password"))
    if username is None and password is None:
        return None
    name = own_name(listener, f"{mechanism.lower()}.{JAAS}")
    if not username or not password:
        lacks = "password" if username else "username"
        raise ConfigError(
            settings.blamed(
                name,
                f"{name} has no {lacks}: a broker logs in at the others with username and "
                "password.",
            )
        )
    if "\0" in f"{username}{password}":
        raise ConfigError(
            settings.blamed(name, f"{name} has a character NUL in username or password.")
        )
    return Login(mechanism=mechanism, username=username, password=password)


def _is_user(option: str) -> bool:
    return option.startswith(USER_OPTION) and option != USER_OPTION


def _check_place_of_jaas(settings: TlsSettings, listener: str) -> None:
    """Raise `ConfigError` for a line of JAAS that belongs to no mechanism: Kafka ignores it."""
    given = settings.name_given(listener, JAAS)
    if settings.of_listener(listener, JAAS):
        raise ConfigError(
            settings.blamed(
                given,
                f"{given} belongs to no mechanism: name it "
                f"{own_name(listener, f'plain.{JAAS}')}, for example.",
            )
        )


def _jaas(settings: TlsSettings, listener: str, mechanism: str) -> Mapping[str, str]:
    """Return the options of the line of a mechanism. Raises `ConfigError`."""
    text = str(settings.of_mechanism(listener, mechanism, JAAS))
    if not text:
        return {}
    name = own_name(listener, f"{mechanism.lower()}.{JAAS}")
    try:
        line = parse_jaas(text)
    except JaasError as error:
        raise ConfigError(settings.blamed(name, f"{name} cannot be read: {error}.")) from None
    if line.module != MODULES[mechanism]:
        raise ConfigError(
            settings.blamed(
                name,
                f"{name} has the module {shortened(line.module)}, and nothing is loaded here: the "
                f"module of {mechanism} is {MODULES[mechanism]}.",
            )
        )
    return line.options
