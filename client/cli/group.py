"""`odradek group`: consumer groups, how far they are, and where they go on.

`reset` shows what it is going to store, and stores it once that is confirmed; with `--dry-run` it
only shows it.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, ParamSpec, TypeVar

import click

from odradek.client.blocking import (
    Admin,
    GroupDescription,
    GroupLag,
    GroupListing,
    GroupMemberDescription,
    OdradekError,
    OffsetReset,
    Refused,
    ResetTo,
    TopicPartition,
)
from odradek.client.cli.common import (
    INT64_MAX,
    confirm,
    connection_options,
    echo_json,
    limits,
    reports_errors,
    show_table,
    together,
)
from odradek.client.cli.words import client, counted
from odradek.protocol.errors import ErrorCode
from odradek.protocol.text import printable

P = ParamSpec("P")
R = TypeVar("R")

NUMBERS: Final = ("partition", "offset", "end", "lag")
"""The columns of numbers."""
STATES: Final = (
    "Empty",
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
"""The states of groups of all types, as Kafka names them."""
TYPES: Final = ("classic", "consumer", "share", "streams")
"""Kafka's types of groups. Odradek has the first two."""


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer groups."""


class Moment(click.ParamType):  # type: ignore[type-arg]  # generic only in the stubs
    """A time on the command line: ISO 8601, or milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value)
        if text.isascii() and text.isdigit():
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r} is not a time such as 2026-11-21T12:00:00Z, nor milliseconds since 1970",
                param,
                ctx,
            )
        # Without a zone it is local time, as a shell's `date` prints it.
        return max(0, round(moment.astimezone(UTC).timestamp() * 1000))


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


@group.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    multiple=True,
    help=f"List groups in this state: {', '.join(STATES)}. Repeatable.",
)
@click.option(
    "--type",
    "types",
    type=click.Choice(TYPES, case_sensitive=False),
    metavar="TYPE",
    multiple=True,
    help=f"List groups of this type: {', '.join(TYPES)}. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each group.")
@connection_options
@reports_errors
def list_groups(
    states: tuple[str, ...], types: tuple[str, ...], as_json: bool, bootstrap: str, timeout_s: float
) -> None:
    """List the groups of all brokers, with their states."""
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        found = admin.list_groups(states=states, types=types)
    if as_json:
        for listing in found:
            echo_json(
                {
                    "group": listing.group_id,
                    "state": listing.state,
                    "type": listing.group_type,
                    "protocol_type": listing.protocol_type,
                    "coordinator": listing.coordinator_id,
                }
            )
    elif found:
        show_table(
            ("group", "state", "type", "coordinator"),
            [
                (
                    printable(listing.group_id),
                    listing.state,
                    listing.group_type,
                    str(listing.coordinator_id),
                )
                for listing in found
            ],
            right=("coordinator",),
        )
    else:
        click.echo("There is no such group.")


@group.command("describe")
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each group.")
@connection_options
@reports_errors
def describe_group(
    group_ids: tuple[str, ...], as_json: bool, bootstrap: str, timeout_s: float
) -> None:
    """Show a group's members, and how far it is in each partition.

    For a group of the new protocol (KIP-848), also its epoch, the epoch that each member has
    reached, and the partitions that a member still has to give up or to get.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        listed = {listing.group_id: listing for listing in admin.list_groups()}
        described = admin.describe_groups(*group_ids)
        errors: list[OdradekError] = []
        for group_id, found in described.items():
            if isinstance(found, OdradekError):
                try:
                    found = _of_another_type(found, listed.get(group_id))
                except OdradekError as error:
                    errors.append(error)
                    continue
            assigned = [
                place
                for member in found.members
                for place in (*member.partitions, *(member.target or ()))
            ]
            lags = admin.group_lag(group_id, assigned)
            group_type = listed[group_id].group_type if group_id in listed else found.group_type
            if as_json:
                echo_json(facts(found, group_type, lags))
            else:
                _show(found, group_type, lags)
    if errors:
        raise together(errors)


def _of_another_type(error: OdradekError, listed: GroupListing | None) -> GroupDescription:
    """Describe a group of a type that cannot be described: its members are not known."""
    if listed is None or error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        raise error
    return GroupDescription(
        group_id=listed.group_id,
        coordinator_id=listed.coordinator_id,
        state=listed.state,
        protocol_type=listed.protocol_type,
        protocol="",
        members=(),
        group_type=listed.group_type,
    )


def facts(
    found: GroupDescription, group_type: str, lags: dict[TopicPartition, GroupLag]
) -> dict[str, Any]:
    """Return a group as `--json` prints it."""
    known = [lag.lag for lag in lags.values() if lag.lag is not None]
    return {
        "group": found.group_id,
        "state": found.state,
        "type": group_type,
        "protocol_type": found.protocol_type,
        "protocol": found.protocol,
        "coordinator": found.coordinator_id,
        "epoch": found.group_epoch,
        "assignment_epoch": found.assignment_epoch,
        "lag": sum(known),
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "rack": member.rack,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "epoch": member.member_epoch,
                "partitions": _places_of(member.partitions),
                "target": None if member.target is None else _places_of(member.target),
            }
            for member in found.members
        ],
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "offset": lag.offset,
                "end": lag.end_offset,
                "lag": lag.lag,
            }
            for place, lag in lags.items()
        ],
    }


def _places_of(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": place.topic, "partition": place.partition} for place in partitions]


def _show(found: GroupDescription, group_type: str, lags: dict[TopicPartition, GroupLag]) -> None:
    protocol = f", {found.protocol}" if found.protocol else ""
    kind = f" ({group_type}{protocol})" if group_type else ""
    epoch = "" if found.group_epoch is None else f", epoch {found.group_epoch}"
    click.echo(
        f"{printable(found.group_id)}  {found.state}{kind}, "
        f"{counted(len(found.members), 'member')}, coordinator {found.coordinator_id}{epoch}"
    )
    owners = {
        place: client(member.group_instance_id or member.client_id, member.client_host) or ""
        for member in found.members
        for place in member.partitions
    }
    if lags:
        show_table(
            ("topic", *NUMBERS, "member"),
            [
                (
                    place.topic,
                    str(place.partition),
                    _number(lag.offset),
                    _number(lag.end_offset),
                    _number(lag.lag),
                    owners.get(place, ""),
                )
                for place, lag in lags.items()
            ],
            right=NUMBERS,
        )
    else:
        click.echo("It has stored no offsets.")
    for member in found.members:
        name = client(member.group_instance_id or member.client_id, member.client_host) or ""
        for sentence in _sentences(member, found):
            click.echo(f"{name} {sentence}")


def _sentences(member: GroupMemberDescription, found: GroupDescription) -> list[str]:
    """Return what is to be said about a member besides the partitions that it owns."""
    sentences = []
    if not member.partitions:
        sentences.append("has no partitions.")
    target = member.partitions if member.target is None else member.target
    gets = [str(place) for place in target if place not in member.partitions]
    gives = [str(place) for place in member.partitions if place not in target]
    if gives:
        sentences.append(f"has to give up {', '.join(map(printable, gives))}.")
    if gets:
        sentences.append(f"is to get {', '.join(map(printable, gets))}.")
    if member.member_epoch is not None and member.member_epoch != found.assignment_epoch:
        sentences.append(f"is in epoch {member.member_epoch}.")
    return sentences


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


@group.command("reset")
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
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each partition.")
@connection_options
@reports_errors
def reset_group(
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
    """Let a group without members go on elsewhere.

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
        places = _places(admin, topics) if topics else None
        planned = admin.reset_group(group_id, to, partitions=places, dry_run=True)
        if not planned:
            raise Refused(f"the group {group_id!r} has no offsets; name topics with --topic")
        _show_resets(group_id, planned, as_json)
        if dry_run:
            return
        if not yes and sys.stdin.isatty():
            confirm(f"Store these offsets for {printable(group_id)}?")
        admin.set_group_offsets(group_id, {place: reset.after for place, reset in planned.items()})


def _places(admin: Admin, topics: Sequence[tuple[str, tuple[int, ...]]]) -> list[TopicPartition]:
    """Return the partitions that are meant. Raises `Refused` for a topic that does not exist."""
    found = {topic.name: topic for topic in admin.describe_topics(*dict(topics))}
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
        for place, reset in planned.items():
            echo_json(
                {
                    "group": group_id,
                    "topic": place.topic,
                    "partition": place.partition,
                    "offset": reset.before,
                    "new_offset": reset.after,
                }
            )
        return
    show_table(
        ("topic", "partition", "offset", "new offset"),
        [
            (place.topic, str(place.partition), _number(reset.before), str(reset.after))
            for place, reset in planned.items()
        ],
        right=("partition", "offset", "new offset"),
    )


@group.command("delete")
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True)
@topics_option("Delete only the offsets of this topic, or of these partitions.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@connection_options
@reports_errors
def delete_group(
    group_ids: tuple[str, ...],
    topics: Sequence[tuple[str, tuple[int, ...]]],
    yes: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Delete groups without members and all their offsets, or only offsets of some topics."""
    names = ", ".join(map(printable, group_ids))
    what = f"the offsets of {_named(topics)} of {names}" if topics else f"{names} and all offsets"
    if not yes and sys.stdin.isatty():
        confirm(f"Delete {what}?")
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        if not topics:
            admin.delete_groups(*group_ids)
            return
        places = _places(admin, topics)
        for group_id in group_ids:
            admin.delete_group_offsets(group_id, places)


def _named(topics: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(dict.fromkeys(name for name, _ in topics))
