"""The command `odradek`: `serve` runs a broker; the others are clients, or look at files.

Whatever a person can get wrong ends in one sentence and a status other than 0, never in a
traceback. Modules are imported by the command that needs them, so that `serve` starts quickly.
"""

import importlib
import io
import os
import sys
from pathlib import Path
from typing import Final

import click

from odradek.broker.config import BrokerConfig, from_properties, read_properties
from odradek.broker.settings import ConfigError

DEFAULT_LISTEN: Final = "127.0.0.1:9092"
DEFAULT_DIRECTORY: Final = "odradek-data"
INTERRUPTED: Final = 130

# command -> the module that has it, and its name there
ELSEWHERE: Final = {
    "topic": ("odradek.client.cli.topics", "topic"),
    "produce": ("odradek.client.cli.records", "produce"),
    "consume": ("odradek.client.cli.records", "consume"),
    "txn": ("odradek.client.cli.transactions", "txn"),
    "log": ("odradek.broker.storage.dump", "log"),
}


class Commands(click.Group):
    """A group whose commands are imported when they are named."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # click would say "Aborted!", of all words
            ctx.exit(INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *ELSEWHERE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, attribute = ELSEWHERE[cmd_name]
        found: object = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, click.Command), found
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="odradek")
def main() -> None:
    """A small broker that speaks the Kafka protocol, with exactly-once at its heart."""
    if sys.stdout is None:  # it was closed (>&-)
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    # What a terminal has no characters for is shown escaped: ids are anybody's text.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@main.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help=f"Where to listen; port 0 picks a free one.  [default: {DEFAULT_LISTEN}]",
)
@click.option("--advertise", metavar="HOST:PORT", help="What clients are told to connect to.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"Where everything is kept.  [default: ./{DEFAULT_DIRECTORY}]",
)
@click.option("--ephemeral", is_flag=True, help="Keep everything in a directory that goes away.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of name=value lines with Kafka's property names.",
)
@click.option(
    "--set", "assignments", multiple=True, metavar="NAME=VALUE", help="One setting; repeatable."
)
def serve(
    listen: str | None,
    advertise: str | None,
    data_dir: Path | None,
    ephemeral: bool,
    config_file: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Run a broker until it is stopped with Ctrl-C or SIGTERM."""
    if ephemeral and data_dir is not None:
        raise click.ClickException("--ephemeral and --data-dir contradict each other; give one.")
    try:
        config = _configuration(config_file, assignments)
        directory = data_dir or Path(config.log_dirs or DEFAULT_DIRECTORY)
        listen = listen or _listener(config.listeners, "listeners") or DEFAULT_LISTEN
        advertise = advertise or _listener(config.advertised_listeners, "advertised.listeners")
        where = parse_address(listen, "--listen")
        told = parse_address(advertise, "--advertise") if advertise else None
    except ConfigError as error:
        raise click.ClickException(str(error)) from None

    from odradek.broker.broker import CannotServe
    from odradek.broker.process import run

    try:
        run(config, None if ephemeral else directory, where, told)
    except CannotServe as error:
        raise click.ClickException(str(error)) from None


def _configuration(config_file: Path | None, assignments: tuple[str, ...]) -> BrokerConfig:
    """What the file says, overruled by the command line."""
    properties: dict[str, str] = {}
    if config_file is not None:
        try:
            text = config_file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{config_file} cannot be read: {error}.") from None
        properties.update(read_properties(text, source=str(config_file)))
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set takes NAME=VALUE, not {assignment!r}.")
        properties[name.strip()] = value
    return from_properties(properties)


def _listener(listeners: str, setting: str) -> str:
    """`PLAINTEXT://host:port` as `host:port`; there is one listener, and it is in plain text."""
    if not listeners:
        return ""
    if "," in listeners:
        raise ConfigError(f"{setting} has one listener, not {listeners!r}.")
    scheme, separator, address = listeners.partition("://")
    if not separator:
        return listeners
    if scheme != "PLAINTEXT":
        raise ConfigError(f"{setting} is PLAINTEXT://HOST:PORT; {scheme} is not built yet.")
    return address


def parse_address(text: str, option: str) -> tuple[str, int]:
    """`HOST:PORT`, with an IPv6 address in brackets. Raises `ConfigError`."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{option} is HOST:PORT, such as {DEFAULT_LISTEN}, not {text!r}.")
    return host or "0.0.0.0", int(port)
