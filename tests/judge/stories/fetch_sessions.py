"""Fetch sessions (KIP-227): what is listed, what is answered, and what a session remembers."""

from typing import Final
from uuid import UUID

from odradek.protocol.schema import ZERO_UUID
from tests.judge.asking import Batch, send
from tests.judge.broker import Broker
from tests.judge.sessioning import BY_ID, CLOSING, NEW, Place, Session
from tests.judge.stories.administration import delete_records
from tests.judge.stories.topics import delete, grow
from tests.judge.story import variants

VERSIONS: Final = range(7, 19)
EITHER: Final = (7, 12, 13, 18)
"""Versions with names and with ids, from the first with sessions to the last."""
LAST: Final = 18
LAST_EPOCH: Final = 2**31 - 1


def write(broker: Broker, topic: str, partition: int = 0, count: int = 1) -> None:
    send(broker, None, Batch((topic, partition), count=count), version=12)


@variants(version=VERSIONS)
def story_from_beginning_to_end(broker: Broker, version: int) -> None:
    broker.topic("t", 3)
    broker.topic("u")
    write(broker, "u", count=2)
    session = Session(broker, version)
    session.fetch(Place("t", 0), Place("t", 1), Place("t", 2), Place("u"))
    session.fetch()
    session.fetch(Place("u", 0, 2))
    session.fetch()
    write(broker, "t", 1)
    session.fetch()
    session.fetch()
    session.fetch(Place("t", 1, 1))
    session.fetch()
    write(broker, "t", 2)
    write(broker, "t", 1)
    session.fetch(committed=True)
    session.fetch(epoch=CLOSING)
    session.fetch(epoch=1)


@variants(version=range(4, 19))
def story_without_a_session(broker: Broker, version: int) -> None:
    broker.topic("t", 3)
    broker.topic("u")
    write(broker, "t", 1, count=2)
    session = Session(broker, version)
    for places in (
        (Place("t", 1), Place("t", 0)),
        (Place("t", 2), Place("u"), Place("t", 1, 1)),
        (Place("t", 1), Place("t", 1, 1), Place("u"), Place("t", 1)),
        (Place("never"), Place("t", 1, 9), Place("t", 0), Place("t", 3), Place("u", 0, -1)),
        (Place("t", 9), Place("t", 1), Place("never", 1), Place("never")),
        (Place("never"),),
        (),
    ):
        session.fetch(*places, session_id=0, epoch=CLOSING)
    session.fetch(Place("t", 1), without=[("u", 0)], session_id=0, epoch=CLOSING)
    session.fetch(Place("t", 1), session_id=5, epoch=CLOSING)


@variants(version=EITHER)
def story_ids_and_epochs(broker: Broker, version: int) -> None:
    """A wrong one is refused. The session goes on after that with its own."""
    broker.topic("t")
    session = Session(broker, version)
    for session_id in (0, -1, 5):
        for epoch in (1, 2, -2):
            session.fetch(Place("t"), session_id=session_id, epoch=epoch)
    session.fetch(Place("t"), session_id=5, epoch=NEW)
    first = session.session_id
    for epoch in (2, 7, -2, -(2**31), LAST_EPOCH):
        session.fetch(Place("t", 0, 9), epoch=epoch, without=[("t", 0)])
    session.fetch()
    write(broker, "t")
    session.fetch(epoch=1)
    session.fetch()
    session.fetch()
    session.fetch(Place("t", 0, 1), epoch=NEW)
    session.fetch(session_id=first, epoch=4)
    session.fetch()
    session.fetch(epoch=NEW)
    session.fetch(Place("t"), epoch=NEW)
    session.fetch(Place("t"), epoch=CLOSING)
    session.fetch(Place("t"))


@variants(version=(12, BY_ID))
def story_names_or_ids(broker: Broker, version: int) -> None:
    broker.topic("t")
    session = Session(broker, version)
    session.fetch(Place("t"))
    write(broker, "t")
    session.version = 25 - version
    session.fetch()
    session.fetch(Place("t", 0, 1))
    session.fetch(epoch=7)
    session.version = version
    session.fetch()
    session.version = 25 - version
    session.fetch(Place("t"), epoch=CLOSING)
    session.fetch(Place("t"), epoch=NEW)
    session.fetch()


@variants(version=EITHER)
def story_two_sessions(broker: Broker, version: int) -> None:
    """Each has its own view. A session belongs to no connection."""
    broker.topic("t", 2)
    one, two = Session(broker, version), Session(broker, version)
    one.fetch(Place("t", 0), Place("t", 1))
    two.fetch(Place("t", 1))
    write(broker, "t", 0)
    write(broker, "t", 1)
    one.fetch(Place("t", 0, 1), client_id="another")
    two.fetch(Place("t", 1, 1))
    one.fetch(Place("t", 1, 1))
    two.fetch(without=[("t", 1)])
    one.fetch()
    two.fetch()


@variants(version=EITHER)
def story_partitions_are_added(broker: Broker, version: int) -> None:
    for topic in ("t", "u", "v"):
        broker.topic(topic, 2)
        write(broker, topic, 1)
    session = Session(broker, version)
    session.fetch(Place("u", 1))
    session.fetch(Place("t", 0), Place("t", 1), Place("u", 0))
    session.fetch(Place("v", 0), Place("v", 0), Place("v", 1), Place("v", 0, 1))
    session.fetch(Place("v", 0))
    session.fetch(Place("u", 1, 1), Place("t", 1, 1), Place("v", 1, 1))
    session.fetch()
    for topic in ("v", "t", "u"):
        write(broker, topic, 0)
    session.fetch()
    session.fetch()


@variants(version=EITHER)
def story_partitions_are_forgotten(broker: Broker, version: int) -> None:
    for topic in ("t", "u"):
        broker.topic(topic, 2)
        write(broker, topic)
    session = Session(broker, version)
    session.fetch(Place("t", 0), Place("t", 1), Place("u", 0, 1), Place("u", 1))
    session.fetch(without=[("t", 0)])
    session.fetch(without=[("t", 0), ("t", 5), ("never", 0), ("never", -1)])
    session.fetch(Place("t", 0), without=[("t", 0)])
    session.fetch(Place("t", 0))
    session.fetch(Place("t", 0, 1), without=[("u", 0)])
    session.fetch(Place("u", 0), without=[("u", 1), ("u", 1)])
    session.fetch(Place("never"), without=[("never", 0)])
    session.fetch(without=[("u", 0), ("t", 1)])
    write(broker, "u", 0)
    write(broker, "t", 0)
    session.fetch()
    session.fetch(without=[("t", 0), ("u", 1)])
    session.fetch(session_id=0, epoch=1)


@variants(version=EITHER)
def story_all_partitions_are_forgotten(broker: Broker, version: int) -> None:
    """The session ends, and what is listed and forgotten at once is answered once more."""
    broker.topic("t", 2)
    write(broker, "t")
    session = Session(broker, version)
    session.fetch(Place("t", 0))
    first = session.session_id
    session.fetch(without=[("t", 0)])
    session.fetch(session_id=first, epoch=2)
    session.fetch(epoch=NEW)
    session.fetch(session_id=0, epoch=1)
    session.fetch(Place("t", 1), epoch=NEW)
    first = session.session_id
    session.fetch(Place("t", 0), without=[("t", 0), ("t", 1)])
    session.fetch(session_id=first, epoch=2)
    session.fetch(epoch=NEW)
    first = session.session_id
    session.fetch(session_id=first, epoch=1)
    session.fetch(session_id=first, epoch=2)


@variants(version=EITHER)
def story_a_position_that_is_changed(broker: Broker, version: int) -> None:
    broker.topic("t", 2)
    for _ in range(3):
        write(broker, "t", 0)
    session = Session(broker, version)
    session.fetch(Place("t", 0, 3), Place("t", 1))
    for offset in (1, 3, 2, 4, 3, -1, 0, 3):
        session.fetch(Place("t", 0, offset))
    session.fetch()
    session.fetch(Place("t", 0, 0, max_bytes=1))
    session.fetch(Place("t", 0, 0, max_bytes=0))
    session.fetch(max_bytes=0)
    session.fetch(max_bytes=-1)
    session.fetch(Place("t", 0, 0, max_bytes=-1))
    session.fetch(Place("t", 0, 0))
    session.fetch(Place("t", 0, 0), Place("t", 0, 2))
    session.fetch()


@variants(version=(9, 12, 13, 18))
def story_leader_epochs(broker: Broker, version: int) -> None:
    broker.topic("t", 2)
    for _ in range(2):
        write(broker, "t")
    session = Session(broker, version)
    session.fetch(Place("t", 0, 2, leader_epoch=0), Place("t", 1))
    session.fetch()
    session.fetch(Place("t", 0, 2, leader_epoch=1))
    session.fetch()
    session.fetch(Place("t", 0, 1, leader_epoch=0))
    session.fetch(Place("t", 0, 2, leader_epoch=-5))
    session.fetch(Place("t", 1, 0, leader_epoch=7, last_epoch=0), Place("t", 0, 2))
    session.fetch(Place("t", 1, 0))
    session.fetch()
    if version >= 12:
        session.fetch(Place("t", 0, 2, last_epoch=0))
        session.fetch(Place("t", 0, 5, last_epoch=0))
        session.fetch()
        session.fetch(Place("t", 0, 2, last_epoch=3))
        session.fetch()
        session.fetch(Place("t", 1, 0, last_epoch=0))
        session.fetch(Place("t", 1, 0, last_epoch=-5))
        session.fetch(Place("t", 0, 2, last_epoch=0), Place("t", 1, 0))
        session.fetch()


@variants(version=EITHER)
def story_errors_of_partitions(broker: Broker, version: int) -> None:
    """They are answered each time, and once more when they are gone."""
    broker.topic("t", 2)
    broker.topic("u")
    write(broker, "t")
    session = Session(broker, version)
    session.fetch(
        Place("never"), Place("t", 0, 1), Place("t", 2), Place("t", 1, 7), Place("u", 0, -1)
    )
    session.fetch()
    write(broker, "t", 0)
    session.fetch()
    session.fetch(Place("t", 1, 0))
    session.fetch()
    session.fetch(Place("u"), without=[("never", 0)])
    session.fetch(Place("t", -1), without=[("t", 2)])
    session.fetch(Place("t", 0, 2), without=[("t", -1)])
    session.fetch()


@variants(version=EITHER)
def story_a_topic_that_comes(broker: Broker, version: int) -> None:
    """By name it is found when it is there. Its id is another one than the client's."""
    broker.topic("t")
    session = Session(broker, version)
    session.fetch(Place("u"), Place("t"), Place("t", 1))
    session.fetch()
    broker.topic("u", 2)
    grow(broker, "t", 2)
    write(broker, "t", 1)
    session.fetch()
    session.fetch(Place("u"), Place("u", 1), Place("t", 1, 1))
    session.fetch()


@variants(version=EITHER)
def story_a_topic_that_goes(broker: Broker, version: int) -> None:
    for topic in ("t", "u", "v"):
        broker.topic(topic)
        write(broker, topic)
    session = Session(broker, version)
    session.fetch(Place("t", 0, 1), Place("u", 0, 1), Place("v", 0, 1))
    session.forget_ids("t")
    delete(broker, "t")
    session.fetch()
    session.fetch()
    write(broker, "u")
    session.fetch()
    session.fetch(Place("t"), Place("u", 0, 2))
    session.fetch(without=[("t", 0)])
    session.fetch(Place("t"))
    session.fetch(without=[("t", 0)])
    session.fetch()
    session.fetch(Place("t"), Place("u", 0, 2), epoch=NEW)


@variants(version=EITHER)
def story_a_topic_that_is_made_anew(broker: Broker, version: int) -> None:
    """By name a session goes on with it. An id is that of the topic that is gone."""
    broker.topic("t")
    broker.topic("u")
    write(broker, "t", count=2)
    session = Session(broker, version)
    session.fetch(Place("t", 0, 2), Place("u"))
    session.forget_ids("t")
    delete(broker, "t")
    broker.topic("t", 2)
    session.fetch()
    session.fetch()
    session.fetch(Place("t", 1))
    write(broker, "t", count=2)
    session.fetch()
    session.fetch(Place("t", 0, 0))
    session.fetch(Place("t", 0, 2), without=[("t", 1)])
    del session.ids["t"]
    session.fetch(Place("t", 0), Place("t", 1))
    session.fetch(Place("t", 0, 2))
    session.fetch()
    session.fetch(Place("t", 0, 2), epoch=CLOSING)


@variants(version=(13, 16, 18))
def story_ids_of_no_topic(broker: Broker, version: int) -> None:
    broker.topic("t")
    broker.topic("u")
    session = Session(broker, version)
    session.ids["none"] = UUID(int=78)
    session.fetch(Place("none"), Place("never"), Place("t"), Place("never", 1), Place("u"))
    session.fetch()
    session.fetch(Place("t", 3), Place("none", 1))
    write(broker, "t")
    session.fetch(without=[("none", 0), ("never", 0)])
    session.fetch(without=[("none", 1), ("never", 1), ("t", 3)])
    session.fetch(Place("t", 0, 1))


@variants(version=(13, 18))
def story_the_id_that_is_zero(broker: Broker, version: int) -> None:
    broker.topic("t")
    session = Session(broker, version)
    session.ids["zero"] = ZERO_UUID
    session.fetch(Place("zero"), Place("t"), epoch=CLOSING)
    session.fetch(Place("zero"), epoch=NEW)
    session.fetch(Place("t"), epoch=NEW)


@variants(version=EITHER, committed=(False, True))
def story_marks_alone(broker: Broker, version: int, committed: bool) -> None:
    """High watermark, last stable offset and log start move without a record to return."""
    broker.topic("t", 2)
    for _ in range(4):
        write(broker, "t")
    session = Session(broker, version)
    session.fetch(Place("t", 0, 4), Place("t", 1), committed=committed)
    delete_records(broker, ("t", 0, 2))
    session.fetch(committed=committed)
    session.fetch(committed=committed)
    delete_records(broker, ("t", 0, 2), ("t", 1, 0))
    session.fetch(committed=committed)
    delete_records(broker, ("t", 0, -1))
    session.fetch(committed=committed)
    session.fetch(Place("t", 0, 2), committed=committed)
    delete_records(broker, ("t", 1, -1))
    session.fetch(Place("t", 0, 4), committed=committed)
    session.fetch(committed=committed)


@variants(version=EITHER, commit=(True, False))
def story_a_transaction_ends(broker: Broker, version: int, commit: bool) -> None:
    """A committed reader learns of the high watermark first, and then gets the records."""
    broker.topic("t", 2)
    write(broker, "t", 1)
    sessions = [Session(broker, version), Session(broker, version)]

    def look(*places: Place) -> None:
        for committed, session in enumerate(sessions):
            session.fetch(*places, committed=bool(committed))

    look(Place("t", 0), Place("t", 1, 1))
    producer = broker.init("x")
    broker.add("x", producer, [("t", 0), ("t", 1)])
    look()
    batch = Batch(("t", 0), producer, is_transactional=True)
    send(broker, "x", batch, version=11)
    send(broker, "x", Batch(("t", 0), producer, 1, is_transactional=True), version=11)
    look()
    look()
    sessions[0].fetch(Place("t", 0, 2))
    write(broker, "t", 0)
    look()
    broker.end("x", producer, commit=commit)
    look()
    look()
    look(Place("t", 0, 1), Place("t", 1, 2))
    look(Place("t", 0, 4))
    look()


@variants(version=EITHER)
def story_another_isolation_level(broker: Broker, version: int) -> None:
    """Each fetch has its own."""
    broker.topic("t", 2)
    write(broker, "t")
    producer = broker.init("x")
    broker.add("x", producer, [("t", 0), ("t", 1)])
    for partition in (0, 1):
        batch = Batch(("t", partition), producer, is_transactional=True)
        send(broker, "x", batch, version=11)
    session = Session(broker, version)
    session.fetch(Place("t", 0, 1), Place("t", 1), committed=True)
    session.fetch(committed=True)
    session.fetch()
    session.fetch(committed=True)
    session.fetch(Place("t", 0, 2), Place("t", 1, 1))
    session.fetch(committed=True)
    broker.end("x", producer, commit=True)
    session.fetch()
    session.fetch(committed=True)


@variants(version=EITHER)
def story_turns(broker: Broker, version: int) -> None:
    """What was returned is read after all others next time."""
    for topic in ("t", "u"):
        broker.topic(topic, 3)
        for partition in range(3):
            write(broker, topic, partition)
    session = Session(broker, version)
    session.fetch(
        *(Place(topic, partition) for topic in ("t", "u") for partition in range(3)), max_bytes=1
    )
    for _ in range(7):
        session.fetch(max_bytes=1)
    session.fetch(Place("u", 1, 1), Place("t", 0, 1), max_bytes=1)
    session.fetch(Place("t", 0), max_bytes=1)
    session.fetch(Place("t", 2), without=[("u", 2)], max_bytes=1)
    session.fetch(Place("u", 2), max_bytes=100)
    for _ in range(3):
        session.fetch(max_bytes=200)
    session.fetch(Place("never"), Place("t", 9), Place("t", 1, 9), max_bytes=1)
    session.fetch(max_bytes=1)
    session.fetch()
    session.fetch()
    session.fetch(epoch=NEW)


@variants(version=EITHER, committed=(False, True))
def story_batches_that_do_not_fit(broker: Broker, version: int, committed: bool) -> None:
    broker.topic("t", 3)
    producer = broker.init("x")
    broker.add("x", producer, [("t", 1)])
    send(broker, "x", Batch(("t", 1), producer, is_transactional=True), version=11)
    broker.end("x", producer, commit=False)
    for partition in (0, 1, 2, 2):
        write(broker, "t", partition, 3)
    session = Session(broker, version)
    for room in (1, 100, 110, 200, 300, 400, 0):
        places = (Place("t", 0), Place("t", 1), Place("t", 2))
        session.fetch(*places, epoch=NEW, max_bytes=room, committed=committed)
        session.fetch(max_bytes=room, committed=committed)
        session.fetch(max_bytes=room, committed=committed)
