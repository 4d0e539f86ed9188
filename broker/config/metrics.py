"""The settings of metrics."""

from odradek.broker.config.quotas import QuotaSettings
from odradek.broker.config.settings import boolean, string
from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings(QuotaSettings):
    """A part of `BrokerConfig`."""

    metrics_listen: str = string(
        "",
        ours=True,
        about=(
            "The address, HOST:PORT, of `/metrics` for a Prometheus, and of `/live`, `/ready` and "
            "`/health` for an orchestrator. Nobody has to log in there, so let only them reach "
            "it. Unset, there is none."
        ),
    )
    metrics_partitions: bool = boolean(
        False, ours=True, about="Have series of each partition in `/metrics`, not of each topic."
    )
