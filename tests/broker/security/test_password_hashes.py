"""The hashes of passwords: made, written, read, compared."""

import hashlib

import pytest

from odradek.broker.security.plain import (
    COST,
    COST_MAX,
    NO_HASH,
    PasswordHash,
    hash_password,
    parse_hash,
)

SALT = b"salt of sixteen "
QUICK = PasswordHash(
    cost=4,
    salt=SALT,
    hash=hashlib.scrypt(b"secret", salt=SALT, n=16, r=8, p=1, dklen=32),
)


def test_a_hash_is_of_its_password_only() -> None:
    assert QUICK.is_of("secret")
    for other in ("", "secre", "secret ", "Secret", "sécret"):
        assert not QUICK.is_of(other)
    assert not NO_HASH.is_of("")


def test_a_hash_is_read_as_it_was_written() -> None:
    assert parse_hash(str(QUICK)) == QUICK
    assert "secret" not in str(QUICK)


def test_a_new_hash_has_its_cost_and_its_salt() -> None:
    made = hash_password("pässword", SALT)
    assert (made.cost, made.salt) == (COST, SALT)
    assert str(made).startswith("$scrypt$ln=15,r=8,p=1$")
    assert parse_hash(str(made)).is_of("pässword")
    assert made != hash_password("pässword", b"another salt....")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ln=4", "ln=0"),
        ("ln=4", f"ln={COST_MAX + 1}"),
        ("ln=4", "ln=-4"),
        ("ln=4", "ln=x"),
        ("ln=4,", ""),
        ("r=8", "r=9"),
        ("p=1", "p=2"),
        (",p=1", ""),
        ("$scrypt$", "$bcrypt$"),
        ("$scrypt$", "x$scrypt$"),
        ("$scrypt$", "scrypt$"),
        ("=$", "$"),
        ("$ln", "$$ln"),
        ("c2FsdC", "?2FsdC"),
    ],
)
def test_a_hash_of_other_parameters_is_refused(old: str, new: str) -> None:
    text = str(QUICK)
    assert old in text
    with pytest.raises(ValueError, match=r"no hash that odradek user hash|none that this broker"):
        parse_hash(text.replace(old, new, 1))


def test_a_hash_of_another_size_is_refused_and_not_shown() -> None:
    short = PasswordHash(cost=4, salt=SALT, hash=QUICK.hash[:16])
    with pytest.raises(ValueError, match="its parameters") as error:
        parse_hash(str(short))
    assert str(short).rpartition("$")[2] not in str(error.value)
