"""TLS of a listener: what is wrong is one sentence, and a context that is wrong is not used."""

import datetime
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.serialization import Encoding

from odradek.broker.config.properties import Given, read_properties
from odradek.broker.config.settings import ConfigError
from odradek.broker.config.settling import settle
from odradek.broker.tls import listener_tls
from odradek.broker.tls.listener_tls import ListenerTls
from odradek.broker.tls.peer_contexts import NoPeerTls
from odradek.client.tls.contexts import FILE_MAX_BYTES
from tests.broker.config.configured import from_properties
from tests.certificates import DAY, Authority, Signed, in_latin_1

NAME = "SECURE"
PATIENCE_SECONDS = 60


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def signed(authority: Authority) -> Signed:
    return authority.signed("broker")


def tls_of(**properties: str) -> ListenerTls:
    named = {name.replace("_", "."): text for name, text in properties.items()}
    return ListenerTls(NAME, from_properties(named))


def test_a_setting_of_the_listener_comes_before_the_one_for_all(
    authority: Authority, signed: Signed
) -> None:
    properties = {
        "ssl.keystore.location": "/no/such",
        "listener.name.secure.ssl.keystore.location": signed.both_file,
        "listener.name.secure.ssl.truststore.location": authority.file,
        "listener.name.secure.ssl.client.auth": "required",
    }
    tls = ListenerTls(NAME, from_properties(properties))
    assert tls.current().verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ConfigError, match="/no/such cannot be read"):
        ListenerTls("OTHER", from_properties(properties))


def test_certificates_of_clients_are_asked_for_on_a_listener_of_sasl_by_its_own_setting_only(
    authority: Authority, signed: Signed, caplog: pytest.LogCaptureFixture
) -> None:
    """So it is in Kafka, where SASL_SSL has the setting with the name of the listener only."""
    for_all = {
        "ssl.keystore.location": signed.both_file,
        "ssl.truststore.location": authority.file,
        "ssl.client.auth": "required",
    }
    tls = ListenerTls(NAME, from_properties(for_all), has_sasl=True)
    assert tls.current().verify_mode is ssl.CERT_NONE
    assert "listener.name.secure.ssl.client.auth counts for this one" in caplog.text
    caplog.clear()
    tls.reload()
    own = {**for_all, "listener.name.secure.ssl.client.auth": "requested"}
    tls = ListenerTls(NAME, from_properties(own), has_sasl=True)
    assert tls.current().verify_mode is ssl.CERT_OPTIONAL
    tls = ListenerTls(NAME, from_properties(for_all))
    assert tls.current().verify_mode is ssl.CERT_REQUIRED
    assert "ssl.client.auth" not in caplog.text


def test_a_key_that_every_user_can_read_is_one_line_of_warning(
    signed: Signed, caplog: pytest.LogCaptureFixture
) -> None:
    file = Path(signed.both_file)
    file.chmod(0o644)
    tls = tls_of(ssl_keystore_location=str(file))
    assert caplog.messages == [
        f"listener SECURE: {file} has a secret, and its mode lets every user of this machine read "
        f"it: chmod 600 {file}"
    ]
    caplog.clear()
    file.chmod(0o640)
    assert tls.reload()
    assert caplog.messages == []
    store = Path(signed.pkcs12_file("secret"))
    store.chmod(0o644)
    tls_of(ssl_keystore_location=str(store), ssl_keystore_password="secret")
    assert caplog.messages == []


def test_strangers_can_neither_renegotiate_nor_have_tickets(signed: Signed) -> None:
    context = tls_of(ssl_keystore_location=signed.both_file).current()
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.num_tickets == 0
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_one_version_may_be_chosen(signed: Signed) -> None:
    file = signed.both_file
    context = tls_of(ssl_keystore_location=file, ssl_enabled_protocols="TLSv1.3").current()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_mistake_is_one_sentence_with_the_file_and_the_line(
    authority: Authority, signed: Signed
) -> None:
    def refusal(*lines: str) -> str:
        text = "\n".join(["# TLS", *lines])
        with pytest.raises(ConfigError) as refused:
            ListenerTls(NAME, settle(read_properties(text, source="f")).config)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    good = f"ssl.keystore.location={signed.both_file}"
    assert refusal("num.partitions=1").startswith("Listener SECURE has TLS and no certificate: set")
    missing = refusal("ssl.keystore.location=/no/such")
    assert missing == "f, line 2: /no/such cannot be read: No such file or directory."
    missing = refusal(good, "listener.name.secure.ssl.keystore.location=/no/such")
    assert missing == "f, line 3: /no/such cannot be read: No such file or directory."
    assert refusal(good, "ssl.client.auth=required") == (
        "f, line 3: ssl.client.auth is required, and no authority for certificates of clients is "
        "named: set ssl.truststore.location."
    )
    assert refusal(good, "ssl.cipher.suites=NONE").startswith("f, line 3: ssl.cipher.suites has")
    rules = refusal(good, "ssl.principal.mapping.rules=RULE:a")
    assert rules.startswith("f, line 3: ssl.principal.mapping.rules is DEFAULT, or RULE:")


def test_a_certificate_and_ciphers_that_do_not_fit_are_found_by_a_handshake(
    signed: Signed,
) -> None:
    with pytest.raises(ConfigError, match="no client could agree on TLS with this certificate"):
        tls_of(
            ssl_keystore_location=signed.both_file,  # its key is no RSA
            ssl_cipher_suites="TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        )


async def test_an_expired_certificate_is_warned_of_and_used(
    authority: Authority, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    """A broker that does not start helps nobody; its other listeners are in order."""
    old = authority.signed("old", begins=-3 * DAY, ends=-DAY)
    tls = tls_of(ssl_keystore_location=old.both_file)
    with trio.move_on_after(1):
        await tls.watch()
    (line,) = caplog.messages
    assert "the certificate has expired at" in line
    assert line.endswith("Clients will refuse it")


@pytest.mark.parametrize(("days", "warnings"), [(13, 3), (15, 0)])
async def test_a_certificate_that_ends_soon_is_warned_of_once_a_day(
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
    days: int,
    warnings: int,
) -> None:
    """A broker runs for years, and the warning of its start would be forgotten."""
    signed = authority.signed("broker", ends=days * DAY)
    tls = tls_of(ssl_keystore_location=signed.both_file)
    with trio.move_on_after(2.5 * DAY.total_seconds()):
        await tls.watch()
    date = signed.certificate.not_valid_after_utc
    assert caplog.messages == warnings * [
        f"listener SECURE: the certificate in {signed.both_file} expires at "
        f"{date:%Y-%m-%d %H:%M} UTC: replace it"
    ]


def test_a_new_certificate_counts_after_reload(
    authority: Authority, signed: Signed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = signed.both_file
    tls = tls_of(ssl_keystore_location=file)
    before = tls.current()
    renewed = authority.signed("renewed", ends=datetime.timedelta(days=90))
    Path(file).write_text(renewed.key_pem + renewed.certificate_pem)
    assert tls.current() is before, "nothing changes in between"
    assert tls.reload()
    assert tls.current() is not before
    assert "listener SECURE has a new certificate, which expires at" in caplog.text


@pytest.fixture
async def followed(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ListenerTls]:
    """The TLS of a listener that looks at its files all the time."""
    monkeypatch.setattr(listener_tls, "LOOK_SECONDS", 0.001)
    tls = tls_of(ssl_keystore_location=signed.both_file)
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tls.watch)
            yield tls
            nursery.cancel_scope.cancel()


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Return the files of each look from now on."""
    looks: list[Sequence[str]] = []
    marks_of = listener_tls._marks_of

    def look(files: Sequence[str]) -> list[listener_tls._Mark | None]:
        looks.append(files)
        return marks_of(files)

    monkeypatch.setattr(listener_tls, "_marks_of", look)
    return looks


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - nothing says when a look is over
        await trio.sleep(0.001)


async def test_a_file_that_is_replaced_is_used_without_a_signal(
    followed: ListenerTls, signed: Signed, authority: Authority
) -> None:
    before = followed.current()
    os.replace(authority.signed("renewed").both_file, signed.directory / "broker.pem")
    await until(lambda: followed.current() is not before)


async def test_a_link_that_leads_elsewhere_is_followed_as_kubernetes_swaps_it(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_tls, "LOOK_SECONDS", 0.001)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        os.replace(authority.signed(name).both_file, tmp_path / name / "tls.pem")
    data = tmp_path / "..data"
    data.symlink_to("old")
    tls = tls_of(ssl_keystore_location=f"{data}/tls.pem")
    before = tls.current()
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tls.watch)
            (tmp_path / "..tmp").symlink_to("new")
            (tmp_path / "..tmp").rename(data)
            await until(lambda: tls.current() is not before)
            nursery.cancel_scope.cancel()


async def test_a_file_that_is_half_written_is_complained_of_once_and_used_when_it_is_whole(
    followed: ListenerTls,
    signed: Signed,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, looks = followed.current(), count_looks(monkeypatch)
    renewed = authority.signed("renewed")
    file = signed.directory / "broker.pem"
    file.write_text(renewed.key_pem)
    await until(lambda: "keeps its certificate of before" in caplog.text)
    looks.clear()
    await until(lambda: len(looks) > 5)
    assert caplog.text.count("keeps its certificate of before") == 1
    assert followed.current() is before
    file.write_text(renewed.key_pem + renewed.certificate_pem)
    await until(lambda: followed.current() is not before)


async def test_without_a_change_nothing_is_read_again(
    followed: ListenerTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, looks = followed.current(), count_looks(monkeypatch)
    await until(lambda: len(looks) > 5)
    assert followed.current() is before


@pytest.mark.parametrize("setting", ["ssl.keystore.location", "ssl.truststore.location"])
def test_what_is_no_regular_file_is_not_read(
    signed: Signed, authority: Authority, tmp_path: Path, setting: str
) -> None:
    """Seen: a change that named a pipe stopped the broker for good, and /dev/zero took all memory.

    Whoever may change the settings of the cluster could name one.
    """
    good = {"ssl.keystore.location": signed.both_file, "ssl.truststore.location": authority.file}
    tls = ListenerTls(NAME, from_properties(good))
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    large.touch()
    os.truncate(large, FILE_MAX_BYTES + 1)
    for path, why in (
        (pipe, "it is no regular file"),
        (Path("/dev/null"), "it is no regular file"),
        (tmp_path, "it is no regular file"),
        (large, f"it has more than {FILE_MAX_BYTES} bytes"),
    ):
        changed = from_properties({**good, f"listener.name.secure.{setting}": str(path)})
        with pytest.raises(ConfigError, match=f"{path} cannot be read: {why}"):
            tls.check(changed)


def test_a_broken_certificate_leaves_the_old_one_in_use(
    authority: Authority, signed: Signed, caplog: pytest.LogCaptureFixture
) -> None:
    file = signed.both_file
    tls = tls_of(ssl_keystore_location=file)
    before, good = tls.current(), Path(file).read_text()
    other, old = authority.signed("other"), authority.signed("old", begins=-3 * DAY, ends=-DAY)
    for content, sentence in (
        (good[: len(good) // 2], "has no certificate"),
        ("", "is neither PEM nor PKCS12"),
        (other.key_pem + signed.certificate_pem, "the private key does not belong to the"),
        (old.key_pem + old.certificate_pem, "the certificate has expired at"),
    ):
        caplog.clear()
        Path(file).write_text(content)
        assert not tls.reload()
        assert tls.current() is before
        assert "listener SECURE keeps its certificate of before, which expires at" in caplog.text
        assert sentence in caplog.text
    Path(file).write_text(good)
    assert tls.reload()


def test_an_expired_authority_is_named_beside_one_whose_name_cannot_be_read(
    tmp_path: Path,
) -> None:
    """The error of the name ended the broker as soon as the file was read again."""
    expired = Authority(tmp_path, "expired", ends=-DAY)
    other = Authority(tmp_path, "broken")
    odd = in_latin_1(other.certificate.public_bytes(Encoding.DER), b"broken", b"br\xf6ken")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(ssl.DER_cert_to_PEM_cert(odd) + expired.pem)
    tls = tls_of(
        ssl_keystore_location=expired.signed("broker").both_file,
        ssl_truststore_location=str(trusted),
    )
    assert tls.reload()
    with pytest.raises(NoPeerTls, match="its authority CN=expired,O=Test has expired at"):
        tls.among_brokers()


def test_settings_are_checked_before_they_are_used(signed: Signed) -> None:
    tls = tls_of(ssl_keystore_location=signed.both_file)
    before = tls.current()
    wrong = settle([Given(name="ssl.keystore.location", text="/no/such")]).config
    with pytest.raises(ConfigError):
        tls.check(wrong)
    tls.follow(wrong)
    assert tls.current() is before
