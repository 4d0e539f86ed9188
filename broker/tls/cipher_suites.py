"""The names of cipher suites: IANA's, which Kafka's users have, and OpenSSL's."""

import ssl
from collections.abc import Iterable
from typing import Final

from odradek.broker.config.settings import ConfigError, shortened

IANA: Final = "TLS_"
OF_TLS_1_3: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
"""All or none of them: the `ssl` module has no way to choose among them."""


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite of TLS 1.2.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256. The old suites with
    RSA for the exchange of keys, too, have no name for that in OpenSSL.
    """
    if not suite.startswith(IANA):
        return suite
    exchange, _, cipher = suite.removeprefix(IANA).partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256")
    if "CBC" in cipher:
        cipher = cipher.replace("_CBC", "")
    elif "CHACHA20" in cipher:  # its hash is not named
        cipher = cipher.removesuffix("_SHA256")
    parts = [*([] if exchange == "RSA" else [exchange]), cipher]
    return "-".join(parts).replace("_", "-")


def choose(context: ssl.SSLContext, suites: Iterable[str]) -> None:
    """Restrict a context to these cipher suites. Raises `ConfigError`.

    A version of TLS of which no suite is named is off.
    """
    wanted = list(suites)
    names = [suite for suite in wanted if suite not in OF_TLS_1_3]
    if wanted and not names:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    elif len(names) == len(wanted) and names:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    for name in names:
        try:
            context.set_ciphers(openssl_name(name))
        except ssl.SSLError:
            raise ConfigError(
                f"ssl.cipher.suites has {shortened(name)}, which OpenSSL does not have here."
            ) from None
    if names:
        context.set_ciphers(":".join(map(openssl_name, names)))
