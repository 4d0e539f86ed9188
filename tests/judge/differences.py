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


_OF_PARTITIONS: Final = (
    Difference(
        name="a refused or repeated batch does not block its producer",
        reason="Kafka remembers the sequence of a batch that it asked its coordinator about, also"
        " if the answer was no or the batch a repeat, and refuses every higher one as out of order"
        " until the entry expires: a late retry stops the producer's next transaction.",
        story=r"sequences\.a_(late_repeat|refused_epoch)_does_not_block_.*",
        kafka=r"(?P<what>.* t-0 p1/0 #1\+1 txn -> t-0 )OUT_OF_ORDER_SEQUENCE_NUMBER.*",
        ours=r"(?P<what>.* t-0 p1/0 #1\+1 txn -> t-0 )@\d.*",
    ),
    Difference(
        name="two batches for one partition in one request",
        reason="Kafka appends the last, forgets the others and does not say so. We append all of"
        " them and answer each.",
        story=r"sequences\.the_same_partition_twice_in_one_request.*",
        kafka=r"(?P<what>.* -> )t-0 @0 start 0",
        ours=r"(?P<what>.* -> )t-0 @0 start 0 \| t-0 @1 start 0",
    ),
    Difference(
        name="a repeat of a TV2 marker is not written again",
        reason="Kafka acknowledges and appends it (KAFKA-19999). It says nothing: the transaction"
        " is over. A log without it is shorter, and what it is answered is the same.",
        story=r"markers\..*generation=\(2, 2\).*",
        kafka=r"(?P<what>end of t-0 -> NONE NONE) [34] stable [34]",
        ours=r"(?P<what>end of t-0 -> NONE NONE) 2 stable 2",
    ),
    Difference(
        name="a producer id below -1 has no markers",
        reason="Kafka appends them without an entry for a producer: nothing will ever read them.",
        story=r"markers\.any_numbers\[.*producer_id=-5.*",
        kafka=r"(?P<what>mark v\d (COMMIT|ABORT) -5/-?\d+ .* -> -5 t-0 )(NONE|\w+)",
        ours=r"(?P<what>mark v\d (COMMIT|ABORT) -5/-?\d+ .* -> -5 t-0 )UNKNOWN_SERVER_ERROR",
    ),
)

DIFFERENCES: Final[tuple[Difference, ...]] = (*_OF_PARTITIONS,)
