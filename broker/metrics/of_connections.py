"""Connections of clients and of brokers, their software, and those that were refused."""

from collections import Counter
from typing import Final

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside

SOFTWARES_MAX: Final = 50
"""The pairs of name and version that have series of their own: clients choose the texts."""
OTHERS: Final = ("other", "other")


async def add_connections(families: Families, inside: Inside, turns: Turns) -> None:
    await turns.take()
    servers = (("clients", inside.server), ("brokers", inside.peer_server))
    for of, server in servers:
        families.gauge(
            "kafka_server_socket_server_metrics_connection_count",
            "Connections that are open.",
            server.connection_count,
            of=of,
        )
        families.gauge(
            "odradek_connections_unauthenticated",
            "Connections whose clients have not said yet who they are.",
            server.unauthenticated_count,
            of=of,
        )
        families.counter(
            "odradek_connections_opened",
            "Connections that were served.",
            server.served_count,
            of=of,
        )
        families.counter(
            "odradek_connections_refused",
            "Connections that were refused, as a limit of their number was reached.",
            server.refused_count,
            of=of,
        )
    name, about = (
        "kafka_server_socket_server_metrics_connections_software",
        "Connections of clients that have said their software.",
    )
    families.gauge(name, about)
    for (software, version), count in _softwares(inside).items():
        labels = {"client_software_name": software, "client_software_version": version}
        families.gauge(name, about, count, **labels)


def _softwares(inside: Inside) -> Counter[tuple[str, str]]:
    """Return the connections of clients by software; the rare ones are others."""
    counts = Counter(inside.server.softwares)
    shown = Counter(dict(counts.most_common(SOFTWARES_MAX)))
    if len(counts) > SOFTWARES_MAX:
        shown[OTHERS] += counts.total() - shown.total()
    return shown
