"""The words for times, producers and transactions, and the same facts for programs. Pure.

People read spans ("1.2 s ago", "in 58 s"). Programs read ISO 8601 and milliseconds.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from odradek.client.administration.descriptions import TransactionDescription
from odradek.client.wording import client, counted, named, span, until
from odradek.protocol.text import printable

__all__ = ["client", "counted", "named", "span", "until"]  # beside what is defined here

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

STATES: Final = {
    "Empty": "it has not begun a transaction since its producer started",
    "Ongoing": "a transaction is open",
    "PrepareCommit": "it is decided: the transaction commits",
    "PrepareAbort": "it is decided: the transaction aborts",
    "CompleteCommit": "the last transaction was committed",
    "CompleteAbort": "the last transaction was aborted",
    "PrepareEpochFence": "its producer is being fenced",
    "Dead": "it is being forgotten",
}


def ago(moment_ms: int, now_ms: int) -> str:
    """Return the time since a moment. A moment in the future, by another clock, is now."""
    return f"{span(max(now_ms - moment_ms, 0))} ago"


def iso(moment_ms: int | None) -> str | None:
    """Return a moment as 2026-11-21T12:00:00.123Z; None without one or beyond the calendar."""
    if moment_ms is None:
        return None
    try:
        moment = EPOCH + timedelta(milliseconds=moment_ms)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(moment_ms: int) -> str:
    """Return the local time of day."""
    return datetime.fromtimestamp(moment_ms / 1000, tz=UTC).astimezone().strftime("%H:%M:%S")


def open_for(found: TransactionDescription) -> str:
    """Return the age of an open transaction and its limit, if it has one: 2.0 s of 60 s."""
    if found.age_ms is None:
        return ""
    limit = "" if found.remaining_ms is None else f" of {span(found.timeout_ms)}"
    return f"{span(found.age_ms)}{limit}"


def deadline(found: TransactionDescription) -> str:
    """Return when the broker will abort an open transaction, as far as it is known."""
    if found.state != "Ongoing":
        return "it is decided and does not time out"
    remaining_ms = found.remaining_ms
    if remaining_ms is None:
        return "it does not time out"
    if remaining_ms < 0:
        return f"its time-out is {until(remaining_ms)}"
    return f"the broker aborts it {until(remaining_ms)}"


def state(found: TransactionDescription) -> str:
    """Return the state and its meaning: `Ongoing: a transaction is open`."""
    said = STATES.get(found.state)
    return f"{found.state}: {said}" if said else found.state


def pending(found: TransactionDescription) -> str:
    """Return the steps that have begun and are not done; None without one."""
    waits = []
    if found.pending_state is not None:
        waits.append(f"{found.pending_state} is being written to disk")
    if found.state.startswith("Prepare") and found.partitions:
        waits.append(f"the markers of {named(found.partitions)} are to be written")
    return "; ".join(waits) or "nothing"


def fencing(found: TransactionDescription, now_ms: int) -> str | None:
    """Return the cause and the time of the last fencing; None without one, or if not known."""
    if found.explanation is not None:
        return printable(found.explanation)
    if found.epoch_bump_cause is None:
        return None
    when = "" if found.epoch_bump_ms is None else f", {ago(found.epoch_bump_ms, now_ms)}"
    return f"{printable(found.epoch_bump_cause)}{when}"


def facts(found: TransactionDescription) -> dict[str, object]:
    """Return a transactional id for programs: each moment as ISO 8601 and in milliseconds."""
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "pending_state": found.pending_state,
        "coordinator": found.coordinator_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "started": iso(found.started_ms),
        "started_ms": found.started_ms,
        "age_ms": found.age_ms,
        "times_out_in_ms": found.remaining_ms,
        "client_id": found.client_id,
        "client_host": found.client_host,
        "epoch_bump_cause": found.epoch_bump_cause,
        "epoch_bump": iso(found.epoch_bump_ms),
        "epoch_bump_ms": found.epoch_bump_ms,
        "explanation": found.explanation,
        "updated": iso(found.updated_ms),
        "updated_ms": found.updated_ms,
        "partitions": [
            {"topic": partition.topic, "partition": partition.partition}
            for partition in found.partitions
        ],
    }
