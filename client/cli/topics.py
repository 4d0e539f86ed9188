"""`odradek topic`: create, list, describe, alter, extend and delete topics, and their records."""

import sys
from typing import Any, Final

import click

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
    assignments,
    confirm,
    connection_options,
    echo_json,
    limits,
    reports_errors,
    show_table,
    together,
)

HIGH_WATERMARK: Final = -1
"""The offset that stands for the end of what consumers can see."""


@click.group()
def topic() -> None:
    """Create, list, describe, alter, extend and delete topics."""


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
    help="Give the topics this setting. Repeatable.",
)
@click.option(
    "--if-not-exists", is_flag=True, help="Leave a topic that is there as it is; no error."
)
@connection_options
@reports_errors
def create_topic(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Create topics."""
    settings = assignments(configs, "--config")
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        for name in names:
            admin.create_topic(
                name,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                configs=settings,
                if_not_exists=if_not_exists,
            )


@topic.command("list")
@click.option(
    "--internal",
    is_flag=True,
    help="List also internal topics, of the broker and of Spark queries.",
)
@connection_options
@reports_errors
def list_topics(internal: bool, bootstrap: str, timeout_s: float) -> None:
    """Print the names of topics, one per line."""
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        for name in admin.list_topics(internal=internal):
            click.echo(name)


@topic.command("describe")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each topic.")
@connection_options
@reports_errors
def describe_topic(names: tuple[str, ...], as_json: bool, bootstrap: str, timeout_s: float) -> None:
    """Show a topic's partitions, their leaders and offsets, and its settings."""
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        errors: list[OdradekError] = []
        for name in dict.fromkeys(names):
            try:
                (found,) = admin.describe_topics(name)
            except Refused as error:
                errors.append(error)
                continue
            description = _describe(admin, found)
            if as_json:
                echo_json(description)
            else:
                _show(description)
    if errors:
        raise together(errors)


def _describe(admin: Admin, found: TopicDescription) -> dict[str, Any]:
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
    settings = admin.describe_topic_configs(found.name)[found.name]
    return {
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
            }
            for name, partition in zip(names, found.partitions, strict=True)
        ],
    }


def _show(description: dict[str, Any]) -> None:
    settings = ", ".join(f"{name}={value}" for name, value in description["settings"].items())
    click.echo(f"{description['topic']}  {description['id']}")
    click.echo(settings or "all settings at their defaults")
    partitions = description["partitions"]
    is_offline = any(row["offline"] for row in partitions)
    names = [name for name in partitions[0] if name != "offline" or is_offline]
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
@connection_options
@reports_errors
def alter_topic(
    names: tuple[str, ...],
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Change settings of topics. They count at once. `odradek config get` shows them."""
    changes = assignments(settings, "--set")
    both = [name for name in unset if name in changes]
    if both:
        raise click.UsageError(f"{both[0]} cannot be set and unset.")
    if not settings and not unset:
        raise click.UsageError("Nothing to change: name settings by --set or --unset.")
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        for name in names:
            admin.alter_topic_configs(
                name, {**changes, **dict.fromkeys(unset)}, validate_only=dry_run
            )


@topic.command("add-partitions")
@click.argument("name", metavar="NAME")
@click.option(
    "--total",
    type=click.IntRange(1, INT32_MAX),
    required=True,
    help="The number of partitions that the topic has afterwards.",
)
@connection_options
@reports_errors
def add_partitions(name: str, total: int, bootstrap: str, timeout_s: float) -> None:
    """Give a topic more partitions.

    Records with a key may then go to another partition than earlier ones with the same key.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        admin.create_partitions(name, total)


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
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each partition.")
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
@connection_options
@reports_errors
def delete_topic(names: tuple[str, ...], yes: bool, bootstrap: str, timeout_s: float) -> None:
    """Delete topics and all their records."""
    if not yes and sys.stdin.isatty():
        confirm(f"Delete {', '.join(names)} and all records in it?")
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        admin.delete_topics(*names)
