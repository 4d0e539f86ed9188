"""Where we mean to answer otherwise than Kafka: the whole list.

A difference that is not here fails the comparison, and so does one that is here and that no story
meets any more. A matcher is narrow: it names the stories, Kafka's line and ours.

What is *not* a difference, because both are brought to the same form before they are compared:

- Identities that a broker chooses get names in the order in which they appear (`names.py`).
- Answers that say "not yet" (CONCURRENT_TRANSACTIONS while markers are under way, the coordinator's
  while it loads, NOT_ENOUGH_REPLICAS where Produce puts them into old words) are asked again until
  there is a final one. Kafka refuses at once where we wait; the final answer is compared.
- When a transaction times out: Kafka looks every so often, we have a deadline. The state that
  follows is waited for, not the time.
- Our own tagged fields of `__transaction_state`, timestamps, and the texts of error messages.
"""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Three patterns, each of a whole text: the story's id, Kafka's line, our line. A group that is
    named in both lines must be the same text in both."""

    name: str
    reason: str
    story: str
    kafka: str
    ours: str

    def is_about(self, story: str) -> bool:
        return re.fullmatch(self.story, story) is not None

    def explains(self, story: str, kafka: str, ours: str) -> bool:
        if not self.is_about(story):
            return False
        theirs, mine = re.fullmatch(self.kafka, kafka), re.fullmatch(self.ours, ours)
        if theirs is None or mine is None:
            return False
        said, answered = theirs.groupdict(), mine.groupdict()
        return all(answered.get(name, text) == text for name, text in said.items())


DIFFERENCES: Final[tuple[Difference, ...]] = ()
