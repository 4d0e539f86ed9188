"""The options of every client by which it proves itself to brokers, and checks theirs: TLS, SASL.

A secret is in no representation, and in no message about a wrong value.
"""

import ssl
from collections.abc import Mapping
from dataclasses import field
from os import PathLike
from typing import TYPE_CHECKING, Final, Literal, TypedDict

from odradek.client.options import check_one_of
from odradek.client.types import OAuthToken, TokenFunction
from odradek.late import dataclass

if TYPE_CHECKING:
    from odradek.client.sasl.credentials import Credentials

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

Place = str | PathLike[str]
"""A file, or a PEM text itself."""
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_OF_TLS: Final = (
    "ssl_ca_location",
    "ssl_ca_password",
    "ssl_certificate_location",
    "ssl_key_location",
    "ssl_key_password",
)
_OF_PASSWORDS: Final = ("sasl_username", "sasl_password")
_OF_ENDPOINT: Final = (
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_id",
    "sasl_oauthbearer_client_secret",
)
_OF_ENDPOINT_MAYBE: Final = ("sasl_oauthbearer_scope", "sasl_oauthbearer_ca_location")
_OF_TOKENS: Final = ("sasl_token", *_OF_ENDPOINT, *_OF_ENDPOINT_MAYBE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityOptions:
    """The options of TLS and SASL."""

    security_protocol: SecurityProtocol = "PLAINTEXT"
    ssl_ca_location: Place | None = None
    ssl_ca_password: str | None = field(default=None, repr=False)
    ssl_certificate_location: Place | None = None
    ssl_key_location: Place | None = field(default=None, repr=False)
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    sasl_mechanism: SaslMechanism | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_token: str | TokenFunction | None = field(default=None, repr=False)
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_id: str | None = None
    sasl_oauthbearer_client_secret: str | None = field(default=None, repr=False)
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    sasl_oauthbearer_ca_location: Place | None = None

    @property
    def has_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")

    def check_security(self) -> None:
        """Raise ValueError for options that contradict others, or that name bad files."""
        check_one_of(SECURITY_PROTOCOLS, security_protocol=self.security_protocol)
        given = self._names_of(_OF_TLS)
        if given and not self.has_tls:
            raise ValueError(
                f'{given[0]} belongs to security_protocol="SSL" or "SASL_SSL": set that, too'
            )
        self.tls_context()  # read for its errors
        if self.ssl_key_location is not None and self.ssl_certificate_location is None:
            raise ValueError("ssl_key_location is the key of ssl_certificate_location: set both")
        self._check_sasl()

    def _names_of(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if getattr(self, name) is not None]

    def _check_sasl(self) -> None:
        extensions = self.sasl_oauthbearer_extensions
        if not isinstance(extensions, Mapping):
            given = type(extensions).__name__
            raise ValueError(
                f"sasl_oauthbearer_extensions is a mapping, and a value of the type {given} was "
                "given"
            )
        given = self._names_of(("sasl_mechanism", *_OF_PASSWORDS, *_OF_TOKENS))
        if self.has_sasl or self.sasl_mechanism is not None:
            check_one_of(MECHANISMS, sasl_mechanism=self.sasl_mechanism)
        if not self.has_sasl:
            if given:
                raise ValueError(
                    f'{given[0]} belongs to security_protocol="SASL_SSL" or "SASL_PLAINTEXT": set '
                    "that, too"
                )
            return
        is_by_token = self.sasl_mechanism == "OAUTHBEARER"
        wrong = self._names_of(_OF_PASSWORDS if is_by_token else _OF_TOKENS)
        if wrong:
            others = "PLAIN and SCRAM" if is_by_token else "OAUTHBEARER"
            raise ValueError(
                f"{wrong[0]} belongs to {others}, and sasl_mechanism is {self.sasl_mechanism!r}"
            )
        if is_by_token:
            self._check_tokens()
        elif len(self._names_of(_OF_PASSWORDS)) < len(_OF_PASSWORDS):
            raise ValueError(f"{self.sasl_mechanism} needs {' and '.join(_OF_PASSWORDS)}: set both")
        elif not self.sasl_username or "\0" in f"{self.sasl_username}{self.sasl_password}":
            raise ValueError(
                "sasl_username is a name of at least one character, and neither it nor "
                "sasl_password has a character NUL"
            )

    def _check_tokens(self) -> None:
        """Raise ValueError unless tokens come from exactly one place."""
        of_endpoint = self._names_of((*_OF_ENDPOINT, *_OF_ENDPOINT_MAYBE))
        if (self.sasl_token is None) == (not of_endpoint):
            raise ValueError(
                "OAUTHBEARER needs either sasl_token or sasl_oauthbearer_token_endpoint_url, with "
                "sasl_oauthbearer_client_id and sasl_oauthbearer_client_secret"
            )
        if of_endpoint and len(self._names_of(_OF_ENDPOINT)) < len(_OF_ENDPOINT):
            raise ValueError(f"a token server needs {', '.join(_OF_ENDPOINT)}: set all three")
        if callable(self.sasl_token) and self.sasl_oauthbearer_extensions:
            raise ValueError(
                "sasl_token is a function, which returns its extensions in an OAuthToken: leave "
                "sasl_oauthbearer_extensions out"
            )
        self._tokens()  # made for its errors

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the context of connections; None without TLS. Raises ValueError."""
        if not self.has_tls:
            return None
        from odradek.client.tls.contexts import client_context, client_stores

        stores = client_stores(
            authorities=self.ssl_ca_location,
            authorities_password=self.ssl_ca_password,
            certificates=self.ssl_certificate_location,
            key=self.ssl_key_location,
            key_password=self.ssl_key_password,
        )
        return client_context(stores, checks_host=self.ssl_check_hostname)

    def credentials(self) -> "Credentials | None":
        """Return what connections authenticate with; None without SASL."""
        if not self.has_sasl:
            return None
        from odradek.client.sasl import credentials
        from odradek.client.sasl.tokens import TokenSource

        name, password = self.sasl_username or "", self.sasl_password or ""
        assert self.sasl_mechanism is not None  # of `check_security`
        if self.sasl_mechanism == "OAUTHBEARER":
            return credentials.TokenCredentials(TokenSource(self._tokens()))
        if self.sasl_mechanism == "PLAIN":
            return credentials.PlainCredentials(name, password)
        return credentials.ScramCredentials(self.sasl_mechanism, name, password)

    def _tokens(self) -> OAuthToken | TokenFunction:
        """Return the only token, or what fetches tokens. Raises ValueError."""
        if isinstance(self.sasl_token, str):
            return OAuthToken(value=self.sasl_token, extensions=self.sasl_oauthbearer_extensions)
        if self.sasl_token is not None:
            return self.sasl_token
        from odradek.client.sasl.token_endpoint import TokenEndpoint, check_url

        url = self.sasl_oauthbearer_token_endpoint_url or ""
        check_url(url)
        return TokenEndpoint(
            url=url,
            client_id=self.sasl_oauthbearer_client_id or "",
            client_secret=self.sasl_oauthbearer_client_secret or "",
            scope=self.sasl_oauthbearer_scope,
            authorities=self._authorities_of_endpoint(),
            extensions=self.sasl_oauthbearer_extensions,
        )

    def _authorities_of_endpoint(self) -> ssl.SSLContext | None:
        if self.sasl_oauthbearer_ca_location is None:
            return None
        from odradek.client.tls.contexts import client_context, client_stores

        stores = client_stores(
            authorities=self.sasl_oauthbearer_ca_location,
            authorities_password=None,
            certificates=None,
            key=None,
            key_password=None,
        )
        return client_context(stores, checks_host=True)


class SecurityArguments(TypedDict, total=False):
    security_protocol: SecurityProtocol
    ssl_ca_location: Place | None
    ssl_ca_password: str | None
    ssl_certificate_location: Place | None
    ssl_key_location: Place | None
    ssl_key_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: SaslMechanism | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_token: str | TokenFunction | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_extensions: Mapping[str, str]
    sasl_oauthbearer_ca_location: Place | None
