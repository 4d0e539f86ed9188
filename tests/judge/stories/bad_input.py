"""Requests of every transactional API that no good client sends.

No request may leave anything open. So each story ends with a good producer that goes on, and with
all logs.
"""

from collections.abc import Callable
from typing import Final

from tests.judge.asking import Batch, describe, producers, send
from tests.judge.broker import Broker, Identity
from tests.judge.names import NOBODY as NOBODYS_ID
from tests.judge.story import kept_in, variants

RECORDING: Final = "bad_input.txt.gz"
T0: Final = ("t", 0)
T1: Final = ("t", 1)
LONG: Final = 64 * 1024
LONG_BEFORE_FLEXIBLE: Final = 32_000
"""The strings of older versions end at 32,767 bytes, of which the story's prefix takes some."""


Call = Callable[[Broker, int, str, Identity], object]


def _add(broker: Broker, version: int, name: str, producer: Identity) -> object:
    return broker.add(name, producer, [T0], version=version)


def _verify(broker: Broker, version: int, name: str, producer: Identity) -> object:
    return broker.add(name, producer, [T0], version=version, verify_only=True)


def _add_offsets(broker: Broker, version: int, name: str, producer: Identity) -> object:
    return broker.add_offsets(name, producer, "g", version=version)


def _commit_offsets(broker: Broker, version: int, name: str, producer: Identity) -> object:
    return broker.commit_offsets(name, producer, "g", {T0: 5}, version=version)


def _produce(broker: Broker, version: int, name: str, producer: Identity) -> object:
    return send(broker, name, Batch(T0, producer, is_transactional=True), version=version)


def _commit(broker: Broker, version: int, name: str, producer: Identity) -> object:
    return broker.end(name, producer, commit=True, version=version)


def _abort(broker: Broker, version: int, name: str, producer: Identity) -> object:
    return broker.end(name, producer, commit=False, version=version)


def _init(broker: Broker, version: int, name: str, producer: Identity) -> object:
    return broker.init(name, version=version, expected=producer)


CALLS: Final[dict[str, tuple[Call, tuple[int, ...]]]] = {
    "init": (_init, (3, 4, 5)),
    "add": (_add, (0, 1, 2, 3, 4, 5)),
    "verify": (_verify, (4, 5)),
    "add-offsets": (_add_offsets, (0, 1, 2, 3, 4)),
    "commit-offsets": (_commit_offsets, (0, 1, 2, 3, 4, 5)),
    "produce": (_produce, (3, 8, 10, 11, 12, 13)),
    "commit": (_commit, (0, 1, 2, 3, 4, 5)),
    "abort": (_abort, (0, 1, 2, 3, 4, 5)),
}
EVERY_CALL: Final = tuple(
    (name, version) for name, (_, versions) in CALLS.items() for version in versions
)


def strangers(producer: Identity, other: Identity) -> dict[str, Identity]:
    """Return wrong identities for the owner of an id, by what is wrong with each."""
    return {
        "another's producer id": other,
        "another's id with this epoch": Identity(other.producer_id, producer.epoch),
        "an epoch from the future": producer.newer(),
        "an epoch far from the future": Identity(producer.producer_id, 32767),
        "an epoch that is over": producer.older(),
        "an epoch that never was": Identity(producer.producer_id, -2),
        "no epoch": Identity(producer.producer_id, -1),
        "nobody's id": Identity(NOBODYS_ID, producer.epoch),
        "no id": Identity(-1, producer.epoch),
        "nobody": Identity(-1, -1),
        "a negative id": Identity(-7, producer.epoch),
    }


def told_by_all(
    broker: Broker, call: tuple[str, int], name: str, producer: Identity, other: Identity
) -> None:
    """The call by every stranger. One that is let in by InitProducerId is the owner then."""
    api, version = call
    function, _ = CALLS[api]
    for words, stranger in strangers(producer, other).items():
        if api == "init" and words == "nobody":
            continue  # a new instance
        if api == "produce" and stranger.producer_id < 0:
            continue  # below, in a story of its own
        broker.say(f"- {words}")
        function(broker, version, name, stranger)


@kept_in(RECORDING)
@variants(call=EVERY_CALL)
def story_strangers_while_nothing_is_open(broker: Broker, call: tuple[str, int]) -> None:
    broker.topic("t", 2)
    broker.find("g", key_type=0)
    other = broker.init("y")
    broker.init("x")
    producer = broker.init("x")
    told_by_all(broker, call, "x", producer, other)
    describe(broker, "x", "y")
    for partition in range(2):
        broker.end_offsets("t", partition)
    broker.committed("g", [T0], stable=True)


@kept_in(RECORDING)
@variants(call=EVERY_CALL)
def story_strangers_while_transactions_are_open(broker: Broker, call: tuple[str, int]) -> None:
    broker.topic("t", 2)
    broker.find("g", key_type=0)
    other = broker.init("y")
    broker.init("x")
    producer = broker.init("x")
    for name, owner in (("x", producer), ("y", other)):
        broker.add(name, owner, [T0, T1])
        broker.add_offsets(name, owner, "g")
        send(broker, name, Batch(T1, owner, is_transactional=True), version=11)
    told_by_all(broker, call, "x", producer, other)
    describe(broker, "x", "y")
    broker.end("x", producer, commit=True)
    broker.end("y", other, commit=True)
    for partition in range(2):
        broker.end_offsets("t", partition)
        producers(broker, "t", partition)
    broker.committed("g", [T0], stable=True)


@variants(version=(3, 11, 12), producer_id=(-1, -7))
def story_transactional_batches_of_nobody(broker: Broker, version: int, producer_id: int) -> None:
    """They belong to no transaction: no producer id, so no coordinator could end it."""
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    for epoch in (-1, 0):
        batch = Batch(T0, Identity(producer_id, epoch), is_transactional=True)
        send(broker, "x", batch, version=version)
    producers(broker, "t")
    broker.end("x", producer, commit=True)
    del broker.topics_made["t"]


@kept_in(RECORDING)
@variants(call=EVERY_CALL, kind=("empty", "unknown", "long"))
def story_ids_that_nobody_has(broker: Broker, call: tuple[str, int], kind: str) -> None:
    """The producer is good, the transactional id is not his."""
    api, version = call
    function, _ = CALLS[api]
    broker.topic("t", 2)
    broker.find("g", key_type=0)
    producer = broker.init("x")
    is_flexible = version >= {"init": 2, "produce": 9}.get(api, 3)
    long = "l" * (LONG if is_flexible else LONG_BEFORE_FLEXIBLE)
    function(broker, version, {"empty": "", "unknown": "z", "long": long}[kind], producer)
    describe(broker, "x", "z")
    broker.end_offsets("t")
    broker.add("x", producer, [T0])
    broker.end("x", producer, commit=True)
    broker.committed("g", [T0], stable=True)


@variants(version=(0, 1, 2, 3, 4, 5))
def story_new_ids(broker: Broker, version: int) -> None:
    """InitProducerId: what an id and a time-out may be."""
    for timeout_ms in (0, -1, -(2**31), 900_001, 2**31 - 1, 900_000, 1):
        broker.init("x", version=version, timeout_ms=timeout_ms)
        broker.init(None, version=version, timeout_ms=timeout_ms)
    broker.init("", version=version)
    for name in (" ", "\u00e9", "\U0001d4b3", "a/b", "a" * 300):
        broker.init(name, version=version)
    describe(broker, "", "never", "x")


@kept_in(RECORDING)
@variants(version=(0, 2, 5), length=(30_000, 32_600))
def story_long_new_ids(broker: Broker, version: int, length: int) -> None:
    broker.init("l" * length, version=version)


@variants(version=(2, 5), length=(40_000, LONG))
def story_new_ids_that_are_too_long(broker: Broker, version: int, length: int) -> None:
    broker.init("l" * length, version=version)
