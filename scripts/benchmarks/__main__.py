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
    crowd,
    java_client,
    many,
    process,
    recovery,
    small,
    spark,
    throughput,
    transactions,
)
from scripts.benchmarks.figures import Figure, rows, show, write_json
from scripts.benchmarks.targets import Target, other, ours
from tests.peers.jars import PeersMissing

Measure = Callable[[Target, bool], Iterator[Figure]]
FAMILIES: Final[dict[str, Measure]] = {
    process.FAMILY: process.measure,
    transactions.FAMILY: transactions.measure,
    crowd.FAMILY: crowd.measure,
    java_client.FAMILY: java_client.measure,
    many.FAMILY: many.measure,
    recovery.FAMILY: recovery.measure,
    throughput.FAMILY: throughput.measure,
    small.FAMILY: small.measure,
    clients.FAMILY: clients.measure,
    spark.FAMILY: spark.measure,
}


@click.command()
@click.option("--rows", "wanted", default=",".join(FAMILIES), show_default=True, metavar="A,B")
@click.option("--against", metavar="kafka|HOST:PORT", help="Measure another broker as well.")
@click.option("--quick", is_flag=True, help="Fewer and smaller rounds: to see that it works.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path))
def main(wanted: str, against: str | None, quick: bool, json_file: Path | None) -> None:
    """Measure Odradek, and another broker in the same run if asked."""
    chosen = [name.strip() for name in wanted.split(",")]
    unknown = [name for name in chosen if name not in FAMILIES]
    if unknown:
        raise click.UsageError(f"--rows {unknown[0]}: choose from {', '.join(FAMILIES)}.")
    targets = [ours(), *([other(against)] if against else [])]
    figures: dict[str, list[Figure]] = {target.name: [] for target in targets}
    console = Console(stderr=True)
    for family in chosen:
        # The two brokers alternate, so that both meet the same load of the machine.
        for target in targets:
            console.print(f"[dim]{family}: {target.name}[/]")
            figures[target.name] += _measured(family, target, quick)
    table_rows = rows(figures, against)
    show(table_rows, against, Console(width=None if sys.stdout.isatty() else 120))
    if json_file is not None:
        write_json(json_file, table_rows, _described(against, quick))
    if any(row.holds is False for row in table_rows):
        sys.exit(1)


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
