"""`scripts/siege`: real brokers and clients under kills, pauses and cuts, judged by the checker."""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import click

from tests.cluster.compose import services, with_etcd_nodes, with_settings
from tests.cluster.network import NoNamespaces
from tests.cluster.running import TemporaryCluster
from tests.compat.agents import go_command, java_command
from tests.peers.etcd_server import etcd_program
from tests.peers.jars import PeersMissing
from tests.peers.kafka import DidNotStart
from tests.siege.progress import idle
from tests.siege.strikes import BETWEEN_SECONDS, carry_out, draw

BUILD: Final = Path(__file__).parents[2] / "build" / "siege"
ETCD_NODES: Final = 3
GROUP_SETTINGS: Final = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}
"""In the new protocol, too, the partitions of a killed member move within the siege."""
NO_MORE_SETTINGS: Final[Mapping[str, str]] = {}
VERDICT_SECONDS: Final = 900.0
"""The time to come to rest, read everything and judge it."""


class Failed(Exception):
    """The siege has no verdict; the text says why."""


class RunningLoad:
    """The clients in the network of the cluster, and the lines that they print."""

    def __init__(self, cluster: TemporaryCluster, seed: int, log: Path) -> None:
        build = BUILD / "agents"
        directories = [build / "java", build / "go"]
        for directory in directories:
            directory.mkdir(parents=True, exist_ok=True)
        given = {
            "bootstrap": cluster.bootstrap,
            "seed": seed,
            "java": java_command(directories[0]),
            "go": go_command(directories[1]),
        }
        file = cluster.directory / "load.json"
        file.write_text(json.dumps(given))
        self.verdict: dict[str, Any] | None = None
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            cluster.client([sys.executable, "-m", "tests.siege.load", str(file)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if not line.startswith("{"):
                    self._log.write(line.encode())
                    continue
                ((kind, found),) = json.loads(line).items()
                if kind == "verdict":
                    self.verdict = found
                else:
                    click.echo(f"          {json.dumps(found)}")

    def check_running(self) -> None:
        """Raise Failed if the clients have ended."""
        if self._process.poll() is not None:
            raise Failed(f"The clients ended with status {self._process.returncode}.")

    def finish(self) -> dict[str, Any]:
        """Return the verdict."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join(VERDICT_SECONDS)
        if self.verdict is None:
            raise Failed(f"There was no verdict within {VERDICT_SECONDS:.0f} s.")
        return self.verdict

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._log.close()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seed", type=int, required=True, help="Of the strikes and their times.")
@click.option("--minutes", type=click.FloatRange(min=0.5), default=3.0, show_default=True)
@click.option("--keep", is_flag=True, help="Keep the logs if there is no anomaly, too.")
def main(seed: int, minutes: float, *, keep: bool) -> None:
    """Besiege three brokers and three nodes of etcd, and judge what their clients did and saw."""
    directory = BUILD / f"seed-{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        etcd_program()  # it may have to be built
        verdict = besiege(directory, seed, 60 * minutes)
    except (NoNamespaces, PeersMissing) as error:
        raise click.ClickException(str(error)) from None
    except (DidNotStart, Failed) as error:
        raise click.ClickException(f"{error}\nThe logs are in {directory}.") from None
    click.echo(json.dumps(verdict, indent=2))
    if verdict["anomalies"]:
        raise click.ClickException(f"{verdict['count']} anomalies. The logs are in {directory}.")
    for sentence in idle(verdict["while besieged"], minutes=minutes):
        raise click.ClickException(f"{sentence}. The logs are in {directory}.")
    if not keep:
        shutil.rmtree(directory)
    click.echo(f"Seed {seed}: no anomaly.")


def nothing_else(_: TemporaryCluster) -> AbstractContextManager[object]:
    return nullcontext()


def besiege(
    directory: Path,
    seed: int,
    seconds: float,
    *,
    spared: Sequence[str] = (),
    between_seconds: tuple[float, float] = BETWEEN_SECONDS,
    settings: Mapping[str, str] = NO_MORE_SETTINGS,
    beside: Callable[[TemporaryCluster], AbstractContextManager[object]] = nothing_else,
) -> dict[str, Any]:
    """Run a siege and return the verdict of its clients, with what was done to the services.

    `settings` are for the brokers, beside those for groups. The brokers of `spared` are left
    alone. What `beside` makes is entered while the siege lasts, and left when all services run
    again.
    """
    described = with_settings(
        with_etcd_nodes(services(), ETCD_NODES), {**GROUP_SETTINGS, **settings}
    )
    names = [each.name for each in described if not each.is_broker]
    with TemporaryCluster(directory, described) as cluster:
        load = RunningLoad(cluster, seed, directory / "clients.out")
        try:
            brokers = [name for name in cluster.brokers if name not in spared]
            strikes = draw(seed, seconds, brokers, names, between_seconds)
            started = time.monotonic()

            def say(text: str) -> None:
                load.check_running()
                click.echo(text)

            with beside(cluster):
                done = carry_out(cluster, strikes, say)
                time.sleep(max(0.0, started + seconds - time.monotonic()))
                load.check_running()
                cluster.wait_until_whole()
            verdict = load.finish()
            cluster.wait_until_whole()
            return {**verdict, "strikes": done}
        finally:
            load.close()


if __name__ == "__main__":
    main(prog_name="scripts/siege")
