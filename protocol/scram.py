"""SCRAM (RFC 5802, RFC 7677): what both sides compute, and the texts that they exchange.

    client    n,,n=NAME,r=CLIENT_NONCE
    server    r=CLIENT_NONCE SERVER_NONCE,s=SALT,i=ITERATIONS
    client    c=biws,r=CLIENT_NONCE SERVER_NONCE,p=PROOF
    server    v=SIGNATURE, or e=ERROR

The proof shows that the client knows the password, the signature that the server knows the keys
that were made of it. Neither side sends anything of which the other could take the password. As in
Kafka, names and passwords are UTF-8 as they are given, without SASLprep, and there is no channel
binding.
"""

import hashlib
import hmac
from typing import Final

from odradek.protocol.errors import ProtocolError

ALGORITHMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism."""
ITERATIONS_MIN: Final = 4096
"""Fewer make it cheap to guess passwords. Kafka refuses them on both sides."""
NO_BINDING: Final = "n,,"
"""How the client's first message begins: no channel binding, and no other name to act for."""
BINDING: Final = "biws"
"""The same in base64, for the client's second message."""


def salted_password(algorithm: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the secret of which all keys are made. It takes milliseconds (PBKDF2)."""
    return hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)


def client_key(algorithm: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", algorithm)


def server_key(algorithm: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", algorithm)


def stored_key(algorithm: str, key_of_client: bytes) -> bytes:
    """Return what a server keeps to check proofs. A client key cannot be made of it."""
    return hashlib.new(algorithm, key_of_client).digest()


def signature(algorithm: str, key: bytes, exchanged: str) -> bytes:
    """Return the signature of the messages of an exchange, by a stored key or a server key."""
    return hmac.digest(key, exchanged.encode(), algorithm)


def xor(some: bytes, other: bytes) -> bytes:
    """Return the proof of a client key and a signature, or the key of a proof and a signature."""
    assert len(some) == len(other), (len(some), len(other))
    return bytes(a ^ b for a, b in zip(some, other, strict=True))


def escaped_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped_name(text: str) -> str:
    """Return a name as it was before `escaped_name`. Raises `ProtocolError`."""
    name = text.replace("=2C", ",").replace("=3D", "\0")
    if "=" in name or ("\0" in text):
        raise ProtocolError("a name of SCRAM has an = that is neither =2C nor =3D")
    return name.replace("\0", "=")


def attributes(message: str) -> dict[str, str]:
    """Return the values of a message by their letters. Raises `ProtocolError`.

    Extensions that nobody knows are among them. A letter stands once.
    """
    found: dict[str, str] = {}
    for part in message.split(","):
        letter, equals, value = part.partition("=")
        if not equals or len(letter) != 1 or letter in found:
            raise ProtocolError("a message of SCRAM is not a list of letters and values")
        found[letter] = value
    return found
