"""Random fetches with sessions, while partitions and sessions change: no story has the order."""

import random
from typing import Final

from tests.judge.asking import Batch, send
from tests.judge.broker import Broker
from tests.judge.sessioning import CLOSING, MAX_BYTES, NEW, Place, Session
from tests.judge.stories.administration import delete_records
from tests.judge.stories.fetch_sessions import EITHER, write
from tests.judge.stories.topics import delete
from tests.judge.story import kept_in, variants

RECORDING: Final = "fetch_walk.txt.gz"
SEEDS: Final = 40
STEPS: Final = 60


class Walk:
    """A session and its partitions under random requests, changes and mistakes."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker = broker
        self.choice = random.Random(seed)
        self.session = Session(broker, self.choice.choice(EITHER))
        self.wheres = [("t", 0), ("t", 1), ("u", 0), ("u", 1), ("v", 0), ("t", 2), ("never", 0)]
        for topic, partitions in (("t", 2), ("u", 2), ("v", 1)):
            broker.topic(topic, partitions)
        self.producer = broker.init("x")
        self.sequences = dict.fromkeys(self.wheres, 0)
        self.is_open = False

    def place(self) -> Place:
        topic, partition = self.choice.choice(self.wheres)
        offset = self.choice.choice((0, 0, 1, 2, 3, 4, 5, 6, 8))
        epoch = self.choice.choice((-1, -1, -1, 0, 1))
        return Place(topic, partition, offset, leader_epoch=epoch)

    def places(self, most: int) -> list[Place]:
        return [self.place() for _ in range(self.choice.randint(0, most))]

    def step(self) -> None:
        what = self.choice.random()
        if what < 0.35:
            self.change(what / 0.35)
        elif what < 0.41:
            self.session.fetch(*self.places(5), epoch=self.choice.choice((NEW, CLOSING)))
        elif what < 0.44:
            self.session.fetch(*self.places(2), epoch=self.session.epoch + 1)
        else:
            self.go_on()

    def change(self, what: float) -> None:
        """Change something in a topic that the session may have."""
        where = topic, partition = self.choice.choice(self.wheres[:5])
        if what < 0.6:
            write(self.broker, topic, partition, self.choice.choice((1, 1, 3)))
        elif what < 0.75:
            delete_records(self.broker, (topic, partition, -1))
        elif what < 0.85 and topic != "v":
            self.broker.add("x", self.producer, [where])
            batch = Batch(where, self.producer, self.sequences[where], is_transactional=True)
            send(self.broker, "x", batch, version=11)
            self.sequences[where] += 1
            self.is_open = True
        elif what < 0.95 and self.is_open:
            self.broker.end("x", self.producer, commit=self.choice.random() < 0.5)
            self.is_open = False
        elif topic == "v":
            if self.choice.random() < 0.7:
                self.session.forget_ids(topic)
            delete(self.broker, topic)
            if self.choice.random() < 0.5:
                self.session.fetch()
            self.broker.topic(topic)

    def go_on(self) -> None:
        """Fetch with the session, or begin one."""
        if self.session.session_id == 0:
            self.session.epoch = NEW
        without = self.choice.sample(self.wheres, self.choice.choice((0, 0, 0, 0, 1, 2)))
        self.session.fetch(
            *self.places(5 if self.session.epoch == NEW else self.choice.choice((0, 0, 1, 3))),
            without=without,
            max_bytes=self.choice.choice((1, 200, MAX_BYTES)),
            committed=self.choice.random() < 0.3,
        )


@kept_in(RECORDING)
@variants(seed=range(SEEDS))
def story_random_requests(broker: Broker, seed: int) -> None:
    walk = Walk(broker, seed)
    for _ in range(STEPS):
        walk.step()
