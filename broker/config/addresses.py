"""The listeners of a broker: where it listens, and which addresses it returns to clients.

A listener has a name, an address to listen on, and an address that clients of this listener are
sent to. Each name has a security protocol: with TLS or without, and with SASL or without.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final

from odradek.broker.config.sasl import BETWEEN_BROKERS
from odradek.broker.config.settings import ConfigError, shortened, string
from odradek.broker.config.tls import PREFIX, TlsSettings, own_name, split_listener_name
from odradek.late import dataclass

DEFAULT_LISTEN: Final = "127.0.0.1:9092"
PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
WITH_TLS: Final = (SSL, SASL_SSL)
"""Those whose connections begin with a TLS handshake."""
WITH_SASL: Final = (SASL_PLAINTEXT, SASL_SSL)
"""Those whose clients authenticate by SASL."""
ALL_ADDRESSES: Final = "::"
"""The host of a listener that serves every address of the machine, IPv4 and IPv6, as in Java."""
NOWHERE: Final = ("", 0)
_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
"""Python refuses to convert a number of some thousand digits."""
WILDCARDS: Final = ("0.0.0.0", ALL_ADDRESSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSettings(TlsSettings):
    """A part of `BrokerConfig`."""

    listeners: str = string(
        "",
        about=(
            "The addresses to listen on, NAME://HOST:PORT, separated by commas; `--listen` "
            "overrules them. Without a HOST it is every address of the machine, IPv4 and IPv6. "
            "Unset, it is PLAINTEXT://127.0.0.1:9092."
        ),
    )
    advertised_listeners: str = string(
        "",
        about=(
            "The addresses that the broker returns to the clients of each listener, "
            "NAME://HOST:PORT; `--advertise` overrules them. Unset, they are those that are "
            "listened on."
        ),
    )
    listener_security_protocol_map: str = string(
        ",".join(f"{name}:{name}" for name in PROTOCOLS),
        about=(
            "The security protocol of each listener, NAME:PROTOCOL, separated by commas. They are "
            "PLAINTEXT, SSL (which is TLS), SASL_PLAINTEXT and SASL_SSL."
        ),
    )
    inter_broker_listener_name: str = string(
        "",
        about=(
            "The listener at whose hosts, and with whose security, the brokers of a cluster reach "
            "each other, on `inter.broker.listener.port`. Unset, it is that of "
            "`security.inter.broker.protocol`, or the first."
        ),
    )
    security_inter_broker_protocol: str = string(
        "",
        choices=("", *PROTOCOLS),
        may_be_empty=True,
        about=(
            "The brokers of a cluster use the listener that is named as this protocol among each "
            "other. Give it or `inter.broker.listener.name`, not both."
        ),
    )
    sasl_mechanism_inter_broker_protocol: str = string(
        "",
        choices=BETWEEN_BROKERS,
        may_be_empty=True,
        why="a broker logs in at the others by a name and a password",
        about=(
            "The mechanism by which this broker logs in at the others, where their listener has "
            "SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Name and password are in "
            "`listener.name.<listener>.<mechanism>.sasl.jaas.config`. Unset, brokers know each "
            "other by certificates on a listener of SASL_SSL, and SASL_PLAINTEXT is refused."
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listener of this broker. Port 0 picks a free one."""

    name: str = PLAINTEXT
    host: str
    port: int
    protocol: str = PLAINTEXT
    advertised_host: str = ""
    """Empty: the host that is listened on."""
    advertised_port: int = 0
    """0: the port that is listened on."""

    @property
    def has_tls(self) -> bool:
        return self.protocol in WITH_TLS

    @property
    def has_sasl(self) -> bool:
        return self.protocol in WITH_SASL


def listeners_of(
    settings: AddressSettings,
    *,
    listen: str | None = None,
    advertise: str | None = None,
    left_out: Collection[str] = (),
) -> tuple[Listener, ...]:
    """Return the listeners; the one whose hosts the other brokers use is the first.

    `listen` and `advertise` are HOST:PORT and overrule the settings; `listen` may be
    NAME://HOST:PORT. `left_out` has names of listeners that this broker does not serve. Raises
    `ConfigError`.
    """
    if listen:
        found = dict(_named(listen, "--listen", ()))
    else:
        found = dict(_named(settings.listeners, "listeners", left_out))
    found = found or {PLAINTEXT: parse_address(DEFAULT_LISTEN, "listeners")}
    # An address of the command line without a name is plain, whatever the file says.
    plain = f"{PLAINTEXT}:{PLAINTEXT}," if listen else ""
    protocols = _protocols(plain + settings.listener_security_protocol_map, found)
    _check_ports(found)
    _check_own_settings(settings, found, {} if listen else left_out)
    advertised = _advertised(settings, found, advertise, left_out)
    between = _between(settings, found, is_overruled=bool(listen))
    return tuple(
        Listener(
            name=name,
            host=host,
            port=port,
            protocol=protocols[name],
            advertised_host=advertised.get(name, NOWHERE)[0],
            advertised_port=advertised.get(name, NOWHERE)[1],
        )
        for name, (host, port) in sorted(found.items(), key=lambda item: item[0] != between)
    )


def _between(settings: AddressSettings, found: Collection[str], *, is_overruled: bool) -> str:
    """Return the name of the listener that brokers use among each other. Raises `ConfigError`."""
    name, protocol = settings.inter_broker_listener_name, settings.security_inter_broker_protocol
    if name and protocol:
        raise ConfigError(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be "
            "set."
        )
    between = (name or protocol).upper() or next(iter(found))
    if between in found:
        return between
    if is_overruled:
        return next(iter(found))
    setting = "inter.broker.listener.name" if name else "security.inter.broker.protocol"
    raise ConfigError(f"{setting} is {between}, which is not a name in listeners.")


def _advertised(
    settings: AddressSettings,
    found: Collection[str],
    advertise: str | None,
    left_out: Collection[str],
) -> dict[str, tuple[str, int]]:
    """Return the addresses to advertise, by the names of their listeners."""
    if advertise:
        if len(found) > 1:
            raise ConfigError(
                "--advertise is the address of one listener; give advertised.listeners, which has "
                f"one for each of {', '.join(found)}."
            )
        return dict.fromkeys(found, parse_address(advertise, "--advertise"))
    advertised = dict(_named(settings.advertised_listeners, "advertised.listeners", left_out))
    for name, (host, _) in advertised.items():
        if name not in found:
            raise ConfigError(
                f"advertised.listeners has {name}, and the broker listens on {', '.join(found)}."
            )
        if host in WILDCARDS:
            raise ConfigError(
                f"advertised.listeners: clients cannot connect to {host!r}; name the address at "
                f"which they reach listener {name}."
            )
    return advertised


def _named(
    text: str, setting: str, left_out: Collection[str]
) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield name and address of each part of `text`. An address without a name is PLAINTEXT's."""
    seen = set()
    for part in filter(None, map(str.strip, text.split(","))):
        name, separator, address = part.partition("://")
        if not separator:
            name, address = PLAINTEXT, part
        name = name.strip().upper()
        if name in left_out:
            continue
        if name in seen:
            raise ConfigError(f"{setting} has {name} twice; each listener has its own name.")
        seen.add(name)
        yield name, parse_address(address, setting)


def _protocols(text: str, names: Collection[str]) -> dict[str, str]:
    """Return the security protocol of each name.

    Raises `ConfigError` for a listener whose security protocol is unknown.
    """
    protocols = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, colon, protocol = part.partition(":")
        if not colon or protocol.strip().upper() not in PROTOCOLS:
            raise ConfigError(
                "listener.security.protocol.map is NAME:PROTOCOL, with a protocol of "
                f"{', '.join(PROTOCOLS)}, not {shortened(part)!r}."
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    for name in names:
        if name not in protocols:
            raise ConfigError(
                f"No security protocol defined for listener {shortened(name)}: add "
                f"{shortened(name)}:PLAINTEXT to listener.security.protocol.map."
            )
    return protocols


def _check_own_settings(
    settings: AddressSettings, found: Collection[str], left_out: Collection[str]
) -> None:
    """Raise `ConfigError` if a setting is that of no listener that is there."""
    for name in settings.own_of_listeners:
        parts = split_listener_name(name)
        assert parts is not None, name  # `settling.py` has refused any other
        listener = parts[0].upper()
        if listener not in found and listener not in left_out:
            raise ConfigError(
                settings.blamed(
                    name, f"{name}: there is no listener {listener}, but {', '.join(found)}."
                )
            )
        # In capitals it would count for none.
        if parts[0] != parts[0].lower():
            right = own_name(parts[0], name.removeprefix(f"{PREFIX}{parts[0]}."))
            raise ConfigError(
                settings.blamed(name, f"{name}: the listener is in small letters here: {right}.")
            )


def _check_ports(found: dict[str, tuple[str, int]]) -> None:
    """Raise `ConfigError` if two listeners have the same address."""
    names: dict[tuple[str, int], str] = {}
    for name, where in found.items():
        other = names.setdefault(where, name)
        if other != name and where[1] != 0:
            raise ConfigError(f"Listeners {other} and {name} have the same address; give each one.")


def parse_address(text: str, option: str) -> tuple[str, int]:
    """Split `HOST:PORT`, with an IPv6 address in brackets. Raises `ConfigError`."""
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ConfigError(
            f"{option} is HOST:PORT, such as {DEFAULT_LISTEN}, not {shortened(text)!r}."
        )
    return host or ALL_ADDRESSES, int(port)


def printed(host: str, port: int) -> str:
    """Return `HOST:PORT`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connections_by_address(text: str) -> dict[str, int]:
    """Return the counts of `max.connections.per.ip.overrides`. Raises `ConfigError`."""
    from ipaddress import ip_address

    counts = {}
    for part in filter(None, text.split(",")):
        address, _, count = part.rpartition(":")
        try:
            counts[str(ip_address(address.strip().strip("[]")))] = int(count)
        except ValueError:
            raise ConfigError(
                "max.connections.per.ip.overrides is ADDRESS:COUNT, with an address in numbers, "
                f"not {shortened(part)!r}."
            ) from None
    return counts
