"""The leaders that a refusal names (KIP-951): the client goes there without asking for metadata."""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.cluster.image import BrokerImage
from odradek.protocol.errors import ErrorCode

NAMED_FOR: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
UNKNOWN: Final = (-1, -1)


class LeaderHints:
    """The leaders that one answer names."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self.brokers: dict[int, BrokerImage] = {}
        """The brokers that are named, for the answer's list of addresses."""

    def leader_and_epoch(self, code: int, topic: str, index: int) -> tuple[int, int]:
        """Return the leader that a refusal with `code` names, and its epoch; else (-1, -1).

        It never names this broker, which has just refused.
        """
        if code not in NAMED_FOR:
            return UNKNOWN
        image = self._context.core.cluster.image
        partition = image.partition(topic, index)
        broker = None if partition is None else image.broker(partition.leader)
        if partition is None or broker is None:
            return UNKNOWN
        if broker.node_id == self._context.core.config.node_id:
            return UNKNOWN
        self.brokers[broker.node_id] = broker
        return broker.node_id, partition.leader_epoch
