"""The command `odradek user`: users of SCRAM, and the hashes of passwords of PLAIN."""

import os
import random
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import trio

from odradek.broker.cluster.metadata import find_cluster_id
from odradek.broker.cluster.store import CLUSTER
from odradek.broker.cluster.store_embedded import EmbeddedStore
from odradek.broker.cluster.stored_users import credentials_of, write_user
from odradek.broker.commands.given_settings import CONFIG_OPTION, SET_OPTION
from odradek.broker.commands.serve import DEFAULT_DIRECTORY
from odradek.broker.commands.stored_metadata import (
    ETCD_OPTION,
    config_of,
    with_store,
)
from odradek.broker.environment.env import MetaStore
from odradek.broker.inspect.directory_locks import errors_of, locked
from odradek.broker.inspect.new_directory import HARMLESS
from odradek.broker.security.plain import HASH_SALT_BYTES, SCRYPT, hash_password
from odradek.broker.security.scram_users import ITERATIONS_MAX, MECHANISM_OF
from odradek.broker.storage.data_format import FILE as FORMAT_FILE
from odradek.broker.storage.data_format import claim_format
from odradek.broker.storage.disk import SystemDisk
from odradek.client.administration.users import MECHANISMS
from odradek.client.blocking import Admin, Refused, ScramUser
from odradek.client.cli.common import (
    connection_options,
    echo_json,
    json_option,
    limits,
    reports_errors,
    show_table,
)
from odradek.client.cli.passwords import asked_unless, password_option
from odradek.protocol import scram

NAME_MAX_CHARACTERS: Final = 1024
KEYS: Final = "user, mechanisms (an object of iterations by mechanism)"
MECHANISM: Final = click.Choice(MECHANISMS, case_sensitive=False)


@click.group()
def user() -> None:
    """Make, show and delete users that authenticate by passwords."""


@user.command("create", short_help="Make a user of SCRAM, or change its password.")
@click.argument("name", metavar="NAME")
@password_option
@click.option(
    "--mechanism",
    "mechanisms",
    type=MECHANISM,
    multiple=True,
    help="May be given several times.  [default: both]",
)
@click.option(
    "--iterations",
    type=click.IntRange(scram.ITERATIONS_MIN, ITERATIONS_MAX),
    default=scram.ITERATIONS_MIN,
    show_default=True,
    help="More make it dearer to guess the password, and to connect.",
)
@click.option("--replace", is_flag=True, help="Change the password of a user that is there.")
@click.option(
    "--data-dir",
    metavar="DIRECTORY",
    type=click.Path(file_okay=False),
    help="The directory of a broker that is alone, and stopped; made if needed.",
)
@ETCD_OPTION
@CONFIG_OPTION
@SET_OPTION
@json_option(f"Print one JSON object: {KEYS}.")
@connection_options
@reports_errors
def create(
    name: str,
    password_file: str,
    mechanisms: Sequence[str],
    iterations: int,
    replace: bool,
    data_dir: str | None,
    etcd: str | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Make a user that authenticates by SCRAM. A broker is asked for it.

    The first user, without which nobody may ask a broker, is made in the metadata themselves: those
    of a stopped broker (--data-dir, or that of --config), whose directory is made if it is not
    there, or those of a cluster (--etcd, or etcd.endpoints of --config), whose brokers may run. A
    cluster whose brokers log in at each other may begin with their user.
    """
    chosen = [each for each in MECHANISMS if each in mechanisms or not mechanisms]
    made = ScramUser(name, dict.fromkeys(chosen, iterations))
    if not name or len(name) > NAME_MAX_CHARACTERS:
        raise click.UsageError(f"A name has 1 to {NAME_MAX_CHARACTERS} characters.")
    if (data_dir, etcd, config_file) == (None, None, None) and not assignments:
        with Admin(bootstrap, **limits(timeout_s)) as admin:
            _create_online(admin, made, password_file, iterations, replace)
    else:
        config = config_of(etcd, config_file, assignments)
        if data_dir is None and not config.etcd_endpoints:
            data_dir = config.log_dirs or DEFAULT_DIRECTORY
        password = asked_unless(password_file)
        credentials = credentials_of(
            password, [MECHANISM_OF[each] for each in chosen], iterations, random.SystemRandom()
        )
        if data_dir is not None and not config.etcd_endpoints:
            _begin(data_dir)

        async def run(store: MetaStore) -> None:
            if config.etcd_endpoints:
                await _begin_cluster(store, config.etcd_key_prefix)
            await write_user(store, name, credentials, replaces=replace)

        with_store(data_dir, config, run)
    if as_json:
        _echo(made)
    else:
        click.echo(f"The user {name} may authenticate by {' and '.join(chosen)}.")


def _create_online(
    admin: Admin, made: ScramUser, given: str, iterations: int, replaces: bool
) -> None:
    before = [each for user in admin.describe_users(made.name) for each in user.mechanisms]
    if before and not replaces:
        raise Refused(f"there is a user {made.name!r}. --replace gives it the new password")
    password = asked_unless(given)
    admin.set_password(
        made.name, password, mechanisms=tuple(made.mechanisms), iterations=iterations
    )
    # No mechanism keeps the old password.
    old = [each for each in before if each not in made.mechanisms]
    if old:
        admin.delete_user(made.name, mechanisms=old)


async def _begin_cluster(store: MetaStore, prefix: str) -> None:
    """Make a cluster in etcd if there is none, and print that: the prefix may be mistyped."""
    found, _ = await store.range(CLUSTER)
    if CLUSTER not in found:
        await find_cluster_id(store, random.SystemRandom())
        click.echo(f"There was no cluster in etcd under {prefix}: it begins now.", err=True)


def _begin(directory: str) -> None:
    """Make a data directory that no broker has used yet. One that has something stays as it is."""
    disk = SystemDisk()

    async def begin() -> None:
        await claim_format(disk, directory)
        store = await EmbeddedStore.open(disk, directory)
        try:
            await find_cluster_id(store, random.SystemRandom())
        finally:
            store.close()

    with errors_of(directory):
        # With the format alone the last attempt was interrupted.
        if os.path.isdir(directory) and {*os.listdir(directory)} - {*HARMLESS, FORMAT_FILE}:
            return
        os.makedirs(directory, exist_ok=True)
        with locked(directory):
            trio.run(begin)


@user.command("list")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@json_option(f"Print a JSON object for each: {KEYS}.")
@connection_options
@reports_errors
def list_(names: Sequence[str], as_json: bool, bootstrap: str, timeout_s: float) -> None:
    """Show the users of SCRAM, or those that are named. Users of PLAIN are in files of brokers."""
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        found = admin.describe_users(*names)
    missing = sorted({*names} - {each.name for each in found})
    if as_json:
        for each in found:
            _echo(each)
    elif found:
        rows = [
            (each.name, name, str(iterations))
            for each in found
            for name, iterations in sorted(each.mechanisms.items())
        ]
        show_table(("user", "mechanism", "iterations"), rows, right=("iterations",))
    elif not missing:
        click.echo("no users")
    if missing:
        raise Refused(f"there is no user {', '.join(map(repr, missing))}")


@user.command("delete")
@click.argument("name", metavar="NAME")
@click.option(
    "--mechanism",
    "mechanisms",
    type=MECHANISM,
    multiple=True,
    help="Delete only its password for this one.  [default: all]",
)
@json_option(f"Print one JSON object of what is left: {KEYS}.")
@connection_options
@reports_errors
def delete(
    name: str, mechanisms: Sequence[str], as_json: bool, bootstrap: str, timeout_s: float
) -> None:
    """Delete a user of SCRAM. Its connections go on, until they must authenticate again.

    ACL entries and quotas of its name stay, and count for a new user of that name.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        admin.delete_user(name, mechanisms=mechanisms or None)
        left = admin.describe_users(name)
    if as_json:
        _echo(left[0] if left else ScramUser(name, {}))
    elif left:
        click.echo(f"The user {name} may still authenticate by {' and '.join(left[0].mechanisms)}.")
    else:
        click.echo(f"The user {name} is deleted.")


@user.command("hash", short_help="Print a line of sasl.plain.users.file.")
@click.argument("name", metavar="NAME")
@password_option
@json_option("Print one JSON object: user, line.")
@reports_errors
def hash_(name: str, password_file: str, as_json: bool) -> None:
    """Print the line of a user of PLAIN for the file that sasl.plain.users.file names.

    It has what scrypt makes of the password, with a new salt each time. A broker reads the file at
    its start, and again at SIGHUP.
    """
    if name != name.strip() or len(name.splitlines()) != 1 or name[0] == "#" or SCRYPT in name:
        raise click.UsageError(
            f"A name in this file is one line, without space at its ends, # first, or {SCRYPT}."
        )
    hashed = hash_password(asked_unless(password_file), secrets.token_bytes(HASH_SALT_BYTES))
    line = f"{name}:{hashed}"
    if as_json:
        echo_json({"user": name, "line": line})
    else:
        click.echo(line)


def _echo(shown: ScramUser) -> None:
    echo_json({"user": shown.name, "mechanisms": dict(shown.mechanisms)})
