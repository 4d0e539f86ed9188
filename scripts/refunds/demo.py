"""The demo, end to end: refunds for cancelled flights, exactly once, while processes are killed."""

import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from odradek.client.blocking import Admin, Consumer
from odradek.client.types import TopicPartition
from scripts.refunds import spark_part
from scripts.refunds.chaos import PARTITIONS, Supervisor, schedule
from scripts.refunds.flights import QUICK_FLIGHTS
from scripts.refunds.history import transactions_of
from scripts.refunds.load import load
from scripts.refunds.processes import RunningBroker, run_broker
from scripts.refunds.processor import TOPIC_AUDIT, TOPIC_IN, TOPIC_REFUNDS
from scripts.refunds.verify import Verdict, verify

ALL_FLIGHTS = 336_776
BATCHES = 9
QUICK_BATCHES = 5


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def create_topics(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        for topic in (TOPIC_IN, TOPIC_REFUNDS, TOPIC_AUDIT, *spark_part.TOPICS):
            admin.create_topic(topic, partitions=PARTITIONS)


def load_departures(console: Console, broker: RunningBroker, limit: int | None) -> int:
    with progress_bar(console) as progress:
        task = progress.add_task("loading departures", total=limit or ALL_FLIGHTS)
        return load(broker.address, limit, lambda count: progress.update(task, completed=count))


def run_application(
    console: Console, broker: RunningBroker, *, seed: int, quick: bool, log: Path
) -> Counter[str]:
    with Consumer(broker.address) as consumer:
        partitions = [TopicPartition(TOPIC_IN, p) for p in range(PARTITIONS)]
        ends = {p.partition: end for p, end in consumer.end_offsets(partitions).items()}
    with progress_bar(console) as progress:
        task = progress.add_task("refunding, under fire", total=sum(ends.values()))
        return Supervisor(
            broker=broker,
            ends=ends,
            slice_records=250 if quick else 500,
            log=log,
            say=lambda text: progress.console.print(f"  [dim]{text}[/]"),
            progress=lambda done: progress.update(task, completed=done),
            strikes=schedule(seed, rounds=1 if quick else 2),
        ).run()


def run_spark(
    console: Console,
    broker: RunningBroker,
    *,
    seed: int,
    quick: bool,
    flights: int,
    place: Path,
) -> Counter[str]:
    console.print("the same as a Spark query, under fire")
    return spark_part.run(
        broker,
        seed=seed,
        flights=flights,
        per_batch=flights // (QUICK_BATCHES if quick else BATCHES) + 1,
        place=place,
        say=lambda text: console.print(f"  [dim]{text}[/]"),
    )


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


@click.command()
@click.option("--quick", is_flag=True, help=f"The first {QUICK_FLIGHTS:,} flights, fewer kills.")
@click.option("--seed", default=2013, show_default=True, help="Of the kill schedule.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep data and logs in this folder.")
def main(quick: bool, seed: int, keep: Path | None) -> None:
    """Run the refunds pipeline exactly once over real flights, while its processes are killed."""
    console = Console()
    limit = QUICK_FLIGHTS if quick else None
    started = time.monotonic()
    with ExitStack() as stack:
        place = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-")))
        place.mkdir(parents=True, exist_ok=True)
        broker = stack.enter_context(run_broker(data_dir=place / "data"))
        console.print(f"broker on {broker.address}, seed {seed}, logs in {place}")
        create_topics(broker.address)
        flights = load_departures(console, broker, limit)

        began = time.monotonic()
        counts = run_application(console, broker, seed=seed, quick=quick, log=place / "workers.log")
        counts += transactions_of(broker.address, "refunds-")
        application_s = time.monotonic() - began

        began = time.monotonic()
        spark_counts = run_spark(
            console, broker, seed=seed, quick=quick, flights=flights, place=place
        )
        spark_counts += transactions_of(broker.address, spark_part.TRANSACTIONAL_IDS)
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
    faults = [*application.faults, *spark.faults]
    if counts["fenced"] == 0:
        faults.append("the zombie was not fenced")
    for fault in faults:
        console.print(f"[red]{fault}[/]")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
