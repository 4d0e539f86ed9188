"""The command `odradek serve`: a broker with the settings of a file and of the command line."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from odradek.broker.commands.given_settings import CONFIG_OPTION, SET_OPTION, read_sources
from odradek.broker.config.addresses import DEFAULT_LISTEN, PLAINTEXT, listeners_of
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.properties import Given
from odradek.broker.config.settings import ConfigError
from odradek.broker.config.settling import Settled, settle
from odradek.broker.environment import collector
from odradek.protocol.log_formats import JSON

LOGGER: Final = logging.getLogger(__name__)

DEFAULT_PAGE: Final = "127.0.0.1:8080"
DEFAULT_DIRECTORY: Final = "odradek-data"
CONTROLLER_LISTENERS: Final = "controller.listener.names"


@click.command()
@click.option(
    "--listen",
    metavar="[NAME://]HOST:PORT",
    help=f"The address to listen on; port 0 picks a free one.  [default: {DEFAULT_LISTEN}]",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="The address that clients connect to.  [default: that of --listen]",
)
@click.option(
    "--data-dir",
    metavar="DIRECTORY",
    type=click.Path(readable=False),
    help=f"The directory that keeps everything; made if needed.  [default: ./{DEFAULT_DIRECTORY}]",
)
@click.option(
    "--ephemeral",
    is_flag=True,
    help="Keep everything in a temporary directory, which is removed at the end.",
)
@click.option(
    "--metrics-listen",
    metavar="HOST:PORT",
    help="Serve /metrics, /live, /ready and /health there, to everybody who reaches it.",
)
@click.option(
    "--web",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=DEFAULT_PAGE,
    help="Serve the page of `odradek web` there, beside the broker.  "
    f"[without a value: {DEFAULT_PAGE}]",
)
@CONFIG_OPTION
@SET_OPTION
@click.option(
    "--ignore-unknown",
    is_flag=True,
    help="Go on without the settings that this broker does not have; it names them.",
)
def serve(
    listen: str | None,
    advertise: str | None,
    data_dir: str | None,
    ephemeral: bool,
    metrics_listen: str | None,
    web: str | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    ignore_unknown: bool,
) -> None:
    """Run a broker until it is stopped with Ctrl-C, SIGTERM, or the end of its terminal.

    All settings are in docs/configuration.md.
    """
    if ephemeral and data_dir is not None:
        raise click.ClickException("--ephemeral and --data-dir contradict each other; give one.")
    try:
        sources = read_sources(config_file, assignments)
        settled = settle(*sources, ignore_unknown=ignore_unknown)
        config = _with_options(settled.config, listen, advertise, data_dir, metrics_listen)
        if settled.ignored:
            click.echo(f"Ignored, for the broker has none such: {_named(settled)}.", err=True)
        directory = _data_directory(data_dir, config)
        strange = _listeners_of_the_controller(sources) if ignore_unknown else frozenset()
        listeners = listeners_of(config, listen=listen, advertise=advertise, left_out=strange)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None

    with collector.paused():  # until the broker has loaded its state: `run` resumes it then
        from odradek.broker.broker import CannotServe
        from odradek.broker.process import run

        try:
            run(config, None if ephemeral else directory, listeners, web)
        except CannotServe as error:
            if config.log_format == JSON:
                LOGGER.critical("%s", error, extra={"cause": "cannot serve"})
                raise click.exceptions.Exit(1) from None
            raise click.ClickException(str(error)) from None


def _with_options(
    config: BrokerConfig,
    listen: str | None,
    advertise: str | None,
    data_dir: str | None,
    metrics_listen: str | None,
) -> BrokerConfig:
    """Return the settings with those that options of their own give."""
    name = listen.partition("://")[0] if listen and "://" in listen else PLAINTEXT
    options = {
        "listeners": listen and f"{name}://{listen.rpartition('://')[2]}",
        "advertised.listeners": advertise and f"{name}://{advertise}",
        "log.dirs": data_dir,
        "metrics.listen": metrics_listen,
    }
    given = {name: text for name, text in options.items() if text}
    values: dict[str, Any] = {name.replace(".", "_"): text for name, text in given.items()}
    return replace(config, given=config.given | given.keys(), **values)


def _named(settled: Settled) -> str:
    return ", ".join(dict.fromkeys(settled.ignored))


def _data_directory(data_dir: str | None, config: BrokerConfig) -> Path:
    if data_dir == "":  # Path would take it for the current directory
        raise ConfigError("--data-dir is empty; name a directory, or leave the option out.")
    if data_dir is None and "," in config.log_dirs:
        raise ConfigError(f"log.dirs has one directory here, not {config.log_dirs!r}.")
    return Path(data_dir or config.log_dirs or DEFAULT_DIRECTORY)


def _listeners_of_the_controller(sources: list[list[Given]]) -> frozenset[str]:
    """Return the listeners that a Kafka configuration has for its controller; Odradek has none."""
    names = [
        setting.text
        for given in sources
        for setting in given
        if setting.name == CONTROLLER_LISTENERS
    ]
    return frozenset(name.strip().upper() for text in names for name in text.split(","))
