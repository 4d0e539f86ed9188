"""Every API of groups and administration, asked what makes no sense (`nonsensical.py`)."""

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

from odradek.protocol.schema import ZERO_UUID
from tests.judge.broker import Broker
from tests.judge.grouping import commit, topic
from tests.judge.names import code_name
from tests.judge.nonsensical import MANY, Nonsense, new_apis, nonsense_of
from tests.judge.story import GROUPS, in_setup, kept_in, variants

COUNTED_FROM: Final = MANY // 2
"""The number of error codes from which on an answer is counted, and not described."""
SHOWN_MAX: Final = 400
"""The length of an answer that is recorded in full. Of a longer one a checksum is recorded."""
OWN: Final = frozenset(
    {
        "DeleteTopics",
        "DescribeCluster",
        "DescribeLogDirs",
        "DescribeQuorum",
        "ListConfigResources",
        "ListGroups",
    }
)
"""APIs whose answers have ids, sizes, places, or what other stories have left: only the codes of
them are recorded."""
NOT_MADE: Final = frozenset({"DeleteTopics"})
"""APIs that take away what they find. A real Kafka answers before it is gone."""
UNTOLD: Final = frozenset(
    {
        ("AlterConfigs", "resources: twice the same"),
        ("AlterConfigs", f"resources: {MANY} different"),
        ("DescribeConfigs", "resources.configuration_keys: empty"),
        ("DescribeTopicPartitions", "topics: empty"),
    }
)
"""Requests that a real Kafka does not answer within seconds, and those for all settings and all
topics that there are."""


@in_setup(GROUPS)
@kept_in("nonsense.txt.gz")
@variants(api=tuple(new_apis()))
def story_any(broker: Broker, api: str) -> None:
    if api not in NOT_MADE:
        topic(broker, "t", 2)
        commit(broker, "t", {("t", 0): 0})
    broker.names.topic_ids.setdefault("t", ZERO_UUID)
    for nonsense in nonsense_of(new_apis()[api], broker.names.on_wire("t")):
        if (api, nonsense.words) not in UNTOLD:
            _ask(broker, api, nonsense)


def _ask(broker: Broker, api: str, nonsense: Nonsense) -> None:
    declared = new_apis()[api]

    def answer(response: Any) -> str:
        codes = Counter(map(code_name, _codes(response)))
        counted = " ".join(f"{count} {code}" for code, count in sorted(codes.items()))
        if api in OWN or codes.total() >= COUNTED_FROM:
            return counted
        whole = _in_order(broker, response)
        if len(whole) <= SHOWN_MAX:
            return whole
        return f"{counted}; {len(whole)} characters {zlib.crc32(whole.encode()):08x}"

    broker.ask(nonsense.words, declared, declared.max_version, nonsense.request, answer)


def _codes(message: Any) -> Iterator[int]:
    """Yield every error code of a message."""
    if isinstance(message, tuple):
        for each in message:
            yield from _codes(each)
    elif is_dataclass(message):
        for field in fields(message):
            value = getattr(message, field.name)
            if field.name.endswith("error_code"):
                yield value
            else:
                yield from _codes(value)


def _in_order(broker: Broker, value: Any) -> str:
    """Describe a message with the items of its arrays sorted: Java's order is a hash table's."""
    if isinstance(value, tuple):
        return "[" + " ".join(sorted(_in_order(broker, each) for each in value)) + "]"
    if not is_dataclass(value):
        return broker.names.describe(value)
    said = []
    for field in fields(value):
        own = getattr(value, field.name)
        if isinstance(own, tuple) or is_dataclass(own):
            said.append(f"{field.name}={_in_order(broker, own)}")
    words = broker.names.describe_fields(value)
    return "{" + " ".join((*words, *said)) + "}"
