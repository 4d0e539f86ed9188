"""`odradek acl`: who may do what, and why."""

from collections.abc import Callable, Sequence
from typing import Any, Final, ParamSpec, TypeVar

import click

from odradek.client.administration.acls import CLUSTER_NAME, OPERATIONS
from odradek.client.blocking import Acl, Admin, Refused
from odradek.client.cli.acl_words import because, never_counts
from odradek.client.cli.common import (
    confirm,
    connection_options,
    echo_json,
    json_option,
    limits,
    reports_errors,
    show_table,
)

P = ParamSpec("P")
R = TypeVar("R")

OBJECTS: Final = (
    "Print a JSON object for each entry: resource, name, pattern, principal, host, operation, "
    "permission, never_counts."
)


@click.group()
def acl() -> None:
    """Show and change who may do what."""


class Resource:
    """The resource that a command names: a topic, a group, a transactional id, or the cluster."""

    def __init__(self, found: dict[str, Any]) -> None:
        named = {
            kind: found[kind] for kind in ("topic", "group", "transactional_id") if found[kind]
        }
        if found["cluster"]:
            named["cluster"] = CLUSTER_NAME
        if len(named) > 1:
            raise click.UsageError(f"Name one of {' and '.join(OPTIONS)}.")
        self.kind: Any = next(iter(named), None)
        self.name: str | None = next(iter(named.values()), None)

    def check_named(self) -> None:
        if self.kind is None:
            raise click.UsageError(f"Name one of {' and '.join(OPTIONS)}.")


OPTIONS: Final = ("--topic", "--group", "--transactional-id", "--cluster")


def resource_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options that name a resource."""
    for option in (
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option(
            "--transactional-id", metavar="ID", help="A transactional id; * is every one."
        ),
        click.option("--group", "-g", metavar="NAME", help="A group; * is every one."),
        click.option("--topic", "-t", metavar="NAME", help="A topic; * is every one."),
    ):
        command = option(command)
    return command


def filter_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options that entries are chosen by."""
    for option in (
        click.option(
            "--host",
            metavar="ADDRESS",
            help="Only entries whose host is exactly this; * for those of every host.",
        ),
        click.option("--operation", type=OPERATION, help="Only entries for this operation."),
        click.option("--principal", metavar="USER", help="Only entries for it, as User:alice."),
        click.option(
            "--pattern",
            type=click.Choice(("any", "match", "literal", "prefixed")),
            default="any",
            show_default=True,
            help="Only entries with this pattern; match: those that are about the named resource.",
        ),
    ):
        command = option(command)
    return resource_options(command)


OPERATION: Final = click.Choice(tuple(OPERATIONS), case_sensitive=False)


@acl.command("add")
@resource_options
@click.option("--principal", metavar="USER", required=True, help="As User:alice; User:* is all.")
@click.option(
    "--operation",
    "operations",
    type=OPERATION,
    multiple=True,
    required=True,
    help="May be given several times.",
)
@click.option("--deny", is_flag=True, help="Forbid it, whatever other entries allow.")
@click.option("--host", metavar="ADDRESS", default="*", show_default=True, help="From where.")
@click.option("--prefixed", is_flag=True, help="All resources whose names begin with the name.")
@json_option(OBJECTS)
@connection_options
@reports_errors
def add(
    principal: str,
    operations: Sequence[str],
    deny: bool,
    host: str,
    prefixed: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
    **named: Any,
) -> None:
    """Allow a principal something, or deny it. An entry that is there already stays."""
    resource = Resource(named)
    resource.check_named()
    acls = [
        Acl(
            resource=resource.kind,
            name=resource.name or "",
            principal=principal,
            operation=operation.lower(),  # type: ignore[arg-type]
            permission="deny" if deny else "allow",
            host=host,
            pattern="prefixed" if prefixed else "literal",
        )
        for operation in operations
    ]
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        admin.create_acls(acls)
    _show(acls, as_json)


@acl.command("list")
@filter_options
@json_option("Print a JSON object for each entry; the keys are above.")
@connection_options
@reports_errors
def list_(
    pattern: Any,
    principal: str | None,
    operation: Any,
    host: str | None,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
    **named: Any,
) -> None:
    """Show the entries, or those that the options choose.

    An entry that can never count is marked: its host is no address, say.

    \b
    Keys of --json: resource, name, pattern, principal, host, operation, permission,
    never_counts (a reason, or null).
    """
    resource = Resource(named)
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        found = admin.describe_acls(
            resource=resource.kind,
            name=resource.name,
            pattern=pattern,
            principal=principal,
            operation=operation,
            host=host,
        )
    _show(found, as_json)


@acl.command("remove")
@filter_options
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option(OBJECTS)
@connection_options
@reports_errors
def remove(
    pattern: Any,
    principal: str | None,
    operation: Any,
    host: str | None,
    yes: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
    **named: Any,
) -> None:
    """Remove the entries that the options choose."""
    resource = Resource(named)
    chosen: dict[str, Any] = {
        "resource": resource.kind,
        "name": resource.name,
        "pattern": pattern,
        "principal": principal,
        "operation": operation,
        "host": host,
    }
    # A pattern alone chooses nearly everything.
    if all(value is None for option, value in chosen.items() if option != "pattern"):
        raise click.UsageError("Choose entries by a resource, a principal, an operation or a host.")
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        found = admin.describe_acls(**chosen)
        if not found:
            raise Refused("there is no such entry")
        if not yes:
            _show(found, as_json=False, on_stderr=True)
            confirm("Remove these entries?")
        _show(admin.delete_acls(**chosen), as_json)


@acl.command("why")
@resource_options
@click.option("--principal", metavar="USER", required=True, help="As User:alice.")
@click.option("--operation", type=OPERATION, required=True, help="What it wants to do.")
@click.option(
    "--host",
    metavar="ADDRESS",
    default="*",
    show_default=True,
    help="The address of the client; * counts only entries for every host.",
)
@json_option("Print one JSON object; the keys are above.")
@connection_options
@reports_errors
def why(
    principal: str,
    operation: Any,
    host: str,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
    **named: Any,
) -> None:
    """Say if a principal may do something, and which entry decides.

    \b
    Keys of --json: allowed, reason ("entry", "super.users", "no entry for it",
    "no entry at all"), entry (an object with the keys of list, or null).
    """
    resource = Resource(named)
    resource.check_named()
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        decision = admin.explain_access(
            principal, operation, resource.kind, resource.name or "", host=host
        )
    if as_json:
        entry = None if decision.acl is None else _facts(decision.acl)
        facts = {"allowed": decision.is_allowed, "reason": decision.reason, "entry": entry}
        echo_json(facts)
        return
    verdict = "allowed" if decision.is_allowed else "denied"
    click.echo(f"{verdict}: {because(decision.reason, decision.acl, decision.is_allowed)}")


def _facts(entry: Acl) -> dict[str, object]:
    return {
        "resource": entry.resource,
        "name": entry.name,
        "pattern": entry.pattern,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission": entry.permission,
        "never_counts": never_counts(entry),
    }


def _show(entries: Sequence[Acl], as_json: bool, *, on_stderr: bool = False) -> None:
    if as_json:
        for entry in entries:
            echo_json(_facts(entry))
        return
    if not entries:
        click.echo("no entries")
        return
    rows = [
        (
            entry.resource,
            f"{entry.name} (prefix)" if entry.pattern == "prefixed" else entry.name,
            entry.principal,
            entry.host,
            entry.permission,
            entry.operation,
            f"never counts: {reason}" if (reason := never_counts(entry)) else "",
        )
        for entry in entries
    ]
    columns = ("resource", "name", "principal", "host", "permission", "operation", "")
    show_table(columns, rows, err=on_stderr)
