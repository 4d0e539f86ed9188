"""The readers that a Fetch of a client may have."""

import logging
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.security.rights import READ_TOPIC
from odradek.protocol.apis.fetch import FetchRequest

LOGGER: Final = logging.getLogger(__name__)


def is_from_follower(request: FetchRequest) -> bool:
    """Return True if a client asks as a follower, which is refused."""
    return max(request.replica_id, request.replica_state.replica_id) >= 0


def may_read(context: RequestContext, topic: str) -> bool:
    """Return True if the client may read a topic."""
    return context.access.allows(READ_TOPIC, topic)


def warn_of_follower(context: RequestContext, request: FetchRequest) -> None:
    """Log that a client has asked as a follower."""
    replica_id = max(request.replica_id, request.replica_state.replica_id)
    LOGGER.warning("a fetch of replica %d from client %s was refused", replica_id, context.host)
