"""Log lines: the first is written at once, repetitions are counted, and their number is limited."""

import logging
from collections.abc import AsyncIterator

import pytest
import trio

from odradek.broker.environment.repeats import CAUSES_MAX
from odradek.broker.txn.narrator import Kind, Narrator
from odradek.protocol.errors import ErrorCode
from tests.broker.txn.world import CLIENT, ID, OTHER, P0, World, producer, refused


@pytest.fixture
async def narrator(nursery: trio.Nursery, caplog: pytest.LogCaptureFixture) -> Narrator:
    caplog.set_level(logging.INFO)
    narrator = Narrator()
    nursery.start_soon(narrator.run)
    return narrator


@pytest.fixture(autouse=True)
async def _at_the_end(nursery: trio.Nursery) -> AsyncIterator[None]:
    yield
    nursery.cancel_scope.cancel()


async def test_what_repeats_is_counted_and_told_once_more(
    narrator: Narrator, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        narrator.log(Kind.REFUSED, "a", f"line {number}")
        await trio.sleep(0.001)
    assert caplog.messages == ["line 0"]
    await trio.sleep(10)
    assert caplog.messages == ["line 0", "line 999 (999 like this in the last 10 s)"]
    await trio.sleep(60)
    narrator.log(Kind.REFUSED, "a", "later")
    assert caplog.messages[2:] == ["later"]


async def test_who_goes_on_for_ever_gets_a_line_every_ten_seconds(
    narrator: Narrator, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(600):
        narrator.log(Kind.REFUSED, "a", "again")
        await trio.sleep(0.1)
    assert 6 <= len(caplog.messages) <= 8


async def test_kinds_and_subjects_do_not_stand_for_each_other(
    narrator: Narrator, caplog: pytest.LogCaptureFixture
) -> None:
    narrator.log(Kind.REFUSED, "a", "one")
    narrator.log(Kind.FENCED, "a", "two")
    narrator.log(Kind.REFUSED, "b", "three")
    assert caplog.messages == ["one", "two", "three"]


async def test_an_error_is_not_withheld_among_lines_that_are_none(
    narrator: Narrator, caplog: pytest.LogCaptureFixture
) -> None:
    for level in (logging.INFO, logging.ERROR, logging.INFO):
        narrator.log(Kind.REFUSED, "a", "refused", level=level)
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.ERROR]


async def test_what_is_remembered_is_bounded_and_what_was_withheld_is_still_told(
    narrator: Narrator, caplog: pytest.LogCaptureFixture
) -> None:
    narrator.log(Kind.REFUSED, "first", "first")
    narrator.log(Kind.REFUSED, "first", "first again")
    for number in range(3 * CAUSES_MAX):
        narrator.log(Kind.REFUSED, f"id-{number}", "x")
    assert len(narrator._repeats) == CAUSES_MAX
    assert "first again (1 like this in the last 10 s)" in caplog.messages


async def test_many_subjects_of_one_kind_have_one_cause_in_the_log(
    narrator: Narrator, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that invents ids could fill the log with first lines."""
    for kind in (Kind.FENCED, Kind.REFUSED):
        for number in range(3):
            narrator.log(kind, f"id-{number}", f"line {number}")
    causes = [getattr(record, "cause", None) for record in caplog.records]
    assert causes == 3 * [Kind.FENCED] + 3 * [Kind.REFUSED]


async def test_a_refused_request_says_who_asked_and_why(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    me = await world.init()
    await world.add(me, P0)
    await world.init(client=OTHER)
    await trio.sleep(1.2)
    caplog.clear()
    with refused(ErrorCode.PRODUCER_FENCED):
        await world.coordinator.end_transaction(
            transactional_id=ID, producer=me, committed=True, transaction_version=2, client=CLIENT
        )
    assert caplog.messages == [
        "the commit of 127.0.0.1 as 'worker-7' was refused: 'refunds-2' was fenced: a new instance "
        "from 10.0.0.8 as 'worker-8' started 1.2 s ago"
    ]
    world.stop()


async def test_ids_that_nobody_has_share_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that invents ids could fill the log."""
    caplog.set_level(logging.INFO)
    for number in range(100):
        with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            await world.coordinator.end_transaction(
                transactional_id=f"id-{number}",
                producer=producer(1, 1),
                committed=True,
                transaction_version=2,
                client=CLIENT,
            )
    assert len(caplog.messages) == 1
    world.stop()


async def test_a_marker_by_hand_names_whose_transaction_it_hit(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    me = await world.init()
    for code in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH):
        world.coordinator.marked_by_hand(
            partition=P0.by_name, producer=me, committed=False, code=code, client=OTHER
        )
        await trio.sleep(11)
    assert caplog.messages[0] == (
        "an administrator at 10.0.0.8 as 'worker-8' sent refunds-0 the marker ABORT for producer "
        "id 1000 with epoch 0, which belongs to 'refunds-2'"
    )
    assert caplog.messages[1].endswith("and refunds-0 refused it: INVALID_PRODUCER_EPOCH")
    world.stop()


async def test_a_line_names_its_subject_in_a_field(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    narrator = Narrator()
    narrator.log(Kind.FENCED, "tx-7", "a line")
    narrator.log(Kind.MARKER_LATE, "orders", "a line")
    narrator.log(Kind.REFUSED, "", "a line of nobody that is known")
    fields = [vars(record) for record in caplog.records]
    assert [each["cause"] for each in fields] == ["fenced", "marker late", "refused"]
    assert [each.get("transactional_id") for each in fields] == ["tx-7", None, None]
    assert [each.get("topic") for each in fields] == [None, "orders", None]
