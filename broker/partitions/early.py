"""Records that are appended before what they follow is durable (`values/precedent.py`).

That is safe only where no other broker can have the one without the other: the log of the
coordinator's record and those that follow it have one replica, which is here.
"""

from collections.abc import Collection

from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.values.precedent import Precedent
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.errors import KafkaError
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC


def may_follow_now(
    partitions: Partitions, state_index: int, following: Collection[TopicIdPartition]
) -> bool:
    """Return True if records may be appended before the last one of a coordinator is durable.

    They are those that are appended to `following` in this turn, in which that record was appended
    to a partition of `__transaction_state`. The journal has got it then.
    """
    # invariant journal 6
    if not partitions.is_journaled:
        return False
    # A log of coordinators follows none: it could follow itself, or two each other. Such a
    # transaction makes no sense, and a client can ask for it.
    if any(where.topic == TRANSACTION_STATE_TOPIC for where in following):
        return False
    try:
        deciding = partitions.leader(TRANSACTION_STATE_TOPIC, state_index)
        leaders = [partitions.leader(*where.by_name) for where in following]
    except KafkaError:
        return False
    precedent = precedent_of(deciding) if all(map(may_follow, leaders)) else None
    if precedent is None:
        return False
    for leader in leaders:
        leader.log.saver.follow(precedent)
    return True


def precedent_of(leader: Leader) -> Precedent | None:
    """Return the last append of a leader as what other records may follow before it is durable.

    Return None if they must wait for it.
    """
    if not _is_only(leader):
        return None
    precedent = leader.maintenance.precedent()
    # A follower that is added meanwhile joins only with it.
    if precedent is not None:
        leader.view.followed_offset = leader.log.log_end_offset
    return precedent


# invariant journal 6
def may_follow(leader: Leader) -> bool:
    """Return True if a record may be appended here before what it follows is durable."""
    # Without a checkpoint recovery takes all that the file has, and cannot leave it out.
    return _is_only(leader) and leader.log.saver.has_checkpoint and leader.log.captured is not None


def joining(leader: Leader) -> list[int]:
    """Return the followers that may join the in-sync set."""
    # invariant journal 6
    # One that was added meanwhile could have a marker whose decision is lost, and lead with it.
    if leader.log.saver.has_precedents:
        return []
    return leader.view.joining(leader.marks.high_watermark)


def _is_only(leader: Leader) -> bool:
    # A log that is not noted as made may be made anew, empty.
    return leader.view.is_alone and leader.marks.held_by is None
