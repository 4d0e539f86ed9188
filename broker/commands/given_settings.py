"""The settings of a command: those of a file, and those of the command line."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from odradek.broker.config.broker import may_be_empty
from odradek.broker.config.properties import Given, read_properties
from odradek.broker.config.settings import ConfigError
from odradek.protocol.quantities import as_number

CONFIG_OPTION: Final = click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read settings from a properties file, such as Kafka's server.properties.",
)
SET_OPTION: Final = click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Give a setting by its Kafka name; overrules --config. Repeatable.",
)


def read_sources(config_file: Path | None, assignments: tuple[str, ...]) -> list[list[Given]]:
    """Return the settings of the file, then those of the command line, which override them."""
    sources: list[list[Given]] = []
    if config_file is not None:
        try:
            text = config_file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{config_file} cannot be read: {error}.") from None
        sources.append(read_properties(text, source=str(config_file), may_be_empty=may_be_empty()))
    given: dict[str, Given] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set takes NAME=VALUE, not {assignment!r}.")
        given[name.strip()] = Given(name=name.strip(), text=value)
    return [list(map(_as_number, some)) for some in (*sources, list(given.values()))]


def _as_number(given: Given) -> Given:
    """Return a setting whose duration or size, such as 1d or 512MiB, is a plain number."""
    try:
        return replace(given, text=as_number(given.name, given.text))
    except ValueError as error:
        raise ConfigError(given.blamed(f"{error}.")) from None
