"""A key and a certificate for a broker of tests, which clients trust as their authority."""

import datetime
import ipaddress
from pathlib import Path
from typing import Final

DAYS: Final = 30


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Make a certificate for this machine, which has signed itself.

    Return a file with key and certificate, and one with the certificate alone.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a broker of tests")])
    now = datetime.datetime.now(datetime.UTC)
    here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName(here), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    shown = certificate.public_bytes(Encoding.PEM)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    both, alone = directory / "broker.pem", directory / "broker.crt"
    both.touch(mode=0o600)
    both.touch(mode=0o600)
    both.write_bytes(secret + shown)
    alone.write_bytes(shown)
    return both, alone
