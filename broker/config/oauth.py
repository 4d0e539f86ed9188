"""The broker's settings of OAUTHBEARER. A listener may have each for itself, as those of TLS.

None can be changed while a broker runs. A request that could would make the broker read a file, or
connect to an address, of a client's choice (CVE-2025-27817).
"""

from typing import Final

from odradek.broker.config.records import RecordSettings
from odradek.broker.config.settings import int32, int64, settings_of, string, words
from odradek.late import dataclass

KAFKAS: Final = "org.apache.kafka.common.security.oauthbearer."


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings(RecordSettings):
    """A part of `BrokerConfig`."""

    sasl_oauthbearer_jwks_endpoint_url: str = string(
        "",
        form=r"https://[^\s@/?#]+(/\S*)?|file:\S+",
        form_words="https://HOST[:PORT]/PATH, or file:///PATH",
        about=(
            "Where the token server publishes the keys that it signs tokens with (a JWKS): an "
            "`https://` address, whose redirects are not followed, or a file as `file:///PATH`. "
            "OAUTHBEARER needs it."
        ),
    )
    sasl_oauthbearer_jwks_endpoint_tls_ca: str = string(
        "",
        ours=True,
        about=(
            "A file with the certificates that the token server's is signed by, as PEM. Unset, "
            "those that the machine trusts count."
        ),
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = int64(
        3_600_000,
        low=1_000,
        about=(
            "The time after which the keys are read anew. A token with an unknown key has them "
            "read at once, every 10 s at most."
        ),
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = int64(
        100, low=1, about="The first pause after the keys could not be read; each next is doubled."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = int64(
        10_000, low=1, about="The longest pause after the keys could not be read."
    )
    sasl_oauthbearer_expected_audience: str = words(
        "",
        may_be_empty=True,
        about=(
            "The names of this service in the claim `aud`, of which a token has one at least. "
            "OAUTHBEARER needs it: a token for another service is not taken."
        ),
    )
    sasl_oauthbearer_expected_issuer: str = string(
        "", about="The claim `iss` of tokens. OAUTHBEARER needs it."
    )
    sasl_oauthbearer_sub_claim_name: str = string(
        "sub", about="The claim with the name that the principal of a client has."
    )
    sasl_oauthbearer_scope_claim_name: str = string(
        "scope",
        about="The claim with the scopes of a token, whose form is checked. They grant nothing.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = int32(
        30,
        low=0,
        high=3_600,
        about="The time by which the clocks of broker and token server may differ.",
    )
    sasl_server_callback_handler_class: str = string(
        "",
        choices=(
            "",
            f"{KAFKAS}OAuthBearerValidatorCallbackHandler",
            f"{KAFKAS}secured.OAuthBearerValidatorCallbackHandler",
        ),
        may_be_empty=True,
        why="nothing is loaded, and tokens are always checked so",
        about=(
            "The class by which a Kafka checks tokens: the one that is built in there has the same "
            "settings, and any other is refused."
        ),
    )


OAUTH_SETTINGS: Final = settings_of(OAuthSettings).keys() - settings_of(RecordSettings).keys()
"""The settings of this module. A mechanism of a listener may have them for itself, as in Kafka."""
