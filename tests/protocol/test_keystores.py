"""Stores of certificates and keys: PEM and PKCS12 by their content, and what is wrong with them."""

import datetime
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from odradek.protocol.keystores import KeystoreError, Stores, authorities_from, identity_from
from tests.certificates import Authority, Signed, in_latin_1

PASSWORD = "not 1234"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def signed(authority: Authority) -> Signed:
    return authority.signed("broker")


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def one_line(pem: str) -> str:
    """A PEM text as a properties file may have it."""
    return pem.replace("\n", " ")


def many(signed: Signed) -> Iterator[Stores]:
    yield Stores(keystore_location=signed.both_file)
    yield Stores(key=signed.key_pem, certificates=signed.certificate_pem)
    yield Stores(key=one_line(signed.key_pem), certificates=one_line(signed.certificate_pem))
    yield Stores(
        key=signed.encrypted_key_pem(PASSWORD),
        certificates=signed.certificate_pem,
        key_password=PASSWORD,
    )
    yield Stores(keystore_location=signed.certificate_file, key_location=signed.key_file)
    yield Stores(keystore_location=signed.pkcs12_file(PASSWORD), keystore_password=PASSWORD)
    yield Stores(keystore_location=signed.pkcs12_file(PASSWORD, ".jks"), keystore_password=PASSWORD)


def test_each_form_of_a_store_has_the_same_key_and_certificate(signed: Signed) -> None:
    for stores in many(signed):
        identity = identity_from(stores, read)
        assert identity is not None
        assert identity.key.decode() == signed.key_pem
        assert identity.chain.decode().startswith(signed.certificate_pem)


def test_the_certificate_of_the_key_is_the_first_whatever_the_order(
    signed: Signed, authority: Authority
) -> None:
    chain = authority.pem + signed.certificate_pem
    identity = identity_from(Stores(key=signed.key_pem, certificates=chain), read)
    assert identity is not None
    assert identity.chain.decode() == signed.certificate_pem + authority.pem


def test_the_older_form_of_an_encrypted_key_is_read(authority: Authority) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
    )

    key = rsa.generate_private_key(65537, 2048)
    signed = authority.signed("broker", key=key)
    text = key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"secret")
    ).decode()
    assert "DEK-Info" in text
    stores = Stores(key=text, certificates=signed.certificate_pem, key_password="secret")
    identity = identity_from(stores, read)
    assert identity is not None
    assert identity.key.decode() == signed.key_pem


def test_no_store_is_no_identity_and_no_authorities() -> None:
    assert identity_from(Stores(), read) is None
    assert authorities_from(Stores(), read) is None


def test_authorities_are_read_from_a_file_a_text_and_pkcs12(
    authority: Authority, signed: Signed, tmp_path: Path
) -> None:
    store = signed.pkcs12_file(PASSWORD)
    assert authorities_from(Stores(truststore_location=authority.file), read) == authority.pem
    text = Stores(authorities=one_line(authority.pem * 2))
    assert authorities_from(text, read) == authority.pem * 2
    found = authorities_from(Stores(truststore_location=store, truststore_password=PASSWORD), read)
    assert found is not None
    assert authority.pem in found


@pytest.mark.skipif(shutil.which("keytool") is None, reason="there is no keytool")
@pytest.mark.slow
def test_what_keytool_makes_is_read_and_its_old_form_is_refused(
    authority: Authority, tmp_path: Path
) -> None:
    """Users have made their stores with it, and the name and the type say nothing."""

    def keytool(*words: str) -> None:
        command = ["keytool", *words, "-storepass", PASSWORD, "-noprompt"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    trusted, old, own = (str(tmp_path / name) for name in ("trust.jks", "old.jks", "own.jks"))
    keytool("-importcert", "-file", authority.file, "-alias", "ca", "-keystore", trusted)
    stores = Stores(truststore_location=trusted, truststore_password=PASSWORD)
    assert authorities_from(stores, read) == authority.pem
    keytool("-genkeypair", "-alias", "b", "-dname", "CN=b", "-keyalg", "EC", "-keystore", own)
    identity = identity_from(Stores(keystore_location=own, keystore_password=PASSWORD), read)
    assert identity is not None
    keytool(
        *("-importcert", "-file", authority.file, "-alias", "ca"),
        *("-keystore", old, "-storetype", "JKS"),
    )
    with pytest.raises(KeystoreError) as refused:
        authorities_from(replace(stores, truststore_location=old), read)
    said, _, command = str(refused.value).partition("Convert it: keytool ")
    assert "(JKS), which only Java reads" in said
    keytool(
        *command.split(), "-srcstorepass", PASSWORD
    )  # the command that it prints is a right one
    new = replace(stores, truststore_location=f"{old}.p12")
    assert authorities_from(new, read) == authority.pem


def broken(signed: Signed, authority: Authority, directory: Path) -> Iterator[tuple[Stores, str]]:
    def file(name: str, content: bytes) -> str:
        (directory / name).write_bytes(content)
        return str(directory / name)

    other = ec.generate_private_key(ec.SECP256R1())
    strange = authority.signed("strange", key=other)
    p12 = signed.pkcs12_file(PASSWORD)
    both = Path(signed.both_file).read_bytes()
    yield (
        Stores(keystore_location="/no/such"),
        "/no/such cannot be read: No such file or directory.",
    )
    yield Stores(keystore_location=file("j", b"\xfe\xed\xfe\xed12")), "keytool -importkeystore"
    yield Stores(keystore_location=file("e", b"")), "e is neither PEM nor PKCS12."
    yield (
        Stores(keystore_location=file("h", both[:100])),
        "has no complete PEM block: it may be half",
    )
    yield Stores(keystore_location=file("c", both[:-100])), "c has no certificate."
    yield Stores(keystore_location=signed.certificate_file), "has no private key."
    yield Stores(keystore_location=p12), "cannot be read as PKCS12: set its password, or it is"
    yield (
        Stores(keystore_location=p12, keystore_password="x"),
        "cannot be read as PKCS12: its password is another one, or it is damaged.",
    )
    yield Stores(key=signed.key_pem), "belong together: set both."
    yield (
        Stores(key=strange.key_pem, certificates=signed.certificate_pem),
        "chain: the private key does not belong to the certificate.",
    )
    encrypted = Stores(key=signed.encrypted_key_pem(PASSWORD), certificates=signed.certificate_pem)
    yield encrypted, "the private key has a password; set ssl.key.password."
    yield (
        replace(encrypted, key_password="x"),
        "the private key cannot be read: ssl.key.password is not its password, or it is damaged.",
    )
    damaged = signed.certificate_pem.replace("\nMII", "\nMIX")
    yield (
        Stores(key=signed.key_pem, certificates=damaged),
        "has a certificate that cannot be read.",
    )


def test_what_is_wrong_with_a_store_is_one_sentence(
    signed: Signed, authority: Authority, tmp_path: Path
) -> None:
    for stores, sentence in broken(signed, authority, tmp_path):
        with pytest.raises(KeystoreError) as refused:
            identity_from(stores, read)
        assert sentence in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_certificate_counts_between_two_moments(authority: Authority) -> None:
    def why(begins: float, ends: float) -> str:
        signed = authority.signed(
            "x", begins=datetime.timedelta(days=begins), ends=datetime.timedelta(days=ends)
        )
        identity = identity_from(Stores(keystore_location=signed.both_file), read)
        assert identity is not None
        return identity.why_invalid(datetime.datetime.now(datetime.UTC))

    assert why(-1, 1) == ""
    assert "the certificate has expired at" in why(-2, -1)
    assert "the certificate counts from" in why(1, 2)


def test_a_certificate_with_a_name_that_cannot_be_read_is_refused_in_a_sentence(
    signed: Signed,
) -> None:
    odd = in_latin_1(signed.der, b"broker", b"br\xf6ker")
    pem = ssl.DER_cert_to_PEM_cert(odd)
    with pytest.raises(KeystoreError, match="has a certificate that cannot be read"):
        identity_from(Stores(key=signed.key_pem, certificates=pem), read)


def test_a_certificate_of_an_unknown_version_is_refused_in_a_sentence(signed: Signed) -> None:
    """The library's error is no ValueError: a file that was damaged so ended the broker."""
    version_3, version_39 = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x26"
    assert version_3 in signed.der
    pem = ssl.DER_cert_to_PEM_cert(signed.der.replace(version_3, version_39, 1))
    with pytest.raises(KeystoreError, match="has a certificate that cannot be read"):
        identity_from(Stores(key=signed.key_pem, certificates=pem), read)
    with pytest.raises(KeystoreError, match="has a certificate that cannot be read"):
        authorities_from(Stores(authorities=pem), read)
