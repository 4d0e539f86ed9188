"""Random walks: several transactional ids, their instances and zombies, partitions, groups, and all
generations of the protocol mixed as no client would mix them.

A walk is chosen by its seed and by the answers, which must be the same on both brokers. Only what
has one right answer is asked: after each end of a transaction the walk waits for its markers.
"""

import random
from collections.abc import Callable
from typing import Final

from tests.judge.broker import Broker, Identity
from tests.judge.names import NOBODY
from tests.judge.story import kept_in, variants

SEEDS: Final = 100
STEPS: Final = 300
IDS: Final = ("a", "b", "c")
GROUPS: Final = ("g", "h")
TOPIC: Final = "t"
PARTITIONS: Final = 3
TIMEOUT_MS: Final = 600_000
"""Longer than any walk takes, so that nothing times out by itself."""


class Walk:
    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker = broker
        self.rng = random.Random(seed)
        self.known: list[tuple[str, Identity]] = []
        self.taken: set[tuple[int, int]] = set()
        self.generation = {name: self.rng.choice((1, 2)) for name in IDS}
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (12, self.init),
            (12, self.add),
            (28, self.produce),
            (3, self.produce_plain),
            (5, self.add_offsets),
            (9, self.commit_offsets),
            (22, self.end),
            (2, self.verify),
            (2, self.write_marker),
            (5, self.look),
        ]

    def walk(self) -> None:
        self.broker.topic(TOPIC, PARTITIONS)
        for name in IDS:
            self.learn(name, self.broker.init(name, timeout_ms=TIMEOUT_MS))
        weights = [weight for weight, _ in self.steps]
        for _ in range(STEPS):
            _, step = self.rng.choices(self.steps, weights)[0]
            step()

    def learn(self, name: str, producer: Identity) -> None:
        if producer.producer_id >= 0 and (name, producer) not in self.known:
            self.known.append((name, producer))

    def client(self) -> tuple[str, Identity]:
        """Choose mostly the newest instance of an id, at times a zombie or an epoch too high."""
        name, producer = self.writer()
        return (name, producer) if self.rng.random() < 0.96 else (name, producer.newer())

    def writer(self) -> tuple[str, Identity]:
        """Choose as `client` does, but no epoch from the future."""
        name = self.rng.choice(IDS)
        dice = self.rng.random()
        mine = [producer for known, producer in self.known if known == name]
        if dice < 0.78:
            return name, mine[-1]
        if dice < 0.94:
            return name, self.rng.choice(mine[-5:])
        if dice < 0.97:
            return name, self.rng.choice(self.known)[1]
        return name, Identity(NOBODY, 0)

    def speaks(self, name: str) -> int:
        """The generation of the request: that of the id, which changes its mind now and then."""
        if self.rng.random() < 0.06:
            self.generation[name] = 3 - self.generation[name]
        return self.generation[name] if self.rng.random() < 0.93 else self.rng.choice((1, 2))

    def partition(self) -> int:
        return self.rng.randrange(PARTITIONS)

    # Steps

    def init(self) -> None:
        name = self.rng.choice(IDS)
        expected = None
        if self.rng.random() < 0.6:
            _, expected = self.client() if self.rng.random() < 0.1 else (name, self.one_of(name))
        version = self.rng.randrange(6) if expected is None else self.rng.randrange(3, 6)
        producer = self.broker.init(name, version=version, timeout_ms=TIMEOUT_MS, expected=expected)
        self.learn(name, producer)

    def one_of(self, name: str) -> Identity:
        mine = [producer for known, producer in self.known if known == name]
        return mine[-1] if self.rng.random() < 0.6 else self.rng.choice(mine[-4:])

    def add(self) -> None:
        name, producer = self.client()
        count = self.rng.randrange(1, PARTITIONS + 1)
        chosen = sorted(self.rng.sample(range(PARTITIONS), count))
        wanted = [(TOPIC, index) for index in chosen]
        self.broker.add(name, producer, wanted, version=self.rng.randrange(6))

    def verify(self) -> None:
        name, producer = self.client()
        wanted = [(TOPIC, self.partition())]
        self.broker.add(name, producer, wanted, version=self.rng.choice((4, 5)), verify_only=True)

    def produce(self) -> None:
        """A sequence too high, now and then. A lower one, or a batch from the future, would have
        Kafka refuse good ones for a while, which we do not follow (`differences.py`); and what is
        too high for the first one depends in Kafka on the versions of batches refused before."""
        name, producer = self.writer()
        partition = self.partition()
        version = self.rng.choice((12, 13)) if self.speaks(name) == 2 else self.rng.randrange(3, 12)
        skipped = self.rng.random() < 0.05 and (partition, producer.producer_id) in self.taken
        count = self.rng.choice((1, 1, 1, 2, 3))
        offset = self.broker.produce(
            name, producer, TOPIC, partition, version=version, skipped=int(skipped), count=count
        )
        (self.taken.add if offset >= 0 else self.taken.discard)((partition, producer.producer_id))

    def produce_plain(self) -> None:
        """Send a plain batch of a transactional producer, which is wrong if a transaction is open.

        As for markers, no epoch is from the future. Nothing is sent after a transactional batch
        that was refused, for the reason that `produce` gives.
        """
        name = self.rng.choice(IDS)
        producer = self.one_of(name)
        partition = self.partition()
        if (partition, producer.producer_id) in self.taken:
            name_or_null = name if self.rng.random() < 0.5 else None
            version = self.rng.randrange(3, 14)
            self.broker.produce(
                name_or_null, producer, TOPIC, partition, version=version, is_transactional=False
            )

    def add_offsets(self) -> None:
        name, producer = self.client()
        self.broker.add_offsets(
            name, producer, self.rng.choice(GROUPS), version=self.rng.randrange(5)
        )

    def commit_offsets(self) -> None:
        name, producer = self.client()
        version = 5 if self.speaks(name) == 2 else self.rng.randrange(5)
        offsets = {(TOPIC, self.partition()): self.rng.randrange(100)}
        self.broker.commit_offsets(
            name, producer, self.rng.choice(GROUPS), offsets, version=version
        )

    def end(self) -> None:
        name, producer = self.client()
        version = 5 if self.speaks(name) == 2 else self.rng.randrange(5)
        commit = self.rng.random() < 0.6
        told = self.broker.end(name, producer, commit=commit, version=version)
        if told != producer:
            self.learn(name, told)
        if self.rng.random() < 0.15:  # the answer was lost
            self.broker.end(name, producer, commit=commit, version=version)

    def write_marker(self) -> None:
        """An administrator's. Not of an epoch from the future: that would have the partition refuse
        the coordinator's own, for good."""
        producer = self.one_of(self.rng.choice(IDS))
        self.broker.write_markers(
            producer,
            [(TOPIC, self.partition())],
            commit=self.rng.random() < 0.5,
            version=self.rng.choice((1, 2)),
            transaction_version=self.rng.choice((0, 1, 2)),
        )

    def look(self) -> None:
        partition = self.partition()
        match self.rng.randrange(3):
            case 0:
                self.broker.look(TOPIC, partition, offset=self.rng.choice((0, 0, 3, 10)))
            case 1:
                self.broker.end_offsets(TOPIC, partition)
            case 2:
                wanted = [(TOPIC, index) for index in range(PARTITIONS)]
                stable = self.rng.random() < 0.5
                self.broker.committed(self.rng.choice(GROUPS), wanted, stable=stable)


@kept_in("walk.txt.gz")
@variants(seed=range(SEEDS))
def story_random(broker: Broker, seed: int) -> None:
    Walk(broker, seed).walk()
