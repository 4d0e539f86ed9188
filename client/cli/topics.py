"""`odradek topic`: create, list, describe, alter and delete topics, and their records."""

import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from odradek.client.administration.pin_words import held_back
from odradek.client.blocking import (
    Admin,
    OdradekError,
    OffsetOutOfRange,
    Refused,
    TopicDescription,
    TopicPartition,
)
from odradek.client.cli.common import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    confirm,
    connection_options,
    echo_json,
    existing_topics,
    json_option,
    limits,
    once_there,
    report,
    report_changes,
    reports_errors,
    sentence,
    settings_of,
    show_table,
    together,
)
from odradek.client.cli.waiting import pins_of, with_pin
from odradek.client.cli.words import counted
from odradek.client.types import NewTopic
from odradek.protocol.errors import ErrorCode

HIGH_WATERMARK: Final = -1
"""The offset that stands for the end of what consumers can see."""


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command("create")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(1, INT32_MAX),
    help="Partitions of each topic.  [default: the broker's num.partitions]",
)
@click.option(
    "--replication-factor",
    "-r",
    type=click.IntRange(1, INT16_MAX),
    help="Replicas of each partition.  [default: the broker's]",
)
@click.option(
    "--config",
    "-c",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Give the topics this setting, such as retention.ms=7d. Repeatable.",
)
@click.option(
    "--if-not-exists", is_flag=True, help="Leave a topic that is there as it is; no error."
)
@json_option("Print a JSON object for each topic; the keys are above.")
@connection_options
@reports_errors
def create_topic(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Create topics.

    \b
    Keys of --json: topic, id, created (false if it was there), partitions,
    replicas (of each partition).
    """
    settings = settings_of(configs, "--config")
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        for name in names:
            is_new = _create(
                admin,
                NewTopic(name, partitions or -1, replication_factor or -1, tuple(settings.items())),
                if_not_exists,
            )
            (found,) = existing_topics(admin, name)
            count, replicas = len(found.partitions), _replicas(found)
            facts = {"topic": name, "id": str(found.topic_id), "created": is_new}
            said = f"Created {name}" if is_new else f"{name} was there"
            report(
                as_json,
                {**facts, "partitions": count, "replicas": replicas},
                f"{said}: {counted(count, 'partition')}, {counted(replicas, 'replica')} of each.",
            )


def _create(admin: Admin, wanted: NewTopic, if_not_exists: bool) -> bool:
    """Create a topic. Return False if it is there already, and may be."""
    try:
        admin.create_topics([wanted])
    except Refused as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
            raise
        return False
    return True


def _replicas(found: TopicDescription) -> int:
    return max((len(partition.replicas) for partition in found.partitions), default=0)


@topic.command("list")
@click.option(
    "--internal",
    is_flag=True,
    help="List also internal topics, of the broker and of Spark queries.",
)
@click.option("--names", "only_names", is_flag=True, help="Print only the names, one per line.")
@json_option("Print a JSON object for each topic; the keys are above.")
@connection_options
@reports_errors
def list_topics(
    internal: bool, only_names: bool, as_json: bool, bootstrap: str, timeout_s: float
) -> None:
    """List topics with their partitions, the replicas of each, and their bytes.

    The bytes are those of one copy: of the leaders' logs on disk.

    \b
    Keys of --json: topic, id, internal, partitions, replicas, bytes (null if a
    broker does not return them).
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        if only_names:
            for name in admin.list_topics(internal=internal):
                click.echo(name)
            return
        found = once_there(lambda: admin.describe_topics(*admin.list_topics(internal=internal)))
        sizes = sizes_of(admin, found)
    rows = [
        {
            "topic": each.name,
            "id": str(each.topic_id),
            "internal": each.is_internal,
            "partitions": len(each.partitions),
            "replicas": _replicas(each),
            "bytes": _bytes(each, sizes),
        }
        for each in found
    ]
    if as_json:
        for row in rows:
            echo_json(row)
    elif rows:
        columns = ("topic", "partitions", "replicas", "bytes")
        table = [[_cell(row[name]) for name in columns] for row in rows]
        show_table(columns, table, right=columns[1:])
    else:
        click.echo("There is no topic.")


Sizes = dict[TopicPartition, dict[int, int]]
"""The bytes that each replica takes on disk, by the id of its broker."""


def sizes_of(admin: Admin, topics: Sequence[TopicDescription]) -> Sizes:
    """Return the sizes of replicas, as far as brokers return them."""
    places = [
        TopicPartition(topic.name, partition.partition)
        for topic in topics
        for partition in topic.partitions
    ]
    sizes: Sizes = {place: {} for place in places}
    for directory in admin.describe_log_dirs(places) if places else ():
        if not isinstance(directory, OdradekError):
            for place, size in directory.sizes.items():
                sizes.setdefault(place, {})[directory.node_id] = size
    return sizes


def _bytes(topic: TopicDescription, sizes: Sizes) -> int | None:
    """Return the bytes of one copy of a topic; None if a part is not known."""
    total = 0
    for partition in topic.partitions:
        found = sizes[TopicPartition(topic.name, partition.partition)]
        if partition.leader not in found:
            return None
        total += found[partition.leader]
    return total


@topic.command("describe")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@json_option("Print a JSON object for each topic; the keys are above.")
@connection_options
@reports_errors
def describe_topic(names: tuple[str, ...], as_json: bool, bootstrap: str, timeout_s: float) -> None:
    """Show a topic's partitions, their leaders, offsets and sizes, and its settings.

    The bytes of a partition are those of its leader's log on disk.

    \b
    Keys of --json: topic, id, settings (that are not at their defaults), partitions
    (partition, leader, replicas, in_sync, offline, first_offset,
    last_stable_offset, end_offset, bytes, replica_bytes by broker; pin, if a
    transaction holds records back).
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        errors: list[OdradekError] = []
        for name in dict.fromkeys(names):
            try:
                (found,) = admin.describe_topics(name)
            except Refused as error:
                errors.append(error)
                continue
            description, waiting = _describe(admin, found)
            pins = pins_of(admin, waiting)
            if as_json:
                rows = [
                    with_pin(row, pins.get(TopicPartition(name, row["partition"])))
                    for row in description["partitions"]
                ]
                echo_json(description | {"partitions": rows})
                continue
            _show(description)
            for line in held_back(waiting, pins, bootstrap):
                click.echo(sentence(line))
    if errors:
        raise together(errors)


def _describe(
    admin: Admin, found: TopicDescription
) -> tuple[dict[str, Any], dict[TopicPartition, int]]:
    """Return what is shown of a topic, and the records that wait behind open transactions."""
    names = [TopicPartition(found.name, partition.partition) for partition in found.partitions]
    partitions = [
        name
        for name, partition in zip(names, found.partitions, strict=True)
        if partition.leader >= 0
    ]
    first = admin.list_offsets({partition: "earliest" for partition in partitions})
    stable = admin.list_offsets({partition: "latest" for partition in partitions})
    end = admin.list_offsets(
        {partition: "latest" for partition in partitions}, isolation_level="read_uncommitted"
    )
    waiting = {
        name: end[name].offset - stable[name].offset
        for name in partitions
        if end[name].offset > stable[name].offset
    }
    settings = admin.describe_topic_configs(found.name)[found.name]
    sizes = sizes_of(admin, [found])
    description = {
        "topic": found.name,
        "id": str(found.topic_id),
        "settings": {name: entry.value for name, entry in settings.items() if not entry.is_default},
        "partitions": [
            {
                "partition": partition.partition,
                "leader": partition.leader,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.isr),
                "offline": list(partition.offline_replicas),
                "first_offset": first[name].offset if name in first else None,
                "last_stable_offset": stable[name].offset if name in stable else None,
                "end_offset": end[name].offset if name in end else None,
                "bytes": sizes[name].get(partition.leader),
                "replica_bytes": {str(node): size for node, size in sorted(sizes[name].items())},
            }
            for name, partition in zip(names, found.partitions, strict=True)
        ],
    }
    return description, waiting


def _show(description: dict[str, Any]) -> None:
    settings = ", ".join(f"{name}={value}" for name, value in description["settings"].items())
    click.echo(f"{description['topic']}  {description['id']}")
    click.echo(settings or "all settings at their defaults")
    partitions = description["partitions"]
    is_offline = any(row["offline"] for row in partitions)
    hidden = ("replica_bytes",) if is_offline else ("replica_bytes", "offline")
    names = [name for name in partitions[0] if name not in hidden]
    rows = [[_cell(row[name]) for name in names] for row in partitions]
    columns = [name.replace("_", " ") for name in names]
    show_table(columns, rows, right=columns)
    for row in partitions:
        if row["offline"]:
            click.echo(
                f"Partition {row['partition']} is offline on broker {_cell(row['offline'])}: its "
                "log says why, and what to do."
            )


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


@topic.command("alter")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Give the topics this setting. Repeatable.",
)
@click.option(
    "--unset",
    multiple=True,
    metavar="NAME",
    help="Let this setting have the broker's value again. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Check whether it is possible, and change nothing.")
@json_option("Print a JSON object for each topic: topic, set, unset, dry_run.")
@connection_options
@reports_errors
def alter_topic(
    names: tuple[str, ...],
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Change settings of topics. They count at once. `odradek config get` shows them.

    A duration may be written as 7d or 90s, a size as 512MiB.
    """
    given = settings_of(settings, "--set")
    both = [name for name in unset if name in given]
    if both:
        raise click.UsageError(f"{both[0]} cannot be set and unset.")
    if not settings and not unset:
        raise click.UsageError("Nothing to change: name settings by --set or --unset.")
    changes: dict[str, str | None] = {**given, **dict.fromkeys(unset)}
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        for name in names:
            admin.alter_topic_configs(name, changes, validate_only=dry_run)
            report_changes(as_json, {"topic": name}, f"topic {name}", changes, dry_run=dry_run)


@topic.command("add-partitions")
@click.argument("name", metavar="NAME")
@click.option(
    "--total",
    type=click.IntRange(1, INT32_MAX),
    required=True,
    help="The number of partitions that the topic has afterwards.",
)
@json_option("Print one JSON object: topic, partitions.")
@connection_options
@reports_errors
def add_partitions(name: str, total: int, as_json: bool, bootstrap: str, timeout_s: float) -> None:
    """Add partitions to a topic.

    Records with a key may then go to another partition than earlier ones with the same key.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        admin.create_partitions(name, total)
    count = counted(total, "partition")
    report(as_json, {"topic": name, "partitions": total}, f"{name} has {count} now.")


@topic.command("delete-records")
@click.argument("name", metavar="TOPIC")
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(0, INT32_MAX),
    multiple=True,
    help="Delete records of this partition. Repeatable.  [default: all]",
)
@click.option(
    "--before",
    type=click.IntRange(0, INT64_MAX),
    metavar="OFFSET",
    help="Delete the records below this offset.",
)
@click.option("--all", "is_all", is_flag=True, help="Delete all records that consumers can see.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option("Print a JSON object for each partition: topic, partition, first_offset.")
@connection_options
@reports_errors
def delete_records(
    name: str,
    partitions: tuple[int, ...],
    before: int | None,
    is_all: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Delete the first records of a topic, and show where its partitions begin then."""
    if is_all == (before is not None):
        raise click.UsageError("Give either --before OFFSET or --all.")
    what = "all records" if before is None else f"the records below offset {before}"
    if not yes and sys.stdin.isatty():
        confirm(f"Delete {what} of {name} for good?")
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        (found,) = admin.describe_topics(name)
        numbers = partitions or [partition.partition for partition in found.partitions]
        offset = HIGH_WATERMARK if before is None else before
        try:
            starts = admin.delete_records(
                {TopicPartition(name, number): offset for number in numbers}
            )
        except OffsetOutOfRange as error:
            hint = "give an earlier one, or --all for all records that consumers can see"
            raise OffsetOutOfRange(f"{error}; {hint}", code=error.code) from None
    if as_json:
        for place, start in starts.items():
            echo_json({"topic": name, "partition": place.partition, "first_offset": start})
        return
    rows = [(str(place.partition), str(start)) for place, start in starts.items()]
    show_table(("partition", "first offset"), rows, right=("partition", "first offset"))


@topic.command("delete")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option("Print a JSON object for each topic: topic, deleted.")
@connection_options
@reports_errors
def delete_topic(
    names: tuple[str, ...], yes: bool, as_json: bool, bootstrap: str, timeout_s: float
) -> None:
    """Delete topics and all their records."""
    if not yes and sys.stdin.isatty():
        confirm(f"Delete {', '.join(names)} and all records in it?")
    errors: list[OdradekError] = []
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        for name in dict.fromkeys(names):
            try:
                admin.delete_topics(name)
            except Refused as error:
                errors.append(error)
            else:
                report(as_json, {"topic": name, "deleted": True}, f"Deleted {name}.")
    if errors:
        raise together(errors)
