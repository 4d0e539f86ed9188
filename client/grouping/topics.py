"""The topics that a program subscribes to: by their names, or by a pattern of names."""

import re
from collections.abc import Iterable, Mapping

from odradek.client.cluster.metadata import Metadata
from odradek.client.errors import Refused


class SubscribedTopics:
    """The topics of a subscription, as they are at the moment."""

    def __init__(self, topics: str | Iterable[str] | re.Pattern[str]) -> None:
        """`topics` is a name, several names, or a compiled pattern. Raises `Refused`."""
        self.pattern = topics if isinstance(topics, re.Pattern) else None
        names: Iterable[str] = ()
        if not isinstance(topics, re.Pattern):
            names = (topics,) if isinstance(topics, str) else topics
        self.named: tuple[str, ...] = tuple(dict.fromkeys(names))
        if self.pattern is None and not self.named:
            raise Refused("subscribe needs at least one topic; to leave the group, unsubscribe")

    def __repr__(self) -> str:
        return repr(self.pattern.pattern) if self.pattern is not None else ", ".join(self.named)

    @property
    def asked_for(self) -> tuple[str, ...] | None:
        """The topics of a Metadata request; None for all topics."""
        return None if self.pattern is not None else self.named

    def now(self, metadata: Metadata) -> tuple[str, ...]:
        """Return the names of the topics. A pattern matches whole names, and no internal topic."""
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
