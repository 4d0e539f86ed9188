"""Fetches that wait, with a session and without: what they wait for, and what ends it."""

from typing import Final

from tests.judge.asking import Batch, send
from tests.judge.broker import Broker
from tests.judge.sessioning import CLOSING, NEW, PATIENCE_MS, Place, Session
from tests.judge.stories.administration import delete_records
from tests.judge.stories.fetch_sessions import EITHER, LAST, write
from tests.judge.stories.topics import delete
from tests.judge.story import variants

BRIEF_MS: Final = 100


@variants(version=EITHER)
def story_a_fetch_that_waits(broker: Broker, version: int) -> None:
    broker.topic("t", 3)
    session = Session(broker, version)
    session.fetch(Place("t", 0), Place("t", 1), Place("t", 2))
    answer = session.fetch_meanwhile()
    write(broker, "t", 1)
    answer()
    answer = session.fetch_meanwhile(Place("t", 1, 1))
    write(broker, "t", 2)
    answer()
    answer = session.fetch_meanwhile(Place("t", 0, 1))
    answer()
    answer = session.fetch_meanwhile(Place("t", 0, 0), Place("t", 2, 1))
    write(broker, "t")
    answer()
    session.fetch(Place("t", 0, 1))


@variants(version=(8, LAST))
def story_what_ends_a_wait(broker: Broker, version: int) -> None:
    """Records and errors of what is read, but not what was not found, unless all is of that kind.

    The time is brief where it is waited for, and else so long that it is seen.
    """
    broker.topic("t", 2)
    write(broker, "t", 1, 2)
    session = Session(broker, version)
    for places, wait_ms in (
        ((Place("t"),), BRIEF_MS),
        ((Place("t"), Place("t", 1)), PATIENCE_MS),
        ((Place("t"), Place("t", 1, 2)), BRIEF_MS),
        ((Place("never"), Place("t")), BRIEF_MS),
        ((Place("t", 5), Place("t")), BRIEF_MS),
        ((Place("never"), Place("t", 5)), PATIENCE_MS),
        ((Place("never"), Place("t", 1, 9)), PATIENCE_MS),
        (
            (Place("t", 1, 2, leader_epoch=7), Place("t")),
            PATIENCE_MS if version == LAST else BRIEF_MS,
        ),
        ((Place("t", 1, 1, max_bytes=0), Place("t")), PATIENCE_MS),
        ((), PATIENCE_MS),
    ):
        session.fetch(*places, epoch=CLOSING, wait_ms=wait_ms)
    session.fetch(Place("t"), epoch=CLOSING, wait_ms=PATIENCE_MS, min_bytes=0)
    session.fetch(Place("t"), Place("t", 1), epoch=CLOSING, wait_ms=BRIEF_MS, min_bytes=10_000)


@variants(version=(8, LAST))
def story_what_ends_a_wait_in_a_session(broker: Broker, version: int) -> None:
    broker.topic("t", 2)
    broker.topic("u")
    write(broker, "t", 1, 2)
    session = Session(broker, version)
    session.fetch(Place("never"), Place("t"), Place("u"), epoch=NEW, wait_ms=BRIEF_MS)
    session.fetch(wait_ms=BRIEF_MS)
    session.fetch(Place("t", 1), wait_ms=PATIENCE_MS)
    session.fetch(Place("t", 1, 2), wait_ms=BRIEF_MS)
    delete_records(broker, ("t", 1, 1))
    session.fetch(wait_ms=BRIEF_MS)
    session.fetch(Place("t", 1, 0), wait_ms=PATIENCE_MS)
    session.fetch(Place("t", 1, 2), wait_ms=BRIEF_MS)
    session.forget_ids("u")
    delete(broker, "u")
    session.fetch(wait_ms=BRIEF_MS)
    session.fetch(wait_ms=BRIEF_MS)
    producer = broker.init("x")
    broker.add("x", producer, [("t", 0)])
    send(broker, "x", Batch(("t", 0), producer, is_transactional=True), version=11)
    session.fetch(committed=True, wait_ms=BRIEF_MS)
    session.fetch(committed=True, wait_ms=BRIEF_MS)
    session.fetch(wait_ms=PATIENCE_MS)
    broker.end("x", producer, commit=True)
    session.fetch(Place("t", 0, 2), wait_ms=BRIEF_MS)
    session.fetch(without=[("t", 0), ("t", 1)], wait_ms=PATIENCE_MS)
    session.fetch(wait_ms=PATIENCE_MS)
    session.fetch(without=[("u", 0), ("never", 0)], wait_ms=PATIENCE_MS)
