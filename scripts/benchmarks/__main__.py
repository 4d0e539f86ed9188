"""The command `scripts/bench`: choose rows and brokers, measure, print and write the results."""

import datetime
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from scripts.benchmarks import (
    authorizer,
    clients,
    commit_order,
    commits,
    concurrent,
    connections,
    consumers,
    crowd,
    encrypted,
    failover,
    flood,
    groups,
    idle,
    idle_fetch,
    java_bulk,
    java_client,
    many,
    membership,
    partitions,
    postgres,
    process,
    recovery,
    replicated,
    scrapes,
    security,
    small,
    spark,
    strangers,
    throughput,
    transactions,
    waves,
)
from scripts.benchmarks.figures import OURS, Figure, medians, rows, show, write_json
from scripts.benchmarks.targets import (
    AGAINST_VARIABLE,
    NOTHING,
    ROUNDS_VARIABLE,
    ClusterTarget,
    Target,
    kafka_cluster,
    other,
    our_cluster,
    ours,
)
from tests.cluster.network import NoNamespaces
from tests.peers.jars import PeersMissing, require_tools

Measure = Callable[[Target, bool], Iterator[Figure]]
FAMILIES: Final[dict[str, Measure]] = {
    process.FAMILY: process.measure,
    transactions.FAMILY: transactions.measure,
    waves.FAMILY: waves.measure,
    crowd.FAMILY: crowd.measure,
    java_client.FAMILY: java_client.measure,
    java_bulk.FAMILY: java_bulk.measure,
    many.FAMILY: many.measure,
    partitions.FAMILY: partitions.measure,
    scrapes.FAMILY: scrapes.measure,
    groups.FAMILY: groups.measure,
    commit_order.FAMILY: commit_order.measure,
    membership.FAMILY: membership.measure,
    idle.FAMILY: idle.measure,
    connections.FAMILY: connections.measure,
    flood.FAMILY: flood.measure,
    strangers.FAMILY: strangers.measure,
    commits.FAMILY: commits.measure,
    postgres.FAMILY: postgres.measure,
    recovery.FAMILY: recovery.measure,
    throughput.FAMILY: throughput.measure,
    clients.FAMILY: clients.measure,
    concurrent.FAMILY: concurrent.measure,
    consumers.FAMILY: consumers.measure,
    spark.FAMILY: spark.measure,
    idle_fetch.FAMILY: idle_fetch.measure,
}
MeasureInTurn = Callable[[Sequence[Target], bool, int | None], dict[str, list[Figure]]]
FAMILIES_IN_TURN: Final[dict[str, MeasureInTurn]] = {
    small.FAMILY: small.measure,
    authorizer.FAMILY: authorizer.measure,
    encrypted.FAMILY: encrypted.measure,
}
"""Their brokers run at the same time and take turns, run by run. `--rows` with no other family
measures them beside Kafka, because the ratio is what they are for."""
TOGETHER: Final = {security.ALL: security.FAMILIES}
"""Names that stand for several families."""
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
@click.option(
    "--against",
    metavar="kafka|HOST:PORT|nothing",
    envvar=AGAINST_VARIABLE,
    help="Measure another broker as well.  [default: kafka for --rows small, else nothing]",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    envvar=ROUNDS_VARIABLE,
    help="Measure so often, and show medians.  [default: 3 for small, else 1]",
)
@click.option(
    "--set",
    "given",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of our broker, as in --set log.flush=journal.",
)
@click.option("--quick", is_flag=True, help="Fewer and smaller rounds: to see that it works.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path))
def main(
    wanted: str | None,
    cluster: bool,
    against: str | None,
    rounds: int | None,
    given: Sequence[str],
    quick: bool,
    json_file: Path | None,
) -> None:
    """Measure Odradek, and another broker in the same run if asked."""
    of_one_node = [*FAMILIES, *FAMILIES_IN_TURN]
    known = [*CLUSTER_FAMILIES, *FAULT_FAMILIES] if cluster else of_one_node
    chosen = known if wanted is None else _families(wanted)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise click.UsageError(f"--rows {unknown[0]}: choose from {', '.join(known)}.")
    against = _other_broker(chosen) if against is None else against
    against = None if against == NOTHING else against
    if cluster and against not in (None, "kafka"):
        raise click.UsageError("--cluster is measured --against kafka only.")
    if cluster and rounds is not None:
        raise click.UsageError("--rounds is for one node only: --cluster has rounds of its own.")
    if cluster and given:
        raise click.UsageError("--set is for one node only.")
    settings = dict(_setting(each) for each in given)
    described = {**_described(against, quick, rounds), "settings": settings}
    if cluster:
        figures = _of_cluster(chosen, against, quick)
    else:
        figures = _of_one_node(chosen, ours(settings), against, quick, rounds)
    table_rows = rows(figures, against)
    show(table_rows, against, Console(width=None if sys.stdout.isatty() else 120))
    if json_file is not None:
        write_json(json_file, table_rows, described)
    if any(row.holds is False for row in table_rows):
        sys.exit(1)


def _families(wanted: str) -> list[str]:
    """Return the families that `--rows` names."""
    names = [name.strip() for name in wanted.split(",")]
    return [family for name in names for family in TOGETHER.get(name, (name,))]


def _other_broker(chosen: list[str]) -> str:
    """Return the default of --against."""
    if not set(chosen) <= set(FAMILIES_IN_TURN):
        return NOTHING
    try:
        require_tools()
    except PeersMissing as missing:
        click.echo(f"Kafka is not measured. {missing}", err=True)
        return NOTHING
    return "kafka"


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


def _setting(given: str) -> tuple[str, str]:
    name, sign, value = given.partition("=")
    if not sign:
        raise click.UsageError(f"--set {given}: write NAME=VALUE.")
    return name, value


def _of_one_node(
    chosen: list[str], our_target: Target, against: str | None, quick: bool, rounds: int | None
) -> dict[str, list[Figure]]:
    targets = [our_target, *([other(against)] if against else [])]
    figures: dict[str, list[Figure]] = {target.name: [] for target in targets}
    try:
        for family in chosen:
            measure = FAMILIES_IN_TURN.get(family)
            if measure is None:
                found = _in_rounds(family, targets, quick, rounds or 1)
            else:
                found = measure(targets, quick, rounds)
            for name, of_target in found.items():
                figures[name] += of_target
    except PeersMissing as missing:
        raise click.ClickException(str(missing)) from None
    return figures


def _in_rounds(
    family: str, targets: Sequence[Target], quick: bool, rounds: int
) -> dict[str, list[Figure]]:
    console = Console(stderr=True)
    repeats: dict[str, list[list[Figure]]] = {target.name: [] for target in targets}
    for _ in range(rounds):
        # The two brokers alternate, so that both meet the same load of the machine.
        for target in targets:
            console.print(f"[dim]{family}: {target.name}[/]")
            repeats[target.name].append(list(FAMILIES[family](target, quick)))
    return {name: medians(of_target) for name, of_target in repeats.items()}


def _described(against: str | None, quick: bool, rounds: int | None) -> dict[str, object]:
    return {
        "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "against": against,
        "quick": quick,
        "rounds": rounds,
        "load before": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


if __name__ == "__main__":
    main(prog_name="scripts/bench")
