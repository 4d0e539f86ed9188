"""One way to write: nothing is seen before it is committed, nothing refused was ever there."""

import random
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
import trio.testing

from odradek.broker.coordination.runtime import AppendingProducer, Runtime
from odradek.broker.coordination.state_partition import StatePartition
from odradek.broker.coordination.tenure import DURABLE_SECONDS
from odradek.broker.environment.turns import STEPS_PER_TURN
from odradek.broker.environment.work import Work
from odradek.protocol.batch import read_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import BatchBuilder, Record, batch_of, decode_batch
from tests.fakes.state_partition import FakeStatePartition

E = ErrorCode


@dataclass(frozen=True, eq=False)
class Words:
    """A change: words that are written one behind the other."""

    words: tuple[str, ...]


class Writer(Runtime[Words]):
    """A coordinator whose state is all words, each with the offset of its record."""

    def __init__(self, partition: StatePartition) -> None:
        self.words: list[tuple[int, str]] = []
        super().__init__(partition, "words-0")

    def replay(self, change: Words, base_offset: int) -> Work[None]:
        for log_offset, word in enumerate(change.words, base_offset):
            yield 1
            self.words.append((log_offset, word))

    def say(self, *words: str, at_once: bool = False) -> int:
        return self.append(batch_of_words(words), Words(words), at_once=at_once)

    async def load(self) -> None:
        async for run in self.partition.runs():
            header = read_header(run)
            for log_offset, record in enumerate(decode_batch(run), header.base_offset):
                if record.value is not None and not header.is_control:
                    for _ in self.replay(Words((record.value.decode(),)), log_offset):
                        await trio.lowlevel.checkpoint()
        self.is_loaded = True
        self.replay_committed()


def batch_of_words(words: tuple[str, ...]) -> BatchBuilder:
    return batch_of(Record(key=b"", value=word.encode(), timestamp_ms=1) for word in words)


@pytest.fixture
def log() -> FakeStatePartition:
    return FakeStatePartition()


@pytest.fixture
def writer(log: FakeStatePartition) -> Writer:
    writer = Writer(log)
    writer.is_loaded = True
    return writer


async def test_a_change_is_seen_when_it_is_committed_and_not_before(
    writer: Writer, log: FakeStatePartition, nursery: trio.Nursery
) -> None:
    log.hold()
    nursery.start_soon(writer.write, batch_of_words(("a", "b")), Words(("a", "b")))
    await trio.testing.wait_all_tasks_blocked()
    assert (writer.words, len(list(writer.uncommitted()))) == ([], 1)
    log.release()
    await trio.testing.wait_all_tasks_blocked()
    assert (writer.words, list(writer.uncommitted())) == ([(0, "a"), (1, "b")], [])


async def test_what_takes_effect_at_once_is_there_behind_the_append(
    writer: Writer, log: FakeStatePartition
) -> None:
    next_offset = writer.say("a", at_once=True)
    assert writer.words == [(0, "a")]
    assert (log.durable_offset, list(writer.uncommitted())) == (0, [])
    await writer.wait_committed(next_offset)
    assert (log.durable_offset, writer.words) == (1, [(0, "a")])


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_refused_append_changes_nothing(
    writer: Writer, log: FakeStatePartition, at_once: bool
) -> None:
    log.append_errors = [E.NOT_ENOUGH_REPLICAS]
    with pytest.raises(KafkaError) as caught:
        await writer.write(batch_of_words(("a",)), Words(("a",)), at_once=at_once)
    assert caught.value.code is E.COORDINATOR_NOT_AVAILABLE
    await writer.wait_committed(writer.say("b"))
    assert writer.words == [(0, "b")]


async def test_changes_are_replayed_in_log_order_by_whoever_wakes_first(writer: Writer) -> None:
    writer.say("a")
    writer.say("b")
    last = writer.say("c")
    writer.say("d")
    await writer.wait_committed(last)
    assert writer.words == [(0, "a"), (1, "b"), (2, "c")]


async def test_the_end_of_the_tenure_drops_what_is_not_committed_and_each_waiter_hears_of_it(
    writer: Writer, log: FakeStatePartition, nursery: trio.Nursery
) -> None:
    heard: list[ErrorCode] = []

    async def wait(next_offset: int) -> None:
        with pytest.raises(KafkaError) as caught:
            await writer.wait_committed(next_offset)
        heard.append(caught.value.code)

    log.hold()
    nursery.start_soon(wait, writer.say("a"))
    nursery.start_soon(wait, writer.say("b"))
    await trio.testing.wait_all_tasks_blocked()
    writer.end()
    log.release()
    await trio.testing.wait_all_tasks_blocked()
    assert heard == [E.NOT_COORDINATOR] * 2
    assert (writer.words, list(writer.uncommitted())) == ([], [])


async def test_an_operation_of_a_tenure_that_has_ended_writes_nothing_under_the_next_one(
    writer: Writer, log: FakeStatePartition
) -> None:
    """The broker leads the partition again, so the log would take the record."""
    writer.end()
    with pytest.raises(KafkaError) as caught:
        writer.say("a")
    assert caught.value.code is E.NOT_COORDINATOR
    assert log.end_offset == 0


async def test_a_change_of_unknown_outcome_takes_effect_if_it_is_committed_after_all(
    writer: Writer, log: FakeStatePartition
) -> None:
    log.hold()
    began = trio.current_time()
    with pytest.raises(KafkaError) as caught:
        await writer.wait_committed(writer.say("a"))
    assert caught.value.code is E.COORDINATOR_NOT_AVAILABLE
    assert trio.current_time() - began == pytest.approx(DURABLE_SECONDS)
    assert writer.words == []
    log.release()
    await writer.wait_committed(writer.say("b"))
    assert writer.words == [(0, "a"), (1, "b")]


async def test_a_change_that_is_forgotten_takes_no_effect(writer: Writer) -> None:
    change = Words(("a",))
    writer.append(batch_of_words(change.words), change)
    writer.forget(change)
    await writer.wait_committed(writer.say("b"))
    assert writer.words == [(1, "b")]


async def test_who_gives_up_in_the_moment_in_which_it_is_committed_gets_its_answer(
    writer: Writer, log: FakeStatePartition, nursery: trio.Nursery
) -> None:
    log.hold()
    first, second = writer.say("a"), writer.say("b")
    log.flush_errors = [E.REQUEST_TIMED_OUT]
    nursery.start_soon(writer.wait_committed, first)
    await trio.testing.wait_all_tasks_blocked()
    writer.note_committed(second)
    log.release()
    await trio.testing.wait_all_tasks_blocked()
    assert writer.words == [(0, "a"), (1, "b")]


async def test_a_large_change_lets_other_tasks_run_and_stays_ahead_of_the_next_one(
    writer: Writer, nursery: trio.Nursery
) -> None:
    many = tuple(str(number) for number in range(20 * STEPS_PER_TURN))
    first, last = writer.say(*many), writer.say("last")
    seen: list[int] = []

    async def watch() -> None:
        while len(writer.words) <= len(many):
            seen.append(len(writer.words))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as waiting:
        waiting.start_soon(watch)
        waiting.start_soon(writer.wait_committed, first)
        waiting.start_soon(writer.wait_committed, last)
    assert [word for _, word in writer.words] == [*many, "last"]
    assert len(set(seen)) > 5


async def test_who_waits_for_what_is_replayed_already_does_not_wait(
    writer: Writer, log: FakeStatePartition
) -> None:
    first, second = writer.say("a"), writer.say("b")
    await writer.wait_committed(second)
    log.hold()
    await writer.wait_committed(first)


async def test_what_is_committed_while_the_log_is_read_is_replayed_behind_it(
    log: FakeStatePartition, nursery: trio.Nursery
) -> None:
    await log.wait_committed(log.append_records([Record(key=b"", value=b"a")]).last_offset + 1)
    reading = Writer(log)
    log.hold()
    nursery.start_soon(reading.load)
    await trio.testing.wait_all_tasks_blocked()
    appended = log.append_marker(
        committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    next_offset = appended.last_offset + 1
    reading.note_appended(Words(("marker",)), appended.base_offset, next_offset)
    reading.note_committed(next_offset)
    assert reading.words == []
    log.release()
    await trio.testing.wait_all_tasks_blocked()
    assert reading.words == [(0, "a"), (1, "marker")]


async def test_a_part_of_a_transaction_is_appended_as_one(
    writer: Writer, log: FakeStatePartition
) -> None:
    producer = AppendingProducer(producer_id=7, producer_epoch=3, verified_after=0)
    writer.append(batch_of_words(("a",)), Words(("a",)), at_once=True, producer=producer)
    headers = [header async for header, _ in log.batches()]
    assert [(each.producer_id, each.producer_epoch) for each in headers] == [(7, 3)]
    assert headers[0].is_transactional


@pytest.mark.parametrize("seed", range(12))
async def test_what_is_seen_is_always_a_beginning_of_the_log_and_a_restart_finds_it(
    seed: int,
) -> None:
    rng = random.Random(seed)
    log = FakeStatePartition()
    writer = Writer(log)
    writer.is_loaded = True
    acknowledged: list[str] = []

    async def write(word: str) -> None:
        change = Words(
            tuple(f"{word}.{number}" for number in range(rng.choice((1, 1, 1, 2, 3, 600))))
        )
        try:
            await writer.write(batch_of_words(change.words), change)
        except KafkaError:
            return
        acknowledged.extend(change.words)

    def check() -> None:
        durable = list(enumerate((r.value or b"").decode() for r in log.durable_records))
        assert writer.words == durable[: len(writer.words)]
        assert set(acknowledged) <= {word for _, word in writer.words}

    async with trio.open_nursery() as nursery:
        for number in range(40):
            match rng.randrange(8):
                case 0:
                    log.hold()
                case 1:
                    log.append_errors = [E.NOT_ENOUGH_REPLICAS]
                case 2:
                    log.flush_errors = [E.REQUEST_TIMED_OUT]
                case 3:
                    await trio.sleep(rng.choice((0.1, 2 * DURABLE_SECONDS)))
                case 4:
                    log.release()
                case _:
                    nursery.start_soon(write, str(number))
                    for _ in range(rng.randrange(4)):
                        await trio.lowlevel.checkpoint()
            check()
        log.release()
    check()
    successor = Writer(log.crash(keep=rng.randrange(3)))
    writer.end()
    await successor.load()
    assert successor.words[: len(writer.words)] == writer.words


def test_the_runtime_alone_appends_to_the_partitions_of_coordinators() -> None:
    """What is written past it is not replayed as it is when the log is read."""
    broker = Path(__file__).parents[3] / "broker"
    sources = [
        path
        for room in ("coordination", "group", "txn")
        for path in broker.rglob(f"{room}/**/*.py")
    ]
    assert len(sources) > 40
    appends = re.compile(r"partition(\(\))?\.append_|append_batch\(")
    found = {path.name for path in sources if appends.search(path.read_text())}
    assert found == {"runtime.py", "state_partition.py"}
