"""Ways into every state that a transaction can be held in, and who may then send a request.

PrepareCommit and PrepareAbort pass in milliseconds. They are held by an administrator's marker with
a coordinator epoch of 1,000 in the transaction's one partition: the coordinator's own marker is
then refused (TRANSACTION_COORDINATOR_FENCED), for which Kafka gives up and leaves the id as it is.
Ours would help itself, so it runs without that help there (`held.py`).

Dead and PrepareEpochFence are never stored and cannot be held in a live broker, nor can an append
that is under way: those cells are tested in the table (`tests/broker/txn/test_state_table.py`).
"""

from typing import Final

from tests.judge.broker import Broker, Identity
from tests.judge.names import NOBODY
from tests.judge.story import GIVING_UP, SHARED

TOPIC: Final = "t"
FUTURE_COORDINATOR: Final = 1_000

UNKNOWN: Final = "Unknown"
HELD: Final = ("PrepareCommit", "PrepareAbort")
FENCED: Final = "Fenced"
STATES: Final = (
    UNKNOWN,
    "Empty",
    "Continued",
    "Ongoing",
    *HELD,
    "CompleteCommit",
    "CompleteAbort",
    FENCED,
)
"""Empty after a new instance. Continued is Empty after an instance asked for its next epoch: the
epoch before may still be named. Fenced is the CompleteAbort that a time-out leads to, without its
wait."""

WHO: Final = ("current", "one-behind", "two-behind", "one-ahead", "foreign")
TV1, TV2 = 1, 2
GENERATIONS: Final = (TV1, TV2)


def situations() -> list[str]:
    """States with the generation that led there, where that makes a difference: Ongoing/2."""
    plain = [UNKNOWN, "Empty", "Continued"]
    led = [state for state in STATES if state not in plain]
    return plain + [f"{state}/{generation}" for state in led for generation in GENERATIONS]


def house_of(situation: str, **_: object) -> str:
    """Where stories with such a situation are told."""
    return GIVING_UP if situation.startswith(HELD) else SHARED


def reach(broker: Broker, name: str, situation: str) -> Identity:
    """Bring a transactional id there; who its coordinator now thinks the producer is."""
    state, _, generation = situation.partition("/")
    if state == UNKNOWN:
        return Identity(NOBODY, 2)
    broker.init(name)
    broker.init(name)
    who = broker.init(name)
    if state == "Empty":
        return who
    if state == "Continued":
        return broker.init(name, expected=who)
    begin(broker, name, who, int(generation))
    if state == FENCED:
        broker.init(name, expected=who.older(2))  # refused, but the transaction is aborted
    elif state != "Ongoing":
        is_held = state in HELD
        if is_held:
            hold(broker, who)
        version = 5 if int(generation) == TV2 else 3
        commit = state.endswith("Commit")
        broker.end(name, who, commit=commit, version=version, settle=not is_held)
    return current(broker, name)


def begin(broker: Broker, name: str, who: Identity, generation: int, *, partition: int = 0) -> None:
    """Open a transaction with a record in a partition of the topic."""
    if generation == TV2:
        broker.produce(name, who, TOPIC, partition, version=12)
    else:
        broker.add(name, who, [(TOPIC, partition)])
        broker.produce(name, who, TOPIC, partition, version=11)


def hold(broker: Broker, who: Identity) -> None:
    """Whatever is decided for this producer's transaction will not be finished."""
    broker.write_markers(who, [(TOPIC, 0)], commit=False, coordinator_epoch=FUTURE_COORDINATOR)
    broker.patience_seconds = 0  # nothing is under way that could be waited for


def current(broker: Broker, name: str) -> Identity:
    """Who the producer is according to the coordinator's last record."""
    last = broker.states.records(broker.names.on_wire(name))[-1]
    assert last is not None
    return Identity(last.producer_id, last.producer_epoch)


def somebody(who: Identity, relation: str) -> Identity:
    """The identity of somebody who is that much behind or ahead, or of nobody at all."""
    match relation:
        case "current":
            return who
        case "one-behind":
            return who.older()
        case "two-behind":
            return who.older(2)
        case "one-ahead":
            return who.newer()
        case _:
            return Identity(NOBODY, who.epoch)
