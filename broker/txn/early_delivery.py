"""One wave for a decision and its markers, where the journal allows it.

A decision is appended, then its markers, in one turn and in this order. The journal writes them in
this order, so one fsync makes them durable, and no marker counts without its decision
(`values/precedent.py`). Without it a transaction waits for two fsyncs in a row.

Only the decision of one id is taken, over a few partitions, and only if this broker has the only
replica of all of them and of the state partition. Otherwise the markers wait until the decision is
committed, as they do for the markers that a partition has refused (`finish.py`).

Until the decision is durable its id is pending, and requests wait. What leaders ask about it is
answered as if the decision counted (`Entry.for_leaders`). If the outcome of the append stays
unknown, the tenure ends and the partition is read anew (`Ledger`): the id must not decide anew.
"""

from typing import Final

import trio

from odradek.broker.txn.finish import debt_of
from odradek.broker.txn.ledger import Ledger
from odradek.broker.txn.markers import MarkerSender, MarkersUnderWay, marker_of
from odradek.broker.txn.tenure import Entry
from odradek.broker.txn.transaction import TransactionMetadata

PARTITIONS_MAX: Final = 32
"""The partitions of a transaction whose markers are appended in the turn of their decision."""


class EarlyDelivery:
    """`begin` is called in the turn in which a decision was appended."""

    def __init__(self, sender: MarkerSender, ledger: Ledger, nursery: trio.Nursery) -> None:
        self._sender = sender
        self._ledger = ledger
        self._nursery = nursery

    def begin(self, entry: Entry, decision: TransactionMetadata) -> MarkersUnderWay | None:
        """Append the markers of a decision. Return None if they must wait."""
        if decision.decision_id is not None or len(decision.partitions) > PARTITIONS_MAX:
            return None
        debt = debt_of(entry, decision, trio.CancelScope())
        markers = self._sender.append_early(
            self._ledger.partition_for(entry.transactional_id), marker_of(debt)
        )
        if markers is None:
            return None
        under_way = MarkersUnderWay(markers)
        self._nursery.start_soon(under_way.run)
        return under_way
