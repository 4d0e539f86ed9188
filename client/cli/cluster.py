"""`odradek cluster`: the brokers of a cluster, what they lead, and which replicas are behind.

`elect` is the last resort when the in-sync replicas of a partition are gone for good. It shows what
an election loses before it asks for one.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from odradek.client.blocking import Admin, OdradekError, Refused, TopicPartition
from odradek.client.cli.common import (
    PartitionName,
    confirm,
    connection_options,
    echo_json,
    json_option,
    limits,
    report,
    reports_errors,
    show_table,
)
from odradek.client.cli.moves import drain, move, rebalance
from odradek.client.cli.words import counted
from odradek.client.types import (
    ClusterDescription,
    ConfigEntry,
    OffsetAndTimestamp,
    PartitionDescription,
    TopicDescription,
)
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

LOST_OF_STATE: Final = {
    TRANSACTION_STATE_TOPIC: "This partition keeps decisions of transactions. If one is lost, a "
    "transaction that was acknowledged as committed is aborted in each partition that has no "
    "marker of it yet: it is torn.",
    CONSUMER_OFFSETS_TOPIC: "This partition keeps the offsets of consumer groups. If one is lost, "
    "its group reads records again, and an application that copies records in transactions "
    "writes them twice.",
}
"""What an unclean election of a state topic loses, beyond records."""
OTHERWISE_LOST: Final = (
    "A transaction whose marker is lost stays open in this partition: see 'odradek txn hanging' "
    "afterwards."
)

MIN_ISR: Final = "min.insync.replicas"
LogEnds = dict[int, OffsetAndTimestamp | OdradekError]


@click.group()
def cluster() -> None:
    """Look at the brokers of a cluster, elect leaders, move partitions, forget brokers."""


cluster.add_command(move)
cluster.add_command(drain)
cluster.add_command(rebalance)


@cluster.command
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@connection_options
@reports_errors
def describe(as_json: bool, bootstrap: str, timeout_s: float) -> None:
    """Show the brokers, what each leads, and the partitions that are not fully in sync.

    Partitions are counted that are offline, under-replicated, or below min.insync.replicas, which
    refuse records with acks=all.

    A broker that is away is shown until `odradek cluster forget` takes it out.

    The exit status is 0 if a broker answers, also if partitions are not in sync.

    \b
    Keys of --json: cluster, controller, brokers (id, address, rack, away, leads,
    replicas), partitions, offline, under_replicated (numbers of them),
    below_min_isr and not_in_sync (topic, partition, leader, replicas, in_sync, why).
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        description = admin.describe_cluster(include_fenced=True)
        names = admin.list_topics(internal=True)
        topics = admin.describe_topics(*names) if names else []
        configs = admin.describe_topic_configs(*names) if names else {}
    found = facts(description, topics, least_in_sync(configs))
    if as_json:
        echo_json(found)
    else:
        _show(found)


def least_in_sync(configs: Mapping[str, Mapping[str, ConfigEntry]]) -> dict[str, int]:
    """Return `min.insync.replicas` by topic."""
    found = {name: entries.get(MIN_ISR) for name, entries in configs.items()}
    return {name: int(entry.value) for name, entry in found.items() if entry and entry.value}


def facts(
    description: ClusterDescription,
    topics: list[TopicDescription],
    min_isr: Mapping[str, int],
) -> dict[str, Any]:
    """Return the description of a cluster, as `--json` prints it."""
    alive = {broker.node_id for broker in description.brokers if not broker.is_fenced}
    partitions = [(topic.name, found) for topic in topics for found in topic.partitions]

    def described(name: str, found: PartitionDescription) -> dict[str, Any]:
        return {
            "topic": name,
            "partition": found.partition,
            "leader": found.leader,
            "replicas": list(found.replicas),
            "in_sync": list(found.isr),
            "why": reasons(found, alive, min_isr.get(name)),
        }

    return {
        "cluster": description.cluster_id,
        "controller": description.controller_id,
        "brokers": [
            {
                "id": broker.node_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "away": broker.is_fenced,
                "leads": sum(found.leader == broker.node_id for _, found in partitions),
                "replicas": sum(broker.node_id in found.replicas for _, found in partitions),
            }
            for broker in sorted(description.brokers)
        ],
        "partitions": len(partitions),
        "offline": sum(found.leader < 0 for _, found in partitions),
        "under_replicated": sum(len(found.isr) < len(found.replicas) for _, found in partitions),
        "below_min_isr": [
            described(name, found)
            for name, found in partitions
            if _is_below(found, min_isr.get(name))
        ],
        "not_in_sync": [
            described(name, found)
            for name, found in partitions
            if found.leader < 0 or set(found.isr) != set(found.replicas)
        ],
    }


def _is_below(partition: PartitionDescription, min_isr: int | None) -> bool:
    return min_isr is not None and len(partition.isr) < min_isr


def reasons(partition: PartitionDescription, alive: set[int], min_isr: int | None) -> list[str]:
    """Return a phrase for each fact that keeps a partition from being fully in sync."""
    found = ["no leader"] if partition.leader < 0 else []
    for node_id in partition.replicas:
        if node_id not in alive:
            found.append(f"broker {node_id} is away")
        elif node_id not in partition.isr:
            found.append(f"broker {node_id} is behind")
    if _is_below(partition, min_isr):
        found.append(f"fewer than {MIN_ISR} = {min_isr}")
    return found


def _show(found: dict[str, Any]) -> None:
    controller = found["controller"]
    leading = f"controller {controller}" if controller >= 0 else "no controller"
    click.echo(f"{found['cluster']}  {leading}")
    show_table(
        ("broker", "address", "rack", "leads", "replicas", ""),
        [
            (
                str(broker["id"]),
                broker["address"],
                broker["rack"] or "",
                str(broker["leads"]),
                str(broker["replicas"]),
                "away" if broker["away"] else "",
            )
            for broker in found["brokers"]
        ],
        right=("leads", "replicas"),
    )
    behind, below = found["not_in_sync"], found["below_min_isr"]
    count = counted(found["partitions"], "partition")
    if not behind and not below:
        click.echo(f"{count}, all in sync")
        return
    click.echo(
        f"{count}, {len(behind):,} not fully in sync ({found['offline']:,} offline, "
        f"{found['under_replicated']:,} under-replicated), {len(below):,} below {MIN_ISR}:"
    )
    shown = [*behind, *(each for each in below if each not in behind)]
    show_table(
        ("topic", "partition", "leader", "in sync", "why"),
        [
            (
                partition["topic"],
                str(partition["partition"]),
                str(partition["leader"]) if partition["leader"] >= 0 else "none",
                ",".join(map(str, partition["in_sync"])),
                "; ".join(partition["why"]),
            )
            for partition in shown
        ],
        right=("partition",),
    )


@cluster.command("forget")
@click.argument("node_id", metavar="ID", type=click.IntRange(min=0))
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option("Print one JSON object: broker, forgotten.")
@connection_options
@reports_errors
def forget(node_id: int, yes: bool, as_json: bool, bootstrap: str, timeout_s: float) -> None:
    """Take a broker out of the cluster that is away and will not come back.

    A broker that is alive, or has replicas, is refused: `odradek cluster drain` moves them. Its
    id may be used again. With Apache Kafka, look first: it forgets brokers with replicas, too.
    """
    if not yes and sys.stdin.isatty():
        confirm(f"Forget broker {node_id}?")
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        admin.unregister_broker(node_id)
    report(as_json, {"broker": node_id, "forgotten": True}, f"Broker {node_id} is forgotten.")


@cluster.command("elect")
@click.argument("place", metavar="TOPIC-PARTITION", type=PartitionName())
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect a replica that may lack acknowledged records. They are lost.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option("Print one JSON object: topic, partition, leader (null for none), leader_epoch.")
@connection_options
@reports_errors
def elect(
    place: TopicPartition, unclean: bool, yes: bool, as_json: bool, bootstrap: str, timeout_s: float
) -> None:
    """Elect the leader of a partition.

    Without --unclean that is its first replica, if it is in sync. With --unclean a partition that
    has no leader gets one: the replica whose log goes furthest. What it lacks is shown first.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        candidate = _least_loss(admin, place, yes, as_json) if unclean else None
        admin.elect_leader(place, unclean=unclean, candidate=candidate)
        found = _partition(admin, place)
    leader = found.leader if found.leader >= 0 else None
    who = "no broker yet" if leader is None else f"broker {leader}"
    facts = {"topic": place.topic, "partition": place.partition, "leader": leader}
    report(
        as_json,
        {**facts, "leader_epoch": found.leader_epoch},
        f"{place} is led by {who}, in leader epoch {found.leader_epoch}",
    )


def _partition(admin: Admin, place: TopicPartition) -> PartitionDescription:
    (topic,) = admin.describe_topics(place.topic)
    for found in topic.partitions:
        if found.partition == place.partition:
            return found
    raise Refused(f"there is no partition {place}")


def _least_loss(admin: Admin, place: TopicPartition, yes: bool, as_json: bool) -> int:
    """Return the replica that loses least, once the user has seen what it loses.

    With --json that is shown on standard error.
    """
    found = _partition(admin, place)
    if found.leader >= 0:
        raise Refused(f"broker {found.leader} leads {place}: there is nothing to elect")
    ends = admin.log_ends(place)
    candidate = furthest(ends)
    show_table(
        ("broker", "log end", "last epoch", ""),
        [_replica(node_id, found, ends, candidate) for node_id in found.replicas],
        right=("log end", "last epoch"),
        err=as_json,
    )
    if candidate is None:
        raise Refused(f"no replica of {place} can be read: start one of its brokers")
    end = ends[candidate]
    assert isinstance(end, OffsetAndTimestamp), end
    for line in losses(place.topic, found, candidate, end):
        click.echo(line, err=as_json)
    if not yes:
        confirm(f"Elect broker {candidate}, and lose what only the others have?")
    return candidate


def furthest(ends: LogEnds) -> int | None:
    """Return the replica whose last record has the highest leader epoch, then offset.

    A longer log with an older epoch is behind: it ends in what an earlier leader did not replicate.
    """
    readable = {node: end for node, end in ends.items() if isinstance(end, OffsetAndTimestamp)}
    return max(
        readable,
        key=lambda node: (readable[node].leader_epoch, readable[node].offset),
        default=None,
    )


def losses(
    topic: str, partition: PartitionDescription, candidate: int, end: OffsetAndTimestamp
) -> list[str]:
    """Return the sentences that say what an unclean election loses."""
    lines = [
        f"In sync were the brokers {_listed(partition.isr)}."
        if partition.isr
        else "No replica is in sync: all of them lost power at the same time."
    ]
    lines.append(
        f"If broker {candidate} is elected, the partition ends at offset {end.offset}. All records "
        "from there on are lost, acknowledged ones too. Other replicas are cut there when they "
        "come back."
    )
    # Each election is an epoch, and so is the loss of the last leader.
    if end.leader_epoch < partition.leader_epoch - 1:
        lines.append(
            f"Its last record has leader epoch {end.leader_epoch}, and there were leaders up to "
            f"epoch {partition.leader_epoch - 1}: what they wrote may be lost altogether."
        )
    lines.append(LOST_OF_STATE.get(topic, OTHERWISE_LOST))
    return lines


def _replica(
    node_id: int, partition: PartitionDescription, ends: LogEnds, candidate: int | None
) -> tuple[str, str, str, str]:
    notes = ["in sync"] if node_id in partition.isr else []
    notes += ["would lead"] if node_id == candidate else []
    end = ends.get(node_id)
    if isinstance(end, OffsetAndTimestamp):
        return str(node_id), str(end.offset), str(end.leader_epoch), ", ".join(notes)
    notes.append("away" if end is None else str(end))
    return str(node_id), "unknown", "unknown", ", ".join(notes)


def _listed(nodes: tuple[int, ...]) -> str:
    return ", ".join(map(str, nodes))
