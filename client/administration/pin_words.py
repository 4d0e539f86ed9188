"""The sentences about records that wait behind an open transaction. Pure.

Commands print them, and a consumer whose polls stay empty logs them.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from odradek.client.administration.descriptions import Pin
from odradek.client.errors import OdradekError
from odradek.client.types import DEFAULT_BOOTSTRAP, TopicPartition
from odradek.client.wording import client, counted, named, span, until

DECIDED: Final = {
    "PrepareCommit": "it is decided: its commit marker is to be written",
    "PrepareAbort": "it is decided: its abort marker is to be written",
    "PrepareEpochFence": "its producer is being fenced",
}


def held_back(
    waiting: Mapping[TopicPartition, int],
    pins: Mapping[TopicPartition, Pin | OdradekError | None],
    bootstrap: str,
) -> list[str]:
    """Return a sentence for each transaction that holds records back.

    `waiting` has the number of records that wait in each partition. It is used where a broker does
    not say, or may not, which transaction they wait for. Partitions whose pin is None are left out:
    their transaction has ended.
    """
    by_producer: dict[int, list[Pin]] = {}
    unknown: dict[TopicPartition, int] = {}
    for name, count in waiting.items():
        pin = pins.get(name)
        if isinstance(pin, Pin):
            by_producer.setdefault(pin.producer_id, []).append(pin)
        elif pin is not None:
            unknown[name] = count
    said = [_sentence(some, bootstrap) for some in by_producer.values()]
    if unknown:
        said.append(_waiting(unknown, "an open transaction", bootstrap))
    return said


def _sentence(pins: Sequence[Pin], bootstrap: str) -> str:
    """Return the sentence about one transaction, which may pin several partitions."""
    records = {pin.partition: pin.records_behind for pin in pins}
    pin = pins[0]
    facts = [
        _whose(pin),
        "" if pin.age_ms is None else f"open for {span(pin.age_ms)}",
        _fate(pin),
    ]
    return _waiting(records, ", ".join(filter(None, facts)), bootstrap)


def _waiting(records: Mapping[TopicPartition, int], behind: str, bootstrap: str) -> str:
    total = sum(records.values())
    verb = "waits" if total == 1 else "wait"
    commands = " and ".join(
        f"`{who_pins_command(topic, bootstrap)}`"
        for topic in dict.fromkeys(name.topic for name in records)
    )
    return f"{counted(total, 'record')} of {named(records)} {verb} behind {behind}; {commands}"


def who_pins_command(topic: str, bootstrap: str) -> str:
    """Return the command that shows what holds the readers of a topic back."""
    return shlex.join(["odradek", "txn", "who-pins", topic, *_where(bootstrap)])


def end_command(pin: Pin, bootstrap: str) -> str | None:
    """Return the command that ends a transaction.

    None if it is decided and only lacks its markers, or if its id is not shown to this client.
    """
    if pin.is_hanging:
        return abort_marker_command(pin.partition, pin.start_offset, bootstrap)
    if pin.transactional_id is None or pin.state in DECIDED:
        return None
    return shlex.join(["odradek", "txn", "abort", *_where(bootstrap), "--", pin.transactional_id])


def end_line(pin: Pin, bootstrap: str) -> str | None:
    """Return a sentence with the command that ends a transaction; None without such a command."""
    command = end_command(pin, bootstrap)
    if command is None:
        return None
    if pin.state == "Ongoing" and pin.remaining_ms is None and not pin.is_hanging:
        # Only the transactions of KIP-939 have no time-out.
        return (
            f"Its program, started again, ends it as another system has decided. `{command}` "
            "aborts it, whatever was decided."
        )
    return f"`{command}` ends it."


def describe_command(pin: Pin, bootstrap: str) -> str | None:
    """Return the command that shows what a transaction does; None if its id is not shown."""
    if pin.transactional_id is None:
        return None
    return shlex.join(
        ["odradek", "txn", "describe", *_where(bootstrap), "--", pin.transactional_id]
    )


def abort_marker_command(partition: TopicPartition, start_offset: int, bootstrap: str) -> str:
    """Return the command that ends a hanging transaction in one partition."""
    topic, number = partition
    place = ["--topic", topic, "--partition", str(number), "--start-offset", str(start_offset)]
    return shlex.join(["odradek", "txn", "abort", *_where(bootstrap), *place])


def _where(bootstrap: str) -> list[str]:
    return [] if bootstrap == DEFAULT_BOOTSTRAP else ["--bootstrap", bootstrap]


def _whose(pin: Pin) -> str:
    if pin.transactional_id is None:
        return f"a transaction of producer id {pin.producer_id} (epoch {pin.producer_epoch})"
    who = client(pin.client_id, pin.client_host)
    whose = f"the transaction of {pin.transactional_id!r}"
    return f"{whose} ({who})" if who else whose


def _fate(pin: Pin) -> str:
    """Return how the transaction will end; "" if it is not known."""
    if pin.is_hanging:
        return "no coordinator will end it (see `odradek txn hanging`)"
    if pin.state is None:
        return "" if pin.transactional_id else "its transactional id is not shown to this client"
    if pin.state != "Ongoing":
        return DECIDED.get(pin.state, f"it is {pin.state}")
    if pin.remaining_ms is None:
        return "it does not time out"
    if pin.remaining_ms < 0:
        return f"its time-out is {until(pin.remaining_ms)}"
    return f"aborted {until(pin.remaining_ms)} at the latest"


def pin_line(pin: Pin) -> str:
    """Return a line about the pin of one partition, with the numbers of its producer."""
    who = f"producer id {pin.producer_id}, epoch {pin.producer_epoch}"
    if pin.transactional_id is not None:
        by = client(pin.client_id, pin.client_host)
        whose = f"{pin.transactional_id!r} ({by})" if by else repr(pin.transactional_id)
        who = f"{whose}, {who}"
    age = "" if pin.age_ms is None else f"open for {span(pin.age_ms)}"
    facts = ", ".join(filter(None, (who, age, _fate(pin))))
    waiting = counted(pin.records_behind, "record")
    verb = "waits" if pin.records_behind == 1 else "wait"
    return f"{pin.partition}: {facts}; {waiting} from offset {pin.start_offset} on {verb}"
