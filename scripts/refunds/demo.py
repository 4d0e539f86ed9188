"""The demo, end to end: refunds for cancelled flights, exactly once, while processes are killed."""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from odradek.client.blocking import Admin
from odradek.client.errors import Refused
from odradek.protocol.errors import ErrorCode
from scripts.refunds import spark_part
from scripts.refunds.access import (
    ADMINISTRATOR,
    AUDITOR,
    OPEN,
    Access,
    give_rights,
    run_secured,
)
from scripts.refunds.besieged import (
    Besieged,
    BrokersOutside,
    OneBroker,
    Say,
    SparedBrokers,
    restarted,
)
from scripts.refunds.chaos import PARTITIONS, Strike, schedule
from scripts.refunds.doomed import BROKER_PID
from scripts.refunds.flights import QUICK_FLIGHTS
from scripts.refunds.history import transactions_of
from scripts.refunds.load import load
from scripts.refunds.page import has_keyboard, run_page, wait_key
from scripts.refunds.processes import (
    GROUP_SETTINGS,
    SHORTEST_SESSION_MS,
    RunningBroker,
    run_broker,
)
from scripts.refunds.processor import (
    TOPIC_AUDIT,
    TOPIC_IN,
    TOPIC_REFUNDS,
    TRANSACTIONAL_IDS,
)
from scripts.refunds.supervisor import ZOMBIES_REFUSED, Supervisor
from scripts.refunds.verify import Verdict, judge_application, verify

ALL_FLIGHTS = 336_776
BATCHES = 14
QUICK_BATCHES = 5
BROKERS_SECONDS = 60.0
"""How long brokers that are away may keep topics from being made."""
PAUSE_SECONDS = 0.5
ALL_TOPICS = (TOPIC_IN, TOPIC_REFUNDS, TOPIC_AUDIT, *spark_part.TOPICS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the application is run: `limit` flights (None: all), and what strikes it."""

    seed: int
    limit: int | None
    slice_records: int
    session_timeout_ms: int | None
    """The session time-out in the classic group protocol; None: the broker has the protocol's."""
    strikes: list[Strike]
    place: Path
    offsets: str = "transaction"
    """Where the processors store their offsets; anything else breaks exactly-once."""

    @property
    def flights(self) -> int:
        return self.limit or ALL_FLIGHTS

    @property
    def worker_options(self) -> tuple[str, ...]:
        session_ms = self.session_timeout_ms
        return (
            *("--slice", str(self.slice_records), "--offsets", self.offsets),
            *(() if session_ms is None else ("--session", str(session_ms))),
        )


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def create_topics(bootstrap: str, replication_factor: int = 1, access: Access = OPEN) -> None:
    """Create the topics, once there are brokers for all replicas: some may be away for a while."""
    until = time.monotonic() + BROKERS_SECONDS
    with Admin(bootstrap, **access.options(ADMINISTRATOR)) as admin:
        for topic in ALL_TOPICS:
            while not has_created(admin, topic, replication_factor):
                if time.monotonic() > until:
                    raise SystemExit(f"demo: too few brokers for the replicas of {topic}")
                time.sleep(PAUSE_SECONDS)


def has_created(admin: Admin, topic: str, replication_factor: int) -> bool:
    """Create a topic. Return False if there are too few brokers now."""
    try:
        admin.create_topic(topic, partitions=PARTITIONS, replication_factor=replication_factor)
    except Refused as error:
        if error.code == ErrorCode.INVALID_REPLICATION_FACTOR:
            return False
        raise
    return True


def delete_topics(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        there = admin.list_topics()
        admin.delete_topics(*(topic for topic in ALL_TOPICS if topic in there))


def load_departures(console: Console, bootstrap: str, limit: int | None) -> int:
    with progress_bar(console) as progress:
        task = progress.add_task("loading departures", total=limit or ALL_FLIGHTS)
        return load(bootstrap, limit, lambda count: progress.update(task, completed=count))


def run_application(
    console: Console, besieged: Callable[[Say], Besieged], plan: Plan, access: Access = OPEN
) -> tuple[Verdict, Counter[str]]:
    """Run the processors over all flights, under fire, and judge what they have written."""
    with progress_bar(console) as progress:
        task = progress.add_task("refunding, under fire", total=plan.flights)

        def say(text: str) -> None:
            progress.console.print(f"  [dim]{escape(text)}[/]")

        brokers = besieged(say)
        supervisor = Supervisor(
            besieged=brokers,
            flights=plan.flights,
            worker_options=plan.worker_options,
            log=plan.place / "workers.log",
            say=say,
            progress=lambda done: progress.update(task, completed=done),
            strikes=plan.strikes,
            access=access,
        )
        counts = supervisor.run()
    for sentence in supervisor.owners.summary():
        console.print(f"  {sentence}")
    counts += transactions_of(brokers.address, TRANSACTIONAL_IDS, access.options(AUDITOR))
    verdict = judge_application(brokers.address, plan.limit, access.options(AUDITOR))
    if counts[ZOMBIES_REFUSED] == 0:
        verdict = replace(verdict, faults=(*verdict.faults, "the zombie was not refused"))
    return verdict, counts


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
    access: Access = OPEN,
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
        access=access,
    )
    ids, options = spark_part.TRANSACTIONAL_IDS, access.options(AUDITOR)
    return counts + transactions_of(bootstrap, ids, options), torn


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


def run_in_network(console: Console, inside: tuple[str, int, int], plan: Plan) -> None:
    """Run the application against a cluster whose brokers a process outside kills."""
    bootstrap, orders, answers = inside
    console.print(f"brokers {bootstrap}, seed {plan.seed}, logs in {plan.place}")
    with open(orders, "w") as orders_out, open(answers) as answers_in:
        run_on_brokers(
            console,
            lambda say: BrokersOutside(bootstrap, orders_out, answers_in, say),
            bootstrap,
            plan,
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


def run_on_given(console: Console, bootstrap: str, plan: Plan) -> None:
    """Run the application on brokers that are there. It kills its own processes only."""
    console.print(f"brokers {bootstrap}, seed {plan.seed}; topics of an earlier run are deleted")
    delete_topics(bootstrap)
    strikes = [strike for strike in plan.strikes if strike.is_of_processors]
    spared = replace(plan, strikes=strikes)
    run_on_brokers(console, lambda _: SparedBrokers(bootstrap), bootstrap, spared)


def run_on_brokers(
    console: Console, besieged: Callable[[Say], Besieged], bootstrap: str, plan: Plan
) -> None:
    """Create the topics, run the application, and exit with its verdict."""
    create_topics(bootstrap, replication_factor=-1)
    began = time.monotonic()
    verdict, counts = run_application(console, besieged, plan)
    seconds = time.monotonic() - began
    console.print(table_of([("application", verdict, counts, seconds)]))
    _exit(console, list(verdict.faults))


def _exit(console: Console, faults: list[str]) -> None:
    for fault in faults:
        console.print(f"[red]{escape(fault)}[/]")
    sys.exit(1 if faults else 0)


@contextmanager
def one_node(place: Path, *, secure: bool) -> Iterator[tuple[RunningBroker, Access]]:
    """Run the broker. A secured one has users who may do no more than they do."""
    if secure:
        with run_secured(place, GROUP_SETTINGS) as (broker, access):
            yield broker, access
    else:
        with run_broker(data_dir=place / "data", config=GROUP_SETTINGS) as broker:
            yield broker, OPEN


def run_on_one_node(
    console: Console, plan: Plan, *, quick: bool, with_spark: bool, secure: bool, with_page: bool
) -> None:
    """Run both parts on a broker that is killed, and exit with their verdict."""
    started = time.monotonic()
    with one_node(plan.place, secure=secure) as (broker, access), ExitStack() as stack:
        how = " with SCRAM over TLS" if secure else ""
        console.print(f"broker on {broker.address}{how}, seed {plan.seed}, logs in {plan.place}")
        create_topics(broker.address, access=access)
        if secure:
            give_rights(broker.address, access)
        if with_page:
            link = stack.enter_context(run_page(plan.place, broker.address, access))
            console.print(f"transactions and groups live at {link}", soft_wrap=True)
        began = time.monotonic()
        verdict, counts = run_application(console, lambda say: OneBroker(broker, say), plan, access)
        columns = [("application", verdict, counts, time.monotonic() - began)]
        faults = list(verdict.faults)
        if with_spark:
            began = time.monotonic()
            spark_counts, torn = run_spark(
                console,
                broker.address,
                lambda folder: restarted(broker, folder / BROKER_PID),
                seed=plan.seed,
                quick=quick,
                flights=plan.flights,
                place=plan.place,
                access=access,
            )
            seconds = time.monotonic() - began
            console.print("verifying with pandas, from the source data")
            options = access.options(AUDITOR)
            verdict = verify(broker.address, *spark_part.TOPICS, plan.limit, options)
            columns.append(("Spark", verdict, spark_counts, seconds))
            faults += [*verdict.faults, *torn]
        console.print(table_of(columns))
        console.print(f"{plan.flights:,} departures, {time.monotonic() - started:.0f} s in all")
        if with_page and has_keyboard():
            console.print(f"{link} stays until a key is pressed", soft_wrap=True)
            wait_key()
    _exit(console, faults)


def run_on_cluster(console: Console, plan: Plan, *, quick: bool, with_spark: bool) -> None:
    """Run both parts on clusters whose brokers are killed by their roles, and exit."""
    from scripts.refunds.on_cluster import run_inside, spark_cluster  # no tests/ in images

    place = plan.place
    options = ["--seed", str(plan.seed), *(["--quick"] if quick else [])]
    status = run_inside(place, options)
    if status != 0 or not with_spark:
        sys.exit(status)
    with spark_cluster(place / "spark") as (bootstrap, restarting):
        run_spark_on_cluster(
            console, bootstrap, restarting, seed=plan.seed, quick=quick, place=place / "spark"
        )


@click.command()
@click.option("--quick", is_flag=True, help=f"The first {QUICK_FLIGHTS:,} flights, fewer kills.")
@click.option("--seed", default=2013, show_default=True, help="Of the kill schedule.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep data and logs in this folder.")
@click.option("--cluster", is_flag=True, help="On three brokers that are killed by their roles.")
@click.option("--bootstrap", help="On these brokers, which are spared; its topics are made anew.")
@click.option("--no-spark", is_flag=True, help="The application only.")
@click.option("--secure", is_flag=True, help="With SCRAM over TLS, and users of few rights.")
@click.option("--no-web", is_flag=True, help="Without the page for the browser.")
@click.option("--inside", type=(str, int, int), hidden=True)
def main(
    quick: bool,
    seed: int,
    keep: Path | None,
    cluster: bool,
    bootstrap: str | None,
    no_spark: bool,
    secure: bool,
    no_web: bool,
    inside: tuple[str, int, int] | None,
) -> None:
    """Run the refunds pipeline exactly once over real flights, while its processes are killed."""
    console = Console()
    if secure and (cluster or bootstrap):
        raise click.UsageError("--secure starts a broker: leave --cluster and --bootstrap out.")
    with ExitStack() as stack:
        place = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-")))
        place.mkdir(parents=True, exist_ok=True)
        plan = Plan(
            seed=seed,
            limit=QUICK_FLIGHTS if quick else None,
            slice_records=250 if quick else 500,
            session_timeout_ms=None if bootstrap is None else SHORTEST_SESSION_MS,
            strikes=schedule(seed, rounds=1 if quick else 2, is_cluster=inside is not None),
            place=place,
        )
        if inside is not None:
            run_in_network(console, inside, plan)
        elif bootstrap is not None:
            run_on_given(console, bootstrap, plan)
        elif cluster:
            run_on_cluster(console, plan, quick=quick, with_spark=not no_spark)
        else:
            run_on_one_node(
                console,
                plan,
                quick=quick,
                with_spark=not no_spark,
                secure=secure,
                with_page=not no_web,
            )


if __name__ == "__main__":
    main()
