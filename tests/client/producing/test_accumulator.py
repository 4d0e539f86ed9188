"""Queues of batches: order, sequences, what may be sent when."""

import pytest

from odradek.client.errors import Refused, TimedOut
from odradek.client.producing.accumulator import Accumulator
from odradek.client.producing.batches import (
    NO_PRODUCER,
    PartitionQueue,
    ProducerBatch,
    ProducerIdentity,
)
from odradek.client.producing.outcomes import FAILURES_KEPT
from odradek.protocol.batch import Codec, read_header
from odradek.protocol.record import Record, decode_batch, encode_batch

FIRST = ProducerIdentity(7, 0)
SECOND = ProducerIdentity(7, 1)


@pytest.fixture
def accumulator() -> Accumulator:
    return Accumulator(batch_bytes=1024, buffer_bytes=4096, delivery_timeout=10)


def add(accumulator: Accumulator, value: bytes, partition: int = 0) -> ProducerBatch:
    queue = accumulator.queue("t", partition)
    batch, _ = accumulator.append(queue, None, value, (), 1_000, len(value) + 24)
    return batch


def add_full(accumulator: Accumulator, count: int) -> PartitionQueue:
    """`count` batches of one large record each, for a partition that knows the producer."""
    for number in range(count):
        add(accumulator, b"%d" % number * 1000)
    return known(accumulator.queue("t", 0))


def known(queue: PartitionQueue) -> PartitionQueue:
    queue.known_as = FIRST.producer_id
    return queue


def take(queue: PartitionQueue, identity: ProducerIdentity = FIRST) -> ProducerBatch | None:
    return queue.take(identity, Codec.NONE, is_transactional=False, takes_open=True)


def took(queue: PartitionQueue, identity: ProducerIdentity = FIRST) -> ProducerBatch:
    batch = take(queue, identity)
    assert batch is not None
    return batch


def header(batch: ProducerBatch) -> tuple[int, int, int]:
    assert batch.encoded is not None
    found = read_header(batch.encoded)
    return found.producer_id, found.producer_epoch, found.base_sequence


async def test_records_share_a_batch_until_it_is_full(accumulator: Accumulator) -> None:
    first = add(accumulator, b"a" * 400)
    assert add(accumulator, b"b" * 400) is first
    assert add(accumulator, b"c" * 400) is not first
    batch = took(accumulator.queue("t", 0))
    assert batch is first
    assert batch.encoded is not None
    assert [record.value for record in decode_batch(batch.encoded)] == [b"a" * 400, b"b" * 400]


async def test_an_open_batch_waits_for_its_linger(accumulator: Accumulator) -> None:
    batch = add(accumulator, b"a")
    queue = accumulator.queue("t", 0)
    assert queue.take(FIRST, Codec.NONE, is_transactional=False, takes_open=False) is None
    assert took(queue) is batch


async def test_sequences_count_records(accumulator: Accumulator) -> None:
    for value in (b"a" * 400, b"b" * 400, b"c" * 400):
        add(accumulator, value)
    queue = known(accumulator.queue("t", 0))
    assert header(took(queue)) == (7, 0, 0)
    assert header(took(queue)) == (7, 0, 2)


async def test_sequences_wrap_to_zero(accumulator: Accumulator) -> None:
    queue = add_full(accumulator, 3)
    queue.identity, queue.next_sequence = FIRST, 2**31 - 1
    assert [header(took(queue))[2] for _ in range(3)] == [2**31 - 1, 0, 1]


async def test_without_idempotence_there_are_no_sequences(accumulator: Accumulator) -> None:
    for value in (b"a" * 1000, b"b" * 1000):
        add(accumulator, value)
    queue = accumulator.queue("t", 0)
    assert header(took(queue, NO_PRODUCER)) == (-1, -1, -1)
    assert header(took(queue, NO_PRODUCER)) == (-1, -1, -1)


async def test_at_most_five_batches_are_in_flight(accumulator: Accumulator) -> None:
    queue = add_full(accumulator, 7)
    batches = [took(queue) for _ in range(5)]
    assert take(queue) is None
    queue.note_answered(batches[0])
    assert take(queue) is not None


async def test_the_first_batch_goes_alone_until_it_is_acknowledged(
    accumulator: Accumulator,
) -> None:
    """A leader that is not ready refuses it, is ready, and takes the second for the first."""
    add_full(accumulator, 4)
    queue = accumulator.queue("t", 0)
    queue.known_as = NO_PRODUCER.producer_id
    first = took(queue)
    assert take(queue) is None
    queue.note_answered(first)
    queue.put_back(first)
    assert took(queue) is first
    assert take(queue) is None, "a refusal is no acknowledgement"
    queue.note_answered(first)
    queue.note_acknowledged()
    assert header(took(queue)) == (7, 0, 1)
    assert header(took(queue)) == (7, 0, 2)


async def test_another_producer_id_is_not_known(accumulator: Accumulator) -> None:
    queue = add_full(accumulator, 2)
    first = took(queue, ProducerIdentity(8, 0))
    assert take(queue, ProducerIdentity(8, 0)) is None
    queue.note_answered(first)
    queue.note_acknowledged()
    assert header(took(queue, ProducerIdentity(8, 0))) == (8, 0, 1)


async def test_a_repeated_batch_keeps_its_sequence_and_goes_alone(accumulator: Accumulator) -> None:
    queue = add_full(accumulator, 4)
    first, second, third = took(queue), took(queue), took(queue)
    for batch in (third, first, second):
        queue.note_answered(batch)
        queue.put_back(batch)
    assert took(queue) is first
    assert header(first) == (7, 0, 0)
    assert take(queue) is None, "the next one waits until the repeated one is settled"
    queue.note_answered(first)
    assert took(queue) is second
    queue.note_answered(second)
    assert took(queue) is third
    queue.note_answered(third)
    assert header(took(queue)) == (7, 0, 3)


async def test_nothing_new_overtakes_a_repeated_batch(accumulator: Accumulator) -> None:
    queue = add_full(accumulator, 3)
    first, second = took(queue), took(queue)
    queue.note_answered(first)
    queue.put_back(first)
    assert take(queue) is None, "the second batch is still in flight"
    queue.note_answered(second)
    assert took(queue) is first


async def test_a_restart_numbers_unanswered_batches_anew(accumulator: Accumulator) -> None:
    queue = add_full(accumulator, 3)
    lost, first, second = took(queue), took(queue), took(queue)
    queue.note_answered(lost)
    for batch in (first, second):
        queue.note_answered(batch)
        queue.put_back(batch)
    sent_before = first.encoded
    queue.restart()
    assert take(queue, FIRST) is None, "it waits for the new epoch"
    assert took(queue, SECOND) is first
    assert header(first) == (7, 1, 0)
    assert first.encoded is not sent_before, "what was sent is not written to"
    queue.note_answered(first)
    assert header(took(queue, SECOND)) == (7, 1, 1)


async def test_a_new_epoch_waits_for_what_is_under_way(accumulator: Accumulator) -> None:
    queue = add_full(accumulator, 2)
    first = took(queue)
    assert take(queue, SECOND) is None
    queue.note_answered(first)
    assert header(took(queue, SECOND)) == (7, 1, 0)


async def test_the_first_unanswered_batch_is_known(accumulator: Accumulator) -> None:
    queue = add_full(accumulator, 2)
    first, second = took(queue), took(queue)
    assert queue.is_first(first)
    assert not queue.is_first(second)
    queue.note_answered(first)
    assert queue.is_first(second)


async def test_memory_is_given_back_when_a_batch_is_settled(accumulator: Accumulator) -> None:
    add_full(accumulator, 5)
    assert not accumulator.has_room
    for batch in list(accumulator.incomplete):
        took(batch.queue)
        batch.queue.note_answered(batch)
        accumulator.settle(batch, None)
    assert accumulator.has_room
    assert accumulator.buffered_bytes == 0


async def test_a_failure_that_nobody_asked_about_is_told_once(accumulator: Accumulator) -> None:
    batch = add(accumulator, b"a")
    accumulator.give_up(batch, TimedOut("too late"))
    assert isinstance(accumulator.failures.take(), TimedOut)
    assert accumulator.failures.take() is None


async def test_failures_that_nobody_reads_take_no_memory_without_end_and_are_counted(
    accumulator: Accumulator,
) -> None:
    for number in range(3 * FAILURES_KEPT):
        accumulator.give_up(add(accumulator, b"a"), TimedOut(f"number {number}"))
    assert len(accumulator.failures._lost) <= FAILURES_KEPT
    error = accumulator.failures.take()
    assert str(error) == "number 0"
    assert f"{3 * FAILURES_KEPT} records" in error.__notes__[0]  # type: ignore[union-attr]
    assert accumulator.failures.take() is None


async def test_a_failed_batch_keeps_its_error_and_not_its_bytes(accumulator: Accumulator) -> None:
    batch = add(accumulator, b"a")
    accumulator.give_up(batch, TimedOut("too late"))
    assert batch.builder is None
    assert batch.encoded is None


async def test_an_encoded_batch_goes_behind_the_records_before_it(accumulator: Accumulator) -> None:
    add(accumulator, b"first")
    queue = known(accumulator.queue("t", 0))
    encoded = encode_batch([Record(None, b"x"), Record(None, b"y")], base_offset=40)
    accumulator.append_encoded(queue, encoded)
    add(accumulator, b"last")
    assert [header(took(queue))[2] for _ in range(3)] == [0, 1, 3]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], "whole"),
        (lambda data: data[:50], "61 bytes"),
        (lambda data: data + data, "whole"),
        (lambda data: data[:-1] + b"\xff", "CRC"),
    ],
)
async def test_what_is_no_sound_batch_is_refused(
    accumulator: Accumulator, damage: object, said: str
) -> None:
    encoded = bytes(encode_batch([Record(None, b"x" * 20)]))
    assert callable(damage)
    with pytest.raises(Refused, match=said):
        accumulator.append_encoded(accumulator.queue("t", 0), bytearray(damage(encoded)))


async def test_a_control_batch_is_not_sent(accumulator: Accumulator) -> None:
    encoded = encode_batch([Record(b"k", b"v")], is_control=True)
    with pytest.raises(Refused, match="control"):
        accumulator.append_encoded(accumulator.queue("t", 0), encoded)
