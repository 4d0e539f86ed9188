"""`odradek quota`: what clients may use in a second."""

from collections.abc import Callable, Sequence
from typing import Any, Final, ParamSpec, TypeVar

import click

from odradek.client.administration.quotas import DEFAULT_NAME, OF_ADDRESSES, OF_CLIENTS
from odradek.client.blocking import Admin, Quotas, Refused
from odradek.client.cli.common import (
    connection_options,
    echo_json,
    json_option,
    limits,
    reports_errors,
    show_table,
)
from odradek.protocol.quantities import as_number

P = ParamSpec("P")
R = TypeVar("R")

IN_BYTES: Final = ("producer_byte_rate", "consumer_byte_rate")
PARTS: Final = ("user", "client_id", "ip")
OPTIONS: Final = "--user, --client-id and --ip, or of their defaults (--default-user, ...)"
KEYS: Final = "user, client_id, ip, quotas"
KINDS: Final = (*OF_CLIENTS, *OF_ADDRESSES)


@click.group()
def quota() -> None:
    """Show and change what clients may use in a second."""


class QuotaOwner:
    """The user, client id or address that a command names, or a default of them."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.parts: dict[str, Any] = {}
        for part in PARTS:
            name, is_default = found[part], found[f"default_{part}"]
            if name is not None and is_default:
                option = part.replace("_", "-")
                raise click.UsageError(f"Give one of --{option} and --default-{option}.")
            if name == "":
                raise click.UsageError("A name is not empty.")
            if name is not None or is_default:
                self.parts[part] = DEFAULT_NAME if is_default else name

    def check_named(self) -> None:
        if not self.parts:
            raise click.UsageError(f"Say whose quotas: name one of {OPTIONS}.")


def whose_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options that name a user, a client id or an address."""
    for option in (
        click.option("--default-ip", is_flag=True, help="Addresses without quotas of their own."),
        click.option("--ip", metavar="ADDRESS", help="An address."),
        click.option("--default-client-id", is_flag=True, help="Ids without quotas of their own."),
        click.option("--client-id", metavar="ID", help="A client id; with --user, only of it."),
        click.option("--default-user", is_flag=True, help="Users without quotas of their own."),
        click.option("--user", metavar="NAME", help="A user, as alice or CN=alice,O=example."),
    ):
        command = option(command)
    return command


def _value(text: str) -> tuple[str, float]:
    kind, equals, value = text.partition("=")
    if not equals or kind not in KINDS:
        raise click.UsageError(f"{text!r} is no NAME=VALUE with a name of {', '.join(KINDS)}.")
    try:
        number = as_number("bytes", value) if kind in IN_BYTES else value
    except ValueError as error:
        raise click.UsageError(f"{kind}: {error}.") from None
    try:
        return kind, float(number)
    except ValueError:
        unit = " or a size such as 1MiB" if kind in IN_BYTES else ""
        raise click.UsageError(f"{kind} takes a number{unit}, not {value!r}.") from None


@quota.command("set")
@click.argument("values", metavar="NAME=VALUE...", nargs=-1, required=True)
@whose_options
@click.option("--dry-run", is_flag=True, help="Check whether it is possible, and change nothing.")
@json_option(f"Print one JSON object of what has quotas now: {KEYS}.")
@connection_options
@reports_errors
def set_(
    values: Sequence[str],
    dry_run: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
    **named: Any,
) -> None:
    """Set quotas; others of the same user, client id or address stay.

    \b
    producer_byte_rate        bytes of requests to produce in a second (1MiB, 500KiB)
    consumer_byte_rate        bytes of records that are fetched in a second
    request_percentage        the part of the broker's time, in percent
    controller_mutation_rate  partitions that are made or deleted in a second
    connection_creation_rate  connections in a second, with --ip or --default-ip
    """
    whose = QuotaOwner(named)
    whose.check_named()
    changes = dict(map(_value, values))
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        admin.alter_quotas(changes, **whose.parts, validate_only=dry_run)
        found = [] if dry_run else _exactly(admin, whose)
    if dry_run and not as_json:
        click.echo("possible; nothing was changed")
    else:
        _show(found, as_json)


@quota.command("list")
@whose_options
@json_option("Print a JSON object for each; the keys are above.")
@connection_options
@reports_errors
def list_(as_json: bool, bootstrap: str, timeout_s: float, **named: Any) -> None:
    """Show all quotas, or those that have the given parts.

    \b
    Keys of --json: user, client_id, ip (null if it does not belong to it, "" for the default),
    quotas (an object of numbers by name).
    """
    whose = QuotaOwner(named)
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        found = admin.describe_quotas(**whose.parts)
    _show(found, as_json)


@quota.command("remove")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(KINDS))
@whose_options
@json_option(f"Print a JSON object if quotas are left: {KEYS}.")
@connection_options
@reports_errors
def remove(
    names: Sequence[str], as_json: bool, bootstrap: str, timeout_s: float, **named: Any
) -> None:
    """Remove quotas of a user, a client id or an address: those that are named, or all."""
    whose = QuotaOwner(named)
    whose.check_named()
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        found = _exactly(admin, whose)
        there = {name for each in found for name in each.values}
        missing = [name for name in names if name not in there]
        if missing or not there:
            raise Refused(f"there is no such quota{': ' if missing else ''}{', '.join(missing)}")
        admin.alter_quotas(dict.fromkeys(names or sorted(there)), **whose.parts)
        left = _exactly(admin, whose)
    _show(left, as_json)


def _exactly(admin: Admin, whose: QuotaOwner) -> list[Quotas]:
    """Return the quotas of exactly what is named."""
    wanted = tuple(whose.parts.get(part) for part in PARTS)
    return [each for each in admin.describe_quotas(**whose.parts) if each[:3] == wanted]


def _show(found: Sequence[Quotas], as_json: bool) -> None:
    if as_json:
        for each in found:
            names = dict(zip(PARTS, each[:3], strict=True))
            echo_json({**names, "quotas": dict(each.values)})
        return
    if not found:
        click.echo("no quotas")
        return
    rows = [
        (*map(_name, each[:3]), kind, f"{value:.15g}")
        for each in found
        for kind, value in sorted(each.values.items())
    ]
    columns = ("user", "client id", "ip", "quota", "in a second")
    show_table(columns, rows, right=columns[-1:])


def _name(name: str | None) -> str:
    if name is None:
        return ""
    return name or "(default)"
