"""The ids of topics. A topic that is deleted and made anew under its name has another id."""

from collections.abc import Iterable
from uuid import UUID

from odradek.client.blocking import Admin
from odradek.client.errors import Refused
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID


def find_topic_ids(admin: Admin, topics: Iterable[str]) -> dict[str, UUID]:
    """Return the ids of topics, without those that do not exist. Some brokers have no ids."""
    names = sorted(set(topics))
    try:
        described = admin.describe_topics(*names)
    except Refused as refused:
        if refused.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        if len(names) == 1:
            return {}
        # One of them does not exist, and the answer for all of them is refused.
        return {
            name: topic_id
            for each in names
            for name, topic_id in find_topic_ids(admin, [each]).items()
        }
    return {each.name: each.topic_id for each in described if each.topic_id != ZERO_UUID}


def find_topic_id(admin: Admin, topic: str) -> UUID | None:
    """Return the id of a topic; None if the broker does not know it."""
    return find_topic_ids(admin, [topic]).get(topic)
