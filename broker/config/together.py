"""The checks of settings that must fit together."""

import re
from typing import TYPE_CHECKING, Final

from odradek.broker.config.addresses import connections_by_address
from odradek.broker.config.settings import ConfigError, shortened
from odradek.broker.security.principal import parse_principals

if TYPE_CHECKING:
    from odradek.broker.config.broker import BrokerConfig

_ENDPOINT: Final = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_PAIRS: Final = (("etcd.user", "etcd.password"), ("etcd.tls.cert", "etcd.tls.key"))

REPLICATION_FACTORS: Final = (
    "default.replication.factor",
    "transaction.state.log.replication.factor",
    "offsets.topic.replication.factor",
)


def check_together(config: "BrokerConfig") -> None:
    """Raise `ConfigError` if settings contradict each other."""
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError(
            "group.min.session.timeout.ms cannot be more than group.max.session.timeout.ms."
        )
    for what in ("session.timeout", "heartbeat.interval", "assignment.interval"):
        _check_between(config, what)
    if config.group_consumer_heartbeat_interval_ms >= config.group_consumer_session_timeout_ms:
        raise ConfigError(
            "group.consumer.heartbeat.interval.ms must be less than "
            "group.consumer.session.timeout.ms: members would be removed between two heartbeats."
        )
    if config.socket_request_max_bytes > config.queued_max_request_bytes:
        raise ConfigError(
            "socket.request.max.bytes cannot be more than queued.max.request.bytes: "
            "a request of that size would never be read."
        )
    _check_etcd(config)
    connections_by_address(config.max_connections_per_ip_overrides)
    try:
        parse_principals(config.super_users)
    except ValueError as error:
        raise ConfigError(f"super.users has a part that cannot be: {error}.") from None


def _check_between(config: "BrokerConfig", what: str) -> None:
    """Check a setting of the new group protocol against its own bounds. Raises ConfigError."""
    name = f"group.consumer.{what}.ms"
    low, value, high = (
        getattr(config, f"group_consumer_{bound}{what.replace('.', '_')}_ms")
        for bound in ("min_", "", "max_")
    )
    if not low <= value <= high:
        raise ConfigError(
            f"{name} cannot be {value}: group.consumer.min.{what}.ms is {low}, and "
            f"group.consumer.max.{what}.ms {high}."
        )


def check_one_broker(config: "BrokerConfig") -> None:
    """Check the configuration of a broker that is alone. Raises ConfigError."""
    for name in REPLICATION_FACTORS:
        factor = getattr(config, name.replace(".", "_"))
        if factor != 1:
            raise ConfigError(f"{name} cannot be {factor}: there is one broker; the nearest is 1.")


def _check_etcd(config: "BrokerConfig") -> None:
    endpoints = config.etcd_endpoints.split(",") if config.etcd_endpoints else []
    for endpoint in endpoints:
        if not _ENDPOINT.fullmatch(endpoint):
            raise ConfigError(
                "etcd.endpoints is a list of http://HOST:PORT or https://HOST:PORT, not "
                f"{shortened(endpoint)}."
            )
    for pair in _PAIRS:
        for name, other in (pair, pair[::-1]):
            if _text(config, name) and not _text(config, other):
                raise ConfigError(f"{name} is set without {other}: set both, or neither.")
    for name in ("etcd.tls.ca", "etcd.tls.cert"):
        plain = [endpoint for endpoint in endpoints if endpoint.startswith("http://")]
        if _text(config, name) and plain:
            raise ConfigError(f"{name} is set, and etcd.endpoints has {plain[0]}: say https://.")
    if not config.etcd_key_prefix.startswith("/") or config.etcd_key_prefix.endswith("/"):
        raise ConfigError(
            "etcd.key.prefix begins with a slash and does not end with one, not "
            f"{shortened(config.etcd_key_prefix)}."
        )


def _text(config: "BrokerConfig", name: str) -> str:
    text: str = getattr(config, name.replace(".", "_"))
    return text
