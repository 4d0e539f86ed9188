"""`odradek cluster move`, `drain` and `rebalance`: replicas go to other brokers.

Their partitions are used meanwhile. All show the plan first. With --wait they return when the moves
are complete.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar

import click

from odradek.client.blocking import Admin, PartitionMove, Refused, TimedOut, TopicPartition
from odradek.client.cli.common import (
    INT16_MAX,
    PartitionName,
    Seconds,
    confirm,
    connection_options,
    echo_json,
    json_option,
    limits,
    no_broker,
    once_there,
    reports_errors,
    show_table,
)
from odradek.client.cli.placement import Plan, balanced, drained
from odradek.client.cli.words import counted
from odradek.protocol.errors import ErrorCode
from odradek.protocol.text import printable

P = ParamSpec("P")
R = TypeVar("R")

LOOK_SECONDS: Final = 0.2
"""The pause between two looks at moves that are under way."""
WAIT_SECONDS: Final = 3_600.0
SHOWN_SECONDS: Final = 10.0
"""How long after a move a broker may still show the replicas that were before."""


class Nodes(click.ParamType):  # type: ignore[type-arg]  # generic only in the stubs
    """The ids of brokers on the command line: 1,2,3."""

    name = "brokers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        words = str(value).split(",")
        if not all(word.isascii() and word.isdigit() for word in words):
            self.fail(f"{value!r} is not a list of broker ids, as in 1,2,3.", param, ctx)
        return tuple(map(int, words))


def wait_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options `--wait` and `--wait-seconds`."""
    wait = click.option("--wait", is_flag=True, help="Return when the moves are complete.")
    seconds = click.option(
        "--wait-seconds",
        type=Seconds(min=0.001),
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help=f"How long --wait waits.  [default: {WAIT_SECONDS:.0f}]",
    )
    return wait(seconds(command))


def plan_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options `--dry-run` and `--yes` of a command that shows its plan first."""
    dry_run = click.option("--dry-run", is_flag=True, help="Show the plan, and move nothing.")
    yes = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
    return dry_run(yes(command))


@click.command("move")
@click.argument("places", metavar="TOPIC-PARTITION...", nargs=-1, type=PartitionName())
@click.option(
    "--to", "target", type=Nodes(), metavar="ID,...", help="The brokers that are to have replicas."
)
@click.option("--cancel", is_flag=True, help="Cancel the moves of these partitions.")
@wait_options
@json_option("Print a JSON object for each move: topic, partition, replicas, adding, removing.")
@connection_options
@reports_errors
def move(
    places: tuple[TopicPartition, ...],
    target: tuple[int, ...] | None,
    cancel: bool,
    wait: bool,
    wait_seconds: float,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Move partitions to other brokers, or show the moves that are under way.

    The first broker of --to is the preferred leader. The partitions stay in use: new replicas copy
    first, and the old ones go when the new ones are in sync.
    """
    if cancel and target is not None:
        raise click.UsageError("--to and --cancel exclude each other.")
    if (cancel or target is not None or wait) and not places:
        raise click.UsageError("Name the partitions.")
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        before = _replicas(admin, places)
        if cancel or target is not None:
            admin.move_partitions(dict.fromkeys(places, target))
        if wait:
            _wait(admin, places, wait_seconds)
        moves = admin.list_moves(places or None)
        if target is not None and not moves:
            _check_arrived(admin, places, target)
        if target is None or moves or as_json:
            _show(moves, as_json)
            return
        for place in places:
            when = "already" if before[place] == target else "now"
            click.echo(f"{printable(str(place))} is on {_brokers(target)} {when}.")


@click.command("drain")
@click.argument("node_id", metavar="ID", type=click.IntRange(min=0))
@plan_options
@wait_options
@json_option("Print a JSON object for each partition that moves: topic, partition, replicas.")
@connection_options
@reports_errors
def drain(
    node_id: int,
    dry_run: bool,
    yes: bool,
    wait: bool,
    wait_seconds: float,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Move every replica of a broker to others, so that it can be taken away.

    Each goes to the broker that has the fewest replicas and none of that partition, in another rack
    than the others (`broker.rack`) as far as there is one.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        alive = racks_of(admin)
        topics = once_there(lambda: admin.describe_topics(*admin.list_topics(internal=True)))
        moves = admin.list_moves()
        plan = drained(topics, alive, node_id, moves)
        going = [place for place, found in moves.items() if node_id in found.removing]
        if not plan and not going:
            if node_id not in alive:
                raise no_broker(node_id, sorted(alive))
            click.echo(f"Broker {node_id} has no replicas.", err=as_json)
            return
        _show_plan(plan, as_json)
        if going:
            click.echo(
                f"{counted(len(going), 'move')} under way from broker {node_id}: it still has "
                "these replicas.",
                err=as_json,
            )
        if dry_run:
            return
        if plan and not yes and sys.stdin.isatty():
            confirm(f"Move {counted(len(plan), 'partition')}?")
        if plan:
            admin.move_partitions(plan)
        if wait:
            _wait(admin, [*plan, *going], wait_seconds)
            _check_drained(admin, node_id)
            click.echo(f"Broker {node_id} has no replicas any more.", err=as_json)


@click.command("rebalance")
@click.option("--topic", "-t", "names", multiple=True, help="Look only at this topic. Repeatable.")
@click.option(
    "--replication-factor",
    "-r",
    type=click.IntRange(1, INT16_MAX),
    help="Give each partition so many replicas.  [default: as many as it has]",
)
@plan_options
@wait_options
@json_option("Print a JSON object for each partition that moves: topic, partition, replicas.")
@connection_options
@reports_errors
def rebalance(
    names: tuple[str, ...],
    replication_factor: int | None,
    dry_run: bool,
    yes: bool,
    wait: bool,
    wait_seconds: float,
    as_json: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Spread replicas, and the first ones, which lead, evenly over the brokers and their racks.

    No two replicas of a partition are in one rack (`broker.rack`), as far as there are enough
    racks. A cluster that is in balance stays as it is. New brokers get their part, and with
    --replication-factor partitions get more replicas, or fewer.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        wanted = names or tuple(admin.list_topics(internal=True))
        topics = once_there(lambda: admin.describe_topics(*wanted))
        plan = balanced(
            topics, racks_of(admin), admin.list_moves(), replication_factor=replication_factor
        )
        _show_plan(plan, as_json)
        if not plan:
            click.echo("All is in balance: nothing is to move.", err=as_json)
            return
        if dry_run:
            return
        if not yes and sys.stdin.isatty():
            confirm(f"Move {counted(len(plan), 'partition')}?")
        admin.move_partitions(plan)
        if wait:
            _wait(admin, plan, wait_seconds)
        click.echo(
            f"{counted(len(plan), 'partition')} moved."
            if wait
            else f"{counted(len(plan), 'move')} under way: 'odradek cluster move' shows them.",
            err=as_json,
        )


def racks_of(admin: Admin) -> dict[int, str | None]:
    """Return the rack of each broker that is there."""
    return {broker.node_id: broker.rack for broker in admin.describe_cluster().brokers}


def _show_plan(plan: Plan, as_json: bool) -> None:
    if as_json:
        for place, replicas in plan.items():
            where = {"topic": place.topic, "partition": place.partition}
            echo_json({**where, "replicas": list(replicas)})
    elif plan:
        show_table(
            ("topic", "partition", "replicas"),
            [
                (place.topic, str(place.partition), ",".join(map(str, replicas)))
                for place, replicas in plan.items()
            ],
            right=("partition",),
        )


def _wait(admin: Admin, places: Iterable[TopicPartition], seconds: float) -> None:
    """Wait until no move of these partitions is under way. Raises `TimedOut`."""
    wanted = list(places)
    deadline = time.monotonic() + seconds
    while moves := admin.list_moves(wanted):
        if time.monotonic() >= deadline:
            raise TimedOut(
                f"{counted(len(moves), 'move')} under way after {seconds:.0f} s; it goes on, and "
                "'odradek cluster move' shows it"
            )
        time.sleep(LOOK_SECONDS)


def _check_arrived(admin: Admin, places: Sequence[TopicPartition], target: tuple[int, ...]) -> None:
    """Raise `Refused` if a partition is elsewhere: its move may have been cancelled."""

    def elsewhere() -> Plan:
        there = _replicas(admin, places)
        return {place: replicas for place, replicas in there.items() if replicas != target}

    for place, replicas in _what_stays(elsewhere).items():
        raise Refused(
            f"{place} is on {_brokers(replicas)}: its move was cancelled, or another took its place"
        )


def _check_drained(admin: Admin, node_id: int) -> None:
    """Raise `Refused` if a broker has a replica: a move may have been cancelled."""

    def left() -> Plan:
        return {
            TopicPartition(topic.name, found.partition): found.replicas
            for topic in admin.describe_topics(*admin.list_topics(internal=True))
            for found in topic.partitions
            if node_id in found.replicas
        }

    for place in _what_stays(lambda: once_there(left)):  # topics may come and go
        raise Refused(
            f"broker {node_id} has a replica of {place}: a move was cancelled, or a topic was "
            "created; drain it again"
        )


def _what_stays(look: Callable[[], Plan]) -> Plan:
    """Return what `look` finds: nothing, or what it still finds after a while."""
    deadline = time.monotonic() + SHOWN_SECONDS
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return found


def _brokers(replicas: Sequence[int]) -> str:
    return f"{'broker' if len(replicas) == 1 else 'brokers'} {', '.join(map(str, replicas))}"


def _replicas(admin: Admin, places: Sequence[TopicPartition]) -> Plan:
    """Return the replicas of partitions. Raises `Refused` for one that does not exist."""
    names = dict.fromkeys(place.topic for place in places)

    def look() -> Plan:
        there = {
            TopicPartition(topic.name, found.partition): found.replicas
            for topic in (admin.describe_topics(*names) if names else ())
            for found in topic.partitions
        }
        for place in places:
            if place not in there:
                raise Refused(
                    f"there is no partition {place}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
        return {place: there[place] for place in places}

    return once_there(look)


def _show(moves: Mapping[TopicPartition, PartitionMove], as_json: bool) -> None:
    if as_json:
        for place, found in moves.items():
            echo_json(
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "replicas": list(found.replicas),
                    "adding": list(found.adding),
                    "removing": list(found.removing),
                }
            )
    elif moves:
        show_table(
            ("topic", "partition", "replicas", "adding", "removing"),
            [
                (place.topic, str(place.partition), *(",".join(map(str, each)) for each in found))
                for place, found in moves.items()
            ],
            right=("partition",),
        )
    else:
        click.echo("No move is under way.")
