"""Hypothesis strategies for every message at every version, derived from the declarations."""

import copy
import uuid
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final

import pytest

from odradek.protocol.api import Api
from odradek.protocol.schema import FieldType
from odradek.protocol.state_topics import OWN_TAGS_FROM
from tests.drawing import settings, st
from tests.protocol.declared import APIS_WITH_2PC

quick: Final = settings(max_examples=settings().max_examples // 7)
"""The same examples in every run, few for each of about three hundred cases."""

# (API, version, "request" or "response") for every message on the wire
Case = tuple[Api[Any, Any], int, str]
CASES: Final[tuple[Case, ...]] = tuple(
    (api, version, side)
    for api in APIS_WITH_2PC.values()
    for version in range(api.min_version, api.max_version + 1)
    for side in ("request", "response")
)

every_message = pytest.mark.parametrize(
    ("api", "version", "side"), CASES, ids=[f"{api.name}-{v}-{side}" for api, v, side in CASES]
)

INTEGERS: Final = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
}
OTHERS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16).map(lambda data: uuid.UUID(bytes=data)),
    "string": st.text(max_size=6),
    "bytes": st.binary(max_size=8),
    "records": st.binary(max_size=20) | st.just(bytes(5000)),
}


def message_class(api: Api[Any, Any], side: str) -> Any:
    return api.request if side == "request" else api.response


@cache
def messages(cls: Any, version: int, *, with_own_tags: bool = True) -> st.SearchStrategy[Any]:
    """Return a strategy for any `cls` that can be written at `version`.

    Fields that the version lacks have their defaults. Without `with_own_tags`, Odradek's own tagged
    fields have them too.
    """
    given: dict[str, st.SearchStrategy[Any]] = {}
    for declared in fields(cls):
        kind: FieldType = declared.metadata["type"]
        is_own = kind.tag is not None and kind.tag >= OWN_TAGS_FROM
        if not kind.is_in(version) or (is_own and not with_own_tags):
            continue
        strategy = values(kind, version, with_own_tags)
        if kind.tag is not None:
            assert declared.default is not MISSING
            default = st.just(declared.default)
            strategy = default | default.map(copy.copy) | strategy  # the instance, or its equal
        given[declared.name] = strategy
    return st.builds(cls, **given)


def values(kind: FieldType, version: int, with_own_tags: bool) -> st.SearchStrategy[Any]:
    item: Any = kind.item
    if kind.kind == "array":
        is_primitive = isinstance(item, FieldType)
        items = (
            values(item, version, with_own_tags)
            if is_primitive
            else messages(item, version, with_own_tags=with_own_tags)
        )
        strategy: st.SearchStrategy[Any] = st.lists(items, max_size=2).map(tuple)
    elif kind.kind == "struct":
        strategy = messages(item, version, with_own_tags=with_own_tags)
    elif kind.kind in INTEGERS:
        strategy = INTEGERS[kind.kind]
    else:
        strategy = OTHERS[kind.kind]
    return st.none() | strategy if kind.may_be_null(version) else strategy
