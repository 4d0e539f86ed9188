"""The matcher of one difference from Kafka (`differences.py`)."""

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Three patterns, each of a whole text: the story's id, Kafka's line, our line. A group that is
    named in both lines must be the same text in both. `also` sees both lines in the end."""

    name: str
    """The title of an item in docs/differences.md. A colon, and what this one is about, follow if
    several are about one item."""
    story: str
    kafka: str
    ours: str
    also: Callable[[str, str], bool] = lambda kafka, ours: True

    @property
    def title(self) -> str:
        return self.name.partition(": ")[0]

    def is_about(self, story: str) -> bool:
        return re.fullmatch(self.story, story) is not None

    def explains(self, story: str, kafka: str, ours: str) -> bool:
        if not self.is_about(story):
            return False
        theirs, mine = re.fullmatch(self.kafka, kafka), re.fullmatch(self.ours, ours)
        if theirs is None or mine is None:
            return False
        said, answered = theirs.groupdict(), mine.groupdict()
        if any(answered.get(name, text) != text for name, text in said.items()):
            return False
        return self.also(kafka, ours)
