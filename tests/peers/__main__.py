"""`scripts/peer NAME`: starts a peer by hand, prints its address, stops it at Ctrl-C or SIGTERM."""

import signal
from pathlib import Path

import click

from tests.peers.jars import PeersMissing
from tests.peers.kafka import RealKafka


@click.group()
def main() -> None:
    """Brokers of other people, to compare with."""


@main.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="An empty or new directory to keep; without it one that goes away.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="server.properties")
def kafka(data_dir: Path | None, settings: tuple[str, ...]) -> None:
    """Apache Kafka 4.3.1: one node on free loopback ports."""
    chosen = dict(_name_and_value(setting) for setting in settings)
    if data_dir is not None:
        data_dir.mkdir(parents=True, exist_ok=True)
        if any(data_dir.iterdir()):
            raise click.ClickException(f"{data_dir} is not empty: give a new directory.")
    try:
        with RealKafka(data_dir, settings=chosen) as broker:
            click.echo(broker.address)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            click.echo("Serving. Ctrl-C stops it.", err=True)
            signal.pause()
    except PeersMissing as missing:
        raise click.ClickException(str(missing)) from None
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)


def _name_and_value(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals:
        raise click.ClickException(f"--set {setting}: say NAME=VALUE.")
    return name, value


if __name__ == "__main__":
    main(prog_name="scripts/peer")
