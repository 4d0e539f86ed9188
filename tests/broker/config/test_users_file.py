"""The users of PLAIN in a file: a new file counts as a whole, and a broken one changes nothing."""

import hashlib
import logging
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.config.settings import ConfigError
from odradek.broker.config.tls import TlsSettings
from odradek.broker.config.users_file import UsersFile
from odradek.broker.security.mechanism import Costly, Rejection, Success
from odradek.broker.security.plain import BLOCKS, HASH_BYTES, PasswordHash, Plain
from tests.broker.config.configured import from_properties

NAME: Final = "CLIENTS"
SETTING: Final = "sasl.plain.users.file"
OWN: Final = f"listener.name.clients.{SETTING}"


def hash_of(password: str) -> PasswordHash:
    made = hashlib.scrypt(password.encode(), salt=b"salt", n=2, r=BLOCKS, p=1, dklen=HASH_BYTES)
    return PasswordHash(cost=1, salt=b"salt", hash=made)


def read_text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    write(path, alice="secret", bob="secret of bob")
    return path


def write(path: Path, **passwords: str) -> None:
    path.write_text("".join(f"{name}:{hash_of(each)}\n" for name, each in passwords.items()))


def settings(**given: str) -> TlsSettings:
    return from_properties({"sasl.enabled.mechanisms": "PLAIN", **given})


def users_of(path: Path) -> tuple[UsersFile, Plain]:
    users = UsersFile(NAME, settings(**{SETTING: str(path)}), read_text)
    plain = Plain({}, key=b"key")
    users.call_with_each(plain.use)
    return users, plain


def may(plain: Plain, name: str, password: str) -> bool:
    """Return True if a password opens, as the broker asks: remembered ones cost no hash."""
    costly = plain.check(name, password, "")
    assert isinstance(costly, Costly)
    found = costly.known()
    if found is None:
        found = costly.function()
        costly.note(found)
    return isinstance(found, Success)


def test_a_new_file_counts_for_who_authenticates_from_then_on(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    users, plain = users_of(path)
    assert may(plain, "alice", "secret")
    assert may(plain, "bob", "secret of bob")
    write(path, alice="other", carol="secret of carol")
    assert may(plain, "alice", "secret"), "nobody has asked for the new file yet"
    assert users.reload()
    assert not may(plain, "alice", "secret"), "a remembered password is no right one any more"
    assert not may(plain, "bob", "secret of bob")
    assert may(plain, "alice", "other")
    assert may(plain, "carol", "secret of carol")
    assert caplog.messages == [
        "listener CLIENTS has 2 users of PLAIN in its file: 1 are new, 1 have another password, 1 "
        "are gone"
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, f"{SETTING} is PATH, which cannot be read: No such file or directory."),
        (b"\xff", f"{SETTING} is PATH, which cannot be read: it is not UTF-8."),
        (b"carol:secret", "PATH, line 1: it is not NAME:HASH, or its name stands twice."),
        (b"# users\ncarol:$scrypt$ln=1", "PATH, line 2: it is no hash that odradek user hash"),
    ],
)
def test_a_broken_file_keeps_the_users_of_before_and_says_so_in_one_line(
    path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None, reason: str
) -> None:
    users, plain = users_of(path)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert not users.reload()
    assert may(plain, "alice", "secret")
    (line,) = caplog.messages
    start = "listener CLIENTS keeps its 2 users of PLAIN of before: "
    assert line.startswith(start + reason.replace("PATH", str(path)))
    write(path, carol="secret")
    assert users.reload()
    assert may(plain, "carol", "secret")


def test_a_password_that_waited_while_the_file_changed_is_that_of_no_user_any_more(
    path: Path,
) -> None:
    users, plain = users_of(path)
    waiting = plain.check("alice", "secret", "")
    remembered = plain.check("bob", "secret of bob", "")
    assert isinstance(waiting, Costly)
    assert isinstance(remembered, Costly)
    remembered.note(remembered.function())
    write(path, carol="secret")
    assert users.reload()
    assert remembered.known() is None
    assert isinstance(waiting.function(), Rejection)


def test_each_attempt_takes_as_long_as_the_most_costly_hash_of_the_new_file(path: Path) -> None:
    users, plain = users_of(path)
    path.write_text(f"alice:{PasswordHash(cost=3, salt=b's', hash=bytes(HASH_BYTES))}\n")
    assert users.reload()
    assert plain.cost == 3


def test_a_change_that_names_another_file_is_checked_before_it_counts(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users, plain = users_of(path)
    other = tmp_path / "other"
    write(other, carol="secret")
    changed = settings(**{SETTING: str(path), OWN: str(other)})
    users.check(changed)
    assert may(plain, "alice", "secret"), "a check changes nothing"
    users.follow(changed)
    assert may(plain, "carol", "secret")
    gone = settings(**{SETTING: str(path), OWN: str(tmp_path / "none")})
    with pytest.raises(ConfigError, match=rf"^{OWN} is .*/none, which cannot be read: No such"):
        users.check(gone)
    users.follow(gone)
    assert may(plain, "carol", "secret")
    assert "keeps its 1 users of PLAIN of before" in caplog.text
