"""The credential of a user that does not exist looks like those of users that do."""

import string

import pytest

from odradek.broker.config.sasl_listeners import SaslOfListener
from odradek.broker.config.users_file import UsersFile
from odradek.broker.security import scram_users
from odradek.broker.security.mechanism import Rejection
from odradek.broker.security.plain import PasswordHash
from odradek.broker.security.scram_exchange import Scram
from odradek.broker.security.scram_users import (
    SHAPES_MAX,
    ScramCredential,
    ScramMechanism,
    Shapes,
    Users,
    false_credential,
)
from odradek.protocol.apis.credentials import ScramCredentialUpsertion
from odradek.protocol.apis.sasl import SaslAuthenticateRequest
from odradek.protocol.jaas import JaasError, JaasLine, parse_jaas
from tests.broker.config.configured import from_properties
from tests.broker.security.secured import no_file

MECHANISM = ScramMechanism.SCRAM_SHA_256
LETTERS = (string.ascii_lowercase + string.digits).encode()


def user(salt: bytes, iterations: int) -> dict[ScramMechanism, ScramCredential]:
    credential = ScramCredential(
        salt=salt, stored_key=b"stored", server_key=b"server", iterations=iterations
    )
    return {MECHANISM: credential}


def false(name: str, shapes: Shapes, users: Users) -> ScramCredential:
    return false_credential(MECHANISM, name, b"secret", shapes, users)


def test_a_false_credential_has_the_form_of_a_real_one_and_not_its_salt() -> None:
    """Kafka's AdminClient makes salts of 25 or 26 letters and digits, and up to 16,384 rounds."""
    salts = (b"1x4q0z9w8e7r6t5y4u3i2o1p0a", b"q0z9w8e7r6t5y4u3i2o1p0a1x")
    users = {"a": user(salts[0], 8192), "b": user(salts[1], 16_384)}
    shapes = Shapes(MECHANISM)
    made = [false(f"nobody {number}", shapes, users) for number in range(100)]
    assert {(len(each.salt), each.iterations) for each in made} == {(26, 8192), (25, 16_384)}
    assert not b"".join(each.salt for each in made).translate(None, LETTERS)
    assert len({each.salt for each in made} | set(salts)) == 102
    assert made[7] == false("nobody 7", Shapes(MECHANISM), users)


def test_without_users_a_false_salt_has_sixteen_bytes() -> None:
    made = false("nobody", Shapes(MECHANISM), {})
    assert (len(made.salt), made.iterations) == (16, 4096)


def test_the_forms_follow_the_users_of_the_moment() -> None:
    shapes = Shapes(MECHANISM)
    assert len(false("nobody", shapes, {"a": user(b"x" * 26, 4096)}).salt) == 26
    assert len(false("nobody", shapes, {"a": user(b"x" * 20, 4096)}).salt) == 20
    other = {"a": {ScramMechanism.SCRAM_SHA_512: user(b"x" * 20, 8192)[MECHANISM]}}
    assert len(false("nobody", shapes, other).salt) == 16


def test_of_very_many_users_a_thousand_are_looked_at_after_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: 0.4 s of the loop, at a stranger's first message after each change of a user."""
    looked_at = 0
    shape_of = scram_users._shape_of

    def counted(credential: ScramCredential) -> object:
        nonlocal looked_at
        looked_at += 1
        return shape_of(credential)

    monkeypatch.setattr(scram_users, "_shape_of", counted)
    shapes = Shapes(MECHANISM)
    users = {f"user {number}": user(b"x" * 20, 8192) for number in range(3_000)}
    for made in ("one", "another"):
        users = {**users, made: user(b"x" * 26, 4096)}
        looked_at = 0
        found = false("nobody", shapes, users)
        assert looked_at == SHAPES_MAX
        assert (len(found.salt), found.iterations) == (20, 8192)


def test_no_byte_of_a_message_is_in_the_reason() -> None:
    scram = Scram("SCRAM-SHA-256", users=dict, secret=lambda: b"secret", nonce=lambda: "n")
    found = scram.begin().answer(b"\xc3secret")
    assert isinstance(found, Rejection)
    assert found.cause == "a message is not one of SCRAM (it is not UTF-8)"


def test_no_secret_is_in_a_repr() -> None:
    secret = "do not show"
    shown = (
        SaslOfListener(
            name="X",
            mechanisms=(),
            passwords={"a": secret},
            users_file=UsersFile("X", from_properties({}), no_file),
            session_ms={},
        ),
        user(secret.encode(), 1)[MECHANISM],
        PasswordHash(cost=1, salt=secret.encode(), hash=secret.encode()),
        JaasLine("module", {"user_a": secret}),
        SaslAuthenticateRequest(auth_bytes=secret.encode()),
        ScramCredentialUpsertion(
            name="a", mechanism=1, iterations=1, salt=b"", salted_password=secret.encode()
        ),
    )
    for each in shown:
        assert secret not in repr(each)


def test_an_option_is_twice_in_a_line_of_jaas_however_it_is_escaped() -> None:
    with pytest.raises(JaasError, match="the option user_a twice"):
        parse_jaas(r'module required user_a="1" "user\_a"="2";')
