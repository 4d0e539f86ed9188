"""The topics that match the patterns of one group."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final

from odradek.broker.environment.patterns import compiled
from odradek.broker.environment.turns import Turns

NO_NAMES: Final = frozenset[str]()
NO_TOPICS: Final[Mapping[str, object]] = {}
COMPILE_STEPS: Final = 20
"""The steps that the compilation of a pattern counts for."""


class PatternMatches:
    """Remembers what matches as long as the names of the topics and the rights stay the same.

    When the names have changed, a known pattern is matched with the new names only. When the rights
    have changed, it is matched with all names. Patterns that match the same names share one set: a
    client may have as many patterns as it likes.
    """

    def __init__(self) -> None:
        self.found: dict[str, frozenset[str]] = {}
        self.problems: dict[str, str] = {}
        """The reasons why patterns cannot be read. They match nothing."""
        self._topics = NO_TOPICS
        self._rights: object = None
        self._sets: list[frozenset[str]] = []
        self._before: dict[str, frozenset[str]] = {}
        """What matched before the names changed."""
        self._names_before: Set[str] = NO_NAMES

    def share(self, sets: Iterable[frozenset[str]]) -> None:
        """Use these sets, which the group has already, for patterns that match the same."""
        self._sets = list({id(each): each for each in (*self._sets, *sets)}.values())

    def take_rights(self, rights: object) -> bool:
        """Forget what has matched if the rights are other ones now. Return True if they are.

        `rights` is another object whenever members may see other topics (`Access.rights`).
        """
        if self._rights is rights:
            return False
        self._rights = rights
        self.found = {}
        self._before, self._names_before = {}, NO_NAMES
        return True

    def missing(self, patterns: Iterable[str], topics: Mapping[str, object]) -> list[str]:
        """Return the patterns that have to be matched with the names of `topics`."""
        if self._topics is not topics:
            if self._topics.keys() != topics.keys():
                if self.found:
                    self._before, self._names_before = self.found, self._topics.keys()
                self.found = {}
            self._topics = topics
        return [pattern for pattern in patterns if pattern not in self.found]

    async def match(
        self,
        pattern: str,
        topics: Mapping[str, object],
        turns: Turns,
        may_see: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Match one pattern with the names that the member who asks may see.

        As in Kafka, what it may not see is not matched for the others of its pattern either.
        """
        await turns.take(COMPILE_STEPS)
        try:
            expression = compiled(pattern)
        except ValueError as error:
            # Kafka may have stored a pattern that its Java reads and RE2 itself does not.
            self.problems[pattern] = f"SubscribedTopicRegex is not a regular expression: {error}."
            self.found[pattern] = frozenset()
            return
        await turns.take(1 + len(topics) // 10)
        before = self._before.get(pattern)
        matching = [] if before is None else [name for name in before if name in topics]
        for name in list(topics):
            if before is None or name not in self._names_before:
                await turns.take()
                if expression.fullmatch(name) and may_see(name):
                    matching.append(name)
        await turns.take(1 + len(matching) // 5)
        self.found[pattern] = self._shared_set(matching)

    def _shared_set(self, names: Sequence[str]) -> frozenset[str]:
        """Return a set of these names: one that there is, or a new one."""
        for each in self._sets:
            if len(each) == len(names) and each.issuperset(names):
                return each
        # A set that is made of another one has half the size of one that has grown.
        new = frozenset(set(names))
        self._sets.append(new)
        return new

    def keep(self, patterns: Mapping[str, object]) -> None:
        """Forget what no member reads any more."""
        if self.found.keys() - patterns.keys():
            self.found = {key: each for key, each in self.found.items() if key in patterns}
            self.problems = {key: each for key, each in self.problems.items() if key in patterns}
        if self._before and self.found.keys() >= patterns.keys():
            self._before, self._names_before = {}, NO_NAMES
        if len(self._sets) > len(self.found):
            self._sets = list({id(each): each for each in self.found.values()}.values())
