"""The lag of groups: totals, looks that are repeated, and an exit status for alerts."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Final, ParamSpec, TypeVar

import click

from odradek.client.blocking import Admin, GroupLag, TimedOut, TopicPartition
from odradek.client.cli.common import INT64_MAX, Seconds, check_reader
from odradek.protocol.text import printable

P = ParamSpec("P")
R = TypeVar("R")

ABOVE: Final = 3
"""The exit status if a group lags by more than `--fail-above`."""


def lag_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options `--fail-above`, `--watch` and `--interval`."""
    fail_above = click.option(
        "--fail-above",
        type=click.IntRange(0, INT64_MAX),
        metavar="N",
        help=f"End with status {ABOVE} if the total lag of a group is above N.",
    )
    watch = click.option("--watch", "-w", is_flag=True, help="Look again and again, until Ctrl-C.")
    interval = click.option(
        "--interval",
        "interval_s",
        type=Seconds(min=0.1),
        default=2.0,
        show_default=True,
        metavar="SECONDS",
        help="The time between two looks of --watch.",
    )
    return fail_above(watch(interval(command)))


def total(lags: Mapping[TopicPartition, GroupLag]) -> int | None:
    """Return the sum of the known lags; None if none is known."""
    known = [lag.lag for lag in lags.values() if lag.lag is not None]
    return sum(known) if known else None


class Lags:
    """The total lags of many groups. One that a broker does not return in time ends the rest."""

    def __init__(self, admin: Admin, *, must_be_known: bool) -> None:
        self._admin = admin
        self._must_be_known = must_be_known
        self._is_over = False

    def of(self, group_id: str) -> int | None:
        """Return the total lag of a group; None if it is not known.

        Raises `TimedOut` if it must be known: an alert that cannot look must not stay silent.
        """
        if self._is_over:
            return None
        try:
            return total(self._admin.group_lag(group_id))
        except TimedOut:
            if self._must_be_known:
                raise
            self._is_over = True
            return None


def look_again(
    look: Callable[[], Mapping[str, int | None]],
    *,
    fail_above: int | None,
    watch: bool,
    interval_s: float,
) -> None:
    """Call `look`, which shows groups and returns their lags; with `watch` until Ctrl-C.

    Ends the process with status 3 once a lag is above `fail_above`.
    """
    try:
        while True:
            if watch and sys.stdout.isatty():
                click.clear()
            lags = look()
            _check(lags, fail_above)
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(interval_s)
            check_reader()
    except KeyboardInterrupt:
        if not watch:
            raise


def _check(lags: Mapping[str, int | None], fail_above: int | None) -> None:
    if fail_above is None:
        return
    above = {name: lag for name, lag in lags.items() if lag is not None and lag > fail_above}
    for name, lag in above.items():
        click.echo(
            f"The lag of {printable(name)} is {lag:,}, above {fail_above:,}.",
            err=True,
        )
    if above:
        sys.exit(ABOVE)
