"""`scripts/cluster`: the cluster of docker-compose.yml without Docker."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from tests.cluster.loopback import NoAddresses
from tests.cluster.network import NoNamespaces
from tests.cluster.running import ODRADEK, Cluster, UnknownService
from tests.peers.etcd_server import etcd_program
from tests.peers.jars import PeersMissing
from tests.peers.kafka import DidNotStart

DIRECTORY: Final = Path(__file__).parents[2] / "build" / "cluster"


class Sentences(click.Group):
    """A group whose errors are printed as one sentence."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (NoNamespaces, NoAddresses, UnknownService, PeersMissing, DidNotStart) as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=Sentences, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=DIRECTORY,
    help="The directory of volumes, outputs and processes.  [default: build/cluster]",
)
@click.option(
    "--loopback",
    is_flag=True,
    help="`up` makes loopback addresses and a proxy in place of network namespaces.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="`up` makes certificates, and gives the brokers TLS and access control.",
)
@click.pass_context
def main(context: click.Context, directory: Path, loopback: bool, secure: bool) -> None:
    """Run the services of docker-compose.yml as processes, each on a host of its own."""
    context.obj = Cluster(directory, is_loopback=loopback, is_secure=secure)


@main.command()
@click.pass_obj
def up(cluster: Cluster) -> None:
    """Start all services and wait until all brokers are members of the cluster."""
    if any(cluster.state(name) != "down" for name in ("anchor", *cluster.services)):
        raise UnknownService(f"The cluster in {cluster.directory} is up already.")
    etcd_program()  # it may have to be built
    starter = cluster.create()
    try:
        for name in cluster.services:
            cluster.start(name)
        cluster.wait_until_whole()
    except BaseException:
        starter.close()
        raise
    starter.keep()
    click.echo(f"Up. {cluster.for_clients()}")


@main.command()
@click.option("--volumes", is_flag=True, help="Delete also what the services have stored.")
@click.pass_obj
def down(cluster: Cluster, volumes: bool) -> None:
    """Stop all services, brokers first, and remove the network."""
    for name in reversed(cluster.services):
        if cluster.state(name) == "paused":
            cluster.send(name, signal.SIGCONT)
        if cluster.state(name) != "down":
            cluster.end(name, signal.SIGTERM)
    if cluster.state("anchor") != "down":
        cluster.network.close()
    if volumes:
        shutil.rmtree(cluster.directory, ignore_errors=True)


@main.command()
@click.pass_obj
def status(cluster: Cluster) -> None:
    """Show which services run and which links are cut; then `odradek cluster describe`."""
    if cluster.state("anchor") == "down":
        raise UnknownService(f"Nothing runs: the cluster in {cluster.directory} is down.")
    for name in cluster.services:
        click.echo(f"{name:10}{cluster.state(name)}")
    for source, target in cluster.network.cuts():
        click.echo(f"cut: {source} to {target}")
    click.echo(cluster.for_clients())
    words = [str(ODRADEK), "cluster", "describe", "--bootstrap", cluster.bootstrap]
    sys.stdout.flush()
    sys.exit(subprocess.run(cluster.client(words), check=False, env=cluster.environment).returncode)


@main.command()
@click.argument("name")
@click.pass_obj
def start(cluster: Cluster, name: str) -> None:
    """Start a service that was stopped or killed."""
    cluster.start(name)


@main.command()
@click.argument("name")
@click.pass_obj
def stop(cluster: Cluster, name: str) -> None:
    """Stop a service with SIGTERM and wait for its end."""
    cluster.end(name, signal.SIGTERM)


@main.command()
@click.argument("name")
@click.pass_obj
def kill(cluster: Cluster, name: str) -> None:
    """End a service with SIGKILL."""
    cluster.end(name, signal.SIGKILL)


@main.command()
@click.argument("name")
@click.pass_obj
def pause(cluster: Cluster, name: str) -> None:
    """Freeze a service with SIGSTOP."""
    cluster.send(name, signal.SIGSTOP)


@main.command()
@click.argument("name")
@click.pass_obj
def resume(cluster: Cluster, name: str) -> None:
    """Let a frozen service go on."""
    cluster.send(name, signal.SIGCONT)


@main.command()
@click.argument("name")
@click.argument("other")
@click.option("--one-way", is_flag=True, help="Drop only what NAME sends to OTHER.")
@click.pass_obj
def cut(cluster: Cluster, name: str, other: str, one_way: bool) -> None:
    """Drop all packets between two services."""
    cluster.cut(name, other, one_way=one_way)


@main.command()
@click.pass_obj
def heal(cluster: Cluster) -> None:
    """End all cuts."""
    cluster.network.heal()


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def run(cluster: Cluster, words: tuple[str, ...]) -> None:
    """Run a client where the names of the services are known."""
    if shutil.which(words[0]) is None:
        raise UnknownService(f"There is no program {words[0]} to run.")
    command = cluster.client(words)
    os.execvpe(command[0], command, cluster.environment)


if __name__ == "__main__":
    main(prog_name="scripts/cluster")
