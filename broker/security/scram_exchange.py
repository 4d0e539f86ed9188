"""The mechanisms SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), the server's side.

The client names itself and a nonce. The challenge has the user's salt, the number of iterations,
and the nonce, to which the server has added its own. The client's second message repeats both
nonces and has its proof.

A user that does not exist gets a challenge, too, with a false salt that is the same each time, and
fails at the second message, as with a wrong password. A Kafka refuses it at the first, and so tells
who exists. Whatever is wrong is refused in the same words.
"""

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from odradek.broker.security.mechanism import Answer, Challenge, Rejection, ServerExchange, Success
from odradek.broker.security.plain import OTHER_NAME
from odradek.broker.security.principal import USER, Principal
from odradek.broker.security.scram_users import (
    MECHANISM_OF,
    ScramCredential,
    Shapes,
    Users,
    false_credential,
)
from odradek.late import dataclass
from odradek.protocol import scram
from odradek.protocol.errors import ProtocolError

NAME_MAX_CHARACTERS: Final = 1024
_EXTENSIONS: Final = "(?:,[A-Za-z]+=[^,]*)*"
"""What a client may add, and this side ignores."""
_FIRST: Final = re.compile(f"(n,(?:a=([^,]*))?,)(n=([^,]+),r=([!-+.-~-]+){_EXTENSIONS})")
_SECOND: Final = re.compile(f"(c=([^,]*),r=([!-+.-~-]+){_EXTENSIONS}),p=([^,]+)")


class Scram:
    """SCRAM with one hash, for all users of the cluster."""

    def __init__(
        self,
        name: str,
        *,
        users: Callable[[], Users],
        secret: Callable[[], bytes],
        nonce: Callable[[], str],
    ) -> None:
        """`users` returns the users of the moment, and `secret` what false salts are made of.

        Both raise ProtocolError, which closes the connection, while this broker cannot know them.
        `nonce` returns a new nonce each time, of printable ASCII without a comma.
        """
        self.name = name
        self.mechanism = MECHANISM_OF[name]
        self.nonce = nonce
        self._shapes = Shapes(self.mechanism)
        self._users = users
        self._secret = secret

    def begin(self) -> ServerExchange:
        return _ScramExchange(self)

    def credential_of(self, user: str) -> tuple[ScramCredential, bool]:
        """Return a user's credential and True; a false one and False without such a user."""
        users = self._users()
        # It is made for users that exist, too: that takes the same time.
        false = false_credential(self.mechanism, user, self._secret(), self._shapes, users)
        found = users.get(user, {}).get(self.mechanism)
        return (false, False) if found is None else (found, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Challenged:
    """The facts that the second message is checked against."""

    user: str
    binding: str
    nonce: str
    messages: str
    """Both messages so far, as the signatures cover them."""


class _ScramExchange:
    """The two messages of one client."""

    def __init__(self, scram: Scram) -> None:
        self._scram = scram
        self._challenged: _Challenged | None = None

    def answer(self, token: bytes) -> Answer:
        try:
            text = token.decode()
            if self._challenged is None:
                return self._challenge(text)
            return self._check(text, self._challenged)
        except UnicodeDecodeError:
            return Rejection(cause="a message is not one of SCRAM (it is not UTF-8)")
        except binascii.Error:
            return Rejection(cause="a message is not one of SCRAM (its proof is not base64)")
        except ValueError as error:
            return Rejection(cause=f"a message is not one of SCRAM ({error})")

    def _challenge(self, text: str) -> Challenge | Rejection:
        """Return the challenge for a first message. Raises ValueError."""
        found = _FIRST.fullmatch(text)
        if found is None:
            raise ValueError("it has no name or nonce, or asks for channel binding")
        header, acts_for, bare, name, client_nonce = found.groups()
        user = _unescaped(name)
        if len(user) > NAME_MAX_CHARACTERS:
            raise ValueError("its name is too long")
        # invariant authentication 1
        # plant the name to act for is ignored in SCRAM
        if acts_for and _unescaped(acts_for) != user:
            return Rejection(words=OTHER_NAME, cause=f"{user!r} would act for another user")
        credential, _ = self._scram.credential_of(user)
        nonce = client_nonce + self._scram.nonce()
        salt = b64encode(credential.salt).decode()
        challenge = f"r={nonce},s={salt},i={credential.iterations}"
        self._challenged = _Challenged(
            user=user,
            binding=b64encode(header.encode()).decode(),
            nonce=nonce,
            messages=f"{bare},{challenge}",
        )
        return Challenge(challenge.encode())

    def _check(self, text: str, challenged: _Challenged) -> Success | Rejection:
        """Return the result of a second message. Raises ValueError."""
        found = _SECOND.fullmatch(text)
        if found is None:
            raise ValueError("it has no binding, nonce or proof")
        without_proof, binding, nonce, proof_text = found.groups()
        if binding != challenged.binding:
            return Rejection(cause="the binding of its second message is another one")
        # invariant authentication 2: A proof counts for the nonce of its own exchange only.
        # plant a nonce is compared by its beginning
        if not hmac.compare_digest(nonce, challenged.nonce):
            return Rejection(cause=_why_other_nonce(nonce, challenged.nonce))
        proof = b64decode(proof_text, validate=True)
        # That of now: a client must not be able to keep a password by waiting with its proof.
        credential, is_real = self._scram.credential_of(challenged.user)
        algorithm = self._scram.mechanism.algorithm
        if len(proof) != len(credential.stored_key):
            raise ValueError("its proof has another size")
        messages = f"{challenged.messages},{without_proof}"
        signed = scram.signature(algorithm, credential.stored_key, messages)
        key = scram.stored_key(algorithm, scram.xor(proof, signed))
        is_right = hmac.compare_digest(key, credential.stored_key)
        signature = scram.signature(algorithm, credential.server_key, messages)
        # invariant authentication 3: The number of messages and the time do not show whether a user
        # exists.
        # plant a user that does not exist is refused at its first message
        if not (is_right and is_real):
            return Rejection(cause=f"wrong user {challenged.user!r} or password")
        return Success(
            principal=Principal(USER, challenged.user), token=b"v=" + b64encode(signature)
        )


def _unescaped(name: str) -> str:
    """Return a name as it was before its commas were escaped. Raises ValueError."""
    try:
        return scram.unescaped_name(name)
    except ProtocolError as error:
        raise ValueError(str(error)) from None


def _why_other_nonce(given: str, nonce: str) -> str:
    if given.endswith(nonce):
        return "its nonce stands twice in it, a fault of librdkafka before 2.6.1: update the client"
    return "its second message has another nonce"
