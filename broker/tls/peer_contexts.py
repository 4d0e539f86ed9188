"""TLS between brokers: both sides show a certificate, and each must trust that of the other.

Where brokers log in with passwords, only the side that accepts must show one, unless the listener
asks its clients for one, too.

A broker is the server of some connections and the client of others, with one certificate and one
set of authorities. So these are checked before they are used, by a handshake of the broker with
itself in which both sides ask for a certificate. It finds a certificate that another authority has
signed, and one that may be used by servers only (extendedKeyUsage).
"""

import contextlib
import datetime
import ssl
from collections.abc import Callable
from typing import Final

from odradek.broker.environment.env import HandshakeFailed
from odradek.broker.tls.principal_names import distinguished_name
from odradek.late import dataclass
from odradek.protocol.keystores import CertifiedKey, KeystoreError

ROUNDS_MAX: Final = 10
"""The messages of each side of a handshake with oneself; it takes three."""
OUT_OF_TIME: Final = (9, 10)
"""OpenSSL's codes for a certificate that does not count yet, or has expired."""

Step = Callable[[ssl.SSLContext], object]


class NoPeerTls(HandshakeFailed):
    """Brokers cannot use a listener's certificate among each other: the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerContexts:
    """The contexts of both sides of connections between brokers."""

    accepting: ssl.SSLContext
    connecting: ssl.SSLContext


def peer_contexts(
    prepare: Callable[[ssl.SSLContext], ssl.SSLContext],
    trust: Step,
    identity: CertifiedKey,
    *,
    authorities: str,
    checks_host: bool,
    now: datetime.datetime,
    asked: ssl.VerifyMode = ssl.CERT_REQUIRED,
) -> PeerContexts:
    """Return the contexts of a listener for connections between brokers. Raises `NoPeerTls`.

    `prepare` gives a context the certificate and the settings of the listener, and `trust` its
    `authorities`, which are PEM. `checks_host`: the broker that connects compares the host that it
    asks for with the names in the certificate (`ssl.endpoint.identification.algorithm`). `asked`:
    how the one that accepts asks for a certificate.
    """
    accepting = prepare(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    connecting = prepare(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    for context in (accepting, connecting):
        trust(context)
    connecting.check_hostname = False
    accepting.verify_mode = asked
    connecting.verify_mode = ssl.CERT_REQUIRED
    try:
        agree(connecting, accepting)
    except ssl.SSLCertVerificationError as error:
        is_out_of_time = error.verify_code in OUT_OF_TIME
        # The start warns of such a certificate of its own, and a reload refuses it.
        if is_out_of_time and not identity.why_invalid(now):
            raise NoPeerTls(
                f"other brokers would not trust {identity.place}, because "
                f"{_out_of_time(identity, authorities, now) or error.verify_message}"
            ) from None
        if not is_out_of_time:
            raise NoPeerTls(
                f"other brokers would not trust {identity.place} ({error.verify_message}); an "
                "authority of ssl.truststore.location must have signed it, for servers and clients"
            ) from None
    except (ssl.SSLError, TimeoutError) as error:
        raise NoPeerTls(f"two brokers with {identity.place} do not agree ({error})") from None
    connecting.check_hostname = checks_host
    return PeerContexts(accepting=accepting, connecting=connecting)


def _out_of_time(identity: CertifiedKey, authorities: str, now: datetime.datetime) -> str:
    """Return which authority above a certificate does not count at `now`; "" if all do."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    chain = x509.load_pem_x509_certificates(identity.chain)
    issuers = {each.issuer for each in chain}
    above = [*chain[1:], *x509.load_pem_x509_certificates(authorities.encode())]
    for each in above:
        try:
            is_issuer = each.subject in issuers
        except ValueError:  # of an authority with a name that is not UTF-8, which OpenSSL takes
            continue
        if not is_issuer:
            continue
        name = "which it has"
        with contextlib.suppress(HandshakeFailed):
            name = distinguished_name(each.public_bytes(Encoding.DER))
        begins, ends = each.not_valid_before_utc, each.not_valid_after_utc
        if now > ends:
            return f"its authority {name} has expired at {ends:%Y-%m-%d %H:%M} UTC"
        if now < begins:
            return f"its authority {name} counts from {begins:%Y-%m-%d %H:%M} UTC on"
    return ""


def without_costs(context: ssl.SSLContext) -> None:
    """Switch off what only costs.

    A client that renegotiates makes the broker work, and the tickets of a session are two messages
    that nobody uses.
    """
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
    if context.protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0


def check_handshake(server: ssl.SSLContext, identity: CertifiedKey) -> None:
    """Try a context with a client in memory. Raises `KeystoreError` if they do not agree."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    try:
        agree(client, server)
    except ssl.SSLError as error:
        raise KeystoreError(
            f"{identity.place}: no client could agree on TLS with this certificate and these "
            f"settings ({(error.reason or str(error)).lower().replace('_', ' ')})."
        ) from None
    except TimeoutError:
        raise KeystoreError(f"{identity.place}: TLS does not come to an end with it.") from None


def agree(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Play a handshake in memory. Raises `ssl.SSLError`, and TimeoutError if it does not end."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(ROUNDS_MAX):
        left = [side for side in left if not _has_agreed(side)]
    if left:
        raise TimeoutError("TLS does not come to an end")


def _has_agreed(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
