"""The command `scripts/bench`: choose rows and brokers, measure, print and write the results."""

import datetime
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from scripts.benchmarks import (
    clients,
    commit_order,
    commits,
    concurrent,
    consumers,
    crowd,
    failover,
    groups,
    idle,
    idle_fetch,
    java_client,
    many,
    membership,
    postgres,
    process,
    recovery,
    replicated,
    small,
    spark,
    throughput,
    transactions,
)
from scripts.benchmarks.figures import OURS, Figure, rows, show, write_json
from scripts.benchmarks.targets import (
    ClusterTarget,
    Target,
    kafka_cluster,
    other,
    our_cluster,
    ours,
)
from tests.cluster.network import NoNamespaces
from tests.peers.jars import PeersMissing

Measure = Callable[[Target, bool], Iterator[Figure]]
FAMILIES: Final[dict[str, Measure]] = {
    process.FAMILY: process.measure,
    transactions.FAMILY: transactions.measure,
    crowd.FAMILY: crowd.measure,
    java_client.FAMILY: java_client.measure,
    many.FAMILY: many.measure,
    groups.FAMILY: groups.measure,
    commit_order.FAMILY: commit_order.measure,
    membership.FAMILY: membership.measure,
    idle.FAMILY: idle.measure,
    commits.FAMILY: commits.measure,
    postgres.FAMILY: postgres.measure,
    recovery.FAMILY: recovery.measure,
    throughput.FAMILY: throughput.measure,
    small.FAMILY: small.measure,
    clients.FAMILY: clients.measure,
    concurrent.FAMILY: concurrent.measure,
    consumers.FAMILY: consumers.measure,
    spark.FAMILY: spark.measure,
    idle_fetch.FAMILY: idle_fetch.measure,
}
CLUSTER_FAMILIES: Final[dict[str, Callable[[ClusterTarget, bool], Iterator[Figure]]]] = {
    replicated.FAMILY: replicated.measure,
}
FAULT_FAMILIES: Final[dict[str, Callable[[bool], Iterator[Figure]]]] = {
    failover.FAMILY: failover.measure,
}
"""Measured with --cluster, and on Odradek only."""


@click.command()
@click.option("--rows", "wanted", metavar="A,B", help="Only these families.  [default: all]")
@click.option("--cluster", is_flag=True, help="Measure three brokers and an etcd.")
@click.option("--against", metavar="kafka|HOST:PORT", help="Measure another broker as well.")
@click.option("--quick", is_flag=True, help="Fewer and smaller rounds: to see that it works.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path))
def main(
    wanted: str | None, cluster: bool, against: str | None, quick: bool, json_file: Path | None
) -> None:
    """Measure Odradek, and another broker in the same run if asked."""
    known = [*CLUSTER_FAMILIES, *FAULT_FAMILIES] if cluster else list(FAMILIES)
    chosen = known if wanted is None else [name.strip() for name in wanted.split(",")]
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise click.UsageError(f"--rows {unknown[0]}: choose from {', '.join(known)}.")
    if cluster and against not in (None, "kafka"):
        raise click.UsageError("--cluster is measured --against kafka only.")
    measure = _of_cluster if cluster else _of_one_node
    figures = measure(chosen, against, quick)
    table_rows = rows(figures, against)
    show(table_rows, against, Console(width=None if sys.stdout.isatty() else 120))
    if json_file is not None:
        write_json(json_file, table_rows, _described(against, quick))
    if any(row.holds is False for row in table_rows):
        sys.exit(1)


def _of_cluster(chosen: list[str], against: str | None, quick: bool) -> dict[str, list[Figure]]:
    targets = [ClusterTarget(name=OURS, running=our_cluster)]
    if against is not None:
        targets.append(ClusterTarget(name=against, running=kafka_cluster))
    figures: dict[str, list[Figure]] = {target.name: [] for target in targets}
    try:
        for name in chosen:
            if name in FAULT_FAMILIES:
                figures[OURS] += _shown(FAULT_FAMILIES[name](quick))
                continue
            for target in targets:
                figures[target.name] += _shown(CLUSTER_FAMILIES[name](target, quick))
        return figures
    except (PeersMissing, NoNamespaces) as missing:
        raise click.ClickException(str(missing)) from None


def _shown(found: Iterator[Figure]) -> Iterator[Figure]:
    console = Console(stderr=True)
    for figure in found:
        console.print(f"[dim]{figure.name}: {figure.value:.2f} {figure.unit}[/]")
        yield figure


def _of_one_node(chosen: list[str], against: str | None, quick: bool) -> dict[str, list[Figure]]:
    targets = [ours(), *([other(against)] if against else [])]
    figures: dict[str, list[Figure]] = {target.name: [] for target in targets}
    console = Console(stderr=True)
    for family in chosen:
        # The two brokers alternate, so that both meet the same load of the machine.
        for target in targets:
            console.print(f"[dim]{family}: {target.name}[/]")
            figures[target.name] += _measured(family, target, quick)
    return figures


def _measured(family: str, target: Target, quick: bool) -> list[Figure]:
    try:
        return list(FAMILIES[family](target, quick))
    except PeersMissing as missing:
        raise click.ClickException(str(missing)) from None


def _described(against: str | None, quick: bool) -> dict[str, object]:
    return {
        "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "against": against,
        "quick": quick,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


if __name__ == "__main__":
    main(prog_name="scripts/bench")
