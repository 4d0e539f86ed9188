"""The lane answers and stores byte for byte what the tasks of the connections do."""

import errno
import gc
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.api.late_table import LateTable
from odradek.broker.cluster.image import ClusterImage, TopicImage
from odradek.broker.server.lane import Lane, Taken
from odradek.broker.server.server import Server
from odradek.broker.storage.segment import Segment
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.produce import PRODUCE, ProduceResponse
from odradek.protocol.batch import Codec, read_header
from odradek.protocol.connection import ClientProtocol
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.wire import Cursor
from tests.broker.server.produced import PARTITIONS, TOPICS, Broker, broker
from tests.fakes.clock import START_MS
from tests.fakes.net import FakeClient, split_frames

E = ErrorCode
FIRST: Final = "00000000000000000000.log"
"""The first segment of a log."""
DAY_MS: Final = 24 * 3600 * 1000


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """Count the frames that the lane was offered, by whether it took them."""
    counts: Counter[bool] = Counter()
    take = Lane.take

    def counted(lane: Lane, asking: Any, frame: memoryview) -> Taken | None:
        result = take(lane, asking, frame)
        counts[result is not None] += 1
        return result

    monkeypatch.setattr(Lane, "take", counted)
    return counts


@dataclass
class Producer:
    """A producer on a connection of its own."""

    client: FakeClient
    producer_id: int
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    epoch: int = 0
    frames: int = 0
    last: bytes = b""
    """The last request."""

    def batch(
        self,
        topic: str,
        partition: int,
        *values: bytes,
        is_spent: bool = True,
        is_idempotent: bool = True,
        timestamp_ms: int = START_MS,
        codec: Codec = Codec.NONE,
        is_transactional: bool = False,
        key: bytes | None = b"k",
    ) -> bytearray:
        """The next batch for a partition; the one after it has the same sequence if not spent."""
        sequence = self.sequences.get((topic, partition), 0)
        if is_spent and is_idempotent:
            self.sequences[topic, partition] = sequence + len(values)
        return encode_batch(
            [Record(key=key, value=value, timestamp_ms=timestamp_ms) for value in values],
            producer_id=self.producer_id if is_idempotent else -1,
            producer_epoch=self.epoch if is_idempotent else -1,
            base_sequence=sequence if is_idempotent else -1,
            is_transactional=is_transactional,
            codec=codec,
        )

    async def answers(self) -> list[bytes]:
        """All frames that have arrived, once each request has one, or the connection is closed."""
        return await self.client.frames(self.frames)


class Script:
    """The requests of some producers, drawn from a seed. The same seed gives the same bytes."""

    def __init__(self, found: Broker, seed: int) -> None:
        self._broker = found
        self._dice = random.Random(seed)
        self._correlation_id = 0

    def requests(self, producer: Producer, partition: int) -> list[bytes]:
        """Draw the requests that a producer sends at once, all of them for one partition."""
        return [self._request(producer, partition) for _ in range(self._dice.choice((1, 1, 2, 4)))]

    def _request(self, producer: Producer, partition: int) -> bytes:
        dice = self._dice
        self._correlation_id += 1
        if dice.random() < 0.1:
            other = FindCoordinatorRequest(key=f"g{dice.randrange(5)}")
            _, parts = ClientProtocol("x").request(FIND_COORDINATOR, 1, other)
            return b"".join(parts)
        topic = dice.choice(
            ("plain", "plain", "plain", "plain", "small", "small", "small", *TOPICS)
        )
        version, acks = dice.randint(3, 13), dice.choice((-1,) * 8 + (1,) * 4 + (2,))
        before = dict(producer.sequences)
        records: list[tuple[str, int, bytes | bytearray | None]]
        records = [(topic, partition, self._records(producer, topic, partition))]
        if dice.random() < 0.15:  # more partitions in one request
            other_topic = dice.choice([each for each in TOPICS if each != topic])
            records.append(
                (other_topic, partition, self._records(producer, other_topic, partition))
            )
        if dice.random() < 0.05:  # the same partition once more
            records.insert(1, (topic, partition, self._records(producer, topic, partition)))
        if dice.random() < 0.03:
            records.append(("missing", 0, producer.batch("missing", 0, b"x")))
        if dice.random() < 0.03:
            records[0] = (topic, PARTITIONS + 3, records[0][2])
            acks = 2
        if acks == 2:
            producer.sequences = before
        if producer.last and dice.random() < 0.05:
            producer.sequences = before
            return producer.last
        producer.last = self._broker.frame(
            records,
            version=version,
            acks=acks,
            correlation_id=self._correlation_id,
            client_id=dice.choice((None, "", "producer", "prod\u00fccer")),
            transactional_id="t" if dice.random() < 0.03 else None,
        )
        return producer.last

    def _records(self, producer: Producer, topic: str, partition: int) -> bytes | bytearray | None:
        dice = self._dice
        values = [
            dice.randbytes(dice.choice((1, 300, 3000))) for _ in range(dice.choice((1, 1, 3)))
        ]
        kind = dice.random()
        if kind < 0.55 or dice.random() < 0.6:
            return producer.batch(topic, partition, *values)
        if kind < 0.65:
            return producer.batch(topic, partition, *values, is_idempotent=False)
        if kind < 0.70:  # which is sent again
            return producer.batch(topic, partition, *values, is_spent=False)
        if kind < 0.73:
            before = producer.sequences.get((topic, partition), 0)
            producer.sequences[topic, partition] = before + 5
            ahead = producer.batch(topic, partition, *values)
            producer.sequences[topic, partition] = before
            return ahead
        if kind < 0.76:
            late = START_MS + dice.choice((-1, 1)) * 9_000 * DAY_MS
            return producer.batch(topic, partition, *values, timestamp_ms=late, is_spent=False)
        if kind < 0.80:
            codec = dice.choice((Codec.GZIP, Codec.LZ4, Codec.ZSTD))
            is_spent = codec is not Codec.ZSTD
            return producer.batch(topic, partition, *values, codec=codec, is_spent=is_spent)
        if kind < 0.82:
            return producer.batch(topic, partition, *values, is_transactional=True, is_spent=False)
        if kind < 0.85:
            return producer.batch(topic, partition, *values, key=None, is_spent=False)
        if kind < 0.87:
            producer.epoch += 1
            producer.sequences.clear()
            return producer.batch(topic, partition, *values)
        if kind < 0.875 and producer.epoch:
            producer.epoch -= 1
            fenced = producer.batch(topic, partition, *values, is_spent=False)
            producer.epoch += 1
            return fenced
        if kind < 0.88:
            return dice.choice((None, b""))
        good = producer.batch(topic, partition, *values, is_spent=False)
        if kind < 0.92:
            good[dice.randrange(len(good))] ^= 1 << dice.randrange(8)
        elif kind < 0.95:
            del good[dice.randrange(len(good)) :]
        else:
            good += producer.batch(topic, partition, b"and another", is_spent=False)
        return good


async def played(seed: int, *, is_at_once: bool) -> tuple[list[list[bytes]], dict[str, bytes]]:
    """Play a script. Return the answers of each connection, and the logs."""
    found_answers = []
    async with broker(is_at_once=is_at_once) as found:
        script = Script(found, seed)
        producers = [Producer(found.client(), await found.producer_id()) for _ in range(PARTITIONS)]
        for number in range(40):
            # Each has partitions of its own, as nothing says whose records come first.
            for partition, producer in enumerate(producers):
                requests = script.requests(producer, partition)
                sent = b"".join(requests)
                half = len(sent) // 2 if (number + partition) % 5 == 0 else len(sent)
                producer.client.send(sent[:half])
                producer.frames += len(requests)
                if half < len(sent):
                    await trio.testing.wait_all_tasks_blocked()
                    producer.client.send(sent[half:])
            for producer in producers:
                await producer.answers()
        found_answers = [await producer.answers() for producer in producers]
        return found_answers, found.logs()


@pytest.mark.parametrize("seed", range(6))
async def test_answers_and_files_are_the_same_with_and_without_the_lane(
    seed: int, taken: Counter[bool]
) -> None:
    answers, logs = await played(seed, is_at_once=True)
    assert taken[True] > 30, "the lane takes what it is there for"
    assert taken[False] > 30, "and meets what it is not there for"
    taken.clear()
    others, other_logs = await played(seed, is_at_once=False)
    assert not taken
    for number, (one, other) in enumerate(zip(answers, others, strict=True)):
        assert one == other, f"connection {number}"
    assert logs == other_logs


def response(frame: bytes, version: int = 13) -> Any:
    """The message in the frame of an answer to Produce."""
    cursor = Cursor(frame)
    cursor.position = 5 if version >= 9 else 4
    found: ProduceResponse = PRODUCE.parse_response(version, cursor)
    return found.responses[0].partition_responses[0]


async def known(
    found: Broker, producer: Producer, topic: str = "plain", partition: int = 0
) -> None:
    """Let the partition know the producer, which the lane does not do."""
    await send(found, producer, producer.batch(topic, partition, b"first"), topic, partition)


async def send(
    found: Broker,
    producer: Producer,
    records: bytes | bytearray,
    topic: str = "plain",
    partition: int = 0,
) -> Any:
    producer.client.send(found.frame([(topic, partition, records)]))
    producer.frames += 1
    return response((await producer.answers())[-1])


async def producers_of(found: Broker, count: int, topic: str = "plain") -> list[Producer]:
    producers = [Producer(found.client(), await found.producer_id()) for _ in range(count)]
    for producer in producers:
        await known(found, producer, topic)
    return producers


def hold_turns(found: Broker) -> trio.Event:
    """Let no turn begin until the event is set."""
    assert found.network.turns is not None
    found.network.turns.gate = trio.Event()
    return found.network.turns.gate


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
async def test_an_answer_of_the_lane_leaves_after_the_fsync(taken: Counter[bool]) -> None:
    async with broker() as found:
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
        durable = found.logs(durable=True)[f"plain-0/{FIRST}"]
        assert b"held" in durable


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
        assert taken == {False: 1}
        found.disk.fsync_gate = None  # for those that begin from now on
        for number in (2, 3, 4):
            batch = producer.batch("plain", number % 2, b"quick")
            producer.client.send(found.frame([("plain", number % 2, batch)], correlation_id=number))
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken == {False: 1, True: 3}
        gate.set()
        frames = (await producer.client.frames(2 + 4))[2:]
        assert [int.from_bytes(frame[:4], "big") for frame in frames] == [1, 2, 3, 4]


# plant the lane takes more requests of a connection than may wait for their answers
async def test_the_lane_leaves_requests_to_the_task_when_five_answers_are_pending(
    taken: Counter[bool],
) -> None:
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        taken.clear()
        gate = found.disk.fsync_gate = trio.Event()
        for number in range(9):
            batch = producer.batch("plain", 0, b"x")
            producer.client.send(found.frame([("plain", 0, batch)], correlation_id=number))
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken == {True: 5}
        assert producer.client.unread_bytes > 0, "the broker reads no more than it must"
        gate.set()
        frames = (await producer.client.frames(1 + 9))[1:]
        assert [int.from_bytes(frame[:4], "big") for frame in frames] == list(range(9))
        assert [response(frame).base_offset for frame in frames] == list(range(1, 10))


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
        assert taken == {False: 1}
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


@pytest.mark.parametrize("call", ["append", "fsync"])
async def test_a_disk_that_fails_is_answered_in_the_words_of_the_ordinary_way(call: str) -> None:
    said = []
    for is_at_once in (True, False):
        async with broker(is_at_once=is_at_once) as found:
            (producer,) = await producers_of(found, 1)
            await trio.testing.wait_all_tasks_blocked(0.01)
            found.disk.fail(call, 5, path_end=f"plain-0/{FIRST}")
            answer = await send(found, producer, producer.batch("plain", 0, b"x"))
            assert answer.error_code == E.KAFKA_STORAGE_ERROR
            said.append(answer)
    assert said[0] == said[1]


# plant the lane goes on behind a batch that it could not append
@pytest.mark.parametrize(("call", "error"), [("append", errno.EIO), ("open", errno.ENOSPC)])
@pytest.mark.parametrize("flush", ["ack", "os"])
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


@pytest.mark.slow
async def test_the_requests_of_clients_that_have_gone_are_not_kept(taken: Counter[bool]) -> None:
    async with broker() as found:
        producers = await producers_of(found, 5)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate = found.disk.fsync_gate = trio.Event()
        for producer in producers:
            producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x"))]))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken[True] == 5
        assert held_requests() == 5
        for producer in producers:
            producer.client.reset()
        while held_requests():  # noqa: ASYNC110 - until the server's watch has seen it
            await trio.sleep(0.05)
        gate.set()


def held_requests() -> int:
    gc.collect()
    return sum(isinstance(each, Taken) for each in gc.get_objects())


async def test_a_pending_request_of_the_lane_counts_in_memory(
    taken: Counter[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[Server] = []
    serve = Server.serve

    async def noted(server: Server, *args: Any, **options: Any) -> None:
        servers.append(server)
        await serve(server, *args, **options)

    monkeypatch.setattr(Server, "serve", noted)
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate = found.disk.fsync_gate = trio.Event()
        before = [server.held_bytes for server in servers]
        producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x"))]))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken[True] == 1
        assert [server.held_bytes for server in servers] > before
        gate.set()
        await producer.client.frames(2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [server.held_bytes for server in servers] == before


async def test_a_long_client_id_is_left_to_the_task(taken: Counter[bool]) -> None:
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        taken.clear()
        for length in (255, 256):
            frame = found.frame(
                [("plain", 0, producer.batch("plain", 0, b"x"))], client_id="c" * length
            )
            producer.client.send(frame)
            producer.frames += 1
            await producer.answers()
        assert taken == {True: 1, False: 1}


async def test_a_request_above_the_limit_of_frames_is_not_taken(taken: Counter[bool]) -> None:
    """`socket.request.max.bytes` may be less than what the lane could take."""
    async with broker(socket_request_max_bytes="2000") as found:
        (producer,) = await producers_of(found, 1)
        producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x" * 3_000))]))
        await producer.client.closed()


async def test_an_api_that_cannot_be_imported_is_no_bug_of_the_lane(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where no file descriptor is left: the task of the connection meets it again."""
    async with broker() as found:
        (producer,) = await producers_of(found, 1)

        def no_descriptor(_table: object, _key: int) -> Any:
            raise ProtocolError("Produce cannot be imported now")

        caplog.set_level("INFO")
        monkeypatch.setattr(LateTable, "__getitem__", no_descriptor)
        producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x"))]))
        await producer.client.closed()
        assert "Produce cannot be imported now" in caplog.text
        assert "a bug in the broker" not in caplog.text


async def test_many_answers_leave_in_several_turns_of_the_loop(taken: Counter[bool]) -> None:
    async with broker() as found:
        producers = await producers_of(found, 130)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate = hold_turns(found)
        for producer in producers:
            producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x"))]))
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
        ends = [0]

        def count() -> None:
            ends.append(sum(len(split_frames(each.client.received)) - 1 for each in producers))

        while ends[-1] < 130:
            trio.lowlevel.current_trio_token().run_sync_soon(count)
            await trio.lowlevel.checkpoint()
        assert max(after - before for before, after in pairwise(ends)) < 130
        offsets = {response((await each.client.frames(2))[-1]).base_offset for each in producers}
        assert offsets == set(range(130, 260))


async def test_a_client_that_goes_before_its_answer_is_no_bug(
    caplog: pytest.LogCaptureFixture, taken: Counter[bool]
) -> None:
    async with broker() as found:
        one, other = await producers_of(found, 2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate = found.disk.fsync_gate = trio.Event()
        for producer in (one, other):
            producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x"))]))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken[True] == 2
        one.client.reset()
        gate.set()
        assert len(await other.client.frames(2)) == 2
        assert "a bug in the broker" not in caplog.text


async def test_a_client_that_does_not_read_gets_its_answers_later(taken: Counter[bool]) -> None:
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        producer.client.stop_reading()
        for number in range(3):
            batch = producer.batch("plain", 0, b"x")
            producer.client.send(found.frame([("plain", 0, batch)], correlation_id=number))
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken[True] == 3
        producer.client.go_on_reading()
        frames = (await producer.client.frames(4))[1:]
        assert [int.from_bytes(frame[:4], "big") for frame in frames] == [0, 1, 2]


async def test_an_assertion_of_the_log_in_a_turn_stops_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def meet_it() -> None:
        async with broker() as found:
            (producer,) = await producers_of(found, 1)
            monkeypatch.setattr(Segment, "note", _broken("an impossible offset"))
            producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x"))]))
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await meet_it()
    assert caught.group_contains(AssertionError, match="an impossible offset")


def _broken(why: str) -> Callable[..., None]:
    def raise_it(*_: object) -> None:
        raise AssertionError(why)

    return raise_it
