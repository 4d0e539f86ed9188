"""`odradek spark`: what the Spark sink has committed, and what it has left open.

It needs no Spark: everything is in the topic of decisions and in the ids of transactions.
"""

import re
import time
from collections.abc import Iterable
from contextlib import suppress
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
    report,
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
from odradek.client.spark.scope import BY_ROWS, Scope
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

    A query has the id of its checkpoint, a batch write that of its option txnAppId. Each topic that
    they write to has batches of its own.
    """


@spark.command("list", short_help="List queries and their newest batch.")
@json_option
@prefix_option
@connection_options
@reports_errors
def list_queries(as_json: bool, prefix: str, bootstrap: str, timeout_s: float) -> None:
    """List queries and their targets with the newest committed batch, the latest first.

    An orphan is an open transaction of a committed batch: no commit will have it.

    \b
    Keys of --json, an object for each query and target: query, checkpoint (the
    query in whose foreachBatch an application writes), topic (or "by rows"),
    topic_id, batch, records, tasks (those that wrote in transactions of their
    own), committed_ms, open (transactions), orphans. What is not known is null: a
    query that has committed nothing yet, the topic of an earlier version.
    """
    decided = _decided(prefix, bootstrap, timeout_s)
    open_ones = _open_by_query(prefix, bootstrap, timeout_s)
    facts = [
        _facts(scope, decided.get(scope), open_ones.get(scope, []))
        for scope in {**decided, **open_ones}
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
        topic = each["topic"] or "not known"
        rows.append([printable(str(each["query"])), printable(str(topic)), *numbers, when])
    show_table(["query", "topic", *NUMBERS, "committed"], rows, right=NUMBERS)


NUMBERS: Final = ["batch", "records", "tasks", "open", "orphans"]


@spark.command(short_help="Describe a query.")
@click.argument("query", metavar="QUERY")
@json_option
@prefix_option
@connection_options
@reports_errors
def describe(query: str, as_json: bool, prefix: str, bootstrap: str, timeout_s: float) -> None:
    """Describe a query: for each target its newest committed batch, and every open transaction.

    \b
    Keys of --json, an object for each target: those of `odradek spark list`, and
    transactions: a list of id, batch, orphan (true if its batch is committed),
    age_ms, times_out_in_ms.
    """
    decided = _decided(prefix, bootstrap, timeout_s)
    open_ones = _open_by_query(prefix, bootstrap, timeout_s)
    scopes = [scope for scope in {**decided, **open_ones} if scope.write_id == query]
    if not scopes:
        raise Refused(f"no query {query!r} with the prefix {prefix} has written anything")
    for scope in sorted(scopes, key=lambda scope: scope.name):
        decision, found = decided.get(scope), open_ones.get(scope, [])
        if as_json:
            listed = [_open_facts(each, decision) for each in found]
            echo_json({**_facts(scope, decision, found), "transactions": listed})
        else:
            _show(scope, decision, found)


def _open_facts(each: TransactionDescription, decision: DecidedQuery | None) -> Facts:
    return {
        "id": each.transactional_id,
        "batch": batch_of_member(each.transactional_id),
        "orphan": _is_orphan(each, decision),
        "age_ms": each.age_ms,
        "times_out_in_ms": each.times_out_in_ms,
    }


def _show(
    scope: Scope, decision: DecidedQuery | None, open_ones: Iterable[TransactionDescription]
) -> None:
    click.echo(printable(scope.write_id))
    if scope.query_id is not None:
        click.echo(f"  checkpoint    query {printable(scope.query_id)}")
    click.echo(f"  target        {printable(scope.target)}")
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
@json_option
@prefix_option
@connection_options
@reports_errors
def clean(
    query: str, running: bool, as_json: bool, prefix: str, bootstrap: str, timeout_s: float
) -> None:
    """Abort the orphans of a query: open transactions of batches that are committed.

    The next commit of the query does the same. Nothing that is committed changes.

    \b
    Keys of --json: query, aborted (transactions), ended (meanwhile).
    """
    decided = _decided(prefix, bootstrap, timeout_s)
    scopes = {*decided, *(_open_by_query(prefix, bootstrap, timeout_s) if running else ())}
    cleaned = sorted(
        (scope for scope in scopes if scope.write_id == query), key=lambda scope: scope.name
    )
    if not cleaned and not running:
        raise Refused(
            f"no query {query!r} with the prefix {prefix} has committed anything: --running "
            f"aborts what it has open"
        )
    aborted = others = 0
    for scope in cleaned:
        decision = decided.get(scope)
        up_to = None if running or decision is None else decision.batch_id
        group = group_name(prefix, scope)
        with Admin(bootstrap, **limits(timeout_s)) as admin:
            found = open_members(admin, attempts_of_group(group), up_to)
        with TransactionGroup(bootstrap, group, **limits(timeout_s)) as transactions:
            ended = abort_each(transactions, found)
        aborted, others = aborted + ended, others + len(found) - ended
    report(
        as_json,
        {"query": query, "aborted": aborted, "ended": others},
        f"Aborted {words.counted(aborted, 'transaction')} of {printable(query)}.",
    )
    if others and not as_json:
        click.echo(f"{words.counted(others, 'other')} ended meanwhile.")


def _decided(prefix: str, bootstrap: str, timeout_s: float) -> dict[Scope, DecidedQuery]:
    """Return the newest decisions, of no query if there is no topic of decisions."""
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        if decisions_topic(prefix) not in admin.list_topics(internal=True):
            return {}
    with Consumer(bootstrap, **limits(timeout_s)) as consumer:
        return decided_queries(consumer, prefix)


def _open_by_query(
    prefix: str, bootstrap: str, timeout_s: float
) -> dict[Scope, list[TransactionDescription]]:
    """Return the open transactions of tasks."""
    by_query: dict[Scope, list[TransactionDescription]] = {}
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
        with suppress(ValueError):  # of a program that is not the sink
            scope = Scope.parse((tag_of(name) or "").removeprefix(f"{prefix}."))
            by_query.setdefault(scope, []).append(found)
    return by_query


def _is_orphan(found: TransactionDescription, decision: DecidedQuery | None) -> bool:
    batch = batch_of_member(found.transactional_id)
    return decision is not None and batch is not None and batch <= decision.batch_id


def _facts(
    scope: Scope, decision: DecidedQuery | None, open_ones: Iterable[TransactionDescription]
) -> Facts:
    listed = list(open_ones)
    return {
        "query": scope.write_id,
        "checkpoint": scope.query_id,
        "topic": "by rows" if scope.topic == BY_ROWS else scope.topic,
        "topic_id": str(scope.topic_id) if scope.topic_id else None,
        "batch": decision.batch_id if decision else None,
        "records": decision.records if decision else None,
        "tasks": decision.members if decision else None,
        "committed_ms": decision.decided_ms if decision else None,
        "open": len(listed),
        "orphans": sum(_is_orphan(each, decision) for each in listed),
    }
