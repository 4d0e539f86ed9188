"""The ids that topics have, and had: a topic that is made anew under its name is another one."""

from typing import Final
from uuid import UUID

from odradek.protocol.schema import ZERO_UUID

REMEMBERED_MAX: Final = 10_000
"""The number of ids of deleted topics that are remembered. The oldest are forgotten first."""


class TopicIds:
    """The latest id of each topic name, and those before it.

    An id is never given twice. So an answer with a former id comes from a broker whose metadata is
    outdated, and must not be taken for another re-creation of the topic.
    """

    def __init__(self) -> None:
        self._latest: dict[str, UUID] = {}
        self._former: dict[UUID, None] = {}

    def is_former(self, topic_id: UUID) -> bool:
        """Return True if the topic with this id is known to be deleted."""
        return topic_id in self._former

    def learn(self, name: str, topic_id: UUID) -> None:
        """Note that an answer has this id for a name. Brokers without ids return zero."""
        if topic_id == ZERO_UUID:
            return
        before = self._latest.pop(name, topic_id)
        self._latest[name] = topic_id
        if before != topic_id:
            self._former[before] = None
            if len(self._former) > REMEMBERED_MAX:
                del self._former[next(iter(self._former))]

    def forget_some(self, known: int) -> None:
        """Forget the names that were seen longest ago, beyond the `known` topics that exist."""
        while len(self._latest) > known + REMEMBERED_MAX:
            del self._latest[next(iter(self._latest))]
