"""Markers that are appended before their decision is durable (`values/precedent.py`).

That is safe only where no other broker can have the one without the other: the log of the decision
and those of the markers have one replica, which is here.
"""

from odradek.broker.partitions.leader import Leader
from odradek.broker.values.precedent import Precedent


def precedent_of(leader: Leader) -> Precedent | None:
    """Return the last append of a leader as what markers may follow before it is durable.

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
    """Return True if markers may be appended here before their decision is durable."""
    # Without a checkpoint recovery takes all that the file has, and cannot leave them out.
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
