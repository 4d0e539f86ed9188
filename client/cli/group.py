"""`odradek group`: consumer groups, and how far they are."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from odradek.client.administration.pin_words import held_back
from odradek.client.administration.pins import Pins
from odradek.client.blocking import (
    Admin,
    GroupDescription,
    GroupLag,
    GroupListing,
    GroupMemberDescription,
    OdradekError,
    Refused,
    TopicPartition,
)
from odradek.client.cli.common import (
    confirm,
    connection_options,
    echo_json,
    json_option,
    limits,
    report,
    reports_errors,
    sentence,
    show_table,
    together,
)
from odradek.client.cli.group_lag import Lags, lag_options, look_again, total
from odradek.client.cli.group_reset import places_of, reset, topics_option
from odradek.client.cli.waiting import find_waiting, pins_of, with_pin
from odradek.client.cli.words import client, counted
from odradek.protocol.errors import ErrorCode
from odradek.protocol.text import printable

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


group.add_command(reset)


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
@lag_options
@json_option("Print a JSON object for each group; the keys are above.")
@connection_options
@reports_errors
def list_groups(
    states: tuple[str, ...],
    types: tuple[str, ...],
    fail_above: int | None,
    watch: bool,
    interval_s: float,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """List the groups of all brokers, with their states and how far they are behind.

    The lag is the number of records, and markers of transactions, behind the stored offsets of a
    group, in all partitions together.

    \b
    Keys of --json: group, state, type, protocol_type, coordinator, lag (null if
    the group has stored no offset).
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:

        def look() -> dict[str, int | None]:
            found = admin.list_groups(states=states, types=types)
            lags = Lags(admin, must_be_known=fail_above is not None)
            totals = {listing.group_id: lags.of(listing.group_id) for listing in found}
            _show_list(found, totals, as_json)
            if not found and not as_json:
                click.echo(f"There is no {'such ' if states or types else ''}group.")
            return totals

        look_again(look, fail_above=fail_above, watch=watch, interval_s=interval_s)


def _show_list(
    found: Sequence[GroupListing], lags: Mapping[str, int | None], as_json: bool
) -> None:
    if as_json:
        for listing in found:
            echo_json(
                {
                    "group": listing.group_id,
                    "state": listing.state,
                    "type": listing.group_type,
                    "protocol_type": listing.protocol_type,
                    "coordinator": listing.coordinator_id,
                    "lag": lags[listing.group_id],
                }
            )
    elif found:
        show_table(
            ("group", "state", "type", "coordinator", "lag"),
            [
                (
                    printable(listing.group_id),
                    listing.state,
                    listing.group_type,
                    str(listing.coordinator_id),
                    _number(lags[listing.group_id]),
                )
                for listing in found
            ],
            right=("coordinator", "lag"),
        )


@group.command("describe")
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True)
@lag_options
@json_option("Print a JSON object for each group; the keys are above.")
@connection_options
@reports_errors
def describe_group(
    group_ids: tuple[str, ...],
    fail_above: int | None,
    watch: bool,
    interval_s: float,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Show a group's members, how far it is in each partition, and its total lag.

    For a group of the new protocol (KIP-848), also its epoch, the epoch that each member has
    reached, and the partitions that a member still has to give up or to get.

    \b
    Keys of --json: group, state, type, protocol_type, protocol, coordinator,
    epoch, assignment_epoch, lag, members (member, instance, rack, client_id,
    client_host, epoch, partitions, target), partitions (topic, partition,
    offset, end, lag; pin, if a transaction holds records back). What does not
    apply or is not known is null.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:

        def look() -> dict[str, int | None]:
            return _describe(admin, group_ids, as_json, bootstrap)

        look_again(look, fail_above=fail_above, watch=watch, interval_s=interval_s)


def _describe(
    admin: Admin, group_ids: Sequence[str], as_json: bool, bootstrap: str
) -> dict[str, int | None]:
    """Show groups, and return their total lags."""
    totals: dict[str, int | None] = {}
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
        totals[group_id] = total(lags)
        group_type = listed[group_id].group_type if group_id in listed else found.group_type
        behind = [
            place for place, lag in lags.items() if lag.lag != 0 and lag.end_offset is not None
        ]
        waiting = find_waiting(admin, behind)
        pins = pins_of(admin, waiting)
        if as_json:
            echo_json(facts(found, group_type, lags, pins))
            continue
        _show(found, group_type, lags)
        for line in held_back(waiting, pins, bootstrap):
            click.echo(sentence(line))
    if errors:
        raise together(errors)
    return totals


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
    found: GroupDescription, group_type: str, lags: dict[TopicPartition, GroupLag], pins: Pins
) -> dict[str, Any]:
    """Return a group as `--json` prints it."""
    return {
        "group": found.group_id,
        "state": found.state,
        "type": group_type,
        "protocol_type": found.protocol_type,
        "protocol": found.protocol,
        "coordinator": found.coordinator_id,
        "epoch": found.group_epoch,
        "assignment_epoch": found.assignment_epoch,
        "lag": total(lags),
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
            with_pin(
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "offset": lag.offset,
                    "end": lag.end_offset,
                    "lag": lag.lag,
                },
                pins.get(place),
            )
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
        f"{_behind(total(lags))}"
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
        for about in _sentences(member, found):
            click.echo(f"{name} {about}")


def _behind(lag: int | None) -> str:
    return "" if lag is None else f", {counted(lag, 'record')} behind"


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


@group.command("delete")
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True)
@topics_option("Delete only the offsets of this topic, or of these partitions.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option("Print a JSON object for each group: group, topics (null for all), deleted.")
@connection_options
@reports_errors
def delete_group(
    group_ids: tuple[str, ...],
    topics: Sequence[tuple[str, tuple[int, ...]]],
    yes: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Delete groups without members and all their offsets, or only offsets of some topics."""
    names = ", ".join(map(printable, group_ids))
    what = f"the offsets of {_named(topics)} of {names}" if topics else f"{names} and all offsets"
    if not yes and sys.stdin.isatty():
        confirm(f"Delete {what}?")
    wanted = list(dict.fromkeys(name for name, _ in topics)) or None
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        places = places_of(admin, topics)
        errors: list[OdradekError] = []
        for group_id in dict.fromkeys(group_ids):
            try:
                if topics:
                    admin.delete_group_offsets(group_id, places)
                else:
                    admin.delete_groups(group_id)
            except Refused as error:
                errors.append(error)
                continue
            of = f"the offsets of {_named(topics)} of" if topics else "the group"
            report(
                as_json,
                {"group": group_id, "topics": wanted, "deleted": True},
                f"Deleted {of} {printable(group_id)}.",
            )
    if errors:
        raise together(errors)


def _named(topics: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(dict.fromkeys(name for name, _ in topics))
