"""SASL before, while and after a client authenticates, and PLAIN: byte by byte."""

import struct
from typing import Final

from tests.judge.broker import Broker
from tests.judge.story import SASL, in_setup, variants
from tests.judge.talking import AGAIN, PLAIN, talking

ALICE: Final = b"\0alice\0of alice"
BOB: Final = b"\0bob\0of bob"
TOKENS: Final = {
    "of alice": ALICE,
    "of alice for herself": b"alice\0alice\0of alice",
    "of alice for bob": b"bob\0alice\0of alice",
    "with a wrong password": b"\0alice\0of bob",
    "with a longer password": b"\0alice\0of alice2",
    "with a shorter password": b"\0alice\0of alic",
    "without a password": b"\0alice\0",
    "of an unknown user": b"\0never\0of alice",
    "of a user in capitals": b"\0ALICE\0of alice",
    "without a user": b"\0\0of alice",
    "of nobody": b"\0\0",
    "of two parts": b"alice\0of alice",
    "of one part": b"alice",
    "of four parts": b"\0alice\0of alice\0",
    "of nothing": b"",
    "not of UTF-8": b"\0\xff\xfe\0\xff",
    "of a long user": b"\0" + b"a" * 10_000 + b"\0p",
    "with signs in the password": b"\0eve\0of=eve,",
}
OPENINGS: Final = {
    "a negative length": struct.pack(">i", -1),
    "a length of nothing": struct.pack(">i", 0),
    "half a header": struct.pack(">ihh", 4, 17, 1),
    "a length beyond all": struct.pack(">i", 2**31 - 1),
    "half a MiB and a byte": struct.pack(">i", 524_289),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "an API that is not there": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "a handshake of version 2": struct.pack(">ihhih", 17, 17, 2, 1, -1) + b"\0\5PLAIN",
    "a token of version 3": struct.pack(">ihhih", 10, 36, 3, 1, -1),
}


@in_setup(SASL)
@variants(token=TOKENS, version=(0, 1, 2))
def story_plain(broker: Broker, token: str, version: int) -> None:
    with talking(broker) as talk:
        talk.handshake(PLAIN)
        talk.authenticate(token, TOKENS[token], version)


@in_setup(SASL)
@variants(token=TOKENS)
def story_plain_bare(broker: Broker, token: str) -> None:
    with talking(broker) as talk:
        talk.handshake(PLAIN, version=0)
        talk.bare(token, TOKENS[token])


@in_setup(SASL)
@variants(opening=OPENINGS)
def story_opening(broker: Broker, opening: str) -> None:
    with talking(broker) as talk:
        talk.send(opening, OPENINGS[opening])


@in_setup(SASL)
@variants(opening=OPENINGS)
def story_opening_after_a_handshake(broker: Broker, opening: str) -> None:
    with talking(broker) as talk:
        talk.handshake(PLAIN)
        talk.send(opening, OPENINGS[opening])


@in_setup(SASL)
@variants(mechanism=("", "plain", "GSSAPI", "PLAIN ", "SCRAM-SHA-1"), version=(0, 1))
def story_mechanism(broker: Broker, mechanism: str, version: int) -> None:
    with talking(broker) as talk:
        talk.handshake(mechanism, version)


@in_setup(SASL)
@variants(version=(0, 3, 4, 99))
def story_versions_first(broker: Broker, version: int) -> None:
    with talking(broker) as talk:
        talk.versions(version)
        talk.handshake(PLAIN)
        talk.authenticate("of alice", ALICE)
        talk.metadata()


@in_setup(SASL)
def story_versions_twice(broker: Broker) -> None:
    with talking(broker) as talk:
        talk.versions()
        talk.versions()


@in_setup(SASL)
def story_unknown_versions_and_then_two_more(broker: Broker) -> None:
    with talking(broker) as talk:
        talk.versions(99)
        talk.versions(98)
        talk.versions()
        talk.versions(99)


@in_setup(SASL)
@variants(handshake=(0, 1))
def story_versions_after_a_handshake(broker: Broker, handshake: int) -> None:
    with talking(broker) as talk:
        talk.handshake(PLAIN, handshake)
        talk.versions()


@in_setup(SASL)
def story_metadata_first(broker: Broker) -> None:
    with talking(broker) as talk:
        talk.metadata()


@in_setup(SASL)
def story_metadata_after_versions(broker: Broker) -> None:
    with talking(broker) as talk:
        talk.versions()
        talk.metadata()


@in_setup(SASL)
@variants(handshake=(0, 1))
def story_metadata_after_a_handshake(broker: Broker, handshake: int) -> None:
    with talking(broker) as talk:
        talk.handshake(PLAIN, handshake)
        talk.metadata()


@in_setup(SASL)
def story_token_first(broker: Broker) -> None:
    with talking(broker) as talk:
        talk.authenticate("of alice", ALICE)


@in_setup(SASL)
def story_token_after_versions(broker: Broker) -> None:
    with talking(broker) as talk:
        talk.versions()
        talk.authenticate("of alice", ALICE)


@in_setup(SASL)
@variants(first=(0, 1), second=(0, 1))
def story_two_handshakes(broker: Broker, first: int, second: int) -> None:
    with talking(broker) as talk:
        talk.handshake(PLAIN, first)
        talk.handshake(PLAIN, second)


@in_setup(SASL)
def story_a_token_in_a_request_after_a_handshake_of_version_0(broker: Broker) -> None:
    with talking(broker) as talk:
        talk.handshake(PLAIN, 0)
        talk.authenticate("of alice", ALICE)


@in_setup(SASL)
@variants(handshake=(0, 1))
def story_afterwards(broker: Broker, handshake: int) -> None:
    """What is asked once more stays open, where sessions do not end."""
    with talking(broker) as talk:
        talk.handshake(PLAIN, handshake)
        if handshake:
            talk.authenticate("of alice", ALICE)
        else:
            talk.bare("of alice", ALICE)
        talk.metadata()
        talk.handshake(PLAIN)
        talk.handshake("GSSAPI", 0)
        talk.authenticate("of alice", ALICE)
        talk.authenticate("of alice", ALICE, 0)
        talk.versions()
        talk.metadata()


@in_setup(SASL)
@variants(version=(0, 1, 2))
def story_again(broker: Broker, version: int) -> None:
    with talking(broker, AGAIN) as talk:
        talk.handshake(PLAIN)
        talk.authenticate("of alice", ALICE, version)
        talk.metadata()
        talk.handshake(PLAIN)
        talk.authenticate("of alice", ALICE, version)
        talk.metadata()


@in_setup(SASL)
@variants(token=("of bob", "with a wrong password", "of two parts"))
def story_again_as_somebody_else(broker: Broker, token: str) -> None:
    with talking(broker, AGAIN) as talk:
        talk.handshake(PLAIN)
        talk.authenticate("of alice", ALICE)
        talk.handshake(PLAIN)
        talk.authenticate(token, {**TOKENS, "of bob": BOB}[token])


@in_setup(SASL)
def story_again_in_another_way(broker: Broker) -> None:
    with talking(broker, AGAIN) as talk:
        talk.handshake(PLAIN)
        talk.authenticate("of alice", ALICE)
        talk.handshake("GSSAPI")


@in_setup(SASL)
@variants(what=("metadata", "versions", "handshake", "handshake of version 0", "token"))
def story_again_in_another_order(broker: Broker, what: str) -> None:
    with talking(broker, AGAIN) as talk:
        talk.handshake(PLAIN)
        talk.authenticate("of alice", ALICE)
        if what == "token":
            talk.authenticate("of alice", ALICE)
            return
        if what == "handshake of version 0":
            talk.handshake(PLAIN, 0)
            talk.bare("of alice", ALICE)
            talk.metadata()
            return
        talk.handshake(PLAIN)
        {"metadata": talk.metadata, "versions": talk.versions}.get(
            what, lambda: talk.handshake(PLAIN)
        )()


@in_setup(SASL)
def story_again_twice_at_once(broker: Broker) -> None:
    with talking(broker, AGAIN) as talk:
        talk.handshake(PLAIN)
        talk.authenticate("of alice", ALICE)
        talk.handshake(PLAIN)
        talk.authenticate("of alice", ALICE)
        talk.handshake(PLAIN)
        talk.authenticate("of alice", ALICE)
        talk.metadata()
