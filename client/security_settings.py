"""Kafka's names of the settings of TLS and SASL, as Java's clients and librdkafka have them.

What belongs to security must not be left out by accident, so such a name that is not known here is
refused. No class is loaded: those of Kafka that a setting may name stand for what is built in.
"""

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from odradek.client.config import ClientOptions
from odradek.client.errors import AuthenticationFailed
from odradek.client.security_options import MECHANISMS, SECURITY_PROTOCOLS
from odradek.late import dataclass
from odradek.protocol.jaas import (
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasError,
    parse_jaas,
)

SECURE: Final = ("ssl.", "sasl.", "security.")
"""How the names begin that belong to security."""
ALIKE: Final = 0.8
"""The least likeness of two names, between 0 and 1, of which one may be meant by the other."""
JAAS: Final = "sasl.jaas.config"
EXTENSIONS: Final = "sasl.oauthbearer.extensions"
ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
FILE_URL: Final = "file:"
SHADED: Final = "kafkashaded."
"""What stands before the names of classes in a Spark that brings Kafka under another name."""
WITHOUT_EFFECT: Final = frozenset(
    {
        *("ssl.keystore.type", "ssl.truststore.type", "ssl.protocol", "ssl.enabled.protocols"),
        "sasl.oauthbearer.method",
    }
)
"""What the content of a store, OpenSSL, or the other settings decide."""
TIMES_OF_JAVA: Final = ("sasl.login.refresh.", "sasl.login.retry.", "sasl.kerberos.")
"""How the names begin that say when Java logs in, which is done here when it is due."""
HANDLERS: Final = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")
KNOWN_HANDLERS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
SECRETS: Final = frozenset(
    {
        *(JAAS, "sasl.password", "sasl.oauthbearer.client.secret"),
        "sasl.oauthbearer.client.credentials.client.secret",
        *("ssl.truststore.password", "ssl.key.password", "ssl.keystore.password"),
        *("ssl.keystore.key", "ssl.key.pem"),
        EXTENSIONS,
    }
)
"""The settings whose values no message shows."""
IN_JAAS: Final[dict[str, dict[str, str]]] = {
    PLAIN_MODULE: {"username": "sasl_username", "password": "sasl_password"},
    SCRAM_MODULE: {"username": "sasl_username", "password": "sasl_password"},
    OAUTHBEARER_MODULE: {
        "clientId": "sasl_oauthbearer_client_id",
        "clientSecret": "sasl_oauthbearer_client_secret",
        "scope": "sasl_oauthbearer_scope",
    },
}
EXTENSION: Final = "extension_"
"""How the options of a line of JAAS begin that are extensions of OAUTHBEARER."""


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file whose content is the token: it is read each time, as another program renews it."""

    path: str

    def __call__(self) -> str:
        """Return the token. Raises `AuthenticationFailed` if the file cannot be read."""
        try:
            return Path(self.path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise AuthenticationFailed(
                f"no token for OAUTHBEARER: {self.path} cannot be read: {why}"
            ) from error


def _protocol(text: str) -> str:
    if text.upper() not in SECURITY_PROTOCOLS:
        raise ValueError(f"is one of {', '.join(SECURITY_PROTOCOLS)}, and {text!r} was given")
    return text.upper()


def _mechanism(text: str) -> str:
    if text.upper() not in MECHANISMS:
        raise ValueError(f"is one of {', '.join(MECHANISMS)}, and {text!r} was given")
    return text.upper()


def _checks_host(text: str) -> bool:
    if text.lower() not in ("https", "none", ""):
        raise ValueError(f"is https or empty, and {text!r} was given")
    return text.lower() == "https"


def _extensions(text: str) -> Mapping[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    found = {name: value for name, _, value in pairs}
    if not all(name and equals for name, equals, _ in pairs) or len(found) < len(pairs):
        raise ValueError("is NAME=VALUE, several separated by commas")
    return found


OPTIONS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
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
    **dict.fromkeys(("sasl.mechanism", "sasl.mechanisms"), ("sasl_mechanism", _mechanism)),
    "sasl.username": ("sasl_username", str),
    "sasl.password": ("sasl_password", str),
    ENDPOINT: ("sasl_oauthbearer_token_endpoint_url", str),
    **dict.fromkeys(
        ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"),
        ("sasl_oauthbearer_client_id", str),
    ),
    **dict.fromkeys(
        ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"),
        ("sasl_oauthbearer_client_secret", str),
    ),
    "sasl.oauthbearer.scope": ("sasl_oauthbearer_scope", str),
    EXTENSIONS: ("sasl_oauthbearer_extensions", _extensions),
    "https.ca.location": ("sasl_oauthbearer_ca_location", str),
}
"""The option that a setting is here, and how its value is read."""
NAMES: Final = (*OPTIONS, JAAS, *sorted(WITHOUT_EFFECT), *HANDLERS)
"""All names that are taken, but for `TIMES_OF_JAVA`."""


def take_setting(
    name: str, value: str, options: dict[str, Any], resolve: Callable[[str], str] = str
) -> bool:
    """Add a setting to the options, and return True if it belongs to security.

    `resolve` replaces what a value names, such as an environment variable. Raises ValueError, in
    which no secret stands.
    """
    if name in OPTIONS:
        option, read = OPTIONS[name]
        try:
            options[option] = read(resolve(value))
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
        if name == ENDPOINT and options[option].startswith(FILE_URL):
            options["sasl_token"] = TokenFile(_path_of(options.pop(option)))
        return True
    if name == JAAS:
        _take_jaas(value, options, resolve)
        return True
    if name in HANDLERS:
        if value.removeprefix(SHADED) not in KNOWN_HANDLERS:
            raise ValueError(f"{name} names a class, and none is loaded here: leave it out")
        return True
    if name in WITHOUT_EFFECT or name.startswith(TIMES_OF_JAVA):
        return True
    if name.startswith(SECURE):
        raise ValueError(f"{name} is not known here{_nearest(name)}")
    return False


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, NAMES, 1, ALIKE)
    return f" (did you mean {near[0]}?)" if near else ": see docs/secured-clients.md"


def _path_of(url: str) -> str:
    """Return the path of a URL of a file: `file:/path`, or `file:///path`."""
    path = url.removeprefix(FILE_URL)
    return path.removeprefix("//") if path.startswith("///") else path


def _take_jaas(text: str, options: dict[str, Any], resolve: Callable[[str], str]) -> None:
    try:
        line = parse_jaas(text)
    except JaasError as error:
        raise ValueError(f"{JAAS} cannot be read: {error}") from None
    known = IN_JAAS.get(line.module.removeprefix(SHADED))
    if known is None:
        modules = " or ".join(module.rpartition(".")[2] for module in IN_JAAS)
        raise ValueError(f"{JAAS} names another class than {modules}, and none is loaded here")
    extensions: dict[str, str] = {}
    for name, value in line.options.items():
        if name.startswith(EXTENSION) and "clientId" in known:
            extensions[name.removeprefix(EXTENSION)] = resolve(value)
        elif name not in known:
            raise ValueError(f"{JAAS} has the option {name}, which is not known here")
        else:
            options[known[name]] = resolve(value)
    if extensions:
        options["sasl_oauthbearer_extensions"] = extensions


def used_options(options: Mapping[str, Any]) -> ClientOptions:
    """Return what counts with the protocol that was given: Java leaves the rest out, too."""
    protocol = options.get("security_protocol", SECURITY_PROTOCOLS[0])
    unused = [] if protocol.endswith("SSL") else ["ssl_"]
    unused += [] if protocol.startswith("SASL") else ["sasl_"]
    found: ClientOptions = {"security_protocol": protocol}
    kept = {name: it for name, it in options.items() if not name.startswith(tuple(unused))}
    found.update(kept)  # type: ignore[typeddict-item]
    return found
