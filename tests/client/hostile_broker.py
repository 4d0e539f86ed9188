"""The broker in memory, once it has turned: whatever it is asked, nothing comes of it."""

import dataclasses
import types
import typing
from enum import Enum
from typing import Any, Final
from uuid import UUID

import trio

from odradek.protocol.api import Api
from odradek.protocol.apis.coordinator import FIND_COORDINATOR
from odradek.protocol.apis.metadata import METADATA
from odradek.protocol.apis.versions import API_VERSIONS
from odradek.protocol.connection import Request, ServerProtocol
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from tests.client.fake_broker import HOST, NODE, PORT, FakeBroker, MemoryStream
from tests.protocol.declared import APIS


class Trouble(Enum):
    ABSENT = "it is not there"
    UNREACHABLE = "no connection to it comes about, and none is refused"
    SILENT = "it accepts connections and never answers"
    MUTE = "it answers what is asked about the cluster, and nothing else"
    LOADING = "it answers each request with a retriable error"
    MOVED = "it always says that another broker leads and coordinates"
    NO_COORDINATOR = "a coordinator is never available"
    NO_TOPIC = "the topic does not exist"
    NO_LEADER = "the topic has an error and no leader"
    SLOW = "it does what it is asked, each time just before the request times out"
    DIES = "it closes the connection in the middle of every call"


SLOW_S: Final = 29.0
CLUSTER_APIS: Final = {API_VERSIONS.key, METADATA.key, FIND_COORDINATOR.key}
CODES: Final = {
    Trouble.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Trouble.MOVED: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Trouble.NO_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    Trouble.NO_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Trouble.NO_LEADER: ErrorCode.LEADER_NOT_AVAILABLE,
}
CLOSES: Final = {Trouble.ABSENT, Trouble.UNREACHABLE, Trouble.DIES}
VALUES: Final[dict[Any, Any]] = {
    float: 0.0,
    int: 0,
    bool: False,
    bytes: b"",
    UUID: ZERO_UUID,
    str: "t",
}
BY_NAME: Final[dict[str, Any]] = {"host": HOST, "port": PORT, "node_id": NODE, "leader_id": NODE}


class HostileBroker(FakeBroker):
    """A good broker of every API that `FakeBroker` has, until `turn`."""

    trouble: Trouble | None = None

    def turn(self, trouble: Trouble) -> None:
        self.trouble = trouble
        if trouble is Trouble.NO_TOPIC:
            self.topics = set()
        if trouble in CLOSES:
            self.disconnect()

    async def connect(self, host: str, port: int) -> MemoryStream:
        if self.trouble is Trouble.ABSENT:
            raise ConnectionRefusedError(111, "Connection refused")
        if self.trouble is Trouble.UNREACHABLE:
            await trio.sleep_forever()
        return await super().connect(host, port)

    def served(self) -> tuple[Api[Any, Any], ...]:
        return tuple(APIS.values())

    async def _serve_one(
        self, stream: trio.StapledStream[Any, Any], protocol: ServerProtocol, frame: memoryview
    ) -> bool:
        request = protocol.parse(frame)
        self.requests.append(request)
        key = request.api.key
        if self.trouble is Trouble.SILENT:
            await trio.sleep_forever()
        if self.trouble is Trouble.MUTE and key not in CLUSTER_APIS:
            await trio.sleep_forever()
        if self.trouble is Trouble.SLOW:
            await trio.sleep(SLOW_S)
        if self.trouble is Trouble.DIES and key != API_VERSIONS.key:
            return False
        response = self._response(request)
        if response is None:
            await trio.sleep_forever()
        try:
            await stream.send_all(b"".join(protocol.build_response(request, response)))
        except trio.BrokenResourceError:
            return False
        return True

    def _response(self, request: Request) -> Any:
        key = request.api.key
        code = CODES.get(self.trouble or Trouble.SILENT, ErrorCode.NONE)
        handler = self._handlers.get(key)
        if handler is None or (code and key not in CLUSTER_APIS):
            return filled(request.api.response, code)
        if key == FIND_COORDINATOR.key and self.trouble is Trouble.NO_COORDINATOR:
            return filled(request.api.response, code)
        is_topic = key == METADATA.key and self.trouble is Trouble.NO_LEADER
        return handler(request.body, code if is_topic else ErrorCode.NONE)


def filled(kind: Any, code: ErrorCode) -> Any:
    """A message in which every array has one element, and every error is `code`."""
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name.endswith("error_code"):
            values[field.name] = code
        elif field.name in BY_NAME:
            values[field.name] = BY_NAME[field.name]
        else:
            values[field.name] = _value(hints[field.name], code)
    return kind(**values)


def _value(hint: Any, code: ErrorCode) -> Any:
    if isinstance(hint, types.UnionType):
        hint = next(choice for choice in typing.get_args(hint) if choice is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        return (_value(typing.get_args(hint)[0], code),)
    if dataclasses.is_dataclass(hint):
        return filled(hint, code)
    return VALUES.get(hint, b"")
