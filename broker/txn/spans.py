"""A span of OpenTelemetry for each transaction that this broker coordinates.

A span begins when the first partition is added, and ends with Complete*: all partitions have their
markers then. It is kept by the entry of its transactional id. So it ends nowhere if another broker
takes over: that one begins a span of its own, with `odradek.resumed`, at the same time of start.

Nothing of the protocol carries the context of a client's span to the broker. The spans of both
have the same `odradek.transactional_id`, `odradek.producer_id` and `odradek.producer_epoch`.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.txn import explain
from odradek.broker.txn.counts import ABORT, COMMIT
from odradek.broker.txn.tenure import UNREAD, Entry
from odradek.broker.txn.transaction import State, TransactionMetadata
from odradek.broker.values.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

NAME: Final = "kafka transaction"
NAMED_MAX: Final = 100
"""The most partitions that an attribute names."""
MILLISECOND_NS: Final = 1_000_000
"""The nanoseconds of a millisecond."""


class TransactionSpans:
    """Spans of the tracer that it is made with."""

    def __init__(self, tracer: "Tracer", node_id: int) -> None:
        from opentelemetry.trace import StatusCode

        self._tracer = tracer
        self._node_id = node_id
        self._error = StatusCode.ERROR

    def note_change(self, entry: Entry, before: TransactionMetadata) -> None:
        """Begin, continue or end the span of a transaction that was `before` until now."""
        after = entry.transaction
        if entry.span is None:
            # An abort of nothing, which only spends an epoch, is no transaction.
            is_found = before is UNREAD and after.state.is_prepared and after.partitions
            if not (after.state is State.ONGOING or is_found):
                return
            entry.span = self._begin(entry, before)
        span, at = entry.span, after.updated_ms * MILLISECOND_NS
        known = before.partitions if before.state is State.ONGOING else frozenset()
        if after.state is State.ONGOING:
            if added := after.partitions - known:
                span.add_event("partitions added", {"odradek.partitions": _named(added)}, at)
            if after.bump is not before.bump and before.state is State.ONGOING:
                span.add_event("producer fenced", _cause_of(after, before), at)
            return
        if after.state.is_prepared:
            self._decide(span, entry, before)
        elif after.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
            if (debt := entry.debt) is not None:
                late = {str(partition): why for partition, why in sorted(debt.trouble.items())}
                span.set_attribute("odradek.markers_late", [*late][:NAMED_MAX])
                span.set_attribute("odradek.markers_given_up", _named(debt.owed))
                for where, why in [*late.items()][:NAMED_MAX]:
                    fields = {"odradek.partition": where, "odradek.why": why}
                    span.add_event("marker late", fields, at)
            span.add_event("markers written", None, at)
            span.end(at)
            entry.span = None

    def _begin(self, entry: Entry, before: TransactionMetadata) -> "Span":
        after = entry.transaction
        attributes: dict[str, Any] = {
            "messaging.system": "kafka",
            "odradek.transactional_id": entry.transactional_id,
            "odradek.producer_id": after.producer_id,
            "odradek.producer_epoch": after.producer_epoch,
            "odradek.node_id": self._node_id,
            "odradek.resumed": before is UNREAD,
        }
        if after.client is not None:
            attributes["messaging.client.id"] = after.client.client_id
            attributes["client.address"] = after.client.host
        start = after.started_ms * MILLISECOND_NS
        return self._tracer.start_span(NAME, attributes=attributes, start_time=start)

    def _decide(self, span: "Span", entry: Entry, before: TransactionMetadata) -> None:
        after = entry.transaction
        end = COMMIT if after.state is State.PREPARE_COMMIT else ABORT
        span.set_attribute("odradek.end", end)
        span.set_attribute("odradek.partitions", _named(after.partitions))
        span.set_attribute("odradek.partition_count", len(after.partitions))
        cause = _cause_of(after, before)
        span.set_attributes(cause)
        span.add_event("decided", {"odradek.end": end, **cause}, after.updated_ms * MILLISECOND_NS)
        if after.bump is not before.bump and before is not UNREAD:
            name, now_ms = entry.transactional_id, after.updated_ms
            span.set_status(self._error, explain.what_happened(name, before, after, now_ms))


def _cause_of(after: TransactionMetadata, before: TransactionMetadata) -> dict[str, str]:
    """Return the cause of a change as an attribute: a request of the producer, or a fence."""
    if before is UNREAD:
        return {}
    bump = after.bump
    if bump is None or bump is before.bump:
        return {"odradek.cause": "request"}
    return {"odradek.cause": str(bump.cause)}


def _named(partitions: Collection[TopicIdPartition]) -> list[str]:
    return [str(partition) for partition in sorted(partitions)[:NAMED_MAX]]
