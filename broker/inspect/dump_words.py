"""The facts of `odradek log dump` as lines of text."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from odradek.protocol.text import printable

Facts = Mapping[str, object]

BATCH_LINE: Final = "{offsets:<22} {records:>7} {bytes:>9}  {time:<23}  {producer:<22} {what}"
TRANSACTION_LINE: Final = "{offsets:<22} {records:>7}  {producer:<22} {what}"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NO_TIMEOUT_MS: Final = 2**31 - 1

CAUSES: Final = {
    "new instance": "a new instance, {client}, started",
    "timeout": "it timed out after {timeout}",
    "administrator": "an administrator, {client}, claimed its id",
    "connection closed": "{client} closed its last connection",
    "resumed": "its producer resumed with a new epoch",
    "exhausted": "its epochs were exhausted",
}


def line_of(facts: Facts) -> str:
    """Return a fact as text of one or several lines."""
    said = LINES.get(str(facts["type"]))
    return said(facts) if said else _other_line(facts)


def _file_line(facts: Facts) -> str:
    head = BATCH_LINE.format(
        offsets="offsets", records="records", bytes="bytes", time="time (UTC)",
        producer="producer", what="what",
    )  # fmt: skip
    return f"\n{facts['path']}\n{head}"


def _gone_line(facts: Facts) -> str:
    return f"\n{facts['path']}\nis gone: it was deleted after this dump had begun"


def _heading_line(facts: Facts) -> str:
    head = TRANSACTION_LINE.format(
        offsets="offsets", records="records", producer="producer", what="what"
    )
    return f"\n{facts['text']}\n{head}"


def _rest_line(facts: Facts) -> str:
    fate = (
        "the checkpoint covers them, so the broker does not cut them off"
        if facts["checkpointed"]
        else "the broker cuts them off when it starts"
    )
    return (
        f"the last {facts['bytes']} bytes, from byte {facts['position']} on, are no batch; {fate}"
    )


def _batch_line(facts: Facts) -> str:
    return BATCH_LINE.format(
        offsets=_range(facts["first_offset"], facts["last_offset"]),
        records=facts["records"],
        bytes=facts["bytes"],
        time=time_of(facts["timestamp_ms"]),
        producer=_producer(facts),
        what=", ".join(_about_batch(facts)),
    ).rstrip()


def _about_batch(facts: Facts) -> list[str]:
    what = []
    if "control" in facts:
        by = f" by coordinator epoch {facts['coordinator_epoch']}"
        what.append(f"{facts['control']}{by}")
    else:
        if "first_sequence" in facts:
            what.append(f"sequence {_range(facts['first_sequence'], facts['last_sequence'])}")
        if facts["codec"] != "none":
            what.append(str(facts["codec"]))
        if facts["transactional"]:
            what.append("in a transaction")
    if facts.get("compacted"):
        left = "nothing left of" if not facts["records"] else "left of"
        what.append(f"{left} {_number(facts, 'records') + _number(facts, 'compacted')} records")
    if "delete_horizon_ms" in facts:
        what.append(f"removable from {time_of(facts['delete_horizon_ms'])} on")
    if "problem" in facts:
        what.append(f"DAMAGED: {facts['problem']}")
    return what


# Records of the state topics


def _record_line(facts: Facts) -> str:
    offset = f"    {facts['offset']}: "
    if "transactional_id" in facts:
        return offset + transaction_words(facts)
    if "group" in facts:
        return offset + group_words(facts)
    return "    " + _other_line(facts)


def transaction_words(facts: Facts) -> str:
    """Describe a record of `__transaction_state`."""
    name = repr(facts["transactional_id"])
    if "removed" in facts:
        return f"{name} is forgotten"
    said = [f"{name} {facts['state']}", f"producer id {_producer(facts)}"]
    partitions = facts.get("partitions")
    if isinstance(partitions, list):
        said.append(f"in {', '.join(map(str, partitions))}")
    if "started_ms" in facts:
        said.append(f"begun {time_of(facts['started_ms'])}")
    if "next_producer_id" in facts:
        epoch = facts.get("next_producer_epoch", 0)
        said.append(f"then producer id {facts['next_producer_id']} epoch {epoch}")
    if facts.get("previous_producer_id", facts["producer_id"]) != facts["producer_id"]:
        said.append(f"before it producer id {facts['previous_producer_id']}")
    timeout_ms = _number(facts, "timeout_ms")
    said.append("no timeout" if timeout_ms == NO_TIMEOUT_MS else f"timeout {span(timeout_ms)}")
    client = client_words(facts.get("client_id"), facts.get("client_host"))
    if client:
        said.append(client)
    if "epoch_bump_cause" in facts:
        when = f" at {time_of(facts['epoch_bump_ms'])}" if "epoch_bump_ms" in facts else ""
        said.append(f"last fenced{when}: {printable(str(facts['epoch_bump_cause']))}")
    return ", ".join(said)


def group_words(facts: Facts) -> str:
    """Describe a record of `__consumer_offsets`."""
    name = f"group {facts['group']!r}"
    if "partition" in facts:
        if "removed" in facts:
            return f"{name} has no offset of {facts['partition']} any more"
        note = f", noting {facts['metadata']!r}" if "metadata" in facts else ""
        stored = time_of(facts["stored_ms"])
        return f"{name} reads {facts['partition']} from {facts['stored_offset']} on{note}, {stored}"
    if "consumer_group_record" in facts:
        return consumer_group_words(name, facts)
    if "removed" in facts:
        return f"{name} is forgotten"
    members = facts["members"]
    assert isinstance(members, list)
    said = [f"{name} generation {facts['generation']}"]
    if facts["protocol"]:
        said.append(f"{facts['protocol_type']} by {facts['protocol']!r}")
    said += [_member(member, facts["leader"]) for member in members]
    return ", ".join(said if members else [*said, "no members"])


def consumer_group_words(name: str, facts: Facts) -> str:
    """Describe a record of a consumer group (KIP-848): its fields, with Kafka's names."""
    shown = facts["fields"]
    assert isinstance(shown, dict)
    said = [f"{key}={printable(str(value))}" for key, value in shown.items()]
    return f"{name} {facts['consumer_group_record']}: {', '.join(said)}"


def _member(member: Mapping[str, object], leader: object) -> str:
    client = client_words(member["client_id"], member["client_host"])
    instance = member["group_instance_id"]
    name = f"{printable(str(member['member_id']))} ({client})" + (
        f" as {instance!r}" if instance else ""
    )
    return f"{name}, the leader" if member["member_id"] == leader else name


# Transactions


def _transaction_line(facts: Facts) -> str:
    return TRANSACTION_LINE.format(
        offsets=_range(facts["first_offset"], facts["last_offset"]),
        records=facts["records"],
        producer=_producer(facts),
        what=_became(facts),
    )


def _became(facts: Facts) -> str:
    said = str(facts["outcome"])
    if "marker_offset" in facts:
        said += f" by the marker at {facts['marker_offset']}"
        if facts["marker_epoch"] != facts["producer_epoch"]:
            said += f", epoch {facts['marker_epoch']},"
    if "open_for_ms" in facts:
        said += f" after {span(_number(facts, 'open_for_ms'))}"
    if "records_behind" in facts:
        said += f", {_waiting(_number(facts, 'records_behind'))} from {facts['first_offset']} on"
    if "cause" in facts:
        said += f": {cause_words(facts)}"
    if "transactional_id" in facts:
        client = client_words(facts.get("client_id"), facts.get("client_host"))
        owner = repr(facts["transactional_id"])
        said += f"; {owner} of {client}" if client else f"; {owner}"
    return said + _will_become(facts)


def _will_become(facts: Facts) -> str:
    """Describe the state of an open transaction in its coordinator."""
    if facts.get("state") is None:
        return "; no transactional id has it: it hangs" if facts.get("hangs") else ""
    forgotten = " without this partition: it hangs" if facts["hangs"] else ""
    return f", which is {facts['state']}{forgotten}"


def _waiting(count: int) -> str:
    return f"{count} record{' waits' if count == 1 else 's wait'}"


def cause_words(facts: Facts) -> str:
    """Describe the cause of an abort that the producer did not request."""
    said = CAUSES.get(str(facts["cause"]), "{cause}")
    client = client_words(facts.get("by_client_id"), facts.get("by_client_host"))
    timeout = span(_number(facts, "timeout_ms"))
    return said.format(client=client or "an unknown client", timeout=timeout, cause=facts["cause"])


def _stable_line(facts: Facts) -> str:
    stable, end = facts["last_stable_offset"], facts["log_end_offset"]
    if facts["pinned_by"] is None:
        return f"The last stable offset is the end, {end}: no open transaction holds it."
    waiting = _waiting(_number(facts, "log_end_offset") - _number(facts, "last_stable_offset"))
    return (
        f"The last stable offset is {stable}, the end {end}: {waiting} for producer id "
        f"{facts['pinned_by']}."
    )


def _problem_line(facts: Facts) -> str:
    return f"    {facts['text']}"


LINES: Final[dict[str, Callable[[Facts], str]]] = {
    "file": _file_line,
    "batch": _batch_line,
    "record": _record_line,
    "transaction": _transaction_line,
    "stable": _stable_line,
    "gone": _gone_line,
    "heading": _heading_line,
    "rest": _rest_line,
    "problem": _problem_line,
}


# Formatting


def _other_line(facts: Facts) -> str:
    return "  ".join(
        f"{name}={time_of(value) if name == 'timestamp_ms' else value}"
        for name, value in facts.items()
        if name != "type"
    )


def client_words(client_id: object, host: object) -> str | None:
    """Return "worker-7 at 127.0.0.1", None if the client is unknown."""
    if client_id is None and host is None:
        return None
    name = printable(str(client_id or "a client without a name"))
    return f"{name} at {printable(str(host))}" if host else name


def _producer(facts: Facts) -> str:
    if "producer_id" not in facts:
        return "-"
    return f"{facts['producer_id']} epoch {facts['producer_epoch']}"


def _range(first: object, last: object) -> str:
    if first is None:
        return f"?..{last}"
    return str(first) if first == last else f"{first}..{last}"


def _number(facts: Facts, name: str) -> int:
    value = facts.get(name, 0)
    assert isinstance(value, int)
    return value


def span(duration_ms: int) -> str:
    if duration_ms < 120_000:
        return f"{max(duration_ms, 0) / 1000:.1f} s"
    return f"{duration_ms / 60_000:.0f} min"


def time_of(timestamp_ms: object) -> str:
    """Return "2026-11-21 12:00:00.123" (UTC), "-" for no time, the number beyond the calendar."""
    assert isinstance(timestamp_ms, int)
    if timestamp_ms < 0:
        return "-"
    try:
        moment = EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03}"
