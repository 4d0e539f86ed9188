"""The picture of `odradek txn watch`, drawn without a terminal."""

import io

import pytest
from rich.console import Console

from odradek.client.cli.txn_events import ObservedEvent, Snapshot, Trouble
from odradek.client.cli.txn_picture import draw, newest
from tests.client.cli.samples import NOW_MS, a_foreign_transaction, a_look, a_transaction


def event(kind: str, text: str, name: str = "refunds-0", at_ms: int = NOW_MS) -> ObservedEvent:
    return ObservedEvent(at_ms=at_ms, transactional_id=name, kind=kind, text=text)


def drawn(
    look: Snapshot,
    *happened: ObservedEvent,
    trouble: Trouble | None = None,
    width: int = 80,
    height: int = 24,
    show_all: bool = False,
) -> list[str]:
    """The lines on the screen."""
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    picture = draw(
        look,
        list(happened),
        trouble,
        title="odradek txn watch 127.0.0.1:9092",
        width=width,
        height=height,
        show_all=show_all,
    )
    with console.capture() as captured:
        console.print(picture)
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [30, 50, 80, 120, 300])
@pytest.mark.parametrize("height", [6, 10, 24, 60])
@pytest.mark.parametrize("count", [0, 1, 200])
def test_it_fits_on_any_terminal(width: int, height: int, count: int) -> None:
    ids = [f"{'very-long-' * 20}{number}" for number in range(count)]
    look = a_look(*(a_transaction(transactional_id=name) for name in ids))
    happened = [event("fenced", "was fenced " * 30, name) for name in ids]
    trouble = Trouble(since_ms=NOW_MS, sentence="no connection " * 30)
    for some in (None, trouble):
        lines = drawn(look, *happened, trouble=some, width=width, height=height)
        assert len(lines) <= max(height, 7)
        assert all(len(line) <= width for line in lines)


def test_a_row_says_state_age_and_what_is_held_back() -> None:
    lines = drawn(a_look(a_transaction(), count=5), width=120)
    assert "1 open, 5 transactional ids, 1 of them followed" in lines[1]
    assert " ".join(lines[3].split()) == (
        "refunds-0 Ongoing ──────── 2.0 s/60 s 6: flights-0 from 5, fl… worker-7 at 127.0.0.1"
    )


def test_the_bar_grows_with_the_age() -> None:
    half = a_transaction(times_out_in_ms=30_000)
    late = a_transaction(transactional_id="refunds-1", times_out_in_ms=0)
    text = "\n".join(drawn(a_look(half, late)))
    assert "━━━━──── 30 s/60 s" in text
    assert "━━━━━━━━ 60 s/60 s" in text


def test_what_another_broker_does_not_say_is_left_out() -> None:
    row = drawn(a_look(a_foreign_transaction()), width=160)[3]
    assert "flights-0 from 5, flights-1 from 5" in row
    assert "2.0 s/60 s" in row
    assert "worker" not in row


def test_rows_stay_in_their_order_and_a_while_after_the_end() -> None:
    ended = a_transaction("CompleteCommit", "a-first")
    still = a_transaction(transactional_id="b-second")
    recent = event("committed", "committed", "a-first", NOW_MS - 9_000)
    old = event("committed", "committed", "a-first", NOW_MS - 11_000)
    rows = [line.split()[0] for line in drawn(a_look(still, ended), recent)[3:5]]
    assert rows == ["a-first", "b-second"]
    assert drawn(a_look(still, ended), old)[3].startswith("b-second")
    assert drawn(a_look(still, ended), show_all=True)[3].startswith("a-first")


def test_what_does_not_fit_is_counted() -> None:
    look = a_look(*(a_transaction(transactional_id=f"refunds-{n:03}") for n in range(100)))
    lines = drawn(look)
    assert any(line.startswith("and ") and line.endswith("more") for line in map(str.strip, lines))


def test_a_broker_that_is_away_is_said_and_the_last_look_stays() -> None:
    trouble = Trouble(since_ms=NOW_MS, sentence="no connection to 127.0.0.1:9092")
    lines = drawn(a_look(a_transaction()), trouble=trouble)
    assert "what is shown is old; trying again" in lines[1]
    assert lines[3].startswith("refunds-0")
    assert "no connection to 127.0.0.1:9092" in lines


def test_routine_does_not_push_out_what_matters() -> None:
    fenced = event("fenced", "was fenced", "slow")
    routine = [event("began", f"number {n}", "busy") for n in range(50)]
    shown = newest([fenced, *routine], room=6)
    assert [event.text for event in shown] == ["number 49", "was fenced"]
    assert newest([fenced] * 9, room=6) == [fenced] * 6


def test_an_id_is_no_markup_and_moves_no_cursor() -> None:
    look = a_look(a_transaction(transactional_id="[red]x\x1b[2J"))
    text = "\n".join(drawn(look, event("began", "began", "[red]x\x1b[2J"), width=120))
    assert text.count(r"[red]x\x1b[2J") == 2
    assert "\x1b" not in text
