"""The command `odradek storage import`: Apache Kafka's log directory becomes a data directory.

It shows what it will do, and what it leaves out, before it writes anything. Nothing in Kafka's
directory is changed.
"""

import contextlib
import json
import os.path
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import click
import trio

from odradek.broker.inspect.directory_locks import errors_of, locked
from odradek.broker.inspect.importing.kafka_directory import (
    KafkaDirectory,
    fingerprint,
    lock_sources,
    read_directory,
)
from odradek.broker.inspect.importing.kafka_metadata import METADATA, read_metadata
from odradek.broker.inspect.importing.plan import ImportPlan, plan_import
from odradek.broker.inspect.importing.state import read_state
from odradek.broker.inspect.new_directory import begin, check_is_new, check_is_outside, check_room
from odradek.broker.inspect.progress import CopyProgress, in_bytes
from odradek.broker.inspect.refusal import CannotCopy
from odradek.broker.inspect.transfer import Transfer
from odradek.broker.storage.disk import SystemDisk
from odradek.broker.storage.origin import ORIGIN, DirectoryOrigin, read_origin
from odradek.protocol.text import printable


@click.command("import", short_help="Take over a data directory of Apache Kafka.")
@click.argument(
    "directories",
    metavar="DIR...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False),
)
@click.option(
    "--data-dir",
    "target",
    metavar="DIRECTORY",
    required=True,
    type=click.Path(file_okay=False),
    help="The data directory to make: a new or an empty one.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be imported, and write nothing.")
@click.option("--yes", is_flag=True, help="Do not ask whether what is left out may be left out.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; the keys are above.")
def import_directory(
    directories: tuple[str, ...], target: str, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Make a data directory of Apache Kafka's own: its log.dirs, while Kafka is stopped.

    DIR is a directory of log.dirs of Kafka 4.0 to 4.3 with one node. Give all of them if it has
    several. Topics keep ids, settings and records; groups their offsets and members; transactions
    stay as they are, open ones too. Nothing in DIR is changed, and the files are copied. A run that
    was interrupted can be repeated.

    \b
    Keys of --json: directory, written (false with --dry-run, or if it was done
    before), cluster, node_id, topics (topic, id, partitions, bytes), left_out.
    The text goes to standard error then.
    """
    sources = [os.path.abspath(directory) for directory in directories]
    target = os.path.abspath(target)
    told = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    try:
        with errors_of(target), lock_sources(sources), told:
            facts = _import(list(dict.fromkeys(sources)), target, dry_run=dry_run, yes=yes)
    except CannotCopy as error:
        raise click.ClickException("\n  ".join(["Nothing is imported.", *error.reasons])) from None
    if as_json:
        click.echo(json.dumps(facts))


def _import(sources: Sequence[str], target: str, *, dry_run: bool, yes: bool) -> dict[str, object]:
    """Import, or show what would be imported. Return the facts for programs.

    Raises `CannotCopy`, ClickException, OSError.
    """
    for source in sources:
        check_is_outside(target, source)
    found = [read_directory(source) for source in sources]
    current = fingerprint(found)
    is_done = _is_done(target, sources, current)
    plan = _planned(found)
    if not is_done:
        for line in _described(sources, plan):
            click.echo(printable(line))
        check_room(target, plan.size_bytes)
        if dry_run:
            click.echo("Nothing was written (--dry-run).")
        else:
            _agree(plan, yes)
            _carry_out(target, plan, sources, current)
            click.echo(f"Done: {target} has what {_named(sources)} had.")
            node = "" if plan.node_id == 1 else f" --set node.id={plan.node_id}"
            click.echo(f"Next: odradek serve --data-dir {shlex.quote(target)}{node}")
    return {
        "directory": target,
        "written": not (is_done or dry_run),
        "cluster": plan.cluster_id,
        "node_id": plan.node_id,
        "topics": [
            {
                "topic": each.topic.name,
                "id": str(each.topic.topic_id),
                "partitions": len(each.topic.partitions),
                "bytes": each.size_bytes,
            }
            for each in plan.topics
        ],
        "left_out": plan.left_out,
    }


def _planned(directories: Sequence[KafkaDirectory]) -> ImportPlan:
    with_metadata = [directory for directory in directories if directory.has_metadata]
    if not with_metadata:
        raise CannotCopy(
            [
                f"There is no {METADATA} in {', '.join(each.path for each in directories)}: give "
                "the directory of metadata.log.dir, too."
            ]
        )
    metadata = read_metadata(f"{with_metadata[0].path}/{METADATA}")
    state = read_state(log for directory in directories for log in directory.logs.values())
    return plan_import(directories, metadata, state)


def _is_done(target: str, sources: Sequence[str], current: str) -> bool:
    """Return True if the import was completed before. Raises ClickException if it cannot begin."""
    check_is_new(target)
    if not os.path.exists(f"{target}/{ORIGIN}"):
        return False
    origin = trio.run(read_origin, SystemDisk(), target)
    if origin is None or origin.source != _named(sources):
        whence = "something else" if origin is None else origin.source
        raise click.ClickException(
            f"{target} was made from {whence}. Give a new or an empty --data-dir."
        )
    if not origin.is_complete:
        return False
    if origin.fingerprint != current:
        raise click.ClickException(
            f"{origin.source} has changed since it was imported to {target}: Kafka has run on it. "
            "To import it again, give a new or an empty --data-dir."
        )
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(origin.at_ms / 1000))
    click.echo(f"It is done: {origin.source} was imported to {target} at {when}.")
    return True


def _described(sources: Sequence[str], plan: ImportPlan) -> Iterator[str]:
    yield (
        f"Kafka's cluster {plan.cluster_id}, node {plan.node_id}, in {', '.join(sources)}: "
        f"{len(plan.topics)} topics, {in_bytes(plan.size_bytes)}."
    )
    for planned in plan.topics:
        topic = planned.topic
        settings = ", ".join(f"{name}={text}" for name, text in sorted(topic.configs.items()))
        yield (
            f"  {topic.name}: {len(topic.partitions)} partitions, {in_bytes(planned.size_bytes)}"
            + (f", {settings}" if settings else "")
        )
    for whose, configs in sorted(plan.broker_configs.items()):
        named = ", ".join(f"{name}={text}" for name, text in sorted(configs.items()))
        yield f"  settings of {f'broker {whose}' if whose else 'all brokers'}: {named}"
    for group, configs in sorted(plan.group_configs.items()):
        named = ", ".join(f"{name}={text}" for name, text in sorted(configs.items()))
        yield f"  settings of group {group}: {named}"
    yield from plan.notes
    if plan.left_out:
        yield "Left out, for Odradek does not have it:"
        for line in plan.left_out:
            yield f"  {line}"


def _agree(plan: ImportPlan, yes: bool) -> None:
    """Ask about what is left out. Raises ClickException without a terminal, Abort for no."""
    if not plan.left_out or yes:
        return
    if not sys.stdin.isatty():
        raise click.ClickException("Nothing is imported: give --yes to leave out what is listed.")
    click.confirm("Import the rest?", abort=True)


def _carry_out(target: str, plan: ImportPlan, sources: Sequence[str], current: str) -> None:
    disk = SystemDisk()
    now_ms = time.time_ns() // 1_000_000
    command = shlex.join(["odradek", "storage", "import", *sources, "--data-dir", target])
    origin = DirectoryOrigin(
        command=command,
        source=_named(sources),
        fingerprint=current,
        is_complete=False,
        at_ms=now_ms,
    )

    async def run() -> None:
        await begin(disk, target, origin)
        with CopyProgress("copied", plan.size_bytes) as progress:
            transfer = Transfer(
                disk,
                target,
                plan.topics,
                cluster_id=plan.cluster_id,
                now_ms=now_ms,
                copied=progress.add,
            )
            await transfer.run()
        await transfer.finish(plan.record(), replace(origin, is_complete=True))

    with ExitStack() as stack:
        disk.mkdir(target)
        stack.enter_context(locked(target, is_unfinished=True))
        trio.run(run)


def _named(sources: Sequence[str]) -> str:
    return ", ".join(sources)
