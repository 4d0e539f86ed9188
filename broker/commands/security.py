"""The command `odradek security`: users, ACL entries and quotas in a file, and back."""

import json
import os
from pathlib import Path
from typing import Final

import click

from odradek.broker.cluster.security_keys import (
    CannotImport,
    SecurityDocument,
    export_security,
    import_security,
    read_document,
)
from odradek.broker.commands.given_settings import CONFIG_OPTION, SET_OPTION
from odradek.broker.commands.stored_metadata import (
    DIRECTORY_OPTION,
    ETCD_OPTION,
    config_of,
    with_store,
)
from odradek.broker.environment.env import MetaStore
from odradek.broker.inspect.directory_locks import errors_of

OWN_ONLY: Final = 0o600
JSON_OPTION: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object; the keys are above."
)


@click.group()
def security() -> None:
    """Keep users, ACL entries and quotas in a file, for after a loss of metadata."""


@security.command("export", short_help="Write users, ACL entries and quotas to a file.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@DIRECTORY_OPTION
@ETCD_OPTION
@CONFIG_OPTION
@SET_OPTION
@JSON_OPTION
def export_command(
    file: Path,
    data_dir: str | None,
    etcd: str | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write users, ACL entries and quotas to FILE, which must not exist.

    FILE has the hashes of passwords. Only its owner may read it; keep it so. The brokers of a
    cluster may run meanwhile.

    \b
    Keys of --json: file, keys (the number of users, resources with entries, and quotas).
    """
    config = config_of(etcd, config_file, assignments)
    with errors_of(str(file)):
        text, count = with_store(data_dir, config, export_security)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN_ONLY)
        try:
            with open(descriptor, "w", encoding="utf-8") as written:
                written.write(text)
                written.flush()
                os.fsync(descriptor)
        except BaseException:
            file.unlink()  # a part of an export would be taken for a whole one
            raise
    if as_json:
        click.echo(json.dumps({"file": str(file), "keys": count}))
    else:
        click.echo(f"Written: {file}, with {count} keys of users, ACL entries and quotas.")


@security.command("import", short_help="Put back what an export has written.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@DIRECTORY_OPTION
@ETCD_OPTION
@CONFIG_OPTION
@SET_OPTION
@click.option("--replace", is_flag=True, help="Remove users, entries and quotas not in FILE.")
@click.option("--other-cluster", is_flag=True, help="Take FILE although another cluster wrote it.")
@JSON_OPTION
def import_command(
    file: Path,
    data_dir: str | None,
    etcd: str | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    replace: bool,
    other_cluster: bool,
    as_json: bool,
) -> None:
    """Make users, ACL entries and quotas what they are in FILE, of `odradek security export`.

    Metadata that `odradek storage rebuild` has made are closed to all but super users. This opens
    them again, as far as FILE allows. Others that are there are kept, and then nothing is changed,
    unless --replace is given. The brokers of a cluster may run meanwhile. FILE must be of the same
    cluster; one whose etcd was lost, and is made anew, needs --other-cluster.

    \b
    Keys of --json: file, keys, changed (the number of keys that were otherwise).
    """
    config = config_of(etcd, config_file, assignments)
    document = _document(file)

    async def run(store: MetaStore) -> int:
        return await import_security(
            store, document, replaces=replace, takes_other_cluster=other_cluster
        )

    count, keys = with_store(data_dir, config, run), len(document.keys)
    if as_json:
        click.echo(json.dumps({"file": str(file), "keys": keys, "changed": count}))
    else:
        click.echo(f"Done: {keys} keys are as in {file}; {count} have changed.")


def _document(file: Path) -> SecurityDocument:
    try:
        return read_document(file.read_text(encoding="utf-8"))
    except CannotImport as error:
        words = f"{file}: {error}"
    except UnicodeDecodeError:
        words = f"{file}: It is no document of odradek security export (it is not UTF-8)."
    except OSError as error:
        words = f"{file} cannot be read: {error.strerror}."
    raise click.ClickException(words)
