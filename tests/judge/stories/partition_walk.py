"""Random batches and markers for one partition: its rules meet in orders that no story has.

The producers are made up. A leader asks no coordinator about a producer without a transaction.
"""

import random
from dataclasses import dataclass
from typing import Final

from tests.judge.asking import Batch, Marker, mark, producers, read, send
from tests.judge.broker import Broker, Identity
from tests.judge.names import NOBODY as NOBODYS_ID
from tests.judge.story import kept_in, variants

RECORDING: Final = "partition_walk.txt.gz"
T0: Final = ("t", 0)
STEPS: Final = 60
SEEDS: Final = 20
SEQUENCES: Final = 2**31
LOOK_EVERY: Final = 10


@dataclass(slots=True)
class Known:
    """The state of a producer as it believes it. It need not be true."""

    producer_id: int
    epoch: int
    sequence: int

    @property
    def identity_of(self) -> Identity:
        return Identity(self.producer_id, self.epoch)


def near(choice: random.Random, known: Known) -> Identity:
    """The producer's own epoch most of the time."""
    epoch = known.epoch + choice.choice((0, 0, 0, 0, 0, 0, 1, 1, -1, 3))
    return Identity(known.producer_id, max(0, min(epoch, 32767)))


def batch_of(choice: random.Random, known: Known) -> Batch:
    producer = near(choice, known)
    usual = known.sequence if producer.epoch == known.epoch else 0
    sequence = (usual + choice.choice((0, 0, 0, 0, 0, 0, -1, -2, -4, -9, 1))) % SEQUENCES
    return Batch(T0, producer, sequence, choice.choice((1, 1, 1, 2, 4)))


def take_a_batch(broker: Broker, choice: random.Random, known: Known) -> None:
    batch = batch_of(choice, known)
    (found,) = send(broker, None, batch, version=choice.choice((3, 8, 12)))
    if found.error_code == 0:
        known.epoch = batch.producer.epoch
        known.sequence = (batch.sequence + batch.count) % SEQUENCES


def take_a_marker(broker: Broker, choice: random.Random, known: Known) -> None:
    producer = near(choice, known)
    marker = Marker(producer, [T0], choice.random() < 0.5, choice.choice((-1, 0, 0, 1, 2)))
    mark(broker, marker, version=choice.choice((1, 2)))


@kept_in(RECORDING)
@variants(seed=range(SEEDS))
def story_sequences_and_markers(broker: Broker, seed: int) -> None:
    choice = random.Random(seed)
    broker.topic("t")
    cast = [
        Known(NOBODYS_ID - 1, 0, 0),
        Known(NOBODYS_ID - 2, 5, 100),
        Known(NOBODYS_ID - 3, 32765, SEQUENCES - 3),
    ]
    for step in range(STEPS):
        known = choice.choice(cast)
        if choice.random() < 0.8:
            take_a_batch(broker, choice, known)
        else:
            take_a_marker(broker, choice, known)
        if step % LOOK_EVERY == LOOK_EVERY - 1:
            producers(broker, "t")


@dataclass(slots=True)
class Open:
    """A transactional producer. `sequence` is the next; `begun`: it has written something."""

    name: str
    producer: Identity
    sequence: int = 0
    is_added: bool = False
    begun: bool = False


def go_on(broker: Broker, choice: random.Random, known: Open) -> None:
    """One step of a producer that keeps to the rules, but for what a partition refuses by itself.

    What Kafka remembers of a batch that it had to ask its coordinator about (see the differences)
    is kept out: a transaction's first batch is always a good one.
    """
    if not known.is_added:
        known.is_added = broker.add(known.name, known.producer, [T0])
        return
    what = choice.random()
    if what < 0.25 and known.begun:
        broker.end(known.name, known.producer, commit=choice.random() < 0.5)
        known.is_added = known.begun = False
        return
    if what < 0.35:
        plain = Batch(T0, known.producer, known.sequence)
        (found,) = send(broker, None, plain, version=9)
        known.sequence += found.error_code == 0
        return
    offset = choice.choice((0, 0, 0, 0, 1, -1, -3)) if known.begun else 0
    batch = Batch(T0, known.producer, max(0, known.sequence + offset), 1, is_transactional=True)
    (found,) = send(broker, known.name, batch, version=choice.choice((3, 9, 11)))
    known.begun = True
    if found.error_code == 0 and offset == 0:
        known.sequence += 1


@kept_in(RECORDING)
@variants(seed=range(SEEDS))
def story_transactions_side_by_side(broker: Broker, seed: int) -> None:
    choice = random.Random(seed)
    broker.topic("t")
    cast = [Open(name, broker.init(name)) for name in "xyz"]
    for step in range(STEPS):
        known = choice.choice(cast)
        if choice.random() < 0.08:
            known.producer = broker.init(known.name)
            known.sequence, known.is_added, known.begun = 0, False, False
        else:
            go_on(broker, choice, known)
        if step % LOOK_EVERY == LOOK_EVERY - 1:
            producers(broker, "t")
            for committed in (True, False):
                read(broker, "t", 0, choice.randrange(20), committed=committed, max_bytes=400)
    for known in cast:
        if known.is_added:
            broker.end(known.name, known.producer, commit=True)
