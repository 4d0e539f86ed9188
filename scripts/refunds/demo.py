"""The demo, end to end: refunds for cancelled flights, exactly once, while processes are killed."""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from odradek.client.blocking import Admin, Consumer
from odradek.client.types import TopicPartition
from scripts.refunds import spark_part
from scripts.refunds.besieged import (
    Besieged,
    BrokersOutside,
    OneBroker,
    Say,
    SparedBrokers,
    restarted,
)
from scripts.refunds.chaos import PARTITIONS, Strike, Supervisor, schedule
from scripts.refunds.doomed import BROKER_PID
from scripts.refunds.flights import QUICK_FLIGHTS
from scripts.refunds.history import transactions_of
from scripts.refunds.load import load
from scripts.refunds.processes import run_broker
from scripts.refunds.processor import TOPIC_AUDIT, TOPIC_IN, TOPIC_REFUNDS
from scripts.refunds.verify import Verdict, verify

ALL_FLIGHTS = 336_776
BATCHES = 14
QUICK_BATCHES = 5
ALL_TOPICS = (TOPIC_IN, TOPIC_REFUNDS, TOPIC_AUDIT, *spark_part.TOPICS)


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def create_topics(bootstrap: str, replication_factor: int = 1) -> None:
    with Admin(bootstrap) as admin:
        for topic in ALL_TOPICS:
            admin.create_topic(topic, partitions=PARTITIONS, replication_factor=replication_factor)


def delete_topics(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        there = admin.list_topics()
        admin.delete_topics(*(topic for topic in ALL_TOPICS if topic in there))


def load_departures(console: Console, bootstrap: str, limit: int | None) -> int:
    with progress_bar(console) as progress:
        task = progress.add_task("loading departures", total=limit or ALL_FLIGHTS)
        return load(bootstrap, limit, lambda count: progress.update(task, completed=count))


def run_application(
    console: Console,
    besieged: Callable[[Say], Besieged],
    bootstrap: str,
    *,
    strikes: list[Strike],
    quick: bool,
    log: Path,
) -> Counter[str]:
    with Consumer(bootstrap) as consumer:
        partitions = [TopicPartition(TOPIC_IN, p) for p in range(PARTITIONS)]
        ends = {p.partition: end for p, end in consumer.end_offsets(partitions).items()}
    with progress_bar(console) as progress:
        task = progress.add_task("refunding, under fire", total=sum(ends.values()))

        def say(text: str) -> None:
            progress.console.print(f"  [dim]{text}[/]")

        return Supervisor(
            besieged=besieged(say),
            ends=ends,
            slice_records=250 if quick else 500,
            log=log,
            say=say,
            progress=lambda done: progress.update(task, completed=done),
            strikes=strikes,
        ).run()


def run_spark(
    console: Console,
    bootstrap: str,
    restarting: Callable[[Path], AbstractContextManager[None]],
    *,
    seed: int,
    quick: bool,
    flights: int,
    place: Path,
    kinds: spark_part.Kinds = spark_part.ON_ONE_NODE,
) -> tuple[Counter[str], list[str]]:
    console.print("the same as a Spark query, under fire")
    counts, torn = spark_part.run(
        bootstrap,
        restarting,
        seed=seed,
        flights=flights,
        per_batch=flights // (QUICK_BATCHES if quick else BATCHES) + 1,
        place=place,
        say=lambda text: console.print(f"  [dim]{text}[/]"),
        kinds=kinds,
    )
    return counts + transactions_of(bootstrap, spark_part.TRANSACTIONAL_IDS), torn


def table_of(rows: list[tuple[str, Verdict, Counter[str], float]]) -> Table:
    table = Table(title="Every cancelled flight, refunded exactly once")
    table.add_column("")
    for name, *_ in rows:
        table.add_column(name, justify="right")
    lines = {
        "refunds (read_committed)": [f"{v.refunds:,}" for _, v, _, _ in rows],
        "audit rows (read_committed)": [f"{v.audit_rows:,}" for _, v, _, _ in rows],
        "aborted records (read_uncommitted only)": [f"{v.aborted:,}" for _, v, _, _ in rows],
    }
    names = sorted({name for _, _, counts, _ in rows for name in counts})
    lines |= {name: [f"{counts[name]:,}" for _, _, counts, _ in rows] for name in names}
    lines["seconds"] = [f"{seconds:.1f}" for *_, seconds in rows]
    for name, cells in lines.items():
        table.add_row(name, *cells)
    return table


def run_in_network(
    console: Console, inside: tuple[str, int, int], *, seed: int, quick: bool, place: Path
) -> None:
    """Run the application against a cluster whose brokers a process outside kills."""
    bootstrap, orders, answers = inside
    strikes = schedule(seed, rounds=1 if quick else 2, is_cluster=True)
    console.print(f"brokers {bootstrap}, seed {seed}, logs in {place}")
    with open(orders, "w") as orders_out, open(answers) as answers_in:
        run_on_brokers(
            console,
            lambda say: BrokersOutside(bootstrap, orders_out, answers_in, say),
            bootstrap,
            strikes=strikes,
            quick=quick,
            place=place,
        )


def run_spark_on_cluster(
    console: Console,
    bootstrap: str,
    restarting: Callable[[Path], AbstractContextManager[None]],
    *,
    seed: int,
    quick: bool,
    place: Path,
) -> None:
    """Run the Spark query on brokers that are killed by their roles, and exit with its verdict."""
    limit = QUICK_FLIGHTS if quick else None
    create_topics(bootstrap, replication_factor=-1)
    flights = load_departures(console, bootstrap, limit)
    began = time.monotonic()
    counts, torn = run_spark(
        console,
        bootstrap,
        restarting,
        seed=seed,
        quick=quick,
        flights=flights,
        place=place,
        kinds=spark_part.ON_CLUSTER,
    )
    seconds = time.monotonic() - began
    verdict = verify(bootstrap, *spark_part.TOPICS, limit)
    console.print(table_of([("Spark on three brokers", verdict, counts, seconds)]))
    faults = [*verdict.faults, *torn]
    for fault in faults:
        console.print(f"[red]{fault}[/]")
    sys.exit(1 if faults else 0)


def run_on_given(console: Console, bootstrap: str, *, seed: int, quick: bool, place: Path) -> None:
    """Run the application on brokers that are there. It kills its own processes only."""
    strikes = schedule(seed, rounds=1 if quick else 2)
    console.print(f"brokers {bootstrap}, seed {seed}; topics of an earlier run are deleted")
    delete_topics(bootstrap)
    run_on_brokers(
        console,
        lambda _: SparedBrokers(bootstrap),
        bootstrap,
        strikes=[strike for strike in strikes if strike.partition is not None],
        quick=quick,
        place=place,
    )


def run_on_brokers(
    console: Console,
    besieged: Callable[[Say], Besieged],
    bootstrap: str,
    *,
    strikes: list[Strike],
    quick: bool,
    place: Path,
) -> None:
    """Load the departures, run the application, and exit with its verdict."""
    limit = QUICK_FLIGHTS if quick else None
    create_topics(bootstrap, replication_factor=-1)
    load_departures(console, bootstrap, limit)
    began = time.monotonic()
    counts = run_application(
        console, besieged, bootstrap, strikes=strikes, quick=quick, log=place / "workers.log"
    )
    counts += transactions_of(bootstrap, "refunds-")
    seconds = time.monotonic() - began
    verdict = verify(bootstrap, TOPIC_REFUNDS, TOPIC_AUDIT, limit)
    console.print(table_of([("application", verdict, counts, seconds)]))
    _exit(console, list(verdict.faults), counts)


def _exit(console: Console, faults: list[str], counts: Counter[str]) -> None:
    if counts["fenced"] == 0:
        faults.append("the zombie was not fenced")
    for fault in faults:
        console.print(f"[red]{fault}[/]")
    sys.exit(1 if faults else 0)


@click.command()
@click.option("--quick", is_flag=True, help=f"The first {QUICK_FLIGHTS:,} flights, fewer kills.")
@click.option("--seed", default=2013, show_default=True, help="Of the kill schedule.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep data and logs in this folder.")
@click.option("--cluster", is_flag=True, help="On three brokers that are killed by their roles.")
@click.option("--bootstrap", help="On these brokers, which are spared; its topics are made anew.")
@click.option("--inside", type=(str, int, int), hidden=True)
def main(
    quick: bool,
    seed: int,
    keep: Path | None,
    cluster: bool,
    bootstrap: str | None,
    inside: tuple[str, int, int] | None,
) -> None:
    """Run the refunds pipeline exactly once over real flights, while its processes are killed."""
    console = Console()
    limit = QUICK_FLIGHTS if quick else None
    started = time.monotonic()
    with ExitStack() as stack:
        place = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-")))
        place.mkdir(parents=True, exist_ok=True)
        if inside is not None:
            run_in_network(console, inside, seed=seed, quick=quick, place=place)
        if bootstrap is not None:
            run_on_given(console, bootstrap, seed=seed, quick=quick, place=place)
        if cluster:
            from scripts.refunds.on_cluster import run_inside, spark_cluster  # no tests/ in images

            options = ["--seed", str(seed), *(["--quick"] if quick else [])]
            status = run_inside(place, options)
            if status != 0:
                sys.exit(status)
            with spark_cluster(place / "spark") as (bootstrap, restarting):
                run_spark_on_cluster(
                    console, bootstrap, restarting, seed=seed, quick=quick, place=place / "spark"
                )
            return
        broker = stack.enter_context(run_broker(data_dir=place / "data"))
        console.print(f"broker on {broker.address}, seed {seed}, logs in {place}")
        create_topics(broker.address)
        flights = load_departures(console, broker.address, limit)

        began = time.monotonic()
        counts = run_application(
            console,
            lambda say: OneBroker(broker, say),
            broker.address,
            strikes=schedule(seed, rounds=1 if quick else 2),
            quick=quick,
            log=place / "workers.log",
        )
        counts += transactions_of(broker.address, "refunds-")
        application_s = time.monotonic() - began

        began = time.monotonic()
        spark_counts, torn = run_spark(
            console,
            broker.address,
            lambda folder: restarted(broker, folder / BROKER_PID),
            seed=seed,
            quick=quick,
            flights=flights,
            place=place,
        )
        spark_s = time.monotonic() - began

        console.print("verifying with pandas, from the source data")
        application = verify(broker.address, TOPIC_REFUNDS, TOPIC_AUDIT, limit)
        spark = verify(broker.address, *spark_part.TOPICS, limit)
    console.print(
        table_of(
            [
                ("application", application, counts, application_s),
                ("Spark", spark, spark_counts, spark_s),
            ]
        )
    )
    console.print(f"{flights:,} departures, {time.monotonic() - started:.0f} s in all")
    _exit(console, [*application.faults, *spark.faults, *torn], counts)


if __name__ == "__main__":
    main()
