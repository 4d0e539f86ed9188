"""Compare the topics with the source data, with pandas: nothing is missing, nothing is doubled."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pandas as pd

from odradek.client.blocking import Consumer
from odradek.client.config import Isolation
from odradek.client.types import ConsumerRecord, TopicPartition
from scripts.refunds.flights import flight_id, flights, is_cancelled
from scripts.refunds.load import NO_OPTIONS
from scripts.refunds.processes import wait_for
from scripts.refunds.processor import GROUP, TOPIC_AUDIT, TOPIC_IN, TOPIC_REFUNDS

ALL: Final = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one pair of topics. `faults` is empty if the topics are right."""

    refunds: int
    audit_rows: int
    aborted: int
    faults: tuple[str, ...]


def expected(limit: int | None) -> pd.DataFrame:
    """Return the cancelled flights of the source data, with their positions."""
    rows = [
        {"flight_id": flight_id(flight), "place": place, "dest": flight["dest"]}
        for place, flight in enumerate(flights(limit))
        if is_cancelled(flight)
    ]
    return pd.DataFrame(rows)


def read_all(
    bootstrap: str, topic: str, isolation: Isolation, options: Mapping[str, Any] = NO_OPTIONS
) -> list[ConsumerRecord]:
    """Read all records of a topic that the isolation level allows, to the end of each partition."""
    with Consumer(bootstrap, isolation_level=isolation, **options) as consumer:
        partitions = [TopicPartition(topic, p) for p in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        records: list[ConsumerRecord] = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            records += consumer.poll(timeout_ms=1_000)
        return records


def wait_until_decided(
    bootstrap: str, *topics: str, options: Mapping[str, Any] = NO_OPTIONS
) -> None:
    """Wait for the markers of all transactions: EndTxn is answered before they are written."""
    with (
        Consumer(bootstrap, **options) as stable,
        Consumer(bootstrap, isolation_level=ALL, **options) as unstable,
    ):
        for topic in topics:
            partitions = [TopicPartition(topic, p) for p in stable.partitions_for(topic)]
            wait_for(
                f"the end of every transaction in {topic}",
                partial(_is_decided, stable, unstable, partitions),
            )


def _is_decided(stable: Consumer, unstable: Consumer, partitions: list[TopicPartition]) -> bool:
    return stable.end_offsets(partitions) == unstable.end_offsets(partitions)


def verify(
    bootstrap: str,
    refunds: str,
    audit: str,
    limit: int | None,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> Verdict:
    """Judge one pair of topics against the source data."""
    wait_until_decided(bootstrap, refunds, audit, options=options)
    source = expected(limit)
    faults: list[str] = []
    seen: dict[str, int] = {}
    aborted = 0
    for topic in (refunds, audit):
        committed = read_all(bootstrap, topic, "read_committed", options)
        everything = read_all(bootstrap, topic, ALL, options)
        aborted += len(everything) - len(committed)
        seen[topic] = len(committed)
        faults += judge(topic, committed, source)
    if aborted == 0:
        faults.append(f"{refunds}, {audit}: no kill left an aborted record behind")
    return Verdict(seen[refunds], seen[audit], aborted, tuple(faults))


def judge_application(
    bootstrap: str, limit: int | None, options: Mapping[str, Any] = NO_OPTIONS
) -> Verdict:
    """Judge the topics of the application, the owners of its partitions, and what it has read."""
    verdict = verify(bootstrap, TOPIC_REFUNDS, TOPIC_AUDIT, limit, options)
    faults = [
        *verdict.faults,
        *judge_owners(read_all(bootstrap, TOPIC_AUDIT, "read_committed", options)),
        *judge_input(bootstrap, options),
    ]
    return replace(verdict, faults=tuple(faults))


def judge_owners(records: list[ConsumerRecord]) -> list[str]:
    """Return a sentence for each partition that two processors owned at one time.

    Each row has the generation in which its processor owned the partition. A later owner has a
    later generation and begins where the earlier one has ended. So along the input, generations
    never go back, and each belongs to one processor.
    """
    rows = [
        (*row["from"].values(), record.offset, row["by"]["generation"], row["by"]["processor"])
        for record in records
        for row in [json.loads(record.value or b"{}")]
    ]
    faults = []
    latest: dict[int, tuple[int, str]] = {}
    for partition, offset, _, generation, processor in sorted(rows):
        before, owner = latest.get(partition, (generation, processor))
        latest[partition] = (generation, processor)
        if generation < before or (generation == before and processor != owner):
            faults.append(
                f"{TOPIC_IN}-{partition} had two owners: processor {owner} in generation {before}, "
                f"and then processor {processor} in generation {generation}, at offset {offset}"
            )
    return faults


def judge_input(bootstrap: str, options: Mapping[str, Any] = NO_OPTIONS) -> list[str]:
    """Return a sentence for each partition whose stored offset is not its end."""
    with Consumer(bootstrap, group_id=GROUP, **options) as consumer:
        ends = consumer.end_offsets(
            [TopicPartition(TOPIC_IN, p) for p in consumer.partitions_for(TOPIC_IN)]
        )
        stored = consumer.committed(ends)
    reached = {place: stored[place].offset if place in stored else 0 for place in ends}
    return [
        f"{place} is processed up to {reached[place]} of {end}"
        for place, end in ends.items()
        if reached[place] != end
    ]


def judge(topic: str, records: list[ConsumerRecord], source: pd.DataFrame) -> list[str]:
    """Return a sentence for each fault of one topic."""
    rows = pd.DataFrame(
        {
            "flight_id": [json.loads(record.value or b"{}")["flight_id"] for record in records],
            "partition": [record.partition for record in records],
            "offset": [record.offset for record in records],
        }
    )
    joined = rows.merge(source, on="flight_id", how="outer", indicator=True)
    faults = []
    if missing := int((joined["_merge"] == "right_only").sum()):
        faults.append(f"{topic}: {missing} cancelled flights are missing")
    if foreign := int((joined["_merge"] == "left_only").sum()):
        faults.append(f"{topic}: {foreign} rows belong to no cancelled flight")
    if twice := int(rows["flight_id"].duplicated().sum()):
        faults.append(f"{topic}: {twice} rows are there more than once")
    ordered = joined.dropna(subset=["offset", "place"]).sort_values(["partition", "offset"])
    backwards = ordered.groupby("partition")["place"].diff() < 0
    if backwards.any():
        faults.append(f"{topic}: {int(backwards.sum())} rows are out of the input's order")
    return faults
