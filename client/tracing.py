"""The parts of OpenTelemetry that a client uses.

The program gives it a tracer, and has OpenTelemetry installed. The protocols have only what is
called, so a program may give something else that has it.
"""

from collections.abc import Mapping
from typing import Any, Protocol


class TraceSpan(Protocol):
    """A span, as `opentelemetry.trace.Span` is one."""

    def set_attribute(self, key: str, value: Any) -> None:
        """Set an attribute."""

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """Add an event that happens now."""

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Set the outcome."""

    def end(self) -> None:
        """End the span now."""


class Tracer(Protocol):
    """A maker of spans, as `opentelemetry.trace.get_tracer` returns it."""

    def start_span(self, name: str, *, attributes: Mapping[str, Any]) -> TraceSpan:
        """Start a span below the current one."""


def set_error(span: TraceSpan, description: str) -> None:
    """Set the status of a span to an error."""
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR, description)


def current_context(tracer: Tracer | None) -> Any:
    """Return the context of the calling task or thread; None without a tracer."""
    if tracer is None:
        return None
    from opentelemetry import context

    return context.get_current()


def enter_context(context: Any) -> None:
    """Make a context that of the calling task, which a thread or another task has given."""
    if context is not None:
        from opentelemetry.context import attach

        attach(context)
