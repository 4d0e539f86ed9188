"""The distance of a streaming query from the ends of its topics, from the progress of Spark.

Spark's Kafka connector reports three numbers as metrics of its source. A source in Python cannot
report metrics, so this function computes the same three numbers. It names the topics, too, because
Spark's description of a source in Python is the name of a Java object:

    behind = offsets_behind_latest(query.lastProgress)
    behind[0]["topics"], behind[0]["maxOffsetsBehindLatest"]

It works in a `StreamingQueryListener` too, on `event.progress`.
"""

import json
from collections.abc import Mapping
from typing import Any, TypedDict

from odradek.client.spark.offsets import Offsets, from_json


class OffsetsBehind(TypedDict):
    """The distance of one source, over the partitions that the latest micro-batch has seen."""

    topics: list[str]
    minOffsetsBehindLatest: int
    maxOffsetsBehindLatest: int
    avgOffsetsBehindLatest: float


def offsets_behind_latest(progress: Mapping[str, Any] | None) -> list[OffsetsBehind]:
    """Return how many offsets each source of a query is behind the newest ones.

    `progress` is a `StreamingQueryProgress`, or the same as a dictionary. There is one dictionary
    for each source that is an `odradek` source with a latest offset, in the order of the sources.
    The list is empty before the first micro-batch.
    """
    sources = [] if progress is None else progress["sources"]
    found: list[OffsetsBehind] = []
    for source in sources:
        latest, end = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
        behind = [max(0, newest - end[name]) for name, newest in latest.items() if name in end]
        if behind:
            found.append(
                {
                    "topics": sorted({name.topic for name in latest}),
                    "minOffsetsBehindLatest": min(behind),
                    "maxOffsetsBehindLatest": max(behind),
                    "avgOffsetsBehindLatest": sum(behind) / len(behind),
                }
            )
    return found


def _offsets(reported: Any) -> Offsets:
    """Return reported offsets; none if another kind of source has reported them."""
    try:
        as_json = json.loads(reported) if isinstance(reported, str) else reported
        offsets = from_json(as_json)
    except (ValueError, AttributeError):
        return {}
    return offsets if all(isinstance(offset, int) for offset in offsets.values()) else {}
