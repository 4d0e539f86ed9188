"""Quotas in the metadata store: keys, and values in msgpack.

    /quotas/user/NAME/             {kind: value}
    /quotas/client-id/NAME/
    /quotas/user+client-id/USER/CLIENT/
    /quotas/ip/ADDRESS/

There is one key for an entity. Names are percent-encoded, and a slash ends each, so that no key
begins another one. `*`, which is never in an encoded name, stands for the default.
"""

from typing import Final

from odradek.broker.cluster.store import fields_of, pack, reading
from odradek.broker.environment.env import Versioned
from odradek.broker.quotas.entities import TYPES, Entity, QuotaTable, Values, bound_of

QUOTAS: Final = "/quotas/"
DEFAULT: Final = "*"
JOINS_TYPES: Final = "+"


def quota_key(entity: Entity) -> str:
    """Return the key of the quotas of an entity."""
    from urllib.parse import quote

    types = JOINS_TYPES.join(kind for kind, _ in entity)
    names = "".join(f"{DEFAULT if name is None else quote(name, safe='')}/" for _, name in entity)
    return f"{QUOTAS}{types}/{names}"


def entity_of_key(key: str) -> Entity:
    """Return the entity of a key under `/quotas/`. Raises `Unreadable`."""
    from urllib.parse import unquote

    with reading(key):
        joined, *names, end = key.removeprefix(QUOTAS).split("/")
        types = joined.split(JOINS_TYPES)
        if end or not all(names) or not set(types) <= set(TYPES):
            raise ValueError("it is not the key of an entity with quotas")
        return tuple(
            (kind, None if name == DEFAULT else unquote(name, errors="strict"))
            for kind, name in zip(types, names, strict=True)
        )


def pack_values(values: Values) -> bytes:
    return pack(dict(values))


def read_values(key: str, stored: Versioned) -> dict[str, float]:
    """Return the quotas of an entity. Raises `Unreadable`, also if one would let nothing pass."""
    with reading(key):
        values = {str(kind): float(value) for kind, value in fields_of(stored).items()}
        for kind, value in values.items():
            if bound_of(kind).is_too_small(value):
                raise ValueError(f"{kind} is {value}, which lets nothing pass")
        return values


class QuotasBuilder:
    """The values under `/quotas/`, as tables are made of them."""

    def __init__(self) -> None:
        self._of: dict[Entity, Values] = {}
        self._table: QuotaTable | None = None

    def put(self, key: str, stored: Versioned | None) -> None:
        """Take over one key; None deletes it. Raises `Unreadable`; then nothing has changed."""
        entity = entity_of_key(key)
        if stored is None:
            self._of.pop(entity, None)
        else:
            self._of[entity] = read_values(key, stored)
        self._table = None

    @property
    def table(self) -> QuotaTable:
        """The table of all values. It is the same object until one of them changes."""
        if self._table is None:
            self._table = QuotaTable(dict(self._of))
        return self._table
