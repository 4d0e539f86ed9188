"""The broker in memory, once its answers are well formed and not true."""

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from odradek.protocol.apis.versions import API_VERSIONS
from odradek.protocol.connection import Request
from tests.client.hostile_broker import HostileBroker

REQUESTS_MAX: Final = 5_000
"""More in one call are a loop without a pause."""
LONG_TEXT: Final = "h" * 30_000
INT64_NAMES: Final = ("offset", "timestamp", "watermark", "producer_id")
INT8_NAMES: Final = ("operation", "mechanism")
"""Whole names, unlike those that follow from a part."""
INT32_NAMES: Final = ("node", "port", "broker", "partition_index", "leader", "controller")

Lie = Callable[[str, Any], Any]
"""What a field of an answer, given by its name, says instead."""


def empty(name: str, value: Any) -> Any:
    return () if isinstance(value, tuple) else value


def negative(name: str, value: Any) -> Any:
    return -7 if _is_number(name, value) else value


def huge(name: str, value: Any) -> Any:
    if not _is_number(name, value):
        return value
    if name in INT8_NAMES:
        return 2**7 - 1
    if any(part in name for part in INT64_NAMES):
        return 2**63 - 1
    return 2**31 - 1 if any(part in name for part in INT32_NAMES) else 2**15 - 1


def long_text(name: str, value: Any) -> Any:
    return LONG_TEXT if isinstance(value, str) else value


def foreign(name: str, value: Any) -> Any:
    return "other" if isinstance(value, str) else value


def no_text(name: str, value: Any) -> Any:
    return "" if isinstance(value, str) else value


def twice(name: str, value: Any) -> Any:
    return value * 2 if isinstance(value, tuple) else value


LIES: Final[tuple[Lie, ...]] = (empty, negative, huge, long_text, foreign, no_text, twice)


def _is_number(name: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return not name.endswith(("error_code", "throttle_time_ms", "_type", "source"))


def told(lie: Lie, answer: Any, name: str = "") -> Any:
    """`answer` with every field as `lie` has it."""
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        fields = {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}
        changed = {key: told(lie, value, key) for key, value in fields.items()}
        return dataclasses.replace(answer, **changed)
    if isinstance(answer, tuple):
        return lie(name, tuple(told(lie, element, name) for element in answer))
    return lie(name, answer)


class LyingBroker(HostileBroker):
    """Says the truth until `lie` is set; about its versions then too if `is_all_a_lie`."""

    lie: Lie | None = None
    is_all_a_lie = False

    def _response(self, request: Request) -> Any:
        assert len(self.requests) < REQUESTS_MAX, f"a loop of {request.api.name}"
        response = super()._response(request)
        is_versions = request.api.key == API_VERSIONS.key
        if self.lie is None or response is None or (is_versions and not self.is_all_a_lie):
            return response
        return told(self.lie, response)
