"""The picture of `odradek txn watch`: a table of transactions, and the latest events below it.

Rows are in the order of the ids, and stay for some seconds after an event, so a short transaction
does not move the other rows. Each line is cut to the terminal's width and never wrapped. The
picture has exactly the height of the terminal.
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
from odradek.client.cli.txn_events import ObservedEvent, Snapshot, Trouble
from odradek.protocol.text import printable

LINGER_MS: Final = 10_000
"""The time that a row stays after the last event of its id."""
BAR_WIDTH: Final = 8
NARROW: Final = 70
"""The terminal width from which the table has a column for the records held back."""
WIDE: Final = 100
"""The terminal width from which the table has a column for the client."""
FRAME_LINES: Final = 5
"""Heading, status, two rules and the table's head."""
EVENTS_PART: Final = 3
"""The events have this part of the height, and an event's id this part of the width."""

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

    def show(
        self, snapshot: Snapshot, happened: list[ObservedEvent], trouble: Trouble | None
    ) -> None:
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
    happened: list[ObservedEvent],
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
    snapshot: Snapshot, happened: list[ObservedEvent], show_all: bool
) -> list[TransactionDescription]:
    recent = {
        event.transactional_id for event in happened if snapshot.at_ms - event.at_ms < LINGER_MS
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
    """Return the age as numbers and as a bar, which is full when the broker aborts."""
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
    """Return the records held back, such as `12: flights-0 from 5, flights-3 from 9`."""
    if not found.is_open:
        return ""
    places = snapshot.waiting(found)
    if not places:
        return words.counted(len(found.partitions), "partition") if found.partitions else "nothing"
    where = ", ".join(f"{name} from {start}" for name, start, _ in places)
    known = [behind for _, _, behind in places if behind is not None]
    return f"{sum(known):,}: {where}" if known else where


def newest(happened: list[ObservedEvent], room: int) -> list[ObservedEvent]:
    """Return the newest events first. Of routine events, only the last one of each id."""
    shown: list[ObservedEvent] = []
    seen: set[str] = set()
    for event in reversed(happened):
        if len(shown) >= room:
            break
        if event.kind in ROUTINE:
            if event.transactional_id in seen:
                continue
            seen.add(event.transactional_id)
        shown.append(event)
    return shown


def _events(
    happened: list[ObservedEvent], trouble: Trouble | None, room: int, width: int
) -> Iterator[Text]:
    if trouble is not None:
        room -= 1
        yield _line(printable(trouble.sentence), "red")
    last = newest(happened, room)
    for event in last:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{words.clock(event.at_ms)} ", "dim")
        name = Text(printable(event.transactional_id), "bold")
        name.truncate(max(width // EVENTS_PART, 10), overflow="ellipsis")
        text.append_text(name).append(" ")
        text.append(event.text, KIND_STYLES.get(event.kind, ""))
        yield text
    for _ in range(room - len(last)):
        yield Text("")


def _line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
