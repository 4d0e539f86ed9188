"""UnregisterBroker (key 64), version 0, flexible from 0."""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import int16, int32, message, string


@message
class UnregisterBrokerRequest:
    broker_id: int = int32()


@message
class UnregisterBrokerResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


UNREGISTER_BROKER: Final = Api(
    key=64,
    name="UnregisterBroker",
    min_version=0,
    max_version=0,
    flexible_from=0,
    request=UnregisterBrokerRequest,
    response=UnregisterBrokerResponse,
)
