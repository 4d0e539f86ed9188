"""The command `odradek cluster adopt`: a broker that was alone becomes the first of a cluster."""

import json
import os.path
import random
import shlex
from pathlib import Path
from typing import Final

import click
import trio

from odradek.broker.cluster.adoption import Adopted, CannotAdopt, adopt
from odradek.broker.cluster.node_identity import WrongDirectory
from odradek.broker.cluster.store_embedded import DamagedStore
from odradek.broker.commands.given_settings import CONFIG_OPTION, SET_OPTION, read_sources
from odradek.broker.commands.serve import DEFAULT_DIRECTORY
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.settings import ConfigError
from odradek.broker.config.settling import Settled, settle
from odradek.broker.inspect.directory_locks import errors_of, locked
from odradek.broker.storage.disk import SystemDisk
from odradek.extras import ExtraMissing, imports_of
from odradek.protocol.errors import KafkaError

PATIENCE_SECONDS: Final = 20.0
"""The time for the first answer of etcd."""
PEER_PORT: Final = 9093
"""The port for other brokers that the command proposes."""


@click.command("adopt", short_help="Make a single broker the first of a cluster.")
@click.option(
    "--etcd",
    metavar="URL,...",
    help="The endpoints of etcd.  [default: etcd.endpoints of --config or --set]",
)
@click.option(
    "--data-dir",
    default=DEFAULT_DIRECTORY,
    show_default=True,
    type=click.Path(exists=True, file_okay=False),
    help="The directory of the broker, which is stopped.",
)
@CONFIG_OPTION
@SET_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; the keys are above.")
def adopt_command(
    etcd: str | None,
    data_dir: str,
    config_file: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Move the metadata of a broker that was alone into etcd, which has no cluster yet.

    The broker keeps its id, topics, records, transactions, groups and settings. Start it with
    etcd.endpoints afterwards, then others, and spread the replicas with `odradek cluster
    rebalance`. If the command is interrupted, run it again; the broker does not start before it has
    ended. There is no way back but a backup.

    \b
    Keys of --json: directory, cluster, node_id, topics, partitions, was_done (true
    if an earlier run had done it).
    """
    if etcd is not None:
        assignments = (*assignments, f"etcd.endpoints={etcd}")
    try:
        settled = settle(*read_sources(config_file, assignments), ignore_unknown=True)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    config = settled.config
    if not config.etcd_endpoints:
        raise click.UsageError("Name the etcd of the cluster: --etcd http://HOST:2379.")
    directory = os.path.abspath(data_dir)
    with errors_of(directory), locked(directory):
        adopted = _adopt(directory, config)
    if as_json:
        facts = {
            "directory": directory,
            "cluster": adopted.cluster_id,
            "node_id": adopted.node_id,
            "topics": adopted.topics,
            "partitions": adopted.partitions,
            "was_done": adopted.was_done,
        }
        click.echo(json.dumps(facts))
        return
    done = "was adopted before" if adopted.was_done else "is adopted"
    click.echo(
        f"The broker of {directory} {done}: it is node.id {adopted.node_id} of the cluster "
        f"{adopted.cluster_id}, with {adopted.topics} topics and {adopted.partitions} partitions.\n"
        "Start it:\n"
        f"  {_serve(data_dir, config_file, assignments, settled, adopted.node_id)}\n"
        "Start others, each with an empty directory and a node.id of its own. Then:\n"
        "  odradek cluster rebalance --replication-factor 3 --wait"
    )


def _serve(
    data_dir: str,
    config_file: Path | None,
    assignments: tuple[str, ...],
    settled: Settled,
    node_id: int,
) -> str:
    """Return the command that starts the broker, with all settings that this one was given."""
    words = ["odradek", "serve", "--data-dir", data_dir]
    if config_file is not None:
        words += ["--config", str(config_file)]
    if settled.ignored:
        words.append("--ignore-unknown")
    given = settled.config.given
    settings = [each for each in assignments if not each.startswith("etcd.password")]
    settings += [] if "node.id" in given else [f"node.id={node_id}"]
    if "inter.broker.listener.port" not in given:
        settings.append(f"inter.broker.listener.port={PEER_PORT}")
    return shlex.join([*words, *(word for each in settings for word in ("--set", each))])


def _adopt(directory: str, config: BrokerConfig) -> Adopted:
    try:
        return trio.run(_adopt_into_etcd, directory, config)
    except* (CannotAdopt, WrongDirectory, DamagedStore, ConfigError, ExtraMissing) as group:
        raise click.ClickException(str(_first(group))) from None
    except* KafkaError as group:
        message = f"The store refused: {_first(group)} Run the command again."
        raise click.ClickException(message) from None


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


async def _adopt_into_etcd(directory: str, config: BrokerConfig) -> Adopted:
    with imports_of("cluster", "etcd.endpoints"):
        from odradek.broker.cluster.store_etcd import EtcdStore
    rng = random.SystemRandom()
    with trio.move_on_after(PATIENCE_SECONDS) as waiting:
        async with EtcdStore.open(config, rng=rng) as store:
            waiting.deadline = float("inf")
            return await adopt(
                SystemDisk(),
                directory,
                store,
                node_id=config.node_id if "node.id" in config.given else None,
                state_min_isr=config.transaction_state_log_min_isr,
                rng=rng,
            )
    raise CannotAdopt(
        f"etcd did not answer at {config.etcd_endpoints} in {PATIENCE_SECONDS:.0f} s; "
        "nothing was changed."
    )
