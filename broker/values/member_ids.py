"""Producer ids of members of transaction groups: they begin at 10^15.

The ids of a group are used once, and there are many, so partitions forget their producers after
`transaction.group.id.expiration.ms` and not after `producer.id.expiration.ms`. A partition knows
only producer ids. So the id itself says that it is a member's: in every batch and marker, on every
replica, in checkpoints, in Kafka's snapshots, and in a log that is read anew without them.

Other producer ids are the numbers of the counter in the metadata store, which never come so far. A
member's id is 10^15 more than its number, so that ids stay unique.

A partition may forget a producer without an open transaction, also if other replicas have not: the
leader verifies every transactional batch with the coordinator (KIP-890), which refuses those of an
ended transaction. Without that check (`transaction.partition.verification.enable=false`) members
are forgotten as late as other producers.
"""

from typing import Final

FROM: Final = 10**15


# invariant transaction-groups 6: A partition forgets the producers of members sooner than others,
# but none with an open transaction. The producer id says that it is a member's, so every replica
# knows it.
# plant members are forgotten as late as other producers
def is_member(producer_id: int) -> bool:
    """Return True for the producer id of a member of a transaction group."""
    return FROM <= producer_id < 2 * FROM


def member_id(number: int) -> int:
    """Return the producer id of a member, made of a number of the counter."""
    assert 0 <= number < FROM
    return FROM + number


def number_of(producer_id: int) -> int:
    """Return the number of the counter that an id was made of; -1 if no broker has made it."""
    if is_member(producer_id):
        return producer_id - FROM
    return producer_id if producer_id < FROM else -1
