"""The transactional ids that this broker coordinates."""

from collections import Counter

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside
from odradek.broker.txn.transaction import State

STEPS = 2
OPEN = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)


async def add_transactions(families: Families, inside: Inside, turns: Turns) -> None:
    states: Counter[State] = Counter()
    oldest_ms = prepared_ms = 0
    owed = 0
    for view in inside.core.transactions.transactions():
        await turns.take(STEPS)
        states[view.state] += 1
        if view.open_for_ms >= 0:
            oldest_ms = max(oldest_ms, view.open_for_ms)
        if view.state.is_prepared:
            owed += len(view.partitions)
        elif view.never_times_out and view.state is State.ONGOING:
            prepared_ms = max(prepared_ms, view.open_for_ms)
    for state in OPEN:
        families.gauge(
            "odradek_txn_open",
            "Transactions that are open, or decided and not complete.",
            states[state],
            state=state.label,
        )
    counts = inside.core.transactions.counts
    name, about = "odradek_txn_ended", "Transactions that are complete, by how they ended."
    families.counter(name, about)
    for how, count in sorted(counts.ended.items()):
        families.counter(name, about, count, how=how)
    name, about = "odradek_txn_fences", "The times that producers were fenced."
    families.counter(name, about)
    for cause, count in sorted(counts.fences.items()):
        families.counter(name, about, count, cause=cause.value)
    about = "From the first partition of a transaction until all have their markers."
    families.histogram("odradek_txn_seconds", about, counts.seconds)
    about = "From the decision of a transaction until all partitions have their markers."
    families.histogram("odradek_txn_marker_seconds", about, counts.marker_seconds)
    families.gauge("odradek_txn_ids", "Transactional ids.", states.total())
    families.gauge(
        "odradek_txn_oldest_open_seconds",
        "The age of the oldest transaction that is not complete; 0 without one.",
        oldest_ms / 1000,
    )
    families.gauge(
        "odradek_txn_prepared_oldest_seconds",
        "The age of the oldest open transaction that commits in two phases; 0 without one.",
        prepared_ms / 1000,
    )
    families.gauge(
        "odradek_txn_markers_owed", "Markers that decided transactions have not written yet.", owed
    )
