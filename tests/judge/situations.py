"""Ways into every state that a transaction can be held in, and identities for the next request.

PrepareCommit and PrepareAbort pass in milliseconds. They are held by an administrator's marker with
a coordinator epoch of 1,000 in the transaction's only partition. The coordinator's own marker is
then refused (TRANSACTION_COORDINATOR_FENCED); Kafka gives up and leaves the id as it is. Our broker
would complete the transaction, so it runs without that ability there (`held.py`).

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

RELATIONS: Final = ("current", "one-behind", "two-behind", "one-ahead", "foreign")
TV1, TV2 = 1, 2
GENERATIONS: Final = (TV1, TV2)


def situations() -> list[str]:
    """Return the states, with the generation that led there if that matters: Ongoing/2."""
    plain = [UNKNOWN, "Empty", "Continued"]
    led = [state for state in STATES if state not in plain]
    return plain + [f"{state}/{generation}" for state in led for generation in GENERATIONS]


def setup_of(situation: str, **_: object) -> str:
    """Return the setup of stories with such a situation."""
    return GIVING_UP if situation.startswith(HELD) else SHARED


def reach(broker: Broker, name: str, situation: str) -> Identity:
    """Bring a transactional id into a situation. Return its producer's current identity."""
    state, _, generation = situation.partition("/")
    if state == UNKNOWN:
        return Identity(NOBODY, 2)
    broker.init(name)
    broker.init(name)
    producer = broker.init(name)
    if state == "Empty":
        return producer
    if state == "Continued":
        return broker.init(name, expected=producer)
    begin(broker, name, producer, int(generation))
    if state == FENCED:
        broker.init(name, expected=producer.older(2))  # refused, but the transaction is aborted
    elif state != "Ongoing":
        is_held = state in HELD
        if is_held:
            hold(broker, producer)
        version = 5 if int(generation) == TV2 else 3
        commit = state.endswith("Commit")
        broker.end(name, producer, commit=commit, version=version, settle=not is_held)
    return current(broker, name)


def begin(
    broker: Broker, name: str, producer: Identity, generation: int, *, partition: int = 0
) -> None:
    """Open a transaction with a record in a partition of the topic."""
    if generation == TV2:
        broker.produce(name, producer, TOPIC, partition, version=12)
    else:
        broker.add(name, producer, [(TOPIC, partition)])
        broker.produce(name, producer, TOPIC, partition, version=11)


def hold(broker: Broker, producer: Identity) -> None:
    """Prevent the completion of what is decided for this producer's transaction."""
    broker.write_markers(producer, [(TOPIC, 0)], commit=False, coordinator_epoch=FUTURE_COORDINATOR)
    broker.patience_seconds = 0  # nothing is under way that could be waited for


def current(broker: Broker, name: str) -> Identity:
    """Return the producer's identity in the coordinator's last record."""
    last = broker.states.records(broker.names.on_wire(name))[-1]
    assert last is not None
    return Identity(last.producer_id, last.producer_epoch)


def related(producer: Identity, relation: str) -> Identity:
    """Return an identity in this relation to a producer's: older, newer, or foreign."""
    match relation:
        case "current":
            return producer
        case "one-behind":
            return producer.older()
        case "two-behind":
            return producer.older(2)
        case "one-ahead":
            return producer.newer()
        case _:
            return Identity(NOBODY, producer.epoch)
