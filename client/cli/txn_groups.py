"""`odradek txn groups`: the transaction groups, and what their members are doing."""

from collections.abc import Iterable
from typing import Final

import click

from odradek.client.blocking import Admin, Retriable, TransactionDescription
from odradek.client.cli import words
from odradek.client.cli.common import (
    connection_options,
    echo_json,
    limits,
    reports_errors,
    show_table,
)
from odradek.protocol.state_topics import tag_of
from odradek.protocol.text import printable

DECIDED: Final = ("PrepareCommit", "PrepareAbort")
Facts = dict[str, str | int | None]


@click.command(short_help="List transaction groups and what their members do.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON object for each group; the keys are above.",
)
@connection_options
@reports_errors
def groups(as_json: bool, bootstrap: str, timeout_s: float) -> None:
    """List transaction groups, those with the oldest open transaction first.

    The members of a group are the transactional ids with its name in braces.
    `odradek txn list --group NAME` lists them.

    \b
    Keys of --json: group, coordinator, members, open, decided, committed,
    aborted (numbers of members), partitions (of open members, counted for each),
    age_ms (of the oldest open transaction), times_out_in_ms. What does not apply
    is null.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        names = [each.transactional_id for each in admin.list_transactions()]
        described = admin.describe_transactions(*(name for name in names if tag_of(name)))
    by_group: dict[str, list[TransactionDescription]] = {}
    for name, answer in described.items():
        if isinstance(answer, Retriable):  # other errors are of ids that have expired meanwhile
            raise answer
        if isinstance(answer, TransactionDescription):
            by_group.setdefault(tag_of(name) or "", []).append(answer)
    found = [_facts(name, members) for name, members in sorted(by_group.items())]
    found.sort(key=_age_ms, reverse=True)
    if as_json:
        for facts in found:
            echo_json(facts)
    elif found:
        _show(found)
    else:
        click.echo("There is no transaction group.")


def _age_ms(facts: Facts) -> int:
    age_ms = facts["age_ms"]
    return age_ms if isinstance(age_ms, int) else -1


def _facts(name: str, members: list[TransactionDescription]) -> Facts:
    """Return what `--json` prints about one group."""
    open_ones = [member for member in members if member.state == "Ongoing"]
    return {
        "group": name,
        "coordinator": members[0].coordinator_id,
        "members": len(members),
        "open": len(open_ones),
        "decided": _count(members, *DECIDED),
        "committed": _count(members, "CompleteCommit"),
        "aborted": _count(members, "CompleteAbort"),
        "partitions": sum(len(member.partitions) for member in open_ones),
        "age_ms": max((member.age_ms or 0 for member in open_ones), default=None),
        "times_out_in_ms": min(_remaining(open_ones), default=None),
    }


def _count(members: Iterable[TransactionDescription], *states: str) -> int:
    return sum(member.state in states for member in members)


def _remaining(members: Iterable[TransactionDescription]) -> Iterable[int]:
    return (each.times_out_in_ms for each in members if each.times_out_in_ms is not None)


def _show(found: list[Facts]) -> None:
    numbers = ["members", "open", "decided", "committed", "aborted"]
    rows = []
    for facts in found:
        age_ms, left_ms = facts["age_ms"], facts["times_out_in_ms"]
        rows.append(
            [
                printable(str(facts["group"])),
                *(str(facts[number] or "") for number in numbers),
                words.span(age_ms) if isinstance(age_ms, int) else "",
                words.until(left_ms) if isinstance(left_ms, int) else "",
            ]
        )
    columns = ["group", *numbers, "open for", "aborted by itself"]
    show_table(columns, rows, right=numbers)
