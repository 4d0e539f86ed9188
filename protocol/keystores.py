"""Certificates and keys as Kafka's users have them: PEM, or PKCS12. It reads bytes, not files.

A store is recognised by its content, whatever its name or `ssl.keystore.type` says: since Java 9
keytool writes PKCS12, also into files that end in `.jks`. A real JKS file is refused, with the
command that converts it.

Every error is a `KeystoreError`: a sentence that begins with the place, which is a file or the
name of a setting.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from odradek.late import dataclass

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

JAVA_STORES: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""How the files of the store types JKS and JCEKS begin."""
DER_SEQUENCE: Final = b"\x30"
PEM_MARK: Final = "-----BEGIN "
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.S)
_HEADER: Final = re.compile(r"(?:[A-Za-z0-9-]+:[^\n]*\n)+\n")
"""`Proc-Type` and `DEK-Info` of an encrypted key in OpenSSL's older form."""
LINE_CHARACTERS: Final = 64


class KeystoreError(ValueError):
    """A store cannot be used: one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The places of a side's certificate and key, and of the authorities that it trusts.

    Each of `key`, `certificates` and `authorities` is a PEM text. Each location is read by the
    function that `identity` and `authorities` are given.
    """

    keystore_location: str = ""
    keystore_password: str = ""
    key_location: str = ""
    """A file for the key alone; empty if it is in the keystore."""
    key_password: str = ""
    key: str = ""
    certificates: str = ""
    truststore_location: str = ""
    truststore_password: str = ""
    authorities: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read."""
        named = (self.keystore_location, self.key_location, self.truststore_location)
        return tuple(filter(None, named))


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedKey:
    """A private key, and its certificate with those between it and an authority. PEM."""

    key: bytes
    chain: bytes
    place: str
    begins: datetime
    ends: datetime

    def why_invalid(self, now: datetime) -> str:
        """Return a sentence if the certificate does not count at `now`; otherwise ""."""
        if now > self.ends:
            return f"{self.place}: the certificate has expired at {self.ends:%Y-%m-%d %H:%M} UTC."
        if now < self.begins:
            return f"{self.place}: the certificate counts from {self.begins:%Y-%m-%d %H:%M} UTC on."
        return ""


Read = Callable[[str], bytes]
"""Returns the content of a file. Raises OSError."""


def identity_from(stores: Stores, read: Read) -> CertifiedKey | None:
    """Return the certificate and key of a side; None if it has none. Raises `KeystoreError`."""
    passwords = stores.key_password or stores.keystore_password
    if stores.key or stores.certificates:
        if not (stores.key and stores.certificates):
            raise KeystoreError(
                "ssl.keystore.key and ssl.keystore.certificate.chain belong together: set both."
            )
        return _identity(
            stores.key, stores.certificates, passwords, "ssl.keystore.certificate.chain"
        )
    place = stores.keystore_location
    if not place:
        return None
    content = _content(place, read)
    _refuse_java_store(content, place)
    if content.startswith(DER_SEQUENCE):
        return _identity_of_pkcs12(content, place, stores.keystore_password or passwords)
    text = _text(content, place)
    key = text
    if stores.key_location:
        key = _text(_content(stores.key_location, read), stores.key_location)
    return _identity(key, text, passwords, place)


def authorities_from(stores: Stores, read: Read) -> str | None:
    """Return the certificates that a side trusts, as PEM; None if it names none."""
    place = stores.truststore_location
    if stores.authorities:
        found = _certificates(stores.authorities, "ssl.truststore.certificates")
        return _pem_of(found).decode()
    if not place:
        return None
    content = _content(place, read)
    _refuse_java_store(content, place)
    if not content.startswith(DER_SEQUENCE):
        return _pem_of(_certificates(_text(content, place), place)).decode()
    store = _load_pkcs12(content, place, stores.truststore_password)
    certificates = [each.certificate for each in store.additional_certs]
    if store.cert is not None:
        certificates.append(store.cert.certificate)
    if not certificates:
        raise KeystoreError(
            f"{place} has no certificate that is trusted; if it has a password, set "
            "ssl.truststore.password."
        )
    return _pem_of(certificates).decode()


def is_pem(text: str) -> bool:
    """Return True for a PEM text, False for the name of a file."""
    return PEM_MARK in text


def _content(place: str, read: Read) -> bytes:
    try:
        return read(place)
    except OSError as error:
        raise KeystoreError(f"{place} cannot be read: {error.strerror}.") from None


def _refuse_java_store(content: bytes, place: str) -> None:
    if content.startswith(JAVA_STORES):
        raise KeystoreError(
            f"{place} is a Java keystore of the old form (JKS), which only Java reads. Convert it: "
            f"keytool -importkeystore -srckeystore {place} -destkeystore {place}.p12 "
            "-deststoretype PKCS12"
        )


def _text(content: bytes, place: str) -> str:
    text = content.decode("ascii", "replace")
    if not is_pem(text):
        raise KeystoreError(f"{place} is neither PEM nor PKCS12.")
    return text


def _blocks(text: str, place: str) -> Iterable[tuple[str, bytes]]:
    """Yield the kind and the text of each PEM block; white space may be anywhere, as in Java."""
    found = False
    for kind, body in _BLOCK.findall(text.replace("\r\n", "\n")):
        found = True
        header = _HEADER.match(body.lstrip("\n"))
        before = "" if header is None else header[0]
        letters = "".join(body.lstrip("\n")[len(before) :].split())
        lines = [
            letters[start : start + LINE_CHARACTERS]
            for start in range(0, len(letters), LINE_CHARACTERS)
        ]
        written = "\n".join(
            [f"-----BEGIN {kind}-----", *([before.rstrip("\n"), ""] if before else []), *lines]
        )
        yield kind, f"{written}\n-----END {kind}-----\n".encode()
    if not found:
        raise KeystoreError(f"{place} has no complete PEM block: it may be half written.")


def _certificates(text: str, place: str) -> list["Certificate"]:
    from cryptography import x509

    try:
        found = [
            x509.load_pem_x509_certificate(block)
            for kind, block in _blocks(text, place)
            if kind.endswith("CERTIFICATE")
        ]
    except KeystoreError:
        raise
    except Exception:  # the library has a class of its own for some of them
        raise KeystoreError(f"{place} has a certificate that cannot be read.") from None
    if not found:
        raise KeystoreError(f"{place} has no certificate.")
    return found


def _identity(key_text: str, chain_text: str, password: str, place: str) -> CertifiedKey:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    keys = [
        (kind, block) for kind, block in _blocks(key_text, place) if kind.endswith("PRIVATE KEY")
    ]
    if not keys:
        raise KeystoreError(f"{place} has no private key.")
    kind, block = keys[0]
    is_encrypted = kind.startswith("ENCRYPTED") or b"Proc-Type" in block
    if is_encrypted and not password:
        raise KeystoreError(f"{place}: the private key has a password; set ssl.key.password.")
    try:
        key = load_pem_private_key(block, password.encode() if is_encrypted else None)
    except Exception:  # the library has a class of its own for some of them
        why = "ssl.key.password is not its password, or " if is_encrypted else ""
        raise KeystoreError(
            f"{place}: the private key cannot be read: {why}it is damaged."
        ) from None
    return _checked(key, _certificates(chain_text, place), place)


def _load_pkcs12(content: bytes, place: str, password: str) -> Any:
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(content, password.encode() if password else None)
    except Exception:  # the library has a class of its own for some of them
        why = "its password is another one" if password else "set its password"
        raise KeystoreError(f"{place} cannot be read as PKCS12: {why}, or it is damaged.") from None


def _identity_of_pkcs12(content: bytes, place: str, password: str) -> CertifiedKey:
    store = _load_pkcs12(content, place, password)
    if store.key is None or store.cert is None:
        raise KeystoreError(f"{place} has no private key with its certificate.")
    others = [each.certificate for each in store.additional_certs]
    return _checked(store.key, [store.cert.certificate, *others], place)


def _checked(key: Any, certificates: Sequence["Certificate"], place: str) -> CertifiedKey:
    """Return the identity, if the key is that of a certificate. Raises `KeystoreError`."""
    try:
        return _identity_of(key, certificates, place)
    except KeystoreError:
        raise
    except Exception as error:  # a part of a certificate is read only when it is asked for
        raise KeystoreError(
            f"{place} has a certificate that cannot be read ({error}); its names may not be UTF-8."
        ) from None


def _identity_of(key: Any, certificates: Sequence["Certificate"], place: str) -> CertifiedKey:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    own = next((each for each in certificates if each.public_key() == key.public_key()), None)
    if own is None:
        raise KeystoreError(f"{place}: the private key does not belong to the certificate.")
    chain, others = [own], [each for each in certificates if each is not own]
    while chain[-1].issuer != chain[-1].subject:
        above = next((each for each in others if each.subject == chain[-1].issuer), None)
        if above is None:
            break
        chain.append(above)
        others.remove(above)
    return CertifiedKey(
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        chain=_pem_of(chain),
        place=place,
        begins=own.not_valid_before_utc,
        ends=own.not_valid_after_utc,
    )


def _pem_of(certificates: Sequence["Certificate"]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)
