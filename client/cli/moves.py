"""`odradek cluster move` and `drain`: replicas go to other brokers while their partitions are used.

Both show the plan first. With --wait they return when the moves are complete.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click

from odradek.client.blocking import Admin, PartitionMove, Refused, TimedOut, TopicPartition
from odradek.client.cli.common import (
    PartitionName,
    Seconds,
    confirm,
    connection_options,
    echo_json,
    limits,
    no_broker,
    once_there,
    reports_errors,
    show_table,
)
from odradek.client.cli.words import counted
from odradek.client.types import TopicDescription
from odradek.protocol.errors import ErrorCode
from odradek.protocol.text import printable

LOOK_SECONDS: Final = 0.2
"""The pause between two looks at moves that are under way."""
WAIT_SECONDS: Final = 3_600.0
SHOWN_SECONDS: Final = 10.0
"""How long after a move a broker may still show the replicas that were before."""

Plan = dict[TopicPartition, tuple[int, ...]]


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
            self.fail(f"{value!r} is not a list of broker ids, as in 1,2,3", param, ctx)
        return tuple(map(int, words))


@click.command("move")
@click.argument("places", metavar="TOPIC-PARTITION...", nargs=-1, type=PartitionName())
@click.option(
    "--to", "target", type=Nodes(), metavar="ID,...", help="The brokers that are to have replicas."
)
@click.option("--cancel", is_flag=True, help="Cancel the moves of these partitions.")
@click.option("--wait", is_flag=True, help="Return when the moves are complete.")
@click.option(
    "--wait-seconds",
    type=Seconds(min=0.001),
    default=WAIT_SECONDS,
    metavar="SECONDS",
    help=f"How long --wait waits.  [default: {WAIT_SECONDS:.0f}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each partition.")
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
@click.option("--dry-run", is_flag=True, help="Show the plan, and move nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--wait", is_flag=True, help="Return when the moves are complete.")
@click.option(
    "--wait-seconds",
    type=Seconds(min=0.001),
    default=WAIT_SECONDS,
    metavar="SECONDS",
    help=f"How long --wait waits.  [default: {WAIT_SECONDS:.0f}]",
)
@connection_options
@reports_errors
def drain(
    node_id: int,
    dry_run: bool,
    yes: bool,
    wait: bool,
    wait_seconds: float,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Move every replica of a broker to others, so that it can be taken away.

    Each goes to the broker that has the fewest replicas and none of that partition.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        alive = [broker.node_id for broker in admin.describe_cluster().brokers]
        names = admin.list_topics(internal=True)
        topics = admin.describe_topics(*names) if names else []
        moves = admin.list_moves()
        plan = drained(topics, alive, node_id, moves)
        going = [place for place, found in moves.items() if node_id in found.removing]
        if not plan and not going:
            if node_id not in alive:
                raise no_broker(node_id, sorted(alive))
            click.echo(f"Broker {node_id} has no replicas.")
            return
        if plan:
            show_table(
                ("topic", "partition", "replicas"),
                [
                    (place.topic, str(place.partition), ",".join(map(str, replicas)))
                    for place, replicas in plan.items()
                ],
                right=("partition",),
            )
        if going:
            click.echo(
                f"{counted(len(going), 'move')} under way from broker {node_id}: it still has "
                "these replicas."
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
            click.echo(f"Broker {node_id} has no replicas any more.")


def drained(
    topics: Iterable[TopicDescription],
    alive: Sequence[int],
    node_id: int,
    moves: Mapping[TopicPartition, PartitionMove],
) -> Plan:
    """Return the new replicas of the partitions that a broker has, or is about to get.

    Raises `Refused` if there is no broker left for one of them.
    """
    places: Plan = {}
    for topic in topics:
        for found in topic.partitions:
            place = TopicPartition(topic.name, found.partition)
            going = moves[place].removing if place in moves else ()
            places[place] = tuple(node for node in found.replicas if node not in going)
    counts = {
        node: sum(node in replicas for replicas in places.values())
        for node in sorted(alive)
        if node != node_id
    }
    plan: Plan = {}
    for place, replicas in places.items():
        if node_id not in replicas:
            continue
        free = [node for node in counts if node not in replicas]
        if not free:
            raise Refused(
                f"no broker can take the replica of {place} on broker {node_id}, as each has one "
                f"already ({', '.join(map(str, replicas))}); start another broker"
            )
        comes = min(free, key=lambda node: (counts[node], node))
        counts[comes] += 1
        plan[place] = tuple(comes if node == node_id else node for node in replicas)
    return plan


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
