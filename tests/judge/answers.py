"""The codes in answers, and their names in transcripts."""

from collections.abc import Sequence
from typing import Any

from tests.judge.names import code_name

Where = tuple[str, int]
"""A topic, by the story's name, and a partition."""


def by_topic(partitions: Sequence[Where]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found


def listed(partitions: Sequence[Where]) -> str:
    return " ".join(f"{topic}-{index}" for topic, index in partitions)


def one_code(response: Any) -> Sequence[int]:
    return (response.error_code,)


def one_name(response: Any) -> str:
    return code_name(response.error_code)


def codes_of_added(response: Any) -> Sequence[int]:
    topics = [t for r in response.results_by_transaction for t in r.topic_results]
    topics += response.results_by_topic_v3_and_below
    codes = [r.partition_error_code for topic in topics for r in topic.results_by_partition]
    return [response.error_code, *codes]


def codes_of_topics(response: Any) -> Sequence[int]:
    return [found.error_code for topic in response.topics for found in topic.partitions]


def codes_of_found(response: Any) -> Sequence[int]:
    if response.coordinators:
        return [found.error_code for found in response.coordinators]
    return (response.error_code,)


def markers_of(response: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.name, found.partition_index, found.error_code)
        for marker in response.markers
        for topic in marker.topics
        for found in topic.partitions
    ]


def codes_of_produced(response: Any) -> Sequence[int]:
    return [p.error_code for topic in response.responses for p in topic.partition_responses]


def produced(response: Any) -> str:
    return " ".join(
        f"@{found.base_offset}" if found.error_code == 0 else code_name(found.error_code)
        for topic in response.responses
        for found in topic.partition_responses
    )
