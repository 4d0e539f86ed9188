"""How far a query is behind, as the connector's metrics state it."""

import json
from typing import Any

import pytest

from odradek.client.spark.progress import offsets_behind_latest


def progress_of(*sources: tuple[Any, Any]) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest} for end, latest in sources]}


def test_the_least_the_most_and_the_mean_are_over_all_partitions() -> None:
    end = {"a": {"0": 5, "1": 7}, "b": {"0": 0}, "$initial": {"a": {"0": 0}}}
    latest = {"a": {"0": 5, "1": 9}, "b": {"0": 4}}
    assert offsets_behind_latest(progress_of((json.dumps(end), json.dumps(latest)))) == [
        {
            "topics": ["a", "b"],
            "minOffsetsBehindLatest": 0,
            "maxOffsetsBehindLatest": 4,
            "avgOffsetsBehindLatest": 2.0,
        }
    ]


def test_a_partition_that_was_deleted_or_is_new_does_not_count() -> None:
    end, latest = {"a": {"0": 5, "1": 7}}, {"a": {"0": 8, "2": 100}}
    [behind] = offsets_behind_latest(progress_of((end, latest)))
    assert behind["minOffsetsBehindLatest"] == behind["maxOffsetsBehindLatest"] == 3


@pytest.mark.parametrize(
    "latest",
    [
        *(None, "null", "17", {}, '{"x": 3}', "no JSON"),
        {"shard-0": {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "7"}},
        {"shards": {"0": "7"}},
    ],
)
def test_a_source_without_such_offsets_is_left_out(latest: Any) -> None:
    ours = ({"a": {"0": 1}}, {"a": {"0": 2}})
    assert len(offsets_behind_latest(progress_of((latest, latest), ours))) == 1
    assert offsets_behind_latest(None) == []
