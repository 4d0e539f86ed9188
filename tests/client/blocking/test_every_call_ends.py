"""The calls of the blocking client, against the same brokers: each ends, in a loop that goes on.

How long they take is tested of the async client (`test_every_call_ends.py`); here a call that waits
for something that does not come waits for ever, as its loop's clock jumps over every time-out.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest
import trio

from odradek.client import OdradekError, TimedOut
from odradek.client.blocking import Admin, Consumer, Producer, TransactionGroup, hosted
from odradek.client.blocking.loop import Loop
from tests.client.blocking.test_same_names import OF_THE_LOOP
from tests.client.fake_broker import ADDRESS
from tests.client.hostile_broker import HostileBroker, Trouble
from tests.client.live import WAIT_MS
from tests.client.test_every_call_ends import CALLS, MEMBER, PLACE, Call, Subject
from tests.fakes.program_clock import ProgramClock, loop_on

pytestmark = pytest.mark.slow

TROUBLES: Final = (Trouble.SILENT, Trouble.LOADING)


def _result(subject: Subject) -> Any:
    return subject.client.send("u", b"x").result()


def _next_record(subject: Subject) -> Any:
    return next(iter(subject.client))


OTHERS: Final[dict[str, Call]] = {
    "Producer, a delivery": Call(_result),
    "Consumer.__anext__": Call(_next_record),
    "Consumer, subscribed: __anext__": Call(_next_record),
}
NOT_HERE: Final = {
    "Transaction, begun while another ends",
    *(f"{kind}.{name}" for kind, names in OF_THE_LOOP.items() for name in names),
}
BLOCKING_CALLS: Final = {
    name: OTHERS.get(name, call) for name, call in CALLS.items() if name not in NOT_HERE
}


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    """One whose time passes at once while the program waits, for the clients of one test."""
    with loop_on(ProgramClock()) as loop:
        monkeypatch.setattr(hosted, "the_loop", lambda: loop)
        yield loop


@contextmanager
def entered(name: str, connect: Any) -> Iterator[Subject]:
    if name.startswith("Admin"):
        with Admin(ADDRESS, connect=connect) as admin:
            yield Subject(admin)
    elif name.startswith("Consumer"):
        with Consumer(ADDRESS, connect=connect, group_id="g") as consumer:
            if "subscribed" in name:
                consumer.subscribe("t")
            else:
                consumer.assign([PLACE])
            yield Subject(consumer)
    elif name.startswith("Producer"):
        with Producer(ADDRESS, connect=connect) as producer:
            producer.send("t", b"stored", partition=0).result()
            producer.send("t", b"under way", partition=0)
            yield Subject(producer)
    elif name.startswith("TransactionGroup"):
        with TransactionGroup(ADDRESS, "g", connect=connect) as group:
            yield Subject(group)
    else:
        transactional_id = MEMBER.transactional_id if name == "Transaction.detach" else "a"
        with (
            Producer(ADDRESS, connect=connect, transactional_id=transactional_id) as producer,
            producer.transaction() as transaction,
        ):
            transaction.send("t", b"stored", partition=0).result()
            transaction.send("t", b"under way", partition=0)
            yield Subject(producer, transaction)


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name)
@pytest.mark.parametrize("name", BLOCKING_CALLS)
def test_every_blocking_call_ends_and_so_does_leaving(
    loop: Loop, name: str, trouble: Trouble
) -> None:
    assert loop._nursery is not None
    broker = HostileBroker(loop._nursery)
    done: list[str] = []

    def use() -> None:
        with suppress(OdradekError), entered(name, broker.connect) as subject:
            loop.call_nowait(broker.turn, trouble)
            with suppress(OdradekError):
                BLOCKING_CALLS[name].make(subject)
            done.append("called")
        done.append("left")

    ends_in_time(use)
    assert done == ["called", "left"]


@pytest.mark.parametrize("topic", ["t", "there-is-none"])
def test_flush_ends_after_its_time_out_also_where_a_topic_is_awaited(
    loop: Loop, topic: str
) -> None:
    """The records' way to the loop was not part of that time, and took `max_block_ms`."""
    assert loop._nursery is not None
    broker = HostileBroker(loop._nursery)
    took: list[float] = []

    def use() -> None:
        with suppress(OdradekError), entered("Producer", broker.connect) as subject:
            loop.call(flush, subject.client)

    async def flush(producer: Producer) -> None:
        """Flush as `Producer.flush` does. The clock jumps whenever only the program is busy, so
        the broker turns silent and the record is sent in the loop, where no time passes."""
        broker.turn(Trouble.SILENT)
        producer.send(topic, b"x")
        before = trio.current_time()
        with pytest.raises(TimedOut, match="within 500 ms"):
            await producer._flush(500)
        took.append(trio.current_time() - before)

    ends_in_time(use)
    assert took == [pytest.approx(0.5)]


def ends_in_time(use: Callable[[], None]) -> None:
    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(WAIT_MS / 1000)
    assert not thread.is_alive(), "it waits for ever"
