"""`odradek group reset`: a group goes on elsewhere.

The new offsets are shown, and stored once that is confirmed; with `--dry-run` only shown.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

import click

from odradek.client.blocking import Admin, OffsetReset, Refused, ResetTo, TopicPartition
from odradek.client.cli.common import (
    INT64_MAX,
    confirm,
    connection_options,
    echo_json,
    limits,
    reports_errors,
    show_table,
)
from odradek.protocol.text import printable

P = ParamSpec("P")
R = TypeVar("R")


class Moment(click.ParamType):  # type: ignore[type-arg]  # generic only in the stubs
    """A time on the command line: ISO 8601, or milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value)
        try:
            if text.isascii() and text.isdigit():
                moment_ms = int(text)
            else:
                # Without a zone it is local time, as a shell's `date` prints it.
                moment = datetime.fromisoformat(text).astimezone(UTC)
                moment_ms = max(0, round(moment.timestamp() * 1000))
        except (ValueError, OverflowError):
            moment_ms = INT64_MAX + 1
        if moment_ms > INT64_MAX:
            self.fail(
                f"{text!r} is not a time such as 2026-11-21T12:00:00Z, nor milliseconds since "
                "1970.",
                param,
                ctx,
            )
        return moment_ms


class TopicOrPartitions(click.ParamType):  # type: ignore[type-arg]  # generic only in the stubs
    """A topic, or some of its partitions: ledger, ledger:0, ledger:0,2."""

    name = "topic"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[int, ...]]:
        if isinstance(value, tuple):
            return value
        topic, colon, text = str(value).partition(":")
        numbers = text.split(",") if colon else []
        if not topic or not all(number.isascii() and number.isdigit() for number in numbers):
            self.fail(f"{value!r} is not TOPIC or TOPIC:PARTITION,...", param, ctx)
        return topic, tuple(map(int, numbers))


def topics_option(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the option that names topics and partitions."""
    return click.option(
        "--topic",
        "-t",
        "topics",
        type=TopicOrPartitions(),
        multiple=True,
        metavar="TOPIC[:N,...]",
        help=f"{what} Repeatable.",
    )


@click.command("reset")
@click.argument("group_id", metavar="GROUP")
@topics_option("Reset this topic, or these partitions.  [default: all that the group has]")
@click.option("--to-earliest", is_flag=True, help="Go on where each partition begins.")
@click.option("--to-latest", is_flag=True, help="Go on where each partition ends.")
@click.option(
    "--to-offset", type=click.IntRange(0, INT64_MAX), metavar="OFFSET", help="Go on at this offset."
)
@click.option(
    "--to-time",
    type=Moment(),
    metavar="TIME",
    help="Go on at the first record at or after this time: 2026-11-21T12:00:00Z (local time "
    "without a zone), or milliseconds since 1970.",
)
@click.option(
    "--shift",
    type=click.IntRange(-INT64_MAX, INT64_MAX),
    metavar="N",
    help="Go on N offsets later; earlier if N is negative.",
)
@click.option("--dry-run", is_flag=True, help="Show the new offsets, and store nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON object for each partition: group, topic, partition, offset, new_offset.",
)
@connection_options
@reports_errors
def reset(
    group_id: str,
    topics: Sequence[tuple[str, tuple[int, ...]]],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: int | None,
    shift: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Move the stored offsets of a group without members.

    An offset is never set outside of what a partition has. The new offsets are shown first.
    """
    given = [to_offset is not None, to_time is not None, shift is not None]
    if sum([*given, to_earliest, to_latest]) != 1:
        raise click.UsageError(
            "Give one of --to-earliest, --to-latest, --to-offset, --to-time and --shift."
        )
    to = ResetTo(
        offset=to_offset, time_ms=to_time, shift=shift, earliest=to_earliest, latest=to_latest
    )
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        wanted = places_of(admin, topics) if topics else None
        planned = admin.reset_group(group_id, to, partitions=wanted, dry_run=True)
        if not planned:
            raise Refused(f"the group {group_id!r} has no offsets; name topics with --topic")
        _show_resets(group_id, planned, as_json)
        if dry_run:
            return
        if not yes and sys.stdin.isatty():
            confirm(f"Store these offsets for {printable(group_id)}?")
        admin.set_group_offsets(group_id, {place: found.after for place, found in planned.items()})


def places_of(admin: Admin, topics: Sequence[tuple[str, tuple[int, ...]]]) -> list[TopicPartition]:
    """Return the partitions that are meant. Raises `Refused` for a topic that does not exist."""
    found = {topic.name: topic for topic in admin.describe_topics(*dict(topics))} if topics else {}
    places: dict[TopicPartition, None] = {}
    for name, numbers in topics:
        there = [partition.partition for partition in found[name].partitions]
        for number in numbers or there:
            if number not in there:
                raise Refused(f"there is no partition {TopicPartition(name, number)}")
            places[TopicPartition(name, number)] = None
    return list(places)


def _show_resets(group_id: str, planned: dict[TopicPartition, OffsetReset], as_json: bool) -> None:
    if as_json:
        for place, found in planned.items():
            echo_json(
                {
                    "group": group_id,
                    "topic": place.topic,
                    "partition": place.partition,
                    "offset": found.before,
                    "new_offset": found.after,
                }
            )
        return
    show_table(
        ("topic", "partition", "offset", "new offset"),
        [
            (
                place.topic,
                str(place.partition),
                _offset(found.before),
                str(found.after),
            )
            for place, found in planned.items()
        ],
        right=("partition", "offset", "new offset"),
    )


def _offset(offset: int | None) -> str:
    return "-" if offset is None else str(offset)
