"""`odradek config`: settings of topics and brokers, as they are and as they should be."""

from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

import click

from odradek.client.blocking import Admin, ConfigEntry, Refused
from odradek.client.cli.common import (
    INT32_MAX,
    assignment,
    connection_options,
    echo_json,
    limits,
    reports_errors,
    show_table,
)

P = ParamSpec("P")
R = TypeVar("R")


@click.group()
def config() -> None:
    """Show and change settings of topics and brokers."""


class Whose:
    """The resource that a command is about: a topic, a broker, or all brokers."""

    def __init__(self, topic: str | None, broker: int | None, all_brokers: bool) -> None:
        if (topic is not None) + (broker is not None) + all_brokers != 1:
            raise click.UsageError("Name one of --topic, --broker and --all-brokers.")
        self.topic = topic
        self.broker = broker

    @property
    def facts(self) -> dict[str, object]:
        if self.topic is not None:
            return {"topic": self.topic}
        return {"broker": "all" if self.broker is None else self.broker}

    def read(self, admin: Admin) -> dict[str, ConfigEntry]:
        """Return the settings. Raises `Refused`."""
        if self.topic is not None:
            return admin.describe_topic_configs(self.topic)[self.topic]
        if self.broker is not None:
            return admin.describe_broker_configs(self.broker)[self.broker]
        return admin.describe_cluster_configs()

    def change(self, admin: Admin, changes: Mapping[str, str | None], *, dry_run: bool) -> None:
        """Change settings; None stands for the default. Raises `Refused`."""
        if self.topic is not None:
            admin.alter_topic_configs(self.topic, changes, validate_only=dry_run)
        elif self.broker is not None:
            admin.alter_broker_configs(self.broker, changes, validate_only=dry_run)
        else:
            admin.alter_cluster_configs(changes, validate_only=dry_run)


def whose_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options `--topic`, `--broker` and `--all-brokers`."""
    topic = click.option("--topic", "-t", metavar="NAME", help="The settings of this topic.")
    broker = click.option(
        "--broker", type=click.IntRange(0, INT32_MAX), help="The settings of this broker."
    )
    everybody = click.option(
        "--all-brokers", is_flag=True, help="The settings that were changed for all brokers."
    )
    return topic(broker(everybody(command)))


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Check whether it is possible, and change nothing."
)


@config.command("get")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@whose_options
@click.option("--all", "shows_all", is_flag=True, help="Show also settings at their defaults.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@connection_options
@reports_errors
def get(
    names: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    shows_all: bool,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Show settings with the source of each value: those that are named, or those that were set.

    The source is the topic, a change for this broker or for all brokers, the file (or the command
    line) that the broker was started with, or the default.
    """
    whose = Whose(topic, broker, all_brokers)
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        found = whose.read(admin)
    for name in names:
        if name not in found and not all_brokers:
            raise Refused(f"there is no setting {name!r}; --all shows those that there are")
    chosen = {
        name: found[name]
        for name in sorted(names or found)
        if name in found and (names or shows_all or not found[name].is_default)
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


def _value(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "" if entry.value is None else entry.value


@config.command("set")
@click.argument("settings", metavar="NAME=VALUE...", nargs=-1, required=True)
@whose_options
@dry_run_option
@connection_options
@reports_errors
def set_(
    settings: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    dry_run: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Change settings. They count without a restart, and are kept.

    A change for one broker counts before one for all brokers.
    """
    whose = Whose(topic, broker, all_brokers)
    changes = dict(assignment(setting, "NAME=VALUE") for setting in settings)
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        whose.change(admin, changes, dry_run=dry_run)


@config.command("unset")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@whose_options
@dry_run_option
@connection_options
@reports_errors
def unset(
    names: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    dry_run: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Take changes of settings back: what is below them counts again, in the end the default."""
    whose = Whose(topic, broker, all_brokers)
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        whose.change(admin, dict.fromkeys(names), dry_run=dry_run)
