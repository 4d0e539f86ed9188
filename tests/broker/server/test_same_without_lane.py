"""The lane answers and stores byte for byte what the tasks of the connections do.

A script of requests, drawn from a seed, is played to a broker with the lane and to one without.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest
import trio
import trio.testing

from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.batch import BatchHeader, Codec, read_header
from odradek.protocol.connection import ClientProtocol
from tests.broker.server.produced import PARTITIONS, TOPICS, Broker, Producer, broker
from tests.fakes.clock import START_MS

DAY_MS: Final = 24 * 3600 * 1000


def headers_in(log: bytes) -> Iterator[BatchHeader]:
    position = 0
    while position < len(log):
        header = read_header(log[position:])
        yield header
        position += header.size_bytes


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


@dataclass
class Played:
    answers: list[list[bytes]]
    """The answers of each connection."""
    logs: dict[str, bytes]
    traffic: dict[str, dict[str, int]]


async def played(seed: int, *, is_at_once: bool) -> Played:
    """Play a script."""
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
        return Played(found_answers, found.logs(), found.traffic())


@pytest.mark.parametrize("seed", range(6))
async def test_answers_and_files_are_the_same_with_and_without_the_lane(
    seed: int, taken: Counter[bool]
) -> None:
    one = await played(seed, is_at_once=True)
    assert taken[True] > 30, "the lane takes what it is there for"
    assert taken[False] > 30, "and meets what it is not there for"
    taken.clear()
    other = await played(seed, is_at_once=False)
    assert not taken
    for number, (mine, others) in enumerate(zip(one.answers, other.answers, strict=True)):
        assert mine == others, f"connection {number}"
    assert one.logs == other.logs
    assert one.traffic == other.traffic


@pytest.mark.parametrize("is_at_once", [True, False])
async def test_the_counters_have_exactly_what_is_in_the_logs(is_at_once: bool) -> None:
    found = await played(7, is_at_once=is_at_once)
    for topic in TOPICS:
        batches = [
            header
            for name, log in found.logs.items()
            if name.startswith(f"{topic}-")
            for header in headers_in(log)
        ]
        traffic = found.traffic[topic]
        assert traffic["messages_in"] == sum(header.record_count for header in batches)
        assert traffic["bytes_in"] == sum(header.size_bytes for header in batches) > 0
        assert traffic["produce_requests"] > len(batches), "some were refused"
        assert 0 < traffic["failed_produce_requests"] < traffic["produce_requests"]
