"""An API of the protocol: its key, its versions and its two messages."""

from typing import Final, Generic, TypeVar

from odradek.late import dataclass
from odradek.protocol import wire

Request = TypeVar("Request")
Response = TypeVar("Response")

API_VERSIONS_KEY: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Api(Generic[Request, Response]):
    """An API in versions `min_version`..`max_version`, both included.

    `advertised_min` is the first version in the response of ApiVersions, where it differs: Produce
    is listed from 0 although 0-2 are refused, because librdkafka up to 2.8 turns compression off
    otherwise (KAFKA-18659).
    """

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    request: type[Request]
    response: type[Response]
    advertised_min: int | None = None

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def has(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def parse_request(self, version: int, data: wire.Buffer | wire.Cursor) -> Request:
        return wire.parse(self.request, version, self.is_flexible(version), data)

    def parse_response(self, version: int, data: wire.Buffer | wire.Cursor) -> Response:
        return wire.parse(self.response, version, self.is_flexible(version), data)

    def build_request(
        self, version: int, request: Request, parts: wire.Parts | None = None
    ) -> wire.Parts:
        return wire.build(request, version, self.is_flexible(version), parts)

    def build_response(
        self, version: int, response: Response, parts: wire.Parts | None = None
    ) -> wire.Parts:
        return wire.build(response, version, self.is_flexible(version), parts)
