"""The settings of what a broker writes about itself, beside its metrics."""

from odradek.broker.config.metrics import MetricsSettings
from odradek.broker.config.settings import string
from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosticSettings(MetricsSettings):
    """A part of `BrokerConfig`."""

    log_format: str = string(
        "text",
        ours=True,
        choices=("text", "json"),
        about=(
            "The form of the broker's own log, on standard error: `text` is for people, `json` is "
            "one object a line, for a collector."
        ),
    )
    otel_traces_exporter: str = string(
        "",
        ours=True,
        choices=("", "otlp", "console"),
        may_be_empty=True,
        about=(
            "Where OpenTelemetry sends a span of each transaction: `otlp` to a collector, which "
            "`OTEL_EXPORTER_OTLP_ENDPOINT` names in the environment, `console` to standard output. "
            "Unset, there are none. It needs the extra otel."
        ),
    )
