"""Requests that the lane takes, those that it leaves to the task, and what goes wrong."""

import errno
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.api.late_table import LateTable
from odradek.broker.cluster.image import ClusterImage, TopicImage
from odradek.broker.partitions.in_sync_view import Progress
from odradek.broker.partitions.leader import Leader
from odradek.broker.storage.segment import Segment
from odradek.protocol.batch import TimestampType, crc_is_good, read_header
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.server.lane_clients import (
    hold_turns,
    known,
    producers_of,
    response,
    send,
)
from tests.broker.server.produced import DIRECTORY, Producer, broker
from tests.fakes.clock import START_MS
from tests.fakes.net import split_frames

E = ErrorCode
FIRST: Final = "00000000000000000000.log"
"""The first segment of a log."""
DAY_MS: Final = 24 * 3600 * 1000


async def test_the_requests_of_many_connections_are_appended_by_one_write(
    taken: Counter[bool],
) -> None:
    async with broker() as found:
        producers = await producers_of(found, 50)
        await trio.testing.wait_all_tasks_blocked(0.01)
        taken.clear()
        before = found.disk.counts["append"]
        gate = hold_turns(found)
        for producer in producers:
            producer.client.send(
                found.frame([("plain", 0, producer.batch("plain", 0, b"a", b"b"))])
            )
            producer.frames += 1
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
        offsets = [response((await each.answers())[-1]).base_offset for each in producers]
        assert taken == {True: 50}
        offsets.sort()
        assert offsets == [50 + 2 * number for number in range(50)]
        assert found.disk.counts["append"] == before + 1
        log = found.logs()[f"plain-0/{FIRST}"]
        bases, position = [], 0
        while position < len(log):
            header = read_header(log[position:])
            bases.append(header.base_offset)
            position += header.size_bytes
        assert bases == [*range(50), *offsets]


# plant the lane answers before the fsync
@pytest.mark.parametrize("flush", ["journal", "ack"])
async def test_an_answer_of_the_lane_leaves_after_the_fsync(
    flush: str, taken: Counter[bool]
) -> None:
    async with broker(log_flush=flush) as found:
        (producer,) = await producers_of(found, 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate = found.disk.fsync_gate = trio.Event()
        producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"held"))]))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken[True] == 1
        assert b"held" in found.logs()[f"plain-0/{FIRST}"]
        assert len(await producer.client.frames(1)) == 1, "the first request has its answer"
        assert len(producer.client.received) < 200, "the second has none"
        received = producer.client.received
        gate.set()
        await producer.client.frames(2)
        assert len(producer.client.received) > len(received)
        durable = {
            "ack": found.logs(durable=True)[f"plain-0/{FIRST}"],
            "journal": b"".join(found.disk.files(DIRECTORY, "journal-a", durable=True).values()),
        }
        assert [name for name, content in durable.items() if b"held" in content] == [flush]


# plant the lane passes an answer that is pending
async def test_answers_keep_the_order_of_requests_behind_one_that_the_task_serves(
    taken: Counter[bool],
) -> None:
    """The first one waits for the fsync of another partition than those that follow."""
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        await known(found, producer, partition=1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        taken.clear()
        gate = found.disk.fsync_gate = trio.Event()
        slow = producer.batch("compacted", 0, b"slow")  # which the lane leaves to the task
        producer.client.send(found.frame([("compacted", 0, slow)], correlation_id=1))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not taken[True]
        found.disk.fsync_gate = None  # for those that begin from now on
        for number in (2, 3, 4):
            batch = producer.batch("plain", number % 2, b"quick")
            producer.client.send(found.frame([("plain", number % 2, batch)], correlation_id=number))
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken[True] == 3
        gate.set()
        frames = (await producer.client.frames(2 + 4))[2:]
        assert [int.from_bytes(frame[:4], "big") for frame in frames] == [1, 2, 3, 4]


# plant a request that has arrived in parts is appended in somebody else's turn
async def test_large_requests_that_arrive_in_parts_are_taken_once_they_are_whole(
    taken: Counter[bool],
) -> None:
    """As those of a producer in bulk: always a part of the next one is there."""
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        taken.clear()
        sizes = [100_000, 16_000, 16_000, 200_000, 16_000, 300]
        batches = [producer.batch("plain", 0, b"x" * size) for size in sizes]
        sent = b"".join(found.frame([("plain", 0, batch)]) for batch in batches)
        cuts = [*range(0, len(sent), 30_000), len(sent) - 100, len(sent)]
        for start, end in pairwise(cuts):
            producer.client.send(sent[start:end])
            await trio.testing.wait_all_tasks_blocked()
        frames = (await producer.client.frames(1 + len(sizes)))[1:]
        assert taken[True] == len(sizes)
        assert [response(frame).base_offset for frame in frames] == [1, 2, 3, 4, 5, 6]
        log = found.logs()[f"plain-0/{FIRST}"]
        assert [log.count(b"x" * size) > 0 for size in sizes] == [True] * len(sizes)


# plant an answer to acks=1 waits for the followers
async def test_acks_1_waits_for_this_disk_and_not_for_followers(
    taken: Counter[bool], leaders: list[Leader]
) -> None:
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        (leader,) = {each for each in leaders if each.by_id.topic == "plain"}
        leader.view.followers[7] = Progress(trio.current_time())
        leader.view.isr = (*leader.view.isr, 7)
        await trio.testing.wait_all_tasks_blocked(0.01)
        taken.clear()
        gate = found.disk.fsync_gate = trio.Event()
        batches = [producer.batch("plain", 0, b"x") for _ in range(2)]
        producer.client.send(found.frame([("plain", 0, batches[0])], acks=1))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(split_frames(producer.client.received)) == 1
        gate.set()
        one = response((await producer.client.frames(2))[-1])
        assert (one.error_code, one.base_offset) == (E.NONE, 1)
        producer.client.send(found.frame([("plain", 0, batches[1])], acks=-1))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(split_frames(producer.client.received)) == 2, "this one waits for the follower"
        assert taken == {True: 2}
        leader.view.isr = leader.view.isr[:-1]
        leader.update_visible()
        assert response((await producer.client.frames(3))[-1]).base_offset == 2


# plant the lane takes the time of a producer where the topic has that of the log
async def test_where_the_log_has_the_time_the_lane_writes_and_answers_it(
    taken: Counter[bool],
) -> None:
    async with broker() as found:
        (producer,) = await producers_of(found, 1, "timed")
        taken.clear()
        long_ago = producer.batch("timed", 0, b"x", timestamp_ms=START_MS - 9_000 * DAY_MS)
        answer = await send(found, producer, long_ago, "timed")
        assert taken == {True: 1}
        assert (answer.error_code, answer.base_offset) == (E.NONE, 1)
        assert answer.log_append_time_ms == found.clock.wall_ms()
        log = found.logs()[f"timed-0/{FIRST}"]
        header = read_header(log, read_header(log).size_bytes)
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert header.max_timestamp == answer.log_append_time_ms
        assert crc_is_good(memoryview(bytearray(log))[read_header(log).size_bytes :], header)


async def test_a_damaged_batch_spends_no_sequence(taken: Counter[bool]) -> None:
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        bad = producer.batch("plain", 0, b"bad", is_spent=False)
        bad[-1] ^= 1
        good = producer.batch("plain", 0, b"good")
        producer.client.send(found.frame([("plain", 0, bad)]) + found.frame([("plain", 0, good)]))
        refused, stored = [response(frame) for frame in (await producer.client.frames(3))[1:]]
        assert refused.error_code == E.CORRUPT_MESSAGE
        assert (stored.error_code, stored.base_offset) == (E.NONE, 1)


# plant the lane writes by the id of a topic that is gone into the one of its name
async def test_an_old_id_does_not_write_to_the_topic_made_anew_under_its_name(
    monkeypatch: pytest.MonkeyPatch, taken: Counter[bool]
) -> None:
    """The new topic leads already, and the image with its id is not the current one yet."""
    former = UUID(int=7)
    by_id = ClusterImage.topic_by_id

    def with_former(image: ClusterImage, topic_id: UUID) -> TopicImage | None:
        if topic_id == former:
            return replace(image.topics["plain"], topic_id=former)
        return by_id(image, topic_id)

    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        stranger = Producer(found.client(), await found.producer_id())
        monkeypatch.setattr(ClusterImage, "topic_by_id", with_former)
        there = found.topic_ids["plain"]
        for sender in (producer, stranger):  # the lane would take it from the first
            late = sender.batch("plain", 0, b"late", is_spent=False)
            found.topic_ids["plain"] = former
            assert (await send(found, sender, late)).error_code == E.UNKNOWN_TOPIC_ID
            found.topic_ids["plain"] = there
        good = await send(found, producer, producer.batch("plain", 0, b"good"))
        assert (good.error_code, good.base_offset) == (E.NONE, 1)
        assert taken[True] == 1


# plant a batch that could not be written spends its sequence
async def test_batches_that_could_not_be_written_spend_no_sequences(taken: Counter[bool]) -> None:
    async with broker() as found:
        producers = await producers_of(found, 3)
        await trio.testing.wait_all_tasks_blocked(0.01)
        found.disk.fail("append", errno.EMFILE, path_end=f"plain-0/{FIRST}")
        batches = [producer.batch("plain", 0, b"again") for producer in producers]
        for code, offsets in ((E.KAFKA_STORAGE_ERROR, [-1, -1, -1]), (E.NONE, [3, 4, 5])):
            for producer, batch in zip(producers, batches, strict=True):
                producer.client.send(found.frame([("plain", 0, batch)]))
                producer.frames += 1
            answers = [response((await producer.answers())[-1]) for producer in producers]
            assert [answer.error_code for answer in answers] == [code] * 3
            assert sorted(answer.base_offset for answer in answers) == offsets
        assert found.logs()[f"plain-0/{FIRST}"].count(b"again") == 3


# plant the lane stores a part of a request that it leaves to the task
async def test_of_a_request_with_a_bad_batch_the_good_one_is_stored_once(
    taken: Counter[bool],
) -> None:
    """The lane checks all batches of a request before it takes one."""
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        await known(found, producer, partition=1)
        good = producer.batch("plain", 0, b"good", is_idempotent=False)
        bad = producer.batch("plain", 1, b"bad", is_spent=False)
        bad[-1] ^= 1
        taken.clear()
        producer.client.send(found.frame([("plain", 0, good), ("plain", 1, bad)]))
        producer.frames += 1
        await producer.answers()
        assert taken[False]
        assert not taken[True]
        after = await send(found, producer, producer.batch("plain", 0, b"after"))
        assert after.base_offset == 2


# plant a batch of a fenced producer slips through in the turn of its fencing
async def test_a_producer_that_is_fenced_in_a_turn_stores_nothing_in_that_turn() -> None:
    async with broker() as found:
        old, new = await producers_of(found, 2)
        new.producer_id, new.epoch, new.sequences = old.producer_id, old.epoch + 1, {}
        await trio.testing.wait_all_tasks_blocked()
        gate = hold_turns(found)
        new.client.send(found.frame([("plain", 0, new.batch("plain", 0, b"new"))]))
        await trio.testing.wait_all_tasks_blocked()
        old.client.send(found.frame([("plain", 0, old.batch("plain", 0, b"old"))]))
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
        fresh = response((await new.client.frames(2))[-1])
        fenced = response((await old.client.frames(2))[-1])
        assert (fresh.error_code, fresh.base_offset) == (E.NONE, 2)
        assert fenced.error_code == E.INVALID_PRODUCER_EPOCH
        assert b"old" not in found.logs()[f"plain-0/{FIRST}"]


async def test_a_batch_that_is_sent_twice_in_a_turn_is_stored_once() -> None:
    async with broker() as found:
        one, other = await producers_of(found, 2)
        other.producer_id = one.producer_id
        batch = one.batch("plain", 0, b"once")
        for producer in (one, other):
            producer.client.send(found.frame([("plain", 0, bytes(batch))]))
        offsets = [
            response((await producer.client.frames(2))[-1]).base_offset for producer in (one, other)
        ]
        assert offsets == [2, 2]
        assert found.logs()[f"plain-0/{FIRST}"].count(b"once") == 1


@pytest.mark.parametrize(
    ("flush", "call", "path_end"),
    [
        ("journal", "append", f"plain-0/{FIRST}"),
        ("journal", "write_at", "journal-a"),
        ("journal", "fsync", "journal-a"),
        ("ack", "append", f"plain-0/{FIRST}"),
        ("ack", "fsync", f"plain-0/{FIRST}"),
    ],
)
async def test_a_disk_that_fails_is_answered_in_the_words_of_the_ordinary_way(
    flush: str, call: str, path_end: str
) -> None:
    said = []
    for is_at_once in (True, False):
        async with broker(is_at_once=is_at_once, log_flush=flush) as found:
            (producer,) = await producers_of(found, 1)
            await trio.testing.wait_all_tasks_blocked(0.01)
            found.disk.fail(call, errno.EIO, path_end=path_end)
            answer = await send(found, producer, producer.batch("plain", 0, b"x"))
            assert answer.error_code == E.KAFKA_STORAGE_ERROR
            said.append(answer)
    assert said[0] == said[1]


# plant the lane goes on behind a batch that it could not append
@pytest.mark.parametrize(("call", "error"), [("append", errno.EIO), ("open", errno.ENOSPC)])
@pytest.mark.parametrize("flush", ["journal", "ack", "os"])
async def test_what_follows_a_batch_that_was_not_appended_is_refused_too(
    call: str, error: int, flush: str, taken: Counter[bool]
) -> None:
    """Where the log rolls, the batches of a turn are appended one by one."""
    async with broker(log_flush=flush) as found:
        (producer,) = await producers_of(found, 1, "small")
        await send(found, producer, producer.batch("small", 0, b"x" * 14_000), "small")
        taken.clear()
        found.disk.fail(call, error, path_end=".log")
        batches = [producer.batch("small", 0, b"y" * 3_000) for _ in range(3)]
        frames = [found.frame([("small", 0, batch)]) for batch in batches]
        producer.client.send(b"".join(frames))
        producer.frames += 3
        answers = [response(frame) for frame in (await producer.answers())[-3:]]
        assert taken == {True: 3}
        assert [answer.error_code for answer in answers] == [E.KAFKA_STORAGE_ERROR] * 3
        logs = found.logs()
        assert sum(log.count(b"y" * 3_000) for log in logs.values()) == 0


async def test_an_api_that_cannot_be_imported_is_no_bug_of_the_lane(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where no file descriptor is left: the task of the connection meets it again."""
    async with broker() as found:
        producer = Producer(found.client(), await found.producer_id())

        def no_descriptor(_table: object, _key: int) -> Any:
            raise ProtocolError("Produce cannot be imported now")

        caplog.set_level("INFO")
        monkeypatch.setattr(LateTable, "__getitem__", no_descriptor)
        producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x"))]))
        await producer.client.closed()
        assert "Produce cannot be imported now" in caplog.text
        assert "a bug in the broker" not in caplog.text


async def test_an_assertion_of_the_log_in_a_turn_stops_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def meet_it() -> None:
        async with broker() as found:
            (producer,) = await producers_of(found, 1)
            monkeypatch.setattr(Segment, "_note_all", _broken("an impossible offset"))
            producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x"))]))
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await meet_it()
    assert caught.group_contains(AssertionError, match="an impossible offset")


def _broken(why: str) -> Callable[..., None]:
    def raise_it(*_: object) -> None:
        raise AssertionError(why)

    return raise_it
