"""OpenTelemetry in a broker: an exporter, and a thread that sends what it gets.

The setting `otel.traces.exporter` switches it on. OpenTelemetry's own variables of the environment
have the rest: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, `OTEL_SERVICE_NAME`, ...
"""

import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import trio

from odradek import __version__
from odradek.extras import imports_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

SETTING: Final = "otel.traces.exporter"
OTLP: Final = "otlp"
CONSOLE: Final = "console"
LAST_SPANS_SECONDS: Final = 5.0
"""The time in which a broker that stops sends its last spans."""


@contextlib.asynccontextmanager
async def open_tracer(exporter: str, node_id: int) -> AsyncIterator["Tracer"]:
    """Open a tracer whose spans are sent in the background.

    Raises `ExtraMissing`, and ValueError for a variable of the environment that is wrong.
    """
    with imports_of("otel", SETTING):
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        made = _exporter(exporter)
    attributes = {"service.version": __version__, "service.instance.id": str(node_id)}
    if "OTEL_SERVICE_NAME" not in os.environ:
        attributes[SERVICE_NAME] = "odradek"
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(made))
    try:
        yield provider.get_tracer("odradek.broker", __version__)
    finally:
        with trio.move_on_after(LAST_SPANS_SECONDS, shield=True):
            await trio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


def _exporter(name: str) -> "SpanExporter":
    if name == CONSOLE:
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(formatter=lambda span: f"{span.to_json(indent=None)}\n")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
