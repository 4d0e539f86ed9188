"""SCRAM, message by message: what each side may send, and what is refused."""

from typing import Final

from tests.judge.broker import Broker
from tests.judge.story import SCRAM, in_setup, variants
from tests.judge.talking import AGAIN, NONCE, PLAIN, Scram, Talk, talking

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
BOTH: Final = (SHA_256, SHA_512)
FIRSTS: Final = {
    "for herself": f"n,a=alice,n=alice,r={NONCE}",
    "for bob": f"n,a=bob,n=alice,r={NONCE}",
    "for bob, escaped": f"n,a=b=3Dob,n=alice,r={NONCE}",
    "of an unknown user": f"n,,n=never,r={NONCE}",
    "of nobody": f"n,,n=,r={NONCE}",
    "of a user in capitals": f"n,,n=ALICE,r={NONCE}",
    "without a nonce": "n,,n=alice,r=",
    "with a comma in the nonce": "n,,n=alice,r=ab,cd",
    "bound to a channel": f"p=tls-unique,,n=alice,r={NONCE}",
    "that could be bound": f"y,,n=alice,r={NONCE}",
    "with an extension that must be known": f"n,,m=x,n=alice,r={NONCE}",
    "with an extension": f"n,,n=alice,r={NONCE},x=1",
    "in another order": f"n,,r={NONCE},n=alice",
    "without a header": f"n=alice,r={NONCE}",
    "with a bad escape": f"n,,n=al=2Dice,r={NONCE}",
    "of an escaped user": f"n,,n=e=2Cv=3De,r={NONCE}",
    "of garbage": "\x01\x02\x03",
    "of nothing": "",
    "of PLAIN": "\0alice\0of alice",
}


def _first(talk: Talk, scram: Scram, what: str = "first") -> None:
    scram.read(talk.authenticate(what, scram.first()))


def _logged_in(talk: Talk, broker: Broker, scram: Scram) -> None:
    talk.handshake(scram.mechanism)
    _first(talk, scram)
    proved = scram.check(talk.authenticate("final", scram.final()))
    broker.say(f"the server knows {proved}")


@in_setup(SCRAM)
@variants(mechanism=BOTH)
def story_right(broker: Broker, mechanism: str) -> None:
    with talking(broker) as talk:
        _logged_in(talk, broker, Scram(mechanism, "alice", "of alice"))
        talk.metadata()


@in_setup(SCRAM)
@variants(mechanism=BOTH)
def story_right_for_an_escaped_user(broker: Broker, mechanism: str) -> None:
    with talking(broker) as talk:
        _logged_in(talk, broker, Scram(mechanism, "e=2Cv=3De", "of eve"))


@in_setup(SCRAM)
def story_bare(broker: Broker) -> None:
    scram = Scram(SHA_256, "alice", "of alice")
    with talking(broker) as talk:
        talk.handshake(SHA_256, version=0)
        scram.read(talk.bare("first", scram.first()))
        broker.say(f"the server knows {scram.check(talk.bare('final', scram.final()))}")
        talk.metadata()


@in_setup(SCRAM)
@variants(first=FIRSTS)
def story_first(broker: Broker, first: str) -> None:
    with talking(broker) as talk:
        talk.handshake(SHA_256)
        talk.authenticate(first, FIRSTS[first].encode())


@in_setup(SCRAM)
def story_user_of_another_mechanism(broker: Broker) -> None:
    with talking(broker) as talk:
        talk.handshake(SHA_256)
        talk.authenticate("first of carol", Scram(SHA_256, "carol", "of carol").first())


@in_setup(SCRAM)
@variants(mechanism=BOTH, password=("of bob", "", "of alice2"))
def story_wrong_password(broker: Broker, mechanism: str, password: str) -> None:
    scram = Scram(mechanism, "alice", password)
    with talking(broker) as talk:
        talk.handshake(mechanism)
        _first(talk, scram)
        talk.authenticate("final", scram.final())


@in_setup(SCRAM)
def story_wrong_password_bare(broker: Broker) -> None:
    scram = Scram(SHA_256, "alice", "of bob")
    with talking(broker) as talk:
        talk.handshake(SHA_256, version=0)
        scram.read(talk.bare("first", scram.first()))
        talk.bare("final", scram.final())


@in_setup(SCRAM)
@variants(
    final=(
        *("shorter nonce", "longer nonce", "doubled nonce", "only the client's", "other nonce"),
        *("no nonce", "other binding", "no binding", "binding of y", "with an extension"),
        *("no proof", "short proof", "empty proof", "proof that is not base64", "nothing", "first"),
    )
)
def story_final(broker: Broker, final: str) -> None:
    scram = Scram(SHA_256, "alice", "of alice")
    with talking(broker) as talk:
        talk.handshake(SHA_256)
        _first(talk, scram)
        talk.authenticate(final, _final(scram, final))


def _final(scram: Scram, final: str) -> bytes:
    right = scram.final()
    bare, _, proof = right.partition(b",p=")
    return {
        "shorter nonce": scram.final(nonce=scram.nonce[:-1]),
        "longer nonce": scram.final(nonce=scram.nonce + "x"),
        "doubled nonce": scram.final(nonce=NONCE + scram.nonce),
        "only the client's": scram.final(nonce=NONCE),
        "other nonce": scram.final(nonce="x" * len(scram.nonce)),
        "no nonce": scram.final(nonce=""),
        "other binding": scram.final(binding="eSws"),
        "no binding": scram.final(binding=""),
        "binding of y": scram.final(binding="biwsYT1ib2IsLA=="),
        "with an extension": scram.final(more=",x=1"),
        "no proof": bare,
        "short proof": bare + b",p=" + proof[:24],
        "empty proof": bare + b",p=",
        "proof that is not base64": bare + b",p=?" + proof[1:],
        "nothing": b"",
        "first": scram.first(),
    }[final]


@in_setup(SCRAM)
def story_a_token_more(broker: Broker) -> None:
    with talking(broker) as talk:
        _logged_in(talk, broker, Scram(SHA_256, "alice", "of alice"))
        talk.authenticate("one more", b"x")
        talk.metadata()


@in_setup(SCRAM)
@variants(what=("metadata", "handshake", "versions"))
def story_in_between(broker: Broker, what: str) -> None:
    scram = Scram(SHA_256, "alice", "of alice")
    with talking(broker) as talk:
        talk.handshake(SHA_256)
        _first(talk, scram)
        {"metadata": talk.metadata, "versions": talk.versions}.get(
            what, lambda: talk.handshake(PLAIN)
        )()


@in_setup(SCRAM)
@variants(user=("alice", "bob"), mechanism=BOTH)
def story_again(broker: Broker, user: str, mechanism: str) -> None:
    with talking(broker, AGAIN) as talk:
        _logged_in(talk, broker, Scram(SHA_256, "alice", "of alice"))
        again = Scram(mechanism, user, f"of {user}")
        talk.handshake(mechanism)
        if mechanism == SHA_256:
            _first(talk, again)
            talk.authenticate("final", again.final())
        talk.metadata()


@in_setup(SCRAM)
@variants(mechanism=("scram-sha-256", "SCRAM-SHA-1", "PLAIN"))
def story_mechanism(broker: Broker, mechanism: str) -> None:
    with talking(broker) as talk:
        talk.handshake(mechanism)
