"""Quotas as values: of whom a quota is, what it bounds, and which of several counts.

A quota belongs to an entity: a user, a client id, both together, or an address. Each of them is a
name or the default, which counts for all names without a quota of their own.

For every kind of quota the first entity counts that has a value for it: the user with the client
id, the user with the default client id, the user; then the default user with the client id, with
the default client id, and alone; then the client id, and the default client id. What counts also
says who shares it: the quota of a user is shared by all connections of the user, that of a user
with a client id only by those of the user with that id. A quota of a default is not shared by all:
each name that it counts for has it for itself.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, NamedTuple

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TYPES: Final = (USER, CLIENT_ID, IP)
"""The types of a part of an entity, in the order in which an entity has them."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

Entity = tuple[tuple[str, str | None], ...]
"""Types with names, in the order of `TYPES`. None stands for the default."""
Values = Mapping[str, float]
"""The values of an entity, by the kind of quota."""
NO_VALUES: Final[Values] = MappingProxyType({})


ROUNDING: Final = 1e-6
"""The difference to a whole number that does not count."""
LEAST: Final = 1e-6
"""The least value of a quota that need not be a whole number. Waits are computed by dividing by it,
and a number next to 0 has no such result."""


class QuotaBound(NamedTuple):
    """The values that a kind of quota may have."""

    most: float | None
    """The largest whole number; None if the value need not be a whole number."""
    java_type: str = ""

    def is_too_small(self, value: float) -> bool:
        """Return True for a value that would let nothing pass for ever, and for NaN."""
        return not value >= (LEAST if self.most is None else 1 - ROUNDING)

    def is_fraction(self, value: float) -> bool:
        """Return True if the value must be a whole number and is none."""
        return self.most is not None and abs(value - round(value)) > ROUNDING


OF_CLIENTS: Final[Mapping[str, QuotaBound]] = {
    PRODUCER_BYTE_RATE: QuotaBound(INT64_MAX, "a LONG"),
    CONSUMER_BYTE_RATE: QuotaBound(INT64_MAX, "a LONG"),
    REQUEST_PERCENTAGE: QuotaBound(None),
    CONTROLLER_MUTATION_RATE: QuotaBound(None),
}
OF_ADDRESSES: Final[Mapping[str, QuotaBound]] = {
    CONNECTION_CREATION_RATE: QuotaBound(INT32_MAX, "an INT")
}
POSITIVE: Final = QuotaBound(None)
"""The bound of a kind of quota that a later version has stored."""


def bound_of(kind: str) -> QuotaBound:
    """Return the bound of a kind of quota in the metadata store."""
    return OF_CLIENTS.get(kind) or OF_ADDRESSES.get(kind) or POSITIVE


def entity_of(parts: Mapping[str, str | None]) -> Entity:
    """Return the entity of types and names."""
    return tuple((kind, parts[kind]) for kind in TYPES if kind in parts)


class Found(NamedTuple):
    """The quota that counts for a client."""

    limit: float
    sharers: tuple[str | None, str | None]
    """The user and the client id whose connections share it; None is every one."""


class QuotaTable:
    """All quotas of a cluster at one moment."""

    __slots__ = ("_by_address", "kinds", "of")

    def __init__(self, of: Mapping[Entity, Values]) -> None:
        self.of = of
        self.kinds = frozenset(kind for values in of.values() for kind in values)
        """The kinds of which there is a quota of anybody."""
        self._by_address = dict(_by_address(of))

    def find(self, kind: str, user: str, client_id: str) -> Found | None:
        """Return the quota that counts for a client; None without one."""
        if kind not in self.kinds:
            return None
        both, of_user, of_client = (user, client_id), (user, None), (None, client_id)
        for entity, sharers in (
            (((USER, user), (CLIENT_ID, client_id)), both),
            (((USER, user), (CLIENT_ID, None)), both),
            (((USER, user),), of_user),
            (((USER, None), (CLIENT_ID, client_id)), both),
            (((USER, None), (CLIENT_ID, None)), both),
            (((USER, None),), of_user),
            (((CLIENT_ID, client_id),), of_client),
            (((CLIENT_ID, None),), of_client),
        ):
            limit = self.of.get(entity, NO_VALUES).get(kind)
            if limit is not None:
                return Found(limit, sharers)
        return None

    def connection_rate(self, address: str) -> float | None:
        """Return the connections in a second that an address may open; None without a quota."""
        if CONNECTION_CREATION_RATE not in self.kinds:
            return None
        own = self._by_address.get(_plain(address))
        if own is not None:
            return own
        return self.of.get(((IP, None),), NO_VALUES).get(CONNECTION_CREATION_RATE)


def _by_address(of: Mapping[Entity, Values]) -> Iterable[tuple[str, float]]:
    for entity, values in of.items():
        kind, name = entity[0]
        if kind == IP and name is not None and CONNECTION_CREATION_RATE in values:
            yield _plain(name), values[CONNECTION_CREATION_RATE]


def _plain(address: str) -> str:
    """Return the one way to write an address that may be written in several ways."""
    with suppress(ValueError):
        found = ip_address(address)
        return str(getattr(found, "ipv4_mapped", None) or found)
    return address


def is_address(text: str) -> bool:
    """Return True for an address of IPv4 or IPv6."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


NO_QUOTAS: Final = QuotaTable({})
