"""The sentences for a person about a handshake that has failed."""

import ssl
from typing import Final

CERTIFICATE_ALERTS: Final = (
    "ALERT_UNKNOWN_CA",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_CERTIFICATE_REQUIRED",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_REVOKED",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_HANDSHAKE_FAILURE",  # TLS 1.2 for a certificate that is not sent
    "ALERT_ACCESS_DENIED",
)
"""Reasons of OpenSSL by which the other side refuses the certificate, or that there is none."""
NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH")
VERSIONS: Final = ("UNSUPPORTED_PROTOCOL", "ALERT_PROTOCOL_VERSION", "NO_PROTOCOLS_AVAILABLE")
CIPHERS: Final = ("NO_SHARED_CIPHER",)
HOST_MISMATCH: Final = (62, 64)
EXPIRED: Final = 10
NOT_YET: Final = 9


def refuses_certificate(error: BaseException | None) -> bool:
    """Return True if the other side says that it does not accept this side's certificate."""
    return isinstance(error, ssl.SSLError) and _has(error, CERTIFICATE_ALERTS)


def why_refused(error: ssl.SSLError, where: str) -> str:
    """Return why a server of TLS refuses the certificate that it was shown, or that it was not."""
    if _has(error, ("ALERT_CERTIFICATE_REQUIRED", "ALERT_HANDSHAKE_FAILURE")):
        return (
            f"{where} asks for a certificate of the client, or has no protocol or cipher in common "
            "with it: set ssl.keystore.location (ssl_certificate_location)"
        )
    if _has(error, ("ALERT_CERTIFICATE_EXPIRED",)):
        return f"{where} says that the certificate of this client has expired"
    return (
        f"{where} does not trust the certificate of this client: have it signed by an authority of "
        "its truststore"
    )


def why_not_connected(error: OSError, where: str, host: str) -> str:
    """Return why a client could not agree on TLS with a server. `where` is its address."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in HOST_MISMATCH:
            return (
                f"the certificate of {where} is not for the host {host!r}: connect by a name that "
                "it has, or set ssl.endpoint.identification.algorithm= (ssl_check_hostname=False)"
            )
        if error.verify_code == EXPIRED:
            return f"the certificate of {where} has expired"
        if error.verify_code == NOT_YET:
            return f"the certificate of {where} does not count yet: see the clocks"
        return (
            f"the certificate of {where} is not trusted ({error.verify_message}): set "
            "ssl.truststore.location (ssl_ca_location) to the authority that has signed it"
        )
    if isinstance(error, ssl.SSLError):
        if _has(error, CERTIFICATE_ALERTS):
            return why_refused(error, where)
        if _has(error, NO_TLS):
            return (
                f"{where} does not speak TLS: set security.protocol=PLAINTEXT, or take another port"
            )
        if _has(error, VERSIONS):
            return f"{where} and this client have no version of TLS in common"
        if isinstance(error, ssl.SSLEOFError):
            return _closing(where)
        return f"{where}: TLS failed ({(error.reason or str(error)).lower().replace('_', ' ')})"
    return _closing(where)


def why_not_accepted(error: OSError) -> str:
    """Return why a server could not agree on TLS with a client."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        if _has(error, ("PEER_DID_NOT_RETURN_A_CERTIFICATE",)):
            return "it shows no certificate, and ssl.client.auth=required"
        if _has(error, CERTIFICATE_ALERTS):
            return "it does not trust the certificate of this broker"
        if _has(error, VERSIONS):
            return "it has no version of TLS in common (ssl.enabled.protocols)"
        if _has(error, CIPHERS):
            return "it has no cipher suite in common (ssl.cipher.suites)"
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return "it has closed the connection in the middle of the TLS handshake"
        return f"TLS failed ({(error.reason or str(error)).lower().replace('_', ' ')})"
    return "it has closed the connection in the middle of the TLS handshake"


def _closing(where: str) -> str:
    return (
        f"{where} has closed the connection in the TLS handshake; see whether its listener is one "
        "with TLS, and what its log says"
    )


def _has(error: ssl.SSLError, reasons: tuple[str, ...]) -> bool:
    reason = error.reason or ""
    return any(each in reason for each in reasons)
