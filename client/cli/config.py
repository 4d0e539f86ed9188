"""`odradek config`: settings of topics, groups and brokers, as they are and as they should be."""

from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

import click

from odradek.client.blocking import Admin, ConfigEntry, Refused
from odradek.client.cli.common import (
    INT32_MAX,
    check_broker,
    connection_options,
    echo_json,
    json_option,
    limits,
    report_changes,
    reports_errors,
    settings_of,
    show_table,
)

P = ParamSpec("P")
R = TypeVar("R")


@click.group()
def config() -> None:
    """Show and change settings of topics, groups and brokers."""


class Whose:
    """The resource that a command is about: a topic, a group, a broker, or all brokers."""

    def __init__(
        self, topic: str | None, group: str | None, broker: int | None, all_brokers: bool
    ) -> None:
        if sum(each is not None for each in (topic, group, broker)) + all_brokers != 1:
            raise click.UsageError("Name one of --topic, --group, --broker and --all-brokers.")
        self.topic = topic
        self.group = group
        self.broker = broker

    @property
    def facts(self) -> dict[str, object]:
        if self.topic is not None:
            return {"topic": self.topic}
        if self.group is not None:
            return {"group": self.group}
        return {"broker": "all" if self.broker is None else self.broker}

    @property
    def words(self) -> str:
        ((kind, name),) = self.facts.items()
        return "all brokers" if name == "all" and kind == "broker" else f"{kind} {name}"

    def read(self, admin: Admin) -> dict[str, ConfigEntry]:
        """Return the settings. Raises `Refused`."""
        if self.topic is not None:
            return admin.describe_topic_configs(self.topic)[self.topic]
        if self.group is not None:
            return admin.describe_group_configs(self.group)[self.group]
        if self.broker is not None:
            check_broker(admin, self.broker)
            return admin.describe_broker_configs(self.broker)[self.broker]
        return admin.describe_cluster_configs()

    def change(self, admin: Admin, changes: Mapping[str, str | None], *, dry_run: bool) -> None:
        """Change settings; None stands for the default. Raises `Refused`."""
        if self.topic is not None:
            admin.alter_topic_configs(self.topic, changes, validate_only=dry_run)
        elif self.group is not None:
            admin.alter_group_configs(self.group, changes, validate_only=dry_run)
        elif self.broker is not None:
            check_broker(admin, self.broker)
            admin.alter_broker_configs(self.broker, changes, validate_only=dry_run)
        else:
            admin.alter_cluster_configs(changes, validate_only=dry_run)


def whose_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options `--topic`, `--group`, `--broker` and `--all-brokers`."""
    topic = click.option("--topic", "-t", metavar="NAME", help="The settings of this topic.")
    group = click.option(
        "--group", "-g", metavar="NAME", help="The settings of this consumer group (KIP-848)."
    )
    broker = click.option(
        "--broker", type=click.IntRange(0, INT32_MAX), help="The settings of this broker."
    )
    everybody = click.option(
        "--all-brokers", is_flag=True, help="The settings that were changed for all brokers."
    )
    return topic(group(broker(everybody(command))))


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Check whether it is possible, and change nothing."
)
changed_option = json_option(
    "Print one JSON object: topic, group or broker, and set, unset, dry_run."
)


@config.command("get")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@whose_options
@click.option("--all", "shows_all", is_flag=True, help="Show also settings at their defaults.")
@json_option("Print one JSON object; the keys are above.")
@connection_options
@reports_errors
def get(
    names: tuple[str, ...],
    topic: str | None,
    group: str | None,
    broker: int | None,
    all_brokers: bool,
    shows_all: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Show settings with the source of each value: those that are named, or those that were set.

    The source is the topic, the group, a change for this broker or for all brokers, the file (or
    the command line) that the broker was started with, or the default. A setting that is named and
    was not changed for all brokers is shown as the brokers have it.

    \b
    Keys of --json: topic, group or broker (its id, or "all"), settings: an object
    with value, source, read_only, sensitive for each name.
    """
    whose = Whose(topic, group, broker, all_brokers)
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        found = whose.read(admin)
        if all_brokers:  # found is only what was changed for all of them
            unchanged = [name for name in names if name not in found]
            found = {**found, **(_of_brokers(admin, unchanged) if unchanged else {})}
    for name in names:
        if name not in found:
            raise Refused(f"there is no setting {name!r}; --all shows those that there are")
    chosen = {
        name: found[name]
        for name in sorted(names or found)
        if names or shows_all or not found[name].is_default
    }
    if as_json:
        settings = {
            name: {
                "value": entry.value,
                "source": entry.source,
                "read_only": entry.is_read_only,
                "sensitive": entry.is_sensitive,
            }
            for name, entry in chosen.items()
        }
        echo_json({**whose.facts, "settings": settings})
    elif chosen:
        show_table(
            ("setting", "value", "source", ""),
            [
                (name, _value(entry), entry.source, "read-only" if entry.is_read_only else "")
                for name, entry in chosen.items()
            ],
        )
    else:
        click.echo("all settings at their defaults")


def _of_brokers(admin: Admin, names: list[str]) -> dict[str, ConfigEntry]:
    """Return settings that all brokers have alike. Raises `Refused` if their values differ."""
    node_ids = sorted(broker.node_id for broker in admin.describe_cluster().brokers)
    settings = admin.describe_broker_configs(*node_ids)
    found: dict[str, ConfigEntry] = {}
    for name in names:
        entries = [(node, settings[node][name]) for node in node_ids if name in settings[node]]
        if len({entry for _, entry in entries}) > 1:
            values = [f"broker {node}: {_value(entry)} ({entry.source})" for node, entry in entries]
            raise Refused(
                f"{name} was not changed for all brokers, and they differ: {', '.join(values)}"
            )
        if entries:
            found[name] = entries[0][1]
    return found


def _value(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "" if entry.value is None else entry.value


@config.command("set")
@click.argument("settings", metavar="NAME=VALUE...", nargs=-1, required=True)
@whose_options
@dry_run_option
@changed_option
@connection_options
@reports_errors
def set_(
    settings: tuple[str, ...],
    topic: str | None,
    group: str | None,
    broker: int | None,
    all_brokers: bool,
    dry_run: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Change settings. They count without a restart, and are kept.

    A change for one broker counts before one for all brokers. A duration may be written as 7d or
    90s, a size as 512MiB: the brokers get the number.
    """
    whose = Whose(topic, group, broker, all_brokers)
    changes = settings_of(settings, "NAME=VALUE")
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        whose.change(admin, changes, dry_run=dry_run)
    report_changes(as_json, whose.facts, whose.words, changes, dry_run=dry_run)


@config.command("unset")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@whose_options
@dry_run_option
@changed_option
@connection_options
@reports_errors
def unset(
    names: tuple[str, ...],
    topic: str | None,
    group: str | None,
    broker: int | None,
    all_brokers: bool,
    dry_run: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Remove changes of settings. What they replaced counts again, in the end the default."""
    whose = Whose(topic, group, broker, all_brokers)
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        whose.change(admin, dict.fromkeys(names), dry_run=dry_run)
    report_changes(as_json, whose.facts, whose.words, dict.fromkeys(names), dry_run=dry_run)
