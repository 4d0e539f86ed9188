"""The coordinator of a group or of a transactional id.

FindCoordinator (key 10), versions 0-6, flexible from 3.

- 1: the key type, 0 a group or 1 a transactional id, and an error message.
- 4: several keys in one request, each with its own error. The fields for a single key are gone.
- 5: the client knows TRANSACTION_ABORTABLE. 6: share groups (key type 2).
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, int8, int16, int32, message, string


@message
class FindCoordinatorRequest:
    key: str = string(default="", until=3)
    key_type: int = int8(default=0, since=1)
    coordinator_keys: tuple[str, ...] = array("string", default=(), since=4)


@message
class Coordinator:
    key: str = string(since=4)
    node_id: int = int32(since=4)
    host: str = string(since=4)
    port: int = int32(since=4)
    error_code: int = int16(since=4)
    error_message: str | None = string(since=4, nullable=4)


@message
class FindCoordinatorResponse:
    throttle_time_ms: int = int32(default=0, since=1)
    error_code: int = int16(default=0, until=3)
    error_message: str | None = string(default="", since=1, until=3, nullable=1)
    node_id: int = int32(default=0, until=3)
    host: str = string(default="", until=3)
    port: int = int32(default=0, until=3)
    coordinators: tuple[Coordinator, ...] = array(Coordinator, default=(), since=4)


FIND_COORDINATOR: Final = Api(
    key=10,
    name="FindCoordinator",
    min_version=0,
    max_version=6,
    flexible_from=3,
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
)
