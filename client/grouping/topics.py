"""The topics that a program subscribes to: by their names, or by a pattern of names."""

import re
from collections.abc import Iterable, Mapping

from odradek.client.arguments import topic_named
from odradek.client.cluster.metadata import Metadata
from odradek.client.errors import Refused
from odradek.client.types import SubscriptionPattern, Topics


def checked(topics: Topics) -> tuple[str, ...] | re.Pattern[str] | SubscriptionPattern:
    """Return the names of the topics of a subscription, or their pattern. Raises `Refused`."""
    if isinstance(topics, (re.Pattern, SubscriptionPattern)):
        return topics
    names = (topics,) if isinstance(topics, str) else topics
    if not isinstance(names, Iterable) or isinstance(names, bytes):
        raise Refused(f"subscribe takes a topic, topics or a pattern, and not {topics!r}")
    return tuple(map(topic_named, names))


class SubscribedTopics:
    """The topics of a subscription, as they are at the moment."""

    def __init__(self, topics: Topics) -> None:
        """`topics` is a name, several names, or a pattern. Raises `Refused`."""
        self.pattern = topics if isinstance(topics, re.Pattern) else None
        """A pattern that the client matches."""
        self.regex = topics.pattern if isinstance(topics, SubscriptionPattern) else None
        """A pattern that the brokers match."""
        given = checked(topics)
        names = given if isinstance(given, tuple) else ()
        self.named: tuple[str, ...] = tuple(dict.fromkeys(names))
        if not self.named and self.pattern is None and not self.regex:
            raise Refused("subscribe needs at least one topic; to leave the group, unsubscribe")

    def __repr__(self) -> str:
        found = self.regex if self.pattern is None else self.pattern.pattern
        return ", ".join(self.named) if found is None else repr(found)

    @property
    def asked_for(self) -> tuple[str, ...] | None:
        """The topics of a Metadata request; None for all topics."""
        return self.named or None

    def now(self, metadata: Metadata) -> tuple[str, ...]:
        """Return the names of the topics. A pattern matches whole names, and no internal topic.

        A pattern that the brokers match has no names here.
        """
        if self.pattern is None:
            return self.named
        return tuple(
            sorted(
                name
                for name, topic in metadata.topics.items()
                if not topic.is_internal and self.pattern.fullmatch(name)
            )
        )

    def missing(self, metadata: Metadata) -> list[str]:
        """Return the named topics that do not exist."""
        return [name for name in self.named if name not in metadata.topics]


def partition_counts(metadata: Metadata, topics: Iterable[str]) -> Mapping[str, int]:
    """Return the number of partitions of each of these topics that exists."""
    return {
        name: len(metadata.topics[name].partitions) for name in topics if name in metadata.topics
    }
