"""Who may see the page: names of the host, passwords, addresses beyond this machine."""

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from odradek.client.web.entrance import (
    UnsafePage,
    address_of,
    check_safe,
    proxy_of,
    tls_of,
    visitors_of,
)
from odradek.client.web.guard import is_named, is_of_this_machine, is_permitted, passwords_of
from tests.certificates import Authority

NAMES = ("127.0.0.1", "localhost", "[::1]", "odradek.internal")


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("localhost:8080", True),
        ("LOCALHOST", True),
        ("127.0.0.1:1", True),
        ("[::1]:8080", True),
        ("odradek.internal", True),
        ("evil.example:8080", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.nip.io:8080", False),
        ("[::1].evil", True),  # no name: it ends at the bracket
        ("", False),
    ],
)
def test_only_named_hosts_are_answered(host: str, is_known: bool) -> None:
    assert is_named(host, NAMES) is is_known


@pytest.mark.parametrize(
    ("header", "is_right"),
    [
        (basic("anna:secret"), True),
        (basic("bea:with:colon"), True),
        (basic("anna:with:colon"), False),
        (basic("anna:"), False),
        (basic("anna"), False),
        ("Basic !!!", False),
        ("Bearer secret", False),
        ("", False),
    ],
)
def test_a_password_belongs_to_its_name(header: str, is_right: bool) -> None:
    passwords = passwords_of("# readers\nanna:secret\n\nbea:with:colon\n")
    assert is_permitted(header, passwords) is is_right


@pytest.mark.parametrize("text", ["anna", ":secret", "anna:", "", "# nothing\n"])
def test_a_file_that_has_no_password_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NAME:PASSWORD"):
        passwords_of(text)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "[::1]"])
def test_this_machine_needs_neither_tls_nor_passwords(host: str) -> None:
    assert is_of_this_machine(host)
    check_safe(host, has_tls=False, has_passwords=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "odradek.internal"])
@pytest.mark.parametrize(
    ("has_tls", "has_passwords", "lacking"),
    [
        (False, False, "--tls-certificate and --tls-key and --password-file"),
        (True, False, "--password-file"),
        (False, True, "--tls-certificate and --tls-key"),
    ],
)
def test_beyond_this_machine_the_page_needs_both(
    host: str, has_tls: bool, has_passwords: bool, lacking: str
) -> None:
    check_safe(host, has_tls=True, has_passwords=True)
    with pytest.raises(UnsafePage, match=rf"give {lacking}, or listen on 127\.0\.0\.1"):
        check_safe(host, has_tls=has_tls, has_passwords=has_passwords)


@pytest.mark.parametrize(
    ("address", "is_proxy"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd00::7", True),
        ("10.2.0.1", False),
        ("fd00::8", False),
        ("", False),
    ],
)
def test_a_proxy_is_known_by_its_address(address: str, is_proxy: bool) -> None:
    proxy = proxy_of(["10.1.0.0/16", "fd00::7"], None)
    assert proxy is not None
    assert proxy.has(address) is is_proxy


def test_a_proxy_stands_for_tls_and_for_passwords_only_if_it_names_its_visitors() -> None:
    named = proxy_of(["10.1.2.3"], "X-Forwarded-User")
    check_safe("0.0.0.0", has_tls=False, has_passwords=False, proxy=named)
    nameless = proxy_of(["10.1.2.3"], None)
    check_safe("0.0.0.0", has_tls=False, has_passwords=True, proxy=nameless)
    with pytest.raises(UnsafePage, match="give --password-file or --user-header, or listen"):
        check_safe("0.0.0.0", has_tls=False, has_passwords=False, proxy=nameless)


@pytest.mark.parametrize(
    ("addresses", "header", "said"),
    [
        ([], "X-Forwarded-User", "--user-header needs --proxy"),
        (["proxy.internal"], None, "--proxy is an address or a network"),
        (["10.1.2.3/16"], None, "has host bits set"),
        (["10.1.2.3"], "X User", "--user-header is the name of a header"),
        (["10.1.2.3"], "User-Agent", "and User-Agent comes from everybody"),
        (["10.1.2.3"], "sec-fetch-user", "and sec-fetch-user comes from everybody"),
    ],
)
def test_a_proxy_that_cannot_be_known_is_refused(
    addresses: list[str], header: str | None, said: str
) -> None:
    with pytest.raises(UnsafePage, match=said):
        proxy_of(addresses, header)


@pytest.mark.parametrize("text", ["8080", ":8080", "localhost:", "localhost:99999", "::1:8080"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UnsafePage, match="--listen"):
        address_of(text)


def test_a_wildcard_is_no_name_and_given_names_are() -> None:
    rules = visitors_of("0.0.0.0", ["odradek.internal"], None)
    assert rules.names == ("odradek.internal", "localhost", "127.0.0.1", "[::1]")


@pytest.mark.parametrize("name", ["", "odradek.internal:8443", "https://odradek.internal", "::1"])
def test_a_name_that_no_browser_would_ask_for_is_refused(name: str) -> None:
    with pytest.raises(UnsafePage, match="--name is a host"):
        visitors_of("127.0.0.1", [name], None)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    signed = Authority(tmp_path).signed("page")
    key = tmp_path / "locked.key"
    how = serialization.BestAvailableEncryption(b"secret")
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key.write_bytes(signed.key.private_bytes(pem, form, how))
    with pytest.raises(UnsafePage, match="the key of the page has a password"):
        tls_of(Path(signed.certificate_file), key)


def test_what_is_wrong_with_a_certificate_and_its_key_is_no_riddle(tmp_path: Path) -> None:
    """Without a key it said: [SSL] PEM lib (_ssl.c:3926)."""
    authority = Authority(tmp_path)
    page, other = authority.signed("page"), authority.signed("other")
    certificate = Path(page.certificate_file)
    said = f"the certificate {certificate} and its key cannot be used: "
    for key, why in (
        (None, "it is no PEM file that has both; --tls-key names the file of the key"),
        (Path(other.key_file), "the key is that of another certificate"),
        (certificate, "one of them is not the PEM file of what it is given for"),
        (tmp_path / "absent", "No such file or directory"),
    ):
        with pytest.raises(UnsafePage) as refused:
            tls_of(certificate, key)
        assert str(refused.value) == said + why


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    with pytest.raises(UnsafePage, match=f"{empty} cannot be used"):
        visitors_of("127.0.0.1", [], empty)
    empty.write_bytes(b"\xff")
    with pytest.raises(UnsafePage, match=f"{empty} cannot be used: it is no text in UTF-8"):
        visitors_of("127.0.0.1", [], empty)
    with pytest.raises(UnsafePage, match=f"{tmp_path} cannot be used: Is a directory"):
        visitors_of("127.0.0.1", [], tmp_path)
    with pytest.raises(UnsafePage, match=f"the certificate {empty} and its key cannot be used"):
        tls_of(empty, empty)
    with pytest.raises(UnsafePage, match="--tls-key needs --tls-certificate"):
        tls_of(None, empty)
