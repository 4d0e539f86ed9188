"""The settings of SASL of one listener, checked: mechanisms, users of PLAIN, sessions."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from odradek.broker.config.sasl import MECHANISMS, OAUTHBEARER, PLAIN
from odradek.broker.config.settings import ConfigError, shortened
from odradek.broker.config.tls import TlsSettings, own_name
from odradek.broker.config.users_file import SETTING, ReadText, UsersFile
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
MODULES: Final = {
    PLAIN: PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    OAUTHBEARER: OAUTHBEARER_MODULE,
}
"""The only modules that a line of JAAS may name. They stand for what is built in."""


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


def sasl_of(settings: TlsSettings, listener: str, read: ReadText) -> SaslOfListener:
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
    for mechanism in MECHANISMS:
        options = _jaas(settings, listener, mechanism)
        if mechanism == PLAIN:
            users = {n.removeprefix(USER_OPTION): p for n, p in options.items() if _is_user(n)}
            passwords = users
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
    )


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
