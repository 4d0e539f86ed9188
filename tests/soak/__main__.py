"""`scripts/soak`: everything at once on three brokers, for hours, and how they have borne it.

A siege of `tests/siege` strikes seldom here, and spares one broker: its memory and descriptors are
judged over the whole time. Beside it are the bank, the refunds of the demo and scrapes. All of it
is judged by what its clients know; the picture is for a person.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from tests.cluster.network import NoNamespaces
from tests.peers.etcd_server import etcd_program
from tests.peers.jars import PeersMissing
from tests.peers.kafka import DidNotStart
from tests.siege.__main__ import Failed, besiege
from tests.soak.beside import Beside
from tests.soak.growth import SECONDS_AN_HOUR, growth_of
from tests.soak.picture import Line, Picture

BUILD: Final = Path(__file__).parents[2] / "build" / "soak"
SPARED: Final = "broker3"
BETWEEN_SECONDS: Final = (20.0, 60.0)
JUDGED_FROM_HOURS: Final = 0.5
"""A broker fills its caches first: a shorter soak says nothing of its memory."""
BROUGHT_TO_REST: Final = {
    "producer.id.expiration.ms": "300000",
    "producer.id.expiration.check.interval.ms": "60000",
    "max.incremental.fetch.session.cache.slots": "200",
}
"""By default a producer is remembered for a day, and a thousand sessions of fetches: each start of
a client leaves one, and in an hour that does not come to rest."""
GROWTH_MAX: Final = 0.05
"""Of its memory and of its descriptors, in an hour, beyond what may be chance."""
MIB: Final = 2**20

Rows = Sequence[Mapping[str, Any]]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--hours", type=click.FloatRange(min=0.02), default=1.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the strikes.")
def main(hours: float, seed: int) -> None:
    """Load three brokers with everything at once, judge it, and draw what it has cost."""
    directory = BUILD / f"seed-{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    beside = Beside(directory)
    try:
        etcd_program()  # it may have to be built
        verdict = besiege(
            directory,
            seed,
            SECONDS_AN_HOUR * hours,
            spared=[SPARED],
            between_seconds=BETWEEN_SECONDS,
            settings=BROUGHT_TO_REST,
            beside=beside,
        )
    except (NoNamespaces, PeersMissing) as error:
        raise click.ClickException(str(error)) from None
    except (DidNotStart, Failed) as error:
        raise click.ClickException(f"{error}\nThe logs are in {directory}.") from None
    lines = lines_of(beside)
    for name, picture in pictures_of(lines).items():
        (directory / f"{name}.svg").write_text(picture.to_svg())
    found = {"siege": verdict, "bank": beside.bank[-1:], "refunds": beside.refunds}
    click.echo(json.dumps(found, indent=2))
    faults = [*faults_of(beside, verdict), *growing(lines, hours)]
    if faults:
        raise click.ClickException("\n".join([*faults, f"The logs are in {directory}."]))
    click.echo(f"{hours:g} hours, no anomaly. The pictures are in {directory}.")


def lines_of(beside: Beside) -> dict[str, dict[str, Line]]:
    """Return what is plotted: for each picture its lines, by their names."""
    times = [row["times"] for row in beside.bank if "times" in row]
    return {
        "memory": _of_brokers(beside, "memory", MIB),
        "descriptors": _of_brokers(beside, "descriptors", 1),
        "disk": _of_brokers(beside, "disk", MIB),
        "loop-lag": _of_brokers(beside, "loop_lag_ms", 1),
        "transfers": {
            name: [(row["at"] - beside.began, row[name]) for row in times if name in row]
            for name in ("p50", "p99")
        },
    }


def _of_brokers(beside: Beside, what: str, unit: int) -> dict[str, Line]:
    names = sorted({row["broker"] for row in beside.scrapes})
    return {
        name: [
            (row["at"] - beside.began, row[what] / unit)
            for row in beside.scrapes
            if row["broker"] == name and what in row
        ]
        for name in names
    }


def pictures_of(lines: Mapping[str, Mapping[str, Line]]) -> dict[str, Picture]:
    titles = {
        "memory": ("Memory of the brokers", "MiB"),
        "descriptors": ("Open files and connections of the brokers", "descriptors"),
        "disk": ("Files in the data directories", "MiB"),
        "loop-lag": ("Lag of the event loop, 99th percentile", "ms"),
        "transfers": ("Time of a transfer of the bank", "ms"),
    }
    return {
        name: Picture(title=title, unit=unit, lines=lines[name])
        for name, (title, unit) in titles.items()
    }


def faults_of(beside: Beside, verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each part that was not exactly once, or has no verdict."""
    if verdict["anomalies"]:
        yield f"The siege found {verdict['count']} anomalies."
    of_bank = [row["verdict"] for row in beside.bank if "verdict" in row]
    if not of_bank:
        yield "The bank ended without a verdict."
    elif of_bank[0]["anomalies"]:
        yield f"The bank has {of_bank[0]['count']} wrong transfers: {of_bank[0]['anomalies'][0]}"
    elif not of_bank[0]["OK"]:
        yield "The bank has not committed a transfer."
    if not beside.refunds or any(beside.refunds):
        yield f"The refunds ended with the statuses {beside.refunds}."
    if not beside.scrapes:
        yield "No scrape was answered."


def growing(lines: Mapping[str, Mapping[str, Line]], hours: float) -> Iterator[str]:
    """Yield a sentence if memory or descriptors of the broker that was spared grow."""
    for what in ("memory", "descriptors") if hours >= JUDGED_FROM_HOURS else ():
        line = lines[what].get(SPARED, [])
        growth = growth_of(line)
        if growth is None:
            yield f"Of {SPARED} there are too few scrapes: {len(line)}."
        elif growth.at_least > GROWTH_MAX * line[-1][1]:
            yield (
                f"The {what} of {SPARED} grew by {growth.slope:,.1f} an hour (standard error "
                f"{growth.error:,.1f}), to {line[-1][1]:,.1f}."
            )


if __name__ == "__main__":
    main(prog_name="scripts/soak")
