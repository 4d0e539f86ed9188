"""The topics that match the patterns of one group."""

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.broker.patterns import compiled
from odradek.broker.turns import Turns

NO_TOPICS: Final[Mapping[str, object]] = {}


class PatternMatches:
    """Remembers what matches as long as the names of the topics stay the same."""

    def __init__(self) -> None:
        self.found: dict[str, frozenset[str]] = {}
        self.problems: dict[str, str] = {}
        """The reasons why patterns cannot be read. They match nothing."""
        self._topics = NO_TOPICS

    def missing(self, patterns: Iterable[str], topics: Mapping[str, object]) -> list[str]:
        """Return the patterns that have to be matched with the names of `topics`."""
        if self._topics is not topics:
            if self._topics.keys() != topics.keys():
                self.found = {}
            self._topics = topics
        return [pattern for pattern in patterns if pattern not in self.found]

    async def match(self, pattern: str, topics: Mapping[str, object], turns: Turns) -> None:
        """Match one pattern with all names."""
        try:
            expression = compiled(pattern)
        except ValueError as error:
            # Kafka may have stored a pattern that its Java reads and RE2 itself does not.
            self.problems[pattern] = f"SubscribedTopicRegex is not a regular expression: {error}."
            self.found[pattern] = frozenset()
            return
        matching = []
        for name in list(topics):
            await turns.take()
            if expression.fullmatch(name):
                matching.append(name)
        if self._topics.keys() == topics.keys():
            self.found[pattern] = frozenset(matching)

    def keep(self, patterns: Mapping[str, object]) -> None:
        """Forget what no member reads any more."""
        if self.found.keys() - patterns.keys():
            self.found = {key: each for key, each in self.found.items() if key in patterns}
            self.problems = {key: each for key, each in self.problems.items() if key in patterns}
