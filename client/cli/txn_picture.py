"""The picture of `odradek txn watch`: a table that stays where it is, and what happened below it.

Rows are in the order of the ids and stay for some seconds after something happened, so that a
transaction that comes and goes does not make them jump. Everything is cut to the terminal's width,
never wrapped, and the height is filled and not exceeded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from odradek.client.administration.descriptions import TransactionDescription
from odradek.client.cli import words
from odradek.client.cli.txn_events import Happening, Snapshot, Trouble
from odradek.protocol.text import printable

LINGER_MS: Final = 10_000
"""How long a row stays after the last thing that happened to it."""
BAR_WIDTH: Final = 8
NARROW: Final = 70
"""With fewer columns there is no room for what is held back."""
WIDE: Final = 100
"""From so many columns on there is room to say who the client is."""
FRAME_LINES: Final = 5
"""Heading, status, two rules and the table's head."""
EVENTS_PART: Final = 3
"""One line in so many of the height is for what happened, and of those so much for the id."""

STATE_STYLES: Final = {
    "Ongoing": "bold",
    "PrepareCommit": "green",
    "PrepareAbort": "yellow",
    "PrepareEpochFence": "yellow",
    "CompleteCommit": "dim",
    "CompleteAbort": "dim",
    "Empty": "dim",
}
ROUTINE: Final = frozenset({"appeared", "began", "deciding", "committed", "renewed"})
KIND_STYLES: Final = {
    "committed": "green",
    "aborted": "yellow",
    "fenced": "red",
    "timed out": "red",
}


@contextmanager
def picture(bootstrap: str, show_all: bool) -> Iterator["Picture"]:
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        live.update(_line(f"odradek txn watch {bootstrap}  no answer yet", "bold"), refresh=True)
        yield Picture(console, live, bootstrap, show_all)


class Picture:
    def __init__(self, console: Console, live: Live, bootstrap: str, show_all: bool) -> None:
        self._console = console
        self._live = live
        self._bootstrap = bootstrap
        self._show_all = show_all

    def show(self, snapshot: Snapshot, happened: list[Happening], trouble: Trouble | None) -> None:
        size = self._console.size
        drawn = draw(
            snapshot,
            happened,
            trouble,
            title=f"odradek txn watch {self._bootstrap}",
            width=size.width,
            height=size.height,
            show_all=self._show_all,
        )
        self._live.update(drawn, refresh=True)


def draw(
    snapshot: Snapshot,
    happened: list[Happening],
    trouble: Trouble | None,
    *,
    title: str,
    width: int,
    height: int,
    show_all: bool,
) -> Group:
    room = max(height - FRAME_LINES, 2)
    events_room = max(room // EVENTS_PART, 1)
    rows_room = max(room - events_room, 1)
    shown = _shown(snapshot, happened, show_all)
    return Group(
        _line(f"{title}  {words.clock(snapshot.at_ms)}  (Ctrl-C ends)", "bold"),
        _status(snapshot, trouble),
        _table(snapshot, shown, rows_room, width),
        Rule("what happened", style="dim", align="left"),
        *_events(happened, trouble, events_room, width),
    )


def _shown(
    snapshot: Snapshot, happened: list[Happening], show_all: bool
) -> list[TransactionDescription]:
    recent = {
        happening.transactional_id
        for happening in happened
        if snapshot.at_ms - happening.at_ms < LINGER_MS
    }
    shown = [
        transaction
        for name, transaction in snapshot.transactions.items()
        if show_all or transaction.is_open or name in recent
    ]
    return sorted(shown, key=lambda transaction: transaction.transactional_id)


def _status(snapshot: Snapshot, trouble: Trouble | None) -> Text:
    if trouble is not None:
        since = words.clock(trouble.since_ms)
        return _line(f"no answer since {since}, what is shown is old; trying again", "red")
    count = words.counted(snapshot.count, "transactional id")
    followed = len(snapshot.transactions)
    rest = "" if followed == snapshot.count else f", {followed} of them followed"
    return _line(f"{snapshot.open_count} open, {count}{rest}", "")


def _table(snapshot: Snapshot, shown: list[TransactionDescription], room: int, width: int) -> Table:
    table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
    table.add_column("transactional id", ratio=4, no_wrap=True, overflow="ellipsis")
    table.add_column("state", width=14, no_wrap=True, overflow="ellipsis")
    table.add_column("age of its time-out", width=BAR_WIDTH + 16, no_wrap=True)
    if width >= NARROW:
        table.add_column("records held back", ratio=4, no_wrap=True, overflow="ellipsis")
    if width >= WIDE:
        table.add_column("client", ratio=4, no_wrap=True, overflow="ellipsis")
    fitting = shown if len(shown) <= room else shown[: room - 1]
    for transaction in fitting:
        cells = [
            Text(printable(transaction.transactional_id)),
            Text(transaction.state, style=STATE_STYLES.get(transaction.state, "")),
            _age(transaction),
        ]
        if width >= NARROW:
            cells.append(Text(_waiting(snapshot, transaction)))
        if width >= WIDE:
            cells.append(Text(words.client(transaction.client_id, transaction.client_host) or ""))
        table.add_row(*cells)
    if len(fitting) < len(shown):
        table.add_row(Text(f"and {len(shown) - len(fitting)} more", style="dim"))
    for _ in range(room - len(shown)):
        table.add_row()
    return table


def _age(found: TransactionDescription) -> Text:
    """A bar that is full when the transaction is aborted, and the numbers."""
    if found.age_ms is None:
        return Text("")
    if found.state != "Ongoing" or found.remaining_ms is None:
        return Text(f"{' ' * BAR_WIDTH} {words.span(found.age_ms)}")
    part = min(found.age_ms / max(found.timeout_ms, 1), 1.0)
    full = round(part * BAR_WIDTH)
    style = "green" if part < 0.5 else "yellow" if part < 0.8 else "red"
    return Text.assemble(
        ("━" * full, style),
        ("─" * (BAR_WIDTH - full), "dim"),
        f" {words.span(found.age_ms)}/{words.span(found.timeout_ms)}",
    )


def _waiting(snapshot: Snapshot, found: TransactionDescription) -> str:
    """12: flights-0 from 5, flights-3 from 9."""
    if not found.is_open:
        return ""
    places = snapshot.waiting(found)
    if not places:
        return words.counted(len(found.partitions), "partition") if found.partitions else "nothing"
    where = ", ".join(f"{name} from {start}" for name, start, _ in places)
    told = [behind for _, _, behind in places if behind is not None]
    return f"{sum(told):,}: {where}" if told else where


def newest(happened: list[Happening], room: int) -> list[Happening]:
    """The newest first; of what is routine only the last of each id, or it would hide the rest."""
    shown: list[Happening] = []
    seen: set[str] = set()
    for happening in reversed(happened):
        if len(shown) >= room:
            break
        if happening.kind in ROUTINE:
            if happening.transactional_id in seen:
                continue
            seen.add(happening.transactional_id)
        shown.append(happening)
    return shown


def _events(
    happened: list[Happening], trouble: Trouble | None, room: int, width: int
) -> Iterator[Text]:
    if trouble is not None:
        room -= 1
        yield _line(printable(trouble.sentence), "red")
    last = newest(happened, room)
    for happening in last:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{words.clock(happening.at_ms)} ", "dim")
        name = Text(printable(happening.transactional_id), "bold")
        name.truncate(max(width // EVENTS_PART, 10), overflow="ellipsis")
        text.append_text(name).append(" ")
        text.append(happening.text, KIND_STYLES.get(happening.kind, ""))
        yield text
    for _ in range(room - len(last)):
        yield Text("")


def _line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
