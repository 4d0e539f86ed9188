"""The command `odradek log repair DIR`: show the damage in logs, and repair it on request.

DIR is the directory of a partition, or a data directory. Without a choice, and with `--dry-run`,
nothing is changed. The command refuses to run while a broker uses the directory.
"""

import contextlib
import json
import os.path
import sys
import time
from collections.abc import Iterator
from typing import Final

import click
import trio

from odradek.broker.environment.env import Disk
from odradek.broker.inspect.dump import check_format_of, log
from odradek.broker.inspect.found_transactions import FoundTransaction, History
from odradek.broker.inspect.log_files import logs_in
from odradek.broker.inspect.lost_logs import lost_logs
from odradek.broker.inspect.repair import Damage, Survey, repair, restore_from_journal, survey_log
from odradek.broker.storage.disk import SystemDisk
from odradek.broker.storage.files import LOG, file_path, offsets_in
from odradek.broker.storage.last_run import LAST_RUN
from odradek.broker.storage.lost import give_up, has_log, is_given_up
from odradek.broker.values.topic_partition import partition_of
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC
from odradek.protocol.text import printable

__all__ = ["log"]

LOCK_FILE: Final = ".lock"
SHOWN: Final = 20


@log.command("repair", short_help="Show the damage in a log, and repair it.")
@click.argument("directory", metavar="DIR", type=click.Path(readable=False))
@click.option("--cut", is_flag=True, help="End the log in front of the first damage.")
@click.option(
    "--leave-out", is_flag=True, help="Remove the damage, keep the good batches after it."
)
@click.option("--dry-run", is_flag=True, help="Show the effect, and change nothing.")
@click.option("--tear", is_flag=True, help="Repair even if that tears transactions or state.")
@click.option(
    "--make-missing", is_flag=True, help="Give up logs that are lost: they begin anew, empty."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each such log.")
def repair_logs(
    directory: str,
    cut: bool,
    leave_out: bool,
    dry_run: bool,
    tear: bool,
    make_missing: bool,
    as_json: bool,
) -> None:
    """Show the damage in a log, and repair it.

    DIR is a partition's directory or a data directory. The bytes that are removed from a log are
    kept in its directory, in files named OFFSET.cut. Without --cut or --leave-out the command only
    shows the damage. A log is lost if its directory is gone, or has no segment any more. The exit
    status is 1 if damage is left.

    \b
    Keys of --json, an object for each log that is lost or damaged: directory, lost,
    damages (file, position, end, offset, next_offset, problem), problems (of small
    files), repaired (for a lost one: it may begin anew). The text goes to standard
    error then.
    """
    if cut and leave_out:
        raise click.ClickException("--cut and --leave-out exclude each other; give only one.")
    path = directory.rstrip("/") or directory[:1]
    choice = "cut" if cut else "leave out" if leave_out else None
    found: list[dict[str, object]] = []
    told = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    try:
        data_dir, partitions = _partitions(path)
        with _lock(data_dir), told:
            only = None if path == data_dir else path
            lost = trio.run(_lost, data_dir, only, make_missing, dry_run)
            partitions = [each for each in partitions if os.path.basename(each) not in lost]
            if not lost and not partitions:
                raise click.ClickException(f"There is no log in {path}.")
            found += [_lost_facts(data_dir, name, anew) for name, anew in lost.items()]
            if partitions:
                found += trio.run(_repair_all, data_dir, partitions, choice, dry_run, tear)
    except BrokenPipeError:  # `| head`: click ends quietly
        raise
    except OSError as error:
        raise click.ClickException(f"{error.filename or path}: {error.strerror}.") from None
    if as_json:
        for each in found:
            click.echo(json.dumps(each))
    if not all(each["repaired"] for each in found):
        raise click.exceptions.Exit(1)


def _lost_facts(data_dir: str, name: str, begins_anew: bool) -> dict[str, object]:
    facts = {"directory": f"{data_dir}/{name}", "lost": True, "damages": [], "problems": []}
    return {**facts, "repaired": begins_anew}


def _damaged_facts(found: Survey, is_repaired: bool) -> dict[str, object]:
    return {
        "directory": found.directory,
        "lost": False,
        "damages": [
            {
                "file": file_path(found.directory, damage.base_offset, LOG),
                "position": damage.position,
                "end": damage.end,
                "offset": damage.offset,
                "next_offset": damage.next_offset,
                "problem": damage.problem,
            }
            for damage in found.damages
        ],
        "problems": list(found.problems),
        "repaired": is_repaired,
    }


def _partitions(path: str) -> tuple[str, list[str]]:
    """Return the data directory, and the partitions' directories to repair."""
    parent = os.path.dirname(os.path.abspath(path))
    if partition_of(os.path.basename(path)) is not None and os.path.exists(f"{parent}/{LAST_RUN}"):
        return parent, [path] if os.path.isdir(path) else []
    if not os.path.isdir(path):
        raise click.ClickException(f"There is no directory {path!r}.")
    names = SystemDisk().listdir(path)
    if offsets_in(names, LOG) or "checkpoint" in names:
        return parent, [path]
    return path, [each for each in logs_in(path) if not each.endswith(".deleted")]


@contextlib.contextmanager
def _lock(data_dir: str) -> Iterator[None]:
    try:
        lock = SystemDisk().lock(f"{data_dir}/{LOCK_FILE}")
    except BlockingIOError:
        raise click.ClickException(
            f"A broker runs on {data_dir}; stop it, and run this command again."
        ) from None
    try:
        check_format_of(data_dir)
        yield
    finally:
        lock.release()


async def _lost(
    data_dir: str, only: str | None, make_missing: bool, dry_run: bool
) -> dict[str, bool]:
    """Show the logs that are lost, and give them up if that was chosen.

    `only` is the directory of one partition: it is given up also if it is not known that its log
    was made. Return the names of the directories, and for each whether it may begin anew.
    """
    disk = SystemDisk()
    lost = await lost_logs(disk, data_dir)
    if only is not None:
        only = f"{data_dir}/{os.path.basename(only)}"
        is_lost = only in lost or (make_missing and not await has_log(disk, only))
        lost = [only] if is_lost else []
    for directory in lost:
        what = "it has no segment of its log" if disk.exists(directory) else "it is not there"
        click.echo(f"{directory} is lost: {what}.")
        if is_given_up(disk, directory):
            click.echo("  The broker will begin the log anew, empty.")
        elif not make_missing:
            click.echo("  Put it back, or give --make-missing to have the log begin anew, empty.")
        elif dry_run:
            click.echo("  Nothing was changed (--dry-run).")
        else:
            aside = await give_up(disk, directory)
            if aside is not None:
                click.echo(f"  kept: {aside}")
            click.echo("  The broker will begin the log anew, empty.")
    return {each.rpartition("/")[2]: is_given_up(disk, each) for each in lost}


async def _repair_all(
    data_dir: str, partitions: list[str], choice: str | None, dry_run: bool, tear: bool
) -> list[dict[str, object]]:
    """Repair the logs that are damaged. Return the facts of each."""
    disk = SystemDisk()
    history: History | None = None
    damaged: list[dict[str, object]] = []
    for directory in partitions:
        if choice is not None and not dry_run:
            for path in await restore_from_journal(disk, directory):
                click.echo(f"{directory}: {path} has what was never acknowledged.")
        found = await survey_log(disk, directory)
        if not found.is_damaged:
            continue
        history = history or History.read(data_dir)
        _show(found, choice, history)
        is_repaired = await _repair_one(disk, found, choice, dry_run, tear)
        damaged.append(_damaged_facts(found, is_repaired))
    if not damaged:
        click.echo(f"No log is damaged: {len(partitions)} logs were read completely.")
    return damaged


async def _repair_one(
    disk: Disk, found: Survey, choice: str | None, dry_run: bool, tear: bool
) -> bool:
    """Repair a log if that was chosen and is allowed. Return True if it was repaired."""
    if choice is None:
        click.echo("  Choose --cut or --leave-out; add --dry-run to see the effect of each.")
        return False
    if choice == "leave out" and found.overlaps:
        click.echo("  Segments overlap, so --leave-out is not possible; use --cut.")
        return False
    if _tears(found) and not tear:
        click.echo("  The repair would tear transactions or state; add --tear to do it.")
        return False
    if dry_run:
        click.echo("  Nothing was changed (--dry-run).")
        return False
    now_ms = time.time_ns() // 1_000_000
    kept = await repair(disk, found, leaves_out=choice == "leave out", now_ms=now_ms)
    for path in kept:
        click.echo(f"  kept: {path}")
    if found.topic_id is None:
        click.echo("  The broker will write a new checkpoint when it starts.")
    after = await survey_log(disk, found.directory)
    if after.is_damaged:
        click.echo("  The log is still damaged:")
        _show(after, None, History())
        return False
    click.echo(f"  repaired: the log now has offsets up to {after.log_end_offset - 1}.")
    return True


def _tears(found: Survey) -> bool:
    return bool(found.damages) and (
        found.is_internal or any(damage.torn for damage in found.damages)
    )


# Output


def _show(found: Survey, choice: str | None, history: History) -> None:
    click.echo(f"{found.directory} is damaged:")
    for damage in found.damages:
        _show_damage(found, damage)
    for problem in found.problems:
        click.echo(f"  {problem}")
    if not found.damages:
        click.echo(
            "  --cut, --leave-out: both read the log anew, and take it for that of this partition. "
            "Its good batches stay."
        )
        return
    first = found.damages[0]
    if choice != "leave out":
        click.echo(
            f"  --cut: the log ends at offset {first.offset}; {found.batches_behind} good batches "
            "behind it are removed too."
        )
        _show_owners(found)
    if choice != "cut":
        count = len(found.damages)
        what = "the damaged place is" if count == 1 else f"the {count} damaged places are"
        click.echo(f"  --leave-out: {what} removed; all good batches stay.")
    torn = {id(transaction): transaction for damage in found.damages for transaction in damage.torn}
    cut_ids = {id(transaction) for transaction in first.torn}
    for key, transaction in torn.items():
        if choice == "cut" and key not in cut_ids:
            continue
        click.echo(f"  {_transaction(transaction, history)} would be torn.")
    if found.is_internal:
        click.echo(
            f"  {found.topic} is internal: the damaged bytes may have the newest state of an id."
        )


def _show_damage(found: Survey, damage: Damage) -> None:
    path = file_path(found.directory, damage.base_offset, LOG)
    if damage.next_offset is None:
        offsets = f"Offsets from {damage.offset} on"
    elif damage.next_offset == damage.offset + 1:
        offsets = f"Offset {damage.offset}"
    else:
        offsets = f"Offsets {damage.offset} to {damage.next_offset - 1}"
    click.echo(
        f"  {path}, bytes {damage.position} to {damage.end}: {damage.problem}. "
        f"{offsets} cannot be read."
    )


def _show_owners(found: Survey) -> None:
    if not found.owners_behind:
        return
    names = [printable(name) for name in list(found.owners_behind)[:SHOWN]]
    more = len(found.owners_behind) - len(names)
    what = "groups" if found.topic == CONSUMER_OFFSETS_TOPIC else "transactional ids"
    others = f" and {more} more" if more else ""
    click.echo(f"    It removes newer state of these {what}: {', '.join(names)}{others}.")


def _transaction(found: FoundTransaction, history: History) -> str:
    owner = history.owner_of(found)
    whose = f"'{printable(owner.transactional_id)}', " if owner is not None else ""
    end = found.last_offset if found.marker_offset is None else found.marker_offset
    return (
        f"The transaction of {whose}producer {found.producer_id} epoch {found.producer_epoch} "
        f"(offsets {found.first_offset} to {end}, {found.outcome})"
    )
