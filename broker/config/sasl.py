"""The broker's settings of SASL. Each may be given for a listener, some for a mechanism of it.

listener.name.<listener>.sasl.enabled.mechanisms
listener.name.<listener>.<mechanism>.sasl.jaas.config
"""

from typing import Final

from odradek.broker.config.oauth import OAUTH_SETTINGS, OAuthSettings
from odradek.broker.config.settings import int64, password, string, words
from odradek.late import dataclass

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER)
"""The mechanisms that this broker has."""
BETWEEN_BROKERS: Final = (PLAIN, *SCRAM)
"""Those by which one broker logs in at another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings(OAuthSettings):
    """A part of `BrokerConfig`."""

    sasl_enabled_mechanisms: str = words(
        ",".join(SCRAM),
        about=(
            "The mechanisms of SASL that clients may choose: "
            f"{', '.join(MECHANISMS)}. A client may choose the weakest of them."
        ),
    )
    sasl_jaas_config: str = password(
        "",
        about=(
            'The users of PLAIN, as `PlainLoginModule required user_alice="secret";`, given as '
            "`listener.name.<listener>.plain.sasl.jaas.config`. The users of SCRAM are in the "
            "metadata store. The options `username` and `password`, of SCRAM's "
            "`ScramLoginModule`, too, are what this broker logs in with at the others."
        ),
    )
    sasl_plain_users_file: str = string(
        "",
        ours=True,
        about=(
            "A file with users of PLAIN, whose lines `odradek user hash` makes: it has no "
            "passwords, but what scrypt makes of them. It is read at the start and at SIGHUP."
        ),
    )
    connections_max_reauth_ms: int = int64(
        0,
        low=0,
        about=(
            "A client of SASL authenticates again within this time (KIP-368), or its connection "
            "is closed. 0: never."
        ),
    )


OF_MECHANISMS: Final = frozenset({"sasl.jaas.config", "connections.max.reauth.ms"}) | OAUTH_SETTINGS
"""The settings that a mechanism of a listener may have for itself."""
