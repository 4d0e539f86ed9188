"""Fetch sessions, as a real Kafka has them (with --peers), and what is ours: restarts, wake-ups."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.broker.testing import run_broker
from odradek.protocol.apis.fetch import FETCH
from odradek.protocol.apis.topics import DELETE_TOPICS, DeleteTopicsRequest
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode
from tests.broker.api.fetching import SessionClient, in_answer
from tests.broker.api.producing import settled, unique, until
from tests.broker.api.test_delete_records import delete
from tests.broker.asks import batch, create_topic, fetch, produce, topic_metadata
from tests.broker.raw import RawClient

E = ErrorCode
FOR_EVER_MS = 24 * 3600 * 1000


def topics(client: RawClient, *values: tuple[bytes, ...], partitions: int = 1) -> list[str]:
    """Make a topic for each argument, with a batch for each value in partition 0."""
    names = []
    for some in values:
        name = unique("session")
        assert create_topic(client, name, partitions).error_code == E.NONE
        settled(lambda name=name: fetch(client, name, 0))  # type: ignore[misc]
        for value in some:
            assert produce(client, name, batch(value)).error_code == E.NONE
        names.append(name)
    return names


def test_a_full_fetch_has_everything_and_an_incremental_one_what_has_changed(
    either: RawClient,
) -> None:
    quiet, busy = topics(either, (), ())
    session = SessionClient(either)
    whole = session.fetch((quiet, 0, 0), (busy, 0, 0))
    assert whole.session_id > 0
    assert list(in_answer(whole)) == [(quiet, 0), (busy, 0)]
    assert session.news() == {}
    produce(either, busy, batch(b"a"))
    first = session.news()
    assert list(first) == [(busy, 0)]
    assert first[busy, 0].records
    again = session.news()
    assert bytes(again[busy, 0].records) == bytes(first[busy, 0].records), "it is where it was"
    assert session.news((busy, 0, 1)) == {}
    assert session.news() == {}


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [(0, -1, E.NONE), (0, 0, E.NONE), (5, 0, E.NONE), (0, 3, None), (5, 3, None)],
)
def test_what_is_not_there_is_not_gone_on_with(
    either: RawClient, session_id: int, epoch: int, code: ErrorCode | None
) -> None:
    (topic,) = topics(either, ())
    session = SessionClient(either)
    session.session_id, session.epoch = session_id, epoch
    answer = session.fetch((topic, 0, 0))
    assert answer.error_code == (E.FETCH_SESSION_ID_NOT_FOUND if code is None else code)
    assert (answer.session_id > 0) is (code is E.NONE and epoch == 0)


def test_an_epoch_that_is_not_the_next_one_is_refused_and_the_session_goes_on(
    either: RawClient,
) -> None:
    (topic,) = topics(either, ())
    session = SessionClient(either)
    session.fetch((topic, 0, 0))
    for wrong in (2, 2**31 - 1, -5):
        session.epoch = wrong
        answer = session.fetch()
        assert answer.error_code == E.INVALID_FETCH_SESSION_EPOCH
        assert answer.session_id == 0
        assert answer.responses == ()
    session.epoch = 1
    assert session.fetch().error_code == E.NONE


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_fetch_of_everything_ends_the_session_that_it_names(
    either: RawClient, epoch: int
) -> None:
    (topic,) = topics(either, ())
    session = SessionClient(either)
    ended = session.fetch((topic, 0, 0)).session_id
    session.epoch = epoch
    answer = session.fetch((topic, 0, 0))
    assert list(in_answer(answer)) == [(topic, 0)]
    assert (answer.session_id == 0) is (epoch == -1)
    session.session_id, session.epoch = ended, 1
    assert session.fetch().error_code == E.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_belongs_to_no_connection(either: RawClient, bootstrap: str) -> None:
    (topic,) = topics(either, ())
    host, _, port = bootstrap.rpartition(":")
    session = SessionClient(either)
    session.fetch((topic, 0, 0))
    produce(either, topic, batch(b"a"))
    with RawClient(type("At", (), {"host": host, "port": int(port)})()) as other:
        session.client = other
        assert list(session.news()) == [(topic, 0)]


def test_partitions_are_added_and_forgotten(either: RawClient) -> None:
    one, two = topics(either, (b"1",), (b"2",))
    session = SessionClient(either)
    session.fetch((one, 0, 1))
    assert list(session.news((two, 0, 1))) == [(two, 0)], "a new one is returned once"
    assert session.news(forgotten=((one, 0),)) == {}
    produce(either, one, batch(b"3"))
    produce(either, two, batch(b"4"))
    assert list(session.news()) == [(two, 0)]
    # One that is listed and forgotten in one request is forgotten.
    assert list(session.news((one, 0, 1), forgotten=((one, 0),))) == [(two, 0)]
    assert session.news(forgotten=((unique("nowhere"), 0), (two, 7))).keys() == {(two, 0)}


def test_a_session_without_partitions_ends(either: RawClient) -> None:
    (topic,) = topics(either, (b"1",))
    session = SessionClient(either)
    session_id = session.fetch((topic, 0, 0)).session_id
    answer = session.fetch(forgotten=((topic, 0),))
    assert (answer.error_code, answer.session_id, answer.responses) == (E.NONE, 0, ())
    session.session_id = session_id
    assert session.fetch().error_code == E.FETCH_SESSION_ID_NOT_FOUND


def test_an_error_is_answered_each_time_until_it_is_gone(either: RawClient) -> None:
    (there,) = topics(either, ())
    missing = unique("later")
    session = SessionClient(either)
    session.fetch((there, 0, 0), (missing, 0, 0))
    for _ in range(2):
        news = session.news()
        assert list(news) == [(missing, 0)]
        assert news[missing, 0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert create_topic(either, missing).error_code == E.NONE
    settled(lambda: fetch(either, missing, 0))
    news = session.news()
    assert news[missing, 0].error_code == E.NONE
    assert session.news() == {}


def test_what_is_not_found_is_last_in_an_answer_and_in_the_session_that_begins(
    either: RawClient,
) -> None:
    (there,) = topics(either, ())
    missing = unique("never")
    session = SessionClient(either)
    assert list(session.news((missing, 0, 0), (there, 0, 0))) == [(there, 0), (missing, 0)]
    gone = DeleteTopicsRequest(topic_names=(there,), timeout_ms=60_000)
    either.ask(DELETE_TOPICS, 5, gone)
    until(lambda: topic_metadata(either, there), lambda it: it.error_code != E.NONE)
    assert list(session.news()) == [(there, 0), (missing, 0)]


def test_what_is_listed_twice_is_answered_once_as_it_is_listed_last(either: RawClient) -> None:
    (topic,) = topics(either, (b"1", b"2"))
    session = SessionClient(either)
    answer = session.fetch((topic, 0, 7), (topic, 0, 1))
    (data,) = (data for found in answer.responses for data in found.partitions)
    assert data.error_code == E.NONE
    assert next(iter_batches(data.records))[0].base_offset == 1


def test_any_negative_leader_epoch_of_a_fetch_is_none(either: RawClient) -> None:
    (topic,) = topics(either, (b"1",))
    request = SessionClient(either).request((topic, 0, 0))
    (listed,) = request.topics
    (wanted,) = listed.partitions
    wanted = replace(wanted, current_leader_epoch=-5, last_fetched_epoch=-5)
    request = replace(request, topics=(replace(listed, partitions=(wanted,)),))
    assert in_answer(either.ask(FETCH, 12, request))[topic, 0].error_code == E.NONE


def test_an_offset_out_of_range_is_an_error_of_its_partition(either: RawClient) -> None:
    (topic,) = topics(either, (b"1",))
    session = SessionClient(either)
    session.fetch((topic, 0, 0))
    for _ in range(2):
        news = session.news((topic, 0, 77))
        assert news[topic, 0].error_code == E.OFFSET_OUT_OF_RANGE
    assert list(session.news((topic, 0, 1))) == [(topic, 0)], "the error is gone, and it says so"
    assert session.news() == {}


def test_deleted_records_are_news_of_the_log_start(either: RawClient) -> None:
    (topic,) = topics(either, (b"1", b"2"))
    session = SessionClient(either)
    session.fetch((topic, 0, 2))
    assert delete(either, (topic, 0, 1)) == [(topic, 0, E.NONE, 1)]
    news = session.news()
    assert news[topic, 0].log_start_offset == 1
    assert not news[topic, 0].records
    assert session.news() == {}


def test_partitions_take_turns_where_an_answer_has_room_for_one(either: RawClient) -> None:
    names = topics(either, (b"1" * 500,), (b"2" * 500,), (b"3" * 500,))
    session = SessionClient(either)
    whole = session.news(*[(name, 0, 0) for name in names], max_bytes=1)
    served = [name for (name, _), data in whole.items() if data.records]
    assert served == names[:1]
    for _ in range(5):
        news = session.news(max_bytes=1)
        served += [str(name) for (name, _), data in news.items() if data.records]
    assert served == [names[0], names[0], names[1], names[2], names[0], names[1]]


def test_a_session_has_names_or_ids(either: RawClient) -> None:
    (topic,) = topics(either, ())
    topic_id = topic_metadata(either, topic).topic_id
    named = SessionClient(either, version=12)
    named.fetch((topic, 0, 0))
    named.version = 13
    assert named.fetch().error_code == E.FETCH_SESSION_TOPIC_ID_ERROR
    identified = SessionClient(either, version=13)
    identified.fetch((topic_id, 0, 0))
    identified.version = 12
    assert identified.fetch().error_code == E.FETCH_SESSION_TOPIC_ID_ERROR
    identified.version = 13
    assert identified.fetch().error_code == E.NONE


def test_a_topic_that_is_made_anew_is_another_one(either: RawClient) -> None:
    (topic, other) = topics(either, (b"1",), ())
    topic_id = topic_metadata(either, topic).topic_id
    other_id = topic_metadata(either, other).topic_id
    session = SessionClient(either, version=13)
    session.fetch((topic_id, 0, 1), (other_id, 0, 0))
    gone = DeleteTopicsRequest(topic_names=(topic,), timeout_ms=60_000)
    either.ask(DELETE_TOPICS, 5, gone)
    until(lambda: topic_metadata(either, topic), lambda it: it.error_code != E.NONE)
    news = session.news()
    assert list(news) == [(topic_id, 0)]
    assert news[topic_id, 0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(either, topic)
    settled(lambda: fetch(either, topic, 0))
    news = session.news()
    assert list(news) == [(topic_id, 0)]
    assert news[topic_id, 0].error_code == E.INCONSISTENT_TOPIC_ID


def test_an_id_of_no_topic_is_answered_each_time(either: RawClient) -> None:
    (topic,) = topics(either, ())
    topic_id = topic_metadata(either, topic).topic_id
    nothing = type(topic_id)(int=12345)
    session = SessionClient(either, version=13)
    session.fetch((topic_id, 0, 0), (nothing, 0, 0))
    for _ in range(2):
        news = session.news()
        assert list(news) == [(nothing, 0)]
        assert news[nothing, 0].error_code == E.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("epoch", [-1, 0, 1])
def test_a_topic_that_is_not_there_does_not_end_the_wait_for_the_others(
    client: RawClient, epoch: int
) -> None:
    (there,) = topics(client, ())
    places = ((unique("never"), 0, 0), (there, 0, 0))
    session = SessionClient(client)
    if epoch == 1:
        session.fetch(*places)
    session.epoch = epoch

    def append() -> None:
        with RawClient(Address(client)) as other:
            produce(other, there, batch(b"a"))

    thread = threading.Timer(0.05, append)
    thread.start()
    news = session.news(*(places if epoch < 1 else ()), max_wait_ms=FOR_EVER_MS)
    assert news[there, 0].records
    thread.join()


def test_nothing_is_waited_for_if_nothing_is_there(either: RawClient) -> None:
    session = SessionClient(either)
    missing = unique("never")
    for places in ((missing, 0, 0),), ():
        news = session.news(*places, max_wait_ms=FOR_EVER_MS)
        assert news[missing, 0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_waiting_incremental_fetch_is_woken_by_each_kind_of_news(client: RawClient) -> None:
    quiet, busy = topics(client, (), ())
    session = SessionClient(client)
    session.fetch((quiet, 0, 0), (busy, 0, 0))

    def append() -> None:
        with RawClient(Address(client)) as other:
            produce(other, busy, batch(b"a"))

    thread = threading.Timer(0.05, append)
    thread.start()
    assert list(session.news(max_wait_ms=FOR_EVER_MS)) == [(busy, 0)]
    thread.join()

    def remove() -> None:
        with RawClient(Address(client)) as other:
            gone = DeleteTopicsRequest(topic_names=(quiet,), timeout_ms=60_000)
            other.ask(DELETE_TOPICS, 5, gone)

    thread = threading.Timer(0.05, remove)
    thread.start()
    news = session.news((busy, 0, 1), max_wait_ms=FOR_EVER_MS)
    # Its lead ends first.
    refusals = (E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION)
    assert news[quiet, 0].error_code in refusals
    thread.join()


def test_a_fetch_ends_when_its_session_goes_on_elsewhere(client: RawClient) -> None:
    (topic,) = topics(client, ())
    session = SessionClient(client)
    session.fetch((topic, 0, 0))
    with RawClient(Address(client)) as other:
        waiting = session.request(max_wait_ms=FOR_EVER_MS)
        answers: list[object] = []
        thread = threading.Thread(
            target=lambda: answers.append(other.ask(FETCH, 12, waiting).error_code)
        )
        thread.start()
        later = SessionClient(client)
        later.session_id, later.epoch = session.session_id, 2
        until(later.fetch, lambda it: it.error_code == E.NONE)  # once the first has arrived
        thread.join()
    assert answers == [E.INVALID_FETCH_SESSION_EPOCH]


def test_a_broker_that_has_started_again_has_no_sessions(tmp_path: Path) -> None:
    with run_broker(data_dir=tmp_path) as broker:
        with RawClient(broker) as client:
            (topic,) = topics(client, (b"1",))
            session = SessionClient(client)
            session.fetch((topic, 0, 0))
        broker.kill()
        broker.start()
        with RawClient(broker) as client:
            session.client = client
            assert session.fetch().error_code == E.FETCH_SESSION_ID_NOT_FOUND
            session.session_id = session.epoch = 0
            settled(lambda: fetch(client, topic, 0))
            assert list(session.news((topic, 0, 0))) == [(topic, 0)]
            assert session.session_id > 0


def test_without_slots_there_are_no_sessions(tmp_path: Path) -> None:
    config = {"max.incremental.fetch.session.cache.slots": "0"}
    with run_broker(data_dir=tmp_path, config=config) as broker, RawClient(broker) as client:
        (topic,) = topics(client, ())
        assert SessionClient(client).fetch((topic, 0, 0)).session_id == 0


class Address:
    """Where a connection leads to."""

    def __init__(self, client: RawClient) -> None:
        self.host, self.port = client.socket.getpeername()[:2]
