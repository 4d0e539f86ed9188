"""A span for each transaction of a producer that has a tracer.

It begins and ends with the transaction, as the producer sees it: the end is when the coordinator
has answered. The coordinator's own span ends later, with the last marker. Both have the same
transactional id, producer id and producer epoch.
"""

from typing import Final

from odradek.client.errors import OdradekError
from odradek.client.producing.batches import ProducerIdentity
from odradek.client.producing.open_transaction import OpenTransaction
from odradek.client.tracing import Tracer, TraceSpan, set_error

NAME: Final = "kafka transaction"
NAMED_MAX: Final = 100
"""The most partitions that an attribute names."""


class TransactionSpan:
    """The span of the transaction that is open in a producer. Without a tracer it does nothing."""

    def __init__(self, tracer: Tracer | None, client_id: str, transactional_id: str) -> None:
        self._tracer = tracer
        self._client_id = client_id
        self._transactional_id = transactional_id
        self._transaction = OpenTransaction()
        self._span: TraceSpan | None = None

    def begin(self, transaction: OpenTransaction, identity: ProducerIdentity, version: int) -> None:
        """Begin a span. `version` is that of the transaction protocol."""
        if self._tracer is None:
            return
        self._transaction = transaction
        attributes = {
            "messaging.system": "kafka",
            "messaging.client.id": self._client_id,
            "odradek.transactional_id": self._transactional_id,
            "odradek.producer_id": identity.producer_id,
            "odradek.producer_epoch": identity.epoch,
            "odradek.transaction_version": version,
        }
        self._span = self._tracer.start_span(NAME, attributes=attributes)

    def note(self, event: str) -> None:
        """Note what happens to the transaction, such as that it is prepared."""
        if self._span is not None:
            self._span.add_event(event)

    def end(self, how: str, cause: OdradekError | None = None) -> None:
        """End the span. `cause` is why the transaction did not end as the program wanted."""
        span, self._span = self._span, None
        if span is None:
            return
        transaction = self._transaction
        partitions = sorted(transaction.partitions)
        span.set_attribute("odradek.end", how)
        span.set_attribute("odradek.partitions", [str(each) for each in partitions[:NAMED_MAX]])
        span.set_attribute("odradek.partition_count", len(partitions))
        span.set_attribute("odradek.groups", [*transaction.groups])
        if cause is not None:
            name = type(cause).__name__ if cause.code is None else cause.code.name
            span.set_attribute("odradek.cause", name)
            set_error(span, str(cause))
        span.end()
