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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Three patterns, each of a whole text: the story's id, Kafka's line, our line. A group that is
    named in both lines must be the same text in both. `also` sees both lines in the end."""

    name: str
    reason: str
    story: str
    kafka: str
    ours: str
    also: Callable[[str, str], bool] = lambda kafka, ours: True

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


_ABORTED: Final = re.compile(r" aborted (\w+)@(\d+)")
_LOOK: Final = (
    r"(?P<what>(look|read) .* -> NONE hw \d+ lso \d+( start \d+)?)( aborted \w+@\d+)*"
    r"(?P<rest>( batches .*| \[.*)?)"
)


def _is_sorted_and_cut_off(kafka: str, ours: str) -> bool:
    """Ours has Kafka's aborted transactions that begin before the LSO, by where they begin."""
    lso = int(kafka.partition(" lso ")[2].split()[0])
    theirs = [(int(first), whose) for whose, first in _ABORTED.findall(kafka)]
    mine = [(int(first), whose) for whose, first in _ABORTED.findall(ours)]
    return mine == sorted(found for found in theirs if found[0] < lso)


def _is_one_behind(kafka: str, ours: str) -> bool:
    """The identity that Kafka hands out, if it does, is the one after the one that asks."""
    asked, *told = (int(epoch) for epoch in re.findall(r"p\d+/(\d+)", kafka))
    return told in ([], [asked + 1])


_OF_COORDINATORS: Final = (
    Difference(
        name="an older instance is not handed the newest one's identity",
        reason="EndTxn 5 with the epoch before the current one repeats what spent that epoch, if"
        " the last end did. After an end of TV1 it did not: the epoch before is that of an older"
        " instance, which was fenced. Kafka answers that its transaction was committed (aborted),"
        " with the newest instance's epoch.",
        story=r"(end\.cells\[situation=Complete(Commit|Abort)/1,version=5\]|walk\..*)",
        kafka=r"(?P<what>\w+ v5 [-\w]+ p\d+/\d+) -> (NONE p\d+/\d+|INVALID_TXN_STATE)",
        ours=r"(?P<what>\w+ v5 [-\w]+ p\d+/\d+) -> PRODUCER_FENCED",
        also=_is_one_behind,
    ),
    Difference(
        name="the answer with the last epoch may be lost",
        reason="InitProducerId that asks again for epoch 32,766 with the epoch before gets"
        " UNKNOWN_SERVER_ERROR from Kafka, which counts no epoch behind that one (a bug there: the"
        " producer cannot go on). We give the same answer again.",
        story=r"exhaustion\..*",
        kafka=r"((?P<what>init v\d e\d+ expects p1/32765) -> UNKNOWN_SERVER_ERROR|)",
        ours=r"((?P<what>init v\d e\d+ expects p1/32765) -> NONE p1/32766"
        r"|state e\d+: Empty p1/32766 60000ms TV\d previous p1 idle null)",
    ),
)

_OF_READING: Final = (
    Difference(
        name="aborted transactions are sorted and end at the LSO",
        reason="Kafka lists them in the order of their markers, also those behind the last record"
        " that it returns. Some consumers (librdkafka, brod, franz-go) want them by their first"
        " offset; none needs those behind.",
        story=r"(walk|partition_walk|stable|end|produce)\..*",
        kafka=_LOOK,
        ours=_LOOK,
        also=_is_sorted_and_cut_off,
    ),
    Difference(
        name="an offset out of range is answered with the bounds",
        reason="Kafka leaves high watermark, LSO and log start at -1. With the bounds, a"
        " consumer knows where it can go on.",
        story=r"(walk|partition_walk|stable)\..*",
        kafka=r"(?P<what>(look|read) .* -> OFFSET_OUT_OF_RANGE) hw -1 lso -1( start -1)?"
        r"(?P<rest>.*)",
        ours=r"(?P<what>(look|read) .* -> OFFSET_OUT_OF_RANGE) hw \d+ lso \d+( start (-1|0))?"
        r"(?P<rest>.*)",
    ),
)

_OF_PARTITIONS: Final = (
    Difference(
        name="a refused or repeated batch does not block its producer",
        reason="Kafka remembers the sequence of a batch that it asked its coordinator about, also"
        " if the answer was no or the batch a repeat, and refuses every higher one as out of order"
        " until the producer's next marker: a late retry spoils the next transaction.",
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
    Difference(
        name="the newest record that a read_committed look-up may see",
        reason="Kafka answers MAX_TIMESTAMP with -1 if the newest record of all is in an open"
        " transaction. We look for the newest one below the last stable offset.",
        story=r"stable\.list_offsets.*",
        kafka=r"(?P<what>offset v\d+ t-0 at -3 committed -> NONE) -1",
        ours=r"(?P<what>offset v\d+ t-0 at -3 committed -> NONE) \d+",
    ),
    Difference(
        name="a group id has at most 1 KiB",
        reason="It is kept in memory, and any client may send one.",
        story=r"bad_contents\.offsets_of_any_kind.*",
        kafka=r"(?P<what>commit offsets v5 group of 32000 characters -> 1) NONE",
        ours=r"(?P<what>commit offsets v5 group of 32000 characters -> 1) INVALID_GROUP_ID",
    ),
    Difference(
        name="a transactional batch has a producer id",
        reason="Kafka appends those without a producer id. No coordinator knows them and nothing"
        " ends them. We refuse them.",
        story=r"bad_input\.transactional_batches_of_nobody.*",
        kafka=r"(?P<what>produce v\d+ x t-0 -\d/(-1|0) .* txn -> t-0) @\d.*",
        ours=r"(?P<what>produce v\d+ x t-0 -\d/(-1|0) .* txn -> t-0) INVALID_PRODUCER_ID_MAPPING",
    ),
    Difference(
        name="what is asked for twice is described once",
        reason="So that no small request has a huge answer.",
        story=r"bad_looks\.(ids|partitions)_to_describe",
        kafka=r"(?P<what>(describe 2 ids|producers of .*) -> )(?P<once>.+) \| (?P=once)",
        ours=r"(?P<what>(describe 2 ids|producers of .*) -> )(?P<once>.+)",
    ),
    Difference(
        name="all offsets of a group, stable: the first one of a partition counts as unstable",
        reason="Asked for all partitions Kafka names those that have an offset already and is"
        " silent on those whose first one is pending, which it calls unstable if they are asked"
        " for by name.",
        story=r"pending\.two_groups_of_which_one_is_unstable.*",
        kafka=r"(?P<what>offsets v\d+ h g of all -> h NONE \| g NONE)",
        ours=r"(?P<what>offsets v\d+ h g of all -> h NONE \| g NONE)"
        r" 0=-1/-1 '' UNSTABLE_OFFSET_COMMIT",
    ),
)

DIFFERENCES: Final[tuple[Difference, ...]] = (*_OF_COORDINATORS, *_OF_READING, *_OF_PARTITIONS)
