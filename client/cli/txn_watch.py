"""`odradek txn watch`: live transactions, on a terminal as a picture, elsewhere as lines.

A snapshot lists all ids, describes those that are open or have changed, and has the producers of
their partitions. When the broker does not answer, the last picture stays, with the error.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from odradek.client.blocking import Admin, OdradekError, Retriable, TransactionDescription
from odradek.client.cli import words
from odradek.client.cli.common import (
    Seconds,
    check_reader,
    connection_options,
    echo_json,
    in_ms,
    limits,
    reports_errors,
)
from odradek.client.cli.txn_events import (
    Listed,
    ObservedEvent,
    Snapshot,
    Trouble,
    View,
    events,
    open_places,
)
from odradek.client.config import system_wall_ms
from odradek.protocol.text import printable

REMEMBERED: Final = 500
"""The events that are kept for the picture."""
LOOKS_PER_TIMEOUT: Final = 5
"""A snapshot gives up after this part of --timeout, so a broker that is down is shown soon."""
DUMB: Final = ("dumb", "unknown")
"""The values of TERM of terminals on which a picture cannot be drawn anew, as rich has them."""


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=Seconds(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two looks.",
)
@click.option("--all", "show_all", is_flag=True, help="Show also ids without an open transaction.")
@click.option("--pattern", help="A regular expression for the whole transactional id.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON object for each event; the keys are above.",
)
@connection_options
@reports_errors
def watch(
    interval_s: float,
    show_all: bool,
    pattern: str | None,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Watch transactions live; Ctrl-C ends it.

    Without a terminal, or where TERM is dumb, it prints a line for each event.

    \b
    Keys of --json: at, at_ms, transactional_id, kind (open, appeared, began,
    deciding, committed, aborted, timed out, fenced, resumed, renewed, gone;
    with a null id watching: the first look, trouble and well: the broker), text.
    """
    look_ms = max(in_ms(timeout_s) // LOOKS_PER_TIMEOUT, 1)
    options = limits(timeout_s)
    first_ms = options.pop("first_connect_ms")
    options["max_block_ms"] = look_ms
    patience_s = timeout_s if first_ms is None else first_ms / 1000
    try:
        with (
            Admin(bootstrap, **options) as admin,
            _view(as_json, show_all, bootstrap) as view,
        ):
            TransactionWatch(admin, view, pattern).run(interval_s, patience_s)
    except KeyboardInterrupt:
        return


@contextmanager
def _view(as_json: bool, show_all: bool, bootstrap: str) -> Iterator[View]:
    is_dumb = os.environ.get("TERM", "").lower() in DUMB
    if as_json or is_dumb or not sys.stdout.isatty():
        yield Lines(as_json)
        return
    from odradek.client.cli.txn_picture import picture

    with picture(bootstrap, show_all) as view:
        yield view


class TransactionWatch:
    """Take snapshots at an interval, and show them and their events in a view."""

    def __init__(self, admin: Admin, view: View, pattern: str | None) -> None:
        self._admin = admin
        self._view = view
        self._pattern = pattern
        self._snapshot: Snapshot | None = None
        self._listed: Listed | None = None
        self._trouble: Trouble | None = None
        self._happened: deque[ObservedEvent] = deque(maxlen=REMEMBERED)

    def run(self, interval_s: float, patience_s: float) -> None:
        """Run until interrupted. Raises an error of the first snapshot after `patience_s`."""
        begin = time.monotonic()
        following = begin
        while True:
            try:
                self.look()
            except OdradekError as error:
                late = time.monotonic() - begin > patience_s
                if self._snapshot is None and (late or not isinstance(error, Retriable)):
                    raise
                self._note(error)
            if self._snapshot is not None:
                self._view.show(self._snapshot, list(self._happened), self._trouble)
            following = max(following + interval_s, time.monotonic())
            time.sleep(max(following - time.monotonic(), 0))

    def look(self) -> None:
        after = self._look()
        self._trouble = None
        if self._snapshot is not None:
            self._happened.extend(events(self._snapshot, after))
        self._snapshot = after

    def _note(self, error: OdradekError) -> None:
        since_ms = self._trouble.since_ms if self._trouble else system_wall_ms()
        self._trouble = Trouble(since_ms=since_ms, sentence=str(error))

    def _look(self) -> Snapshot:
        listed = Listed(self._admin.list_transactions(pattern=self._pattern))
        names = listed.to_describe(self._snapshot, self._listed)
        answers = self._admin.describe_transactions(*names)
        transactions = listed.described(answers, self._snapshot)
        producers = self._admin.describe_producers(open_places(transactions))
        self._listed = listed
        return Snapshot(
            at_ms=system_wall_ms(),
            transactions=transactions,
            producers={
                name: answer
                for name, answer in producers.items()
                if not isinstance(answer, OdradekError)
            },
            count=len(listed),
        )


class Lines:
    """A line for each event, for pipes and log files."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._begun = False
        self._last: ObservedEvent | None = None
        self._was_in_trouble = False

    def show(
        self, snapshot: Snapshot, happened: list[ObservedEvent], trouble: Trouble | None
    ) -> None:
        check_reader()
        if not self._begun:
            self._begun = True
            text = (
                f"{snapshot.open_count} of {words.counted(snapshot.count, 'transactional id')} open"
            )
            self._say(snapshot.at_ms, None, "watching", text)
            for transaction in snapshot.transactions.values():
                if transaction.is_open:
                    self._say(
                        snapshot.at_ms, transaction.transactional_id, "open", open_line(transaction)
                    )
        if trouble is not None and not self._was_in_trouble:
            text = f"the broker does not answer, trying again: {trouble.sentence}"
            self._say(trouble.since_ms, None, "trouble", text)
        if trouble is None and self._was_in_trouble:
            self._say(snapshot.at_ms, None, "well", "the broker answers again")
        self._was_in_trouble = trouble is not None
        for event in self._new(happened):
            self._say(event.at_ms, event.transactional_id, event.kind, event.text)
        sys.stdout.flush()

    def _new(self, happened: list[ObservedEvent]) -> list[ObservedEvent]:
        """Return the events after the last shown event."""
        start = 0
        for number, event in enumerate(happened):
            if event is self._last:
                start = number + 1
        self._last = happened[-1] if happened else self._last
        return happened[start:]

    def _say(self, at_ms: int, transactional_id: str | None, kind: str, text: str) -> None:
        if self._as_json:
            echo_json(
                {
                    "at": words.iso(at_ms),
                    "at_ms": at_ms,
                    "transactional_id": transactional_id,
                    "kind": kind,
                    "text": text,
                }
            )
        else:
            name = "" if transactional_id is None else f"{printable(transactional_id)} "
            click.echo(f"{words.clock(at_ms)} {name}{text}")


def open_line(found: TransactionDescription) -> str:
    age = "" if found.age_ms is None else f", open for {words.span(found.age_ms)}"
    return f"is {found.state}{age} in {words.named(found.partitions)}; {words.deadline(found)}"
