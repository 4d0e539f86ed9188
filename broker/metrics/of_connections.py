"""Connections of clients and of brokers, and the handshakes that have failed."""

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside


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
