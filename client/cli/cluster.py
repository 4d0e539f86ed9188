"""`odradek cluster`: the brokers of a cluster, what they lead, and which replicas are behind."""

from typing import Any

import click

from odradek.client.blocking import Admin
from odradek.client.cli.common import (
    connection_options,
    echo_json,
    limits,
    reports_errors,
    show_table,
)
from odradek.client.cli.words import counted
from odradek.client.types import ClusterDescription, PartitionDescription, TopicDescription


@click.group()
def cluster() -> None:
    """Look at the brokers of a cluster."""


@cluster.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@connection_options
@reports_errors
def status(as_json: bool, bootstrap: str, timeout_s: float) -> None:
    """Show the brokers, what each leads, and the partitions that are not fully in sync.

    The status is 0 if a broker answers, also if partitions are not in sync.
    """
    with Admin(bootstrap, **limits(timeout_s)) as admin:
        description = admin.describe_cluster()
        names = admin.list_topics(internal=True)
        topics = admin.describe_topics(*names) if names else []
    found = facts(description, topics)
    if as_json:
        echo_json(found)
    else:
        _show(found)


def facts(description: ClusterDescription, topics: list[TopicDescription]) -> dict[str, Any]:
    """Return the status of a cluster, as `--json` prints it."""
    alive = {broker.node_id for broker in description.brokers}
    partitions = [(topic.name, found) for topic in topics for found in topic.partitions]
    return {
        "cluster": description.cluster_id,
        "controller": description.controller_id,
        "brokers": [
            {
                "id": broker.node_id,
                "address": f"{broker.host}:{broker.port}",
                "leads": sum(found.leader == broker.node_id for _, found in partitions),
                "replicas": sum(broker.node_id in found.replicas for _, found in partitions),
            }
            for broker in sorted(description.brokers)
        ],
        "partitions": len(partitions),
        "not_in_sync": [
            {
                "topic": name,
                "partition": found.partition,
                "leader": found.leader,
                "replicas": list(found.replicas),
                "in_sync": list(found.isr),
                "why": reasons(found, alive),
            }
            for name, found in partitions
            if found.leader < 0 or set(found.isr) != set(found.replicas)
        ],
    }


def reasons(partition: PartitionDescription, alive: set[int]) -> list[str]:
    """Return a phrase for each fact that keeps a partition from being fully in sync."""
    found = ["no leader"] if partition.leader < 0 else []
    for node_id in partition.replicas:
        if node_id not in alive:
            found.append(f"broker {node_id} is away")
        elif node_id not in partition.isr:
            found.append(f"broker {node_id} is behind")
    return found


def _show(found: dict[str, Any]) -> None:
    controller = found["controller"]
    leading = f"controller {controller}" if controller >= 0 else "no controller"
    click.echo(f"{found['cluster']}  {leading}")
    show_table(
        ("broker", "address", "leads", "replicas"),
        [[str(value) for value in broker.values()] for broker in found["brokers"]],
        right=("leads", "replicas"),
    )
    behind = found["not_in_sync"]
    if not behind:
        click.echo(f"{counted(found['partitions'], 'partition')}, all in sync")
        return
    click.echo(f"{counted(found['partitions'], 'partition')}, {len(behind):,} not fully in sync:")
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
            for partition in behind
        ],
        right=("partition",),
    )
