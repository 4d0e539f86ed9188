"""Files of Kafka's client settings, such as `client.properties`, for commands.

Kafka's tools take them by `--command-config`. What belongs to security must not be left out by
accident, so such a name that is not known here is refused. Other names say how a Java client
works, and are left out.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from odradek.client.config import SECURITY_PROTOCOLS, ClientOptions
from odradek.protocol.properties import Property, properties

SECURE: Final = ("ssl.", "sasl.", "security.")
"""How the names begin that belong to security."""
BY_CONTENT: Final = frozenset(
    {"ssl.keystore.type", "ssl.truststore.type", "ssl.protocol", "ssl.enabled.protocols"}
)
"""What the content of a store, and OpenSSL, decide."""


class ClientProperties(NamedTuple):
    """The part of a file that a command takes."""

    options: ClientOptions
    bootstrap: str | None


def _protocol(text: str) -> str:
    if text.upper() not in SECURITY_PROTOCOLS:
        raise ValueError(
            f"security.protocol is {' or '.join(SECURITY_PROTOCOLS)}, and {text!r} was given"
        )
    return text.upper()


def _checks_host(text: str) -> bool:
    if text.lower() not in ("https", "none", ""):
        raise ValueError(
            f"ssl.endpoint.identification.algorithm is https or empty, and {text!r} was given"
        )
    return text.lower() == "https"


OPTIONS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "client.id": ("client_id", str),
    "security.protocol": ("security_protocol", _protocol),
    "ssl.endpoint.identification.algorithm": ("ssl_check_hostname", _checks_host),
    **dict.fromkeys(
        ("ssl.truststore.location", "ssl.truststore.certificates", "ssl.ca.location", "ssl.ca.pem"),
        ("ssl_ca_location", str),
    ),
    "ssl.truststore.password": ("ssl_ca_password", str),
    **dict.fromkeys(
        (
            *("ssl.keystore.location", "ssl.keystore.certificate.chain"),
            *("ssl.certificate.location", "ssl.certificate.pem"),
        ),
        ("ssl_certificate_location", str),
    ),
    **dict.fromkeys(
        ("ssl.keystore.key", "ssl.key.location", "ssl.key.pem"), ("ssl_key_location", str)
    ),
    **dict.fromkeys(("ssl.key.password", "ssl.keystore.password"), ("ssl_key_password", str)),
}
"""The option that a setting of Java's clients, or of librdkafka, is here."""


def client_properties(text: str, source: str) -> ClientProperties:
    """Return the options of a client that a file gives. Raises ValueError, with the line."""
    options: dict[str, Any] = {}
    bootstrap = None
    for each in properties(text):
        try:
            if each.name == "bootstrap.servers":
                bootstrap = each.value
            else:
                _take(each, options)
        except ValueError as error:
            raise ValueError(f"{source}, line {each.line}: {error}") from None
    options["security_protocol"] = options.get("security_protocol", SECURITY_PROTOCOLS[0])
    if options["security_protocol"] == SECURITY_PROTOCOLS[0]:  # as Java, which does not use them
        options = {name: it for name, it in options.items() if not name.startswith("ssl_")}
    found: ClientOptions = {}
    found.update(options)  # type: ignore[typeddict-item]
    return ClientProperties(found, bootstrap)


def _take(given: Property, options: dict[str, Any]) -> None:
    known = OPTIONS.get(given.name)
    if known is not None:
        name, read = known
        options[name] = read(given.value)
    elif given.name.startswith(SECURE) and given.name not in BY_CONTENT:
        raise ValueError(f"{given.name} is not known here; the client has TLS, and no SASL yet")
