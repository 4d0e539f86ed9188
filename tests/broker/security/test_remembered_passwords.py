"""Right passwords of PLAIN are remembered, and wrong ones and old ones are not."""

import hashlib
from typing import Final

import pytest

from odradek.broker.security import plain, remembered_passwords
from odradek.broker.security.mechanism import Costly, Rejection, Success
from odradek.broker.security.plain import BLOCKS, HASH_BYTES, PasswordHash, Plain
from odradek.broker.security.remembered_passwords import RememberedPasswords

KEY: Final = b"a key"


def hash_of(password: str, cost: int = 1) -> PasswordHash:
    salt = b"salt"
    made = hashlib.scrypt(
        password.encode(), salt=salt, n=1 << cost, r=BLOCKS, p=1, dklen=HASH_BYTES
    )
    return PasswordHash(cost=cost, salt=salt, hash=made)


def test_a_password_is_remembered_with_its_user_and_its_hash() -> None:
    remembered = RememberedPasswords(KEY)
    remembered.add("alice", "secret", "hash")
    assert remembered.has("alice", "secret", "hash")
    assert not remembered.has("alice", "secret", "new hash")
    assert not remembered.has("alice", "other", "hash")
    assert not remembered.has("bob", "secret", "hash")
    assert not remembered.has("alicesecret", "", "hash")


def test_the_password_that_was_not_used_for_the_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remembered_passwords, "PASSWORDS_MAX", 2)
    remembered = RememberedPasswords(KEY)
    for name in ("a", "b"):
        remembered.add(name, "secret", "hash")
    assert remembered.has("a", "secret", "hash")
    remembered.add("c", "secret", "hash")
    assert len(remembered) == 2
    assert [n for n in "abc" if remembered.has(n, "secret", "hash")] == ["a", "c"]


def test_a_password_is_hashed_until_it_was_right_once() -> None:
    users = Plain({}, {"alice": hash_of("secret")}, key=KEY)

    def attempt(password: str) -> tuple[bool, type]:
        """Return True if the hash was needed, and the kind of the result."""
        costly = users.check("alice", password, "")
        assert isinstance(costly, Costly)
        known = costly.known()
        if known is not None:
            return False, type(known)
        found = costly.function()
        costly.note(found)
        return True, type(found)

    assert attempt("wrong") == attempt("wrong") == (True, Rejection)
    assert attempt("secret") == (True, Success)
    assert attempt("secret") == (False, Success)
    assert attempt("wrong") == (True, Rejection)


def test_a_remembered_password_lets_nobody_act_for_another() -> None:
    users = Plain({}, {"alice": hash_of("secret")}, key=KEY)
    costly = users.check("alice", "secret", "")
    assert isinstance(costly, Costly)
    costly.note(costly.function())
    other = users.check("alice", "secret", "eve")
    assert isinstance(other, Costly)
    assert isinstance(other.known(), Rejection)


def test_each_attempt_takes_as_long_as_one_for_the_most_costly_hash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs: list[int] = []

    def scrypt(password: str, cost: int, salt: bytes) -> bytes:
        costs.append(cost)
        return bytes(HASH_BYTES)

    hashes = {name: hash_of("secret", cost) for name, cost in (("low", 4), ("high", 6))}
    users = Plain({}, hashes, key=KEY)
    monkeypatch.setattr(plain, "_scrypt", scrypt)
    for name in ("low", "high", "nobody"):
        costs.clear()
        costly = users.check(name, "wrong", "")
        assert isinstance(costly, Costly)
        costly.function()
        assert sum(1 << cost for cost in costs) == 1 << 6
