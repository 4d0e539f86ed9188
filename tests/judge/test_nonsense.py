"""Each API has its nonsense: a new one has it as soon as it is declared, and then is recorded."""

from typing import Any, Final

import pytest

from odradek.broker.api import APIS
from odradek.protocol.api import Api
from tests.broker.largest import array_paths
from tests.judge.catalogue import catalogue
from tests.judge.judging import recorded
from tests.judge.nonsensical import MANY, OLD, new_apis, nonsense_of
from tests.judge.stories.nonsense import UNTOLD

every_new_api = pytest.mark.parametrize("api", new_apis().values(), ids=lambda api: api.name)
EXPECTED: Final = (
    "topics.name='never'",
    "topics.partitions.partition_index=99",
    "topics.partitions.offset=9223372036854775807",
    "topics.partitions.replicas=99",
    "member_id='never'",
    "member_epoch=2147483647",
    "subscribed_topic_regex='(?=x)'",
    "resources.configs.value='never'",
)
"""Unknown topics, offsets out of range, no such broker, members of others, epochs from the future,
patterns that are not RE2, and values of the wrong type."""


def test_old_apis_are_there_and_all_others_have_stories_of_nonsense() -> None:
    assert {api.name for api in APIS.values()} == OLD | set(new_apis())
    for name in new_apis():
        assert f"nonsense.any[api={name}]" in catalogue()


@every_new_api
def test_every_array_is_empty_and_has_something_twice_and_one_has_ten_thousand(
    api: Api[Any, Any],
) -> None:
    words = [each.words for each in nonsense_of(api, "t")]
    paths = [".".join(path) for path in array_paths(api.request, api.max_version)]
    for path in paths:
        assert f"{path}: empty" in words
        assert f"{path}: twice the same" in words
    assert [f"{path}: {MANY} different" for path in paths[:1]] == [
        each for each in words if f"{MANY} different" in each
    ]


@every_new_api
def test_every_request_of_nonsense_can_be_written(api: Api[Any, Any]) -> None:
    for each in nonsense_of(api, "t"):
        api.build_request(api.max_version, each.request)


@every_new_api
def test_a_real_kafka_was_asked_for_all_of_it(api: Api[Any, Any]) -> None:
    told = recorded()[f"nonsense.any[api={api.name}]"]
    for each in nonsense_of(api, "t"):
        if (api.name, each.words) not in UNTOLD:
            assert any(line.startswith(f"{each.words} -> ") for line in told), each.words


@pytest.mark.parametrize("words", EXPECTED)
def test_the_usual_mistakes_are_among_it(words: str) -> None:
    asked = {each.words for api in new_apis().values() for each in nonsense_of(api, "t")}
    assert words in asked
