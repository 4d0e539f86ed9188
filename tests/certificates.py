"""An authority of the test's own, and the certificates that it signs."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

DAY: Final = datetime.timedelta(days=1)
HOSTS: Final = ("localhost", "127.0.0.1")


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def named(common_name: str, organization: str = "Test") -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


@dataclass
class Signed:
    """A key and its certificate, with files for programs."""

    directory: Path
    name: str
    key: Any
    certificate: x509.Certificate
    authority: x509.Certificate

    @property
    def key_pem(self) -> str:
        return str(
            self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), "ascii"
        )

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def _written(self, suffix: str, content: bytes) -> str:
        path = self.directory / f"{self.name}{suffix}"
        path.write_bytes(content)
        path.chmod(0o600)  # as ssh wants it: nothing is warned of
        return str(path)

    @property
    def both_file(self) -> str:
        """Key and certificate in one PEM file, as Kafka has them."""
        return self._written(".pem", (self.key_pem + self.certificate_pem).encode())

    @property
    def key_file(self) -> str:
        return self._written(".key", self.key_pem.encode())

    @property
    def certificate_file(self) -> str:
        return self._written(".crt", self.certificate_pem.encode())

    def encrypted_key_pem(self, password: str) -> str:
        encryption = BestAvailableEncryption(password.encode())
        return str(self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption), "ascii")

    def pkcs12_file(self, password: str, suffix: str = ".p12") -> str:
        content = pkcs12.serialize_key_and_certificates(
            b"broker",
            self.key,
            self.certificate,
            [self.authority],
            BestAvailableEncryption(password.encode()),
        )
        return self._written(suffix, content)


class Authority:
    """Signs certificates. `file` has its own, for those who trust it."""

    def __init__(
        self, directory: Path, name: str = "ca", *, ends: datetime.timedelta = 30 * DAY
    ) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(
            named(name), self._key.public_key(), begins=-3 * DAY, ends=ends, is_authority=True
        )
        self.pem = self.certificate.public_bytes(Encoding.PEM).decode()
        self.file = str(directory / f"{name}.crt")
        Path(self.file).write_text(self.pem)

    def signed(
        self,
        name: str,
        *,
        hosts: Sequence[str] = HOSTS,
        subject: x509.Name | None = None,
        key: Any = None,
        begins: datetime.timedelta = -DAY,
        ends: datetime.timedelta = 30 * DAY,
        usages: Sequence[x509.ObjectIdentifier] = (),
    ) -> Signed:
        """`usages` are what it may be used for; any use without them."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(
            named(name) if subject is None else subject,
            key.public_key(),
            hosts=hosts,
            begins=begins,
            ends=ends,
            usages=usages,
        )
        return Signed(self._directory, name, key, certificate, self.certificate)

    def _sign(
        self,
        subject: x509.Name,
        public_key: Any,
        *,
        hosts: Sequence[str] = (),
        begins: datetime.timedelta = -DAY,
        ends: datetime.timedelta = 30 * DAY,
        is_authority: bool = False,
        usages: Sequence[x509.ObjectIdentifier] = (),
    ) -> x509.Certificate:
        issuer = subject if is_authority else self.certificate.subject
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now() + begins)
            .not_valid_after(now() + ends)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        )
        if hosts:
            names = x509.SubjectAlternativeName(list(map(_host, hosts)))
            builder = builder.add_extension(names, critical=False)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def in_latin_1(der: bytes, text: bytes, other: bytes) -> bytes:
    """Return a certificate in which a text is another one of that length, as a TeletexString."""
    utf8, teletex = b"\x0c", b"\x14"
    length = bytes([len(text)])
    assert len(other) == len(text)
    assert utf8 + length + text in der
    return der.replace(utf8 + length + text, teletex + length + other)
