"""The broker's settings of TLS, and how one listener has settings of its own.

Each setting of TLS, and each of SASL (`sasl.py`), may be given for one listener:
`listener.name.<name>.<setting>`.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from odradek.broker.config.records import RecordSettings
from odradek.broker.config.sasl import MECHANISMS, OF_MECHANISMS, SaslSettings
from odradek.broker.config.settings import (
    Setting,
    Value,
    password,
    settings_of,
    string,
    words,
)
from odradek.late import dataclass

PREFIX: Final = "listener.name."
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
BY_CONTENT: Final = (
    "It may be PEM or PKCS12, whatever its name or type says: its content decides. A real JKS is "
    "refused, with the command that converts it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings(SaslSettings):
    """A part of `BrokerConfig`."""

    own_of_listeners: Mapping[str, Value] = field(default_factory=dict, repr=False)
    """The settings that one listener has for itself, by their whole name."""
    places: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Where a setting was given, by the name that it has there: a file and a line."""

    def of_listener(self, listener: str, setting: str) -> Value:
        """Return the value of a setting of TLS or SASL for a listener."""
        own = self.own_of_listeners.get(own_name(listener, setting))
        value: Value = getattr(self, setting.replace(".", "_"))
        return value if own is None else own

    def of_mechanism(self, listener: str, mechanism: str, setting: str) -> Value:
        """Return the value of a setting of SASL for a mechanism of a listener."""
        own = self.own_of_listeners.get(own_name(listener, f"{mechanism.lower()}.{setting}"))
        return self.of_listener(listener, setting) if own is None else own

    def name_given(self, listener: str, setting: str) -> str:
        """Return the name under which the value of `of_listener` was given."""
        own = own_name(listener, setting)
        return own if own in self.own_of_listeners else setting

    def blamed(self, name: str, sentence: str) -> str:
        """Return `sentence`, which is about a setting, with the place of the setting first."""
        place = self.places.get(name)
        return sentence if place is None else f"{place}: {sentence}"

    ssl_keystore_location: str = string(
        "",
        about=f"The file with the broker's key, its certificate and those above it. {BY_CONTENT}",
    )
    ssl_keystore_type: str = string(
        "JKS", choices=STORE_TYPES, about="The kind of the keystore, which its content decides."
    )
    ssl_keystore_password: str = password("", about="The password of a keystore in PKCS12.")
    ssl_key_password: str = password("", about="The password of the key, if it has one.")
    ssl_keystore_key: str = password("", about="The broker's key, as a PEM text.")
    ssl_keystore_certificate_chain: str = password(
        "", about="The certificate of `ssl.keystore.key` and those above it, as a PEM text."
    )
    ssl_truststore_location: str = string(
        "",
        about=f"The file with the authorities that sign the certificates of clients. {BY_CONTENT}",
    )
    ssl_truststore_type: str = string(
        "JKS", choices=STORE_TYPES, about="The kind of the truststore, which its content decides."
    )
    ssl_truststore_password: str = password("", about="The password of a truststore in PKCS12.")
    ssl_truststore_certificates: str = password(
        "", about="The authorities that sign the certificates of clients, as a PEM text."
    )
    ssl_client_auth: str = string(
        "none",
        choices=("none", "requested", "required"),
        any_case=True,
        about=(
            "Ask clients for a certificate: not at all, or if they have one, or always. The name "
            "in it is the client's principal, but on a listener of SASL_SSL, whose clients are the "
            "principals of SASL. There, only `listener.name.<listener>.ssl.client.auth` counts."
        ),
    )
    ssl_enabled_protocols: str = words(
        "TLSv1.2,TLSv1.3",
        choices=("TLSv1.2,TLSv1.3", "TLSv1.3,TLSv1.2", "TLSv1.2", "TLSv1.3"),
        why="older versions are broken",
        about="The versions of TLS that clients may use.",
    )
    ssl_cipher_suites: str = words(
        "",
        may_be_empty=True,
        about=(
            "The cipher suites of TLS 1.2 that clients may use, by their IANA names or OpenSSL's. "
            "Those of TLS 1.3 are all strong: naming one of them names them all, and naming none "
            "switches TLS 1.3 off. Unset, OpenSSL chooses."
        ),
    )
    ssl_endpoint_identification_algorithm: str = string(
        "https",
        choices=("https", ""),
        any_case=True,
        may_be_empty=True,
        about=(
            "`https`: a broker that connects to another one compares its host with the names in "
            "its certificate."
        ),
    )
    ssl_principal_mapping_rules: str = string(
        "DEFAULT",
        about=(
            "How the name in a client's certificate becomes a principal: rules of the form "
            "RULE:pattern/replacement/[LU], or DEFAULT, separated by commas. The first that "
            "matches the whole name counts."
        ),
    )


OF_LISTENERS: Final = settings_of(TlsSettings).keys() - settings_of(RecordSettings).keys()
"""The settings that a listener may have for itself."""

LIVE: Final = frozenset(
    {
        *("ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password"),
        *("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.key.password"),
        *("ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password"),
        *("ssl.truststore.certificates", "sasl.plain.users.file"),
    }
)
"""The settings of one listener that can be changed while the broker runs: those of Kafka, and the
users of PLAIN."""


def live_setting_of(name: str) -> str | None:
    """Return the setting of `listener.name.<listener>.<setting>` if it can be changed live."""
    parts = split_listener_name(name)
    return parts[1] if parts is not None and parts[1] in LIVE else None


def own_name(listener: str, setting: str) -> str:
    """Return the name of a setting that a listener has for itself."""
    return f"{PREFIX}{listener.lower()}.{setting}"


def split_listener_name(name: str) -> tuple[str, str] | None:
    """Return the listener and the setting of `listener.name.<listener>.<setting>`.

    The setting may be that of a mechanism: `<mechanism>.<setting>` stands for it then. None for any
    other name, and for a setting that a listener cannot have for itself.
    """
    if not name.startswith(PREFIX):
        return None
    listener, _, setting = name.removeprefix(PREFIX).partition(".")
    if not listener:
        return None
    if setting in OF_LISTENERS:
        return listener, setting
    mechanism, _, inner = setting.partition(".")
    is_one = mechanism.upper() in MECHANISMS and mechanism.islower()
    return (listener, inner) if is_one and inner in OF_MECHANISMS else None


def tls_last(settings: dict[str, Setting]) -> dict[str, Setting]:
    """Return settings in the order of the reference: those of SASL and TLS after all others."""
    tls = settings_of(TlsSettings)
    own = {name: it for name, it in tls.items() if name in OF_LISTENERS}
    return {**{name: it for name, it in settings.items() if name not in own}, **own}
