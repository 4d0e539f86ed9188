"""`odradek spark`: what the Spark sink has committed, and what it has left open.

It needs no Spark: everything is in the topic of decisions and in the ids of transactions.
"""

import re
import time
from collections.abc import Iterable
from typing import Final

import click

from odradek.client.blocking import (
    Admin,
    Consumer,
    OdradekError,
    Refused,
    TransactionDescription,
    TransactionGroup,
)
from odradek.client.cli import words
from odradek.client.cli.common import (
    connection_options,
    echo_json,
    limits,
    reports_errors,
    show_table,
)
from odradek.client.spark.decisions import DecidedQuery, decided_queries, decisions_topic
from odradek.client.spark.members import (
    abort_each,
    attempts_of_group,
    batch_of_member,
    group_name,
    open_members,
)
from odradek.client.types import SPARK_PREFIX_DEFAULT
from odradek.protocol.errors import ErrorCode
from odradek.protocol.state_topics import tag_of
from odradek.protocol.text import printable

ONGOING: Final = "Ongoing"
Facts = dict[str, str | int | None]

prefix_option = click.option(
    "--prefix",
    default=SPARK_PREFIX_DEFAULT,
    show_default=True,
    metavar="NAME",
    help="The option transactionalIdPrefix of the queries.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON: see above.")


@click.group(short_help="Show what Spark queries have committed.")
def spark() -> None:
    """Show what Spark queries have committed, and end what they have left open.

    A query has the id of its checkpoint, a batch write that of its option txnAppId.
    """


@spark.command("list", short_help="List queries and their newest batch.")
@json_option
@prefix_option
@connection_options
@reports_errors
def list_queries(as_json: bool, prefix: str, bootstrap: str, timeout_s: float) -> None:
    """List queries with their newest committed batch, the latest first.

    An orphan is an open transaction of a committed batch: no commit will have it.

    \b
    Keys of --json, an object for each query: query, batch, records, tasks (those
    that wrote in transactions of their own), committed_ms, open (transactions),
    orphans. What is not known is null: a query that has committed nothing yet.
    """
    decided = _decided(prefix, bootstrap, timeout_s)
    open_ones = _open_by_query(prefix, bootstrap, timeout_s)
    facts = [
        _facts(query, decided.get(query), open_ones.get(query, []))
        for query in {**decided, **open_ones}
    ]
    facts.sort(key=lambda each: int(each["committed_ms"] or 0), reverse=True)
    if as_json:
        for each in facts:
            echo_json(each)
        return
    if not facts:
        click.echo(f"No query with the prefix {prefix} has written anything.")
        return
    now_ms = int(time.time() * 1000)
    rows = []
    for each in facts:
        committed = each["committed_ms"]
        when = words.ago(committed, now_ms) if isinstance(committed, int) else "never"
        numbers = ["" if each[name] is None else str(each[name]) for name in NUMBERS]
        rows.append([printable(str(each["query"])), *numbers, when])
    show_table(["query", *NUMBERS, "committed"], rows, right=NUMBERS)


NUMBERS: Final = ["batch", "records", "tasks", "open", "orphans"]


@spark.command(short_help="Describe a query.")
@click.argument("query", metavar="QUERY")
@json_option
@prefix_option
@connection_options
@reports_errors
def describe(query: str, as_json: bool, prefix: str, bootstrap: str, timeout_s: float) -> None:
    """Describe a query: its newest committed batch, and every open transaction of its tasks.

    \b
    Keys of --json: those of `odradek spark list`, and transactions: a list of
    id, batch, orphan (true if its batch is committed), age_ms, times_out_in_ms.
    """
    decision = _decided(prefix, bootstrap, timeout_s).get(query)
    open_ones = _open_by_query(prefix, bootstrap, timeout_s).get(query, [])
    if decision is None and not open_ones:
        raise Refused(f"no query {query!r} with the prefix {prefix} has written anything")
    facts = _facts(query, decision, open_ones)
    if as_json:
        listed = [
            {
                "id": each.transactional_id,
                "batch": batch_of_member(each.transactional_id),
                "orphan": _is_orphan(each, decision),
                "age_ms": each.age_ms,
                "times_out_in_ms": each.times_out_in_ms,
            }
            for each in open_ones
        ]
        echo_json({**facts, "transactions": listed})
        return
    click.echo(printable(query))
    if decision is None:
        click.echo("  committed     nothing")
    else:
        when = words.ago(decision.decided_ms, int(time.time() * 1000))
        click.echo(
            f"  committed     batch {decision.batch_id}, {when}: "
            f"{words.counted(decision.records, 'record')} of "
            f"{words.counted(decision.members, 'task')} with a transaction"
        )
    for each in open_ones:
        what = "an orphan" if _is_orphan(each, decision) else "not committed yet"
        click.echo(
            f"  open          {printable(each.transactional_id)}: {what}, "
            f"open for {words.open_for(each)}"
        )


@spark.command(short_help="Abort what a query has left open.")
@click.argument("query", metavar="QUERY")
@click.option(
    "--running",
    is_flag=True,
    help="Abort also the transactions of batches that are not committed. A query that runs "
    "fails with its batch, and runs it again when it is started again.",
)
@prefix_option
@connection_options
@reports_errors
def clean(query: str, running: bool, prefix: str, bootstrap: str, timeout_s: float) -> None:
    """Abort the orphans of a query: open transactions of batches that are committed.

    The next commit of the query does the same. Nothing that is committed changes.
    """
    decision = _decided(prefix, bootstrap, timeout_s).get(query)
    group = group_name(prefix, query)
    if decision is None and not running:
        raise Refused(
            f"no query {query!r} with the prefix {prefix} has committed anything: --running "
            f"aborts what it has open"
        )
    up_to = None if running or decision is None else decision.batch_id
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        found = open_members(admin, attempts_of_group(group), up_to)
    with TransactionGroup(bootstrap, group, **limits(timeout_s)) as transactions:
        aborted = abort_each(transactions, found)
    click.echo(f"Aborted {words.counted(aborted, 'transaction')} of {printable(query)}.")
    if aborted < len(found):
        click.echo(f"{words.counted(len(found) - aborted, 'other')} ended meanwhile.")


def _decided(prefix: str, bootstrap: str, timeout_s: float) -> dict[str, DecidedQuery]:
    """Return the newest decisions, of no query if there is no topic of decisions."""
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        if decisions_topic(prefix) not in admin.list_topics(internal=True):
            return {}
    with Consumer(bootstrap, **limits(timeout_s)) as consumer:
        return decided_queries(consumer, prefix)


def _open_by_query(
    prefix: str, bootstrap: str, timeout_s: float
) -> dict[str, list[TransactionDescription]]:
    """Return the open transactions of tasks."""
    by_query: dict[str, list[TransactionDescription]] = {}
    pattern = rf"\{{{re.escape(prefix)}\..*"
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        try:
            listed = admin.list_transactions(states=[ONGOING], pattern=pattern)
        except Refused as refused:
            if refused.code == ErrorCode.UNSUPPORTED_VERSION:
                return {}  # a broker without transaction groups: tasks have no transactions there
            raise
        names = [each.transactional_id for each in listed]
        described = admin.describe_transactions(*names) if names else {}
    for name, found in described.items():
        if isinstance(found, OdradekError) or batch_of_member(name) is None:
            continue
        query = (tag_of(name) or "").removeprefix(f"{prefix}.")
        by_query.setdefault(query, []).append(found)
    return by_query


def _is_orphan(found: TransactionDescription, decision: DecidedQuery | None) -> bool:
    batch = batch_of_member(found.transactional_id)
    return decision is not None and batch is not None and batch <= decision.batch_id


def _facts(
    query: str, decision: DecidedQuery | None, open_ones: Iterable[TransactionDescription]
) -> Facts:
    listed = list(open_ones)
    return {
        "query": query,
        "batch": decision.batch_id if decision else None,
        "records": decision.records if decision else None,
        "tasks": decision.members if decision else None,
        "committed_ms": decision.decided_ms if decision else None,
        "open": len(listed),
        "orphans": sum(_is_orphan(each, decision) for each in listed),
    }
