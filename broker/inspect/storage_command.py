"""The command `odradek storage`: a data directory while no broker uses it.

`rebuild` makes lost metadata anew. `settings` shows and removes changed settings of the broker.
`import` takes over a directory of Apache Kafka (`importing/`).
"""

import contextlib
import json
import os.path
import random
import sys
from collections.abc import Iterator
from typing import Final

import click
import trio

from odradek.broker.cluster.node_identity import NODE
from odradek.broker.cluster.store_embedded import (
    COPY,
    FILE,
    DamagedStore,
    check_not_kafkas,
    read_file,
    write_files,
)
from odradek.broker.cluster.two_copies import Merged, merge, readable
from odradek.broker.config.settings import ConfigError
from odradek.broker.config.topic import check_topic_configs
from odradek.broker.inspect.backup_command import backup
from odradek.broker.inspect.directory_locks import errors_of, locked
from odradek.broker.inspect.importing.command import import_directory
from odradek.broker.inspect.rebuild import (
    CannotRebuild,
    RebuildPlan,
    Salvaged,
    Wishes,
    plan_rebuild,
)
from odradek.broker.inspect.stored_settings import NothingStored, StoredSettings
from odradek.broker.inspect.survey import Surveyed, survey_all
from odradek.broker.storage.disk import SystemDisk
from odradek.protocol.errors import KafkaError
from odradek.protocol.state_topics import INTERNAL_TOPICS
from odradek.protocol.text import printable

SHOWN_MAX: Final = 20
DAMAGED: Final = ".damaged"


@click.group()
def storage() -> None:
    """Back up a broker, import Kafka's directories, and repair metadata."""


storage.add_command(import_directory)
storage.add_command(backup)


@storage.command(short_help="Show changed settings of the broker, and remove some.")
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--unset", "names", multiple=True, metavar="NAME", help="Remove this setting; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; the keys are above.")
def settings(directory: str, names: tuple[str, ...], as_json: bool) -> None:
    """Show the settings that were changed while a broker ran, and remove some of them.

    Such a change counts before the file and the command line. Use this if the broker cannot be
    used with it; otherwise use `odradek config`. A broker of a cluster keeps changes in etcd.

    \b
    Keys of --json: directory, settings (those that are left: an object of names
    and values for each broker id, and for "all").
    """
    with errors_of(directory), locked(directory):
        trio.run(_show_settings, directory.rstrip("/") or "/", frozenset(names), as_json)


async def _show_settings(directory: str, names: frozenset[str], as_json: bool) -> None:
    try:
        stored = await StoredSettings.open(SystemDisk(), directory)
    except (ConfigError, DamagedStore, KafkaError, NothingStored) as error:
        raise click.ClickException(str(error)) from None
    with contextlib.closing(stored):
        try:
            await stored.unset(names)
        except (KafkaError, NothingStored) as error:
            raise click.ClickException(str(error)) from None
        if as_json:
            by_broker = {broker or "all": configs for broker, configs in stored.by_broker.items()}
            click.echo(json.dumps({"directory": directory, "settings": by_broker}))
            return
        for line in stored.lines():
            click.echo(printable(line))


@storage.command(short_help="Rebuild lost or damaged metadata.")
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@click.option(
    "--make-missing",
    is_flag=True,
    help="Create empty partitions for missing directories, which are refused otherwise.",
)
@click.option(
    "--topic-config",
    "configs",
    nargs=2,
    multiple=True,
    metavar="TOPIC NAME=VALUE",
    help="A setting of a topic that the directories do not have; repeatable.",
)
@click.option("--node-id", type=int, default=1, show_default=True, help="The broker's node.id.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; the keys are above.")
def rebuild(
    directory: str,
    dry_run: bool,
    make_missing: bool,
    configs: tuple[tuple[str, str], ...],
    node_id: int,
    as_json: bool,
) -> None:
    """Rebuild cluster.meta and its copy from the directories of the partitions.

    Use it if `odradek serve` refuses a data directory with missing or damaged metadata.
    Records, committed offsets and transactions are in the directories of the partitions, and are
    not changed. If a topic's settings are unknown, its retention is off. Damaged files are kept,
    with the suffix .damaged.

    \b
    Keys of --json: directory, written (false with --dry-run), cluster, topics
    (topic, id, partitions, bytes, missing: the numbers of partitions without a
    directory), kept (copies of damaged files). The text goes to standard error then.
    """
    wishes = Wishes(node_id=node_id, make_missing=make_missing, configs=_topic_configs(configs))
    told = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with errors_of(directory), locked(directory), told:
        facts = trio.run(_rebuild, directory.rstrip("/") or "/", wishes, dry_run)
    if as_json:
        click.echo(json.dumps(facts))


def _topic_configs(configs: tuple[tuple[str, str], ...]) -> dict[str, dict[str, str]]:
    given: dict[str, list[tuple[str, str | None]]] = {}
    for topic, assignment in configs:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise click.ClickException(f"--topic-config takes NAME=VALUE, not {assignment!r}.")
        given.setdefault(topic, []).append((name.strip(), value))
    try:
        return {topic: check_topic_configs(settings) for topic, settings in given.items()}
    except KafkaError as error:
        raise click.ClickException(str(error)) from None


async def _rebuild(directory: str, wishes: Wishes, dry_run: bool) -> dict[str, object]:
    """Rebuild the store, or show how it would be. Return the facts for programs."""
    disk = SystemDisk()
    paths = [f"{directory}/{name}" for name in (FILE, COPY)]
    old = [await read_file(disk, path) or b"" for path in paths]
    if disk.exists(f"{directory}/{NODE}") and not any(old):
        raise click.ClickException(
            f"{directory} is that of a broker of a cluster, whose metadata is in etcd: there is "
            "nothing to rebuild here. If etcd is lost, restore it (docs/cluster.md)."
        )
    merged = _readable(old[0], old[1])
    _check_is_needed(directory, old[0], old[1])
    try:
        check_not_kafkas(directory, disk.listdir(directory))
    except DamagedStore as error:
        raise click.ClickException(str(error)) from None
    found, others = survey_all(directory)
    if not found:
        raise click.ClickException(f"There is no directory of a partition in {directory}.")
    try:
        salvaged = Salvaged.of(merged.bodies)
        made = plan_rebuild(found, salvaged, wishes, random.SystemRandom())
    except (ConfigError, KafkaError) as error:
        raise click.ClickException(str(error)) from None
    except CannotRebuild as error:
        raise click.ClickException("\n  ".join(["Nothing is written.", *error.reasons])) from None
    for line in _described(directory, made, found, others, len(merged.bodies)):
        click.echo(printable(line))
    if dry_run:
        click.echo("Nothing was written (--dry-run).")
        return _facts(directory, made, None)
    kept = [name for name, data in zip((FILE, COPY), old, strict=True) if data]
    kept_as = [await _keep(disk, directory, name, old[name == COPY]) for name in kept]
    await write_files(disk, paths, made.record())
    click.echo(f"Written: {paths[0]} and {paths[1]}.")
    for name, copy in zip(kept, kept_as, strict=True):
        click.echo(f"What was in {name} is kept in {copy}.")
    click.echo(
        "Users, ACL entries and quotas are in no log. Where an authoriser is on, everything is "
        "denied to everybody but super users now. Put them back if there is an export: odradek "
        f"security import FILE --data-dir {directory}"
    )
    click.echo(f"Next: odradek serve --data-dir {directory}")
    return _facts(directory, made, kept_as)


def _facts(directory: str, made: RebuildPlan, kept: list[str] | None) -> dict[str, object]:
    """Return what `--json` prints. `kept` is None if nothing was written."""
    return {
        "directory": directory,
        "written": kept is not None,
        "cluster": made.cluster_id,
        "topics": [
            {
                "topic": rebuilt.topic.name,
                "id": str(rebuilt.topic.topic_id),
                "partitions": len(rebuilt.topic.partitions),
                "bytes": rebuilt.size_bytes,
                "missing": list(rebuilt.missing),
            }
            for rebuilt in made.topics
        ],
        "kept": kept or [],
    }


def _check_is_needed(directory: str, first: bytes, second: bytes) -> None:
    """Raise ClickException if the store is in order."""
    try:
        is_whole = bool(merge(first, second, (FILE, COPY)).bodies)
    except DamagedStore as error:
        click.echo(f"{directory}: {error}.")
        return
    if is_whole:
        raise click.ClickException(
            f"{directory}/{FILE} is in order, and nothing is changed. To rebuild it anyway, move "
            f"{FILE} and {COPY} away first."
        )


def _readable(first: bytes, second: bytes) -> Merged:
    """Return the records of a damaged store in front of the damage."""
    try:
        return readable(first, second, (FILE, COPY))
    except DamagedStore:  # they contradict each other, so neither is used
        return Merged()


async def _keep(disk: SystemDisk, directory: str, name: str, data: bytes) -> str:
    """Write a copy of a damaged file, under a free name."""
    number, target = 1, f"{directory}/{name}{DAMAGED}"
    while disk.exists(target):
        number += 1
        target = f"{directory}/{name}.{number}{DAMAGED}"
    await write_files(disk, [target], data)
    return target


def _described(
    directory: str, made: RebuildPlan, found: list[Surveyed], others: list[str], record_count: int
) -> Iterator[str]:
    size = sum(partition.size_bytes for partition in found)
    yield f"Found in {directory}: {len(found)} partitions, {size} bytes."
    if record_count:
        yield f"{record_count} records of the damaged metadata could be read."
    for problem in _first([problem for partition in found for problem in partition.problems]):
        yield f"  {problem}"
    yield "Topics:"
    for rebuilt in made.topics:
        topic = rebuilt.topic
        settings = ", ".join(f"{name}={value}" for name, value in sorted(topic.configs.items()))
        yield (
            f"  {topic.name}: {len(topic.partitions)} partitions, {rebuilt.size_bytes} bytes, "
            f"id {topic.topic_id}; settings: {settings or 'the defaults'}"
        )
        if not rebuilt.are_configs_known:
            yield (
                "    Its settings are unknown, so retention and compaction are off. Set others "
                "with --topic-config."
            )
        if rebuilt.missing:
            missing = ", ".join(_first([str(index) for index in rebuilt.missing]))
            yield f"    Created empty, because their directories are missing: partitions {missing}"
        if topic.name in INTERNAL_TOPICS and all(
            partition.identity is None for partition in found if partition.where.topic == topic.name
        ):
            yield (
                "    The number of partitions is that of the directories. Ids are hashed over it, "
                "so compare it with your settings."
            )
    for topic_id, name in made.deletions.items():
        yield f"  {name} with id {topic_id} was deleted: the next start removes its directories"
    yield (
        f"Cluster id: {made.cluster_id}"
        + (", new: no directory names it" if made.is_cluster_id_new else "")
    )
    yield (
        f"Producer ids continue at {made.next_producer_id}, leader epochs at {made.leader_epoch}: "
        "above all that were found."
    )
    aside = [name for name in others if os.path.isdir(f"{directory}/{name}")]
    if aside:
        yield f"Ignored: {', '.join(_first(aside))}"


def _first(lines: list[str]) -> list[str]:
    more = len(lines) - SHOWN_MAX
    return [*lines[:SHOWN_MAX], f"... and {more} more"] if more > 0 else lines
