"""Logins, refusals, quotas and certificates."""

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside

SOCKETS = "kafka_server_socket_server_metrics_"


async def add_security(families: Families, inside: Inside, turns: Turns) -> None:
    await turns.take()
    for of, server in (("clients", inside.server), ("brokers", inside.peer_server)):
        handshakes = server.handshakes
        name, about = "successful", "Connections whose clients have authenticated."
        count = handshakes.success_count
        families.counter(f"{SOCKETS}{name}_authentication", about, count, of=of)
        name, about = "failed", "Connections that were closed before their clients had."
        count = handshakes.failure_count
        families.counter(f"{SOCKETS}{name}_authentication", about, count, of=of)
    families.counter(
        "odradek_authorizer_denied",
        "Refusals of the authoriser.",
        inside.core.authorizer.denied_count,
    )
    name = "odradek_quota_throttle_seconds"
    about = "The times that connections were told to wait, by the key of their quota."
    families.histogram(name, about)
    for key, waits in sorted(inside.core.quotas.accounts.waits.items()):
        families.histogram(name, about, waits, key=key)
    name = "odradek_tls_certificate_expiry_timestamp_seconds"
    about = "The time at which the certificate of a listener expires."
    families.gauge(name, about)
    for listener, tls in sorted(inside.tls.items()):
        families.gauge(name, about, tls.ends.timestamp(), listener=listener)
