"""Quotas: the part of `Admin` that sets, lists and removes what clients may use in a second."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.client.cluster.bounded import bounded
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.errors import Retriable
from odradek.protocol.apis.client_quotas import (
    ALTER_CLIENT_QUOTAS,
    DEFAULT,
    DESCRIBE_CLIENT_QUOTAS,
    EXACT,
    AlterClientQuotasRequest,
    AlterEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)

DEFAULT_NAME: Final = ""
"""Stands for the default of all users, client ids or addresses: no name is empty."""
OF_CLIENTS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
"""The quotas of users and client ids."""
OF_ADDRESSES: Final = ("connection_creation_rate",)
"""The quotas of addresses."""


class Quotas(NamedTuple):
    """The quotas of a user, a client id, both together, or an address.

    A part that is None does not belong to what has the quotas; `""` is the default, for all without
    a quota of their own.
    """

    user: str | None
    client_id: str | None
    ip: str | None
    values: Mapping[str, float]
    """By their names: `"producer_byte_rate"`, say."""


@ends_where_it_waits
class QuotaAdmin:
    """The calls of `Admin` about quotas."""

    _cluster: Cluster

    @bounded("changing quotas")
    async def alter_quotas(
        self,
        values: Mapping[str, float | None],
        *,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
        validate_only: bool = False,
    ) -> None:
        """Set quotas of a user, a client id, both together, or an address. None removes one.

        `""` is the default of all users, client ids or addresses. When this returns the quotas
        count on the broker that was asked, and within a second on the others. Raises `Refused`: a
        quota cannot be, or the client may not change the settings of the cluster.
        """
        parts = {"user": user, "client-id": client_id, "ip": ip}
        entry = AlterEntryData(
            entity=tuple(
                EntityData(entity_type=kind, entity_name=name or None)
                for kind, name in parts.items()
                if name is not None
            ),
            ops=tuple(
                OpData(key=kind, value=value or 0.0, remove=value is None)
                for kind, value in values.items()
            ),
        )
        request = AlterClientQuotasRequest(entries=(entry,), validate_only=validate_only)
        await _alter(self._cluster, request)

    async def describe_quotas(
        self, *, user: str | None = None, client_id: str | None = None, ip: str | None = None
    ) -> list[Quotas]:
        """Return the quotas of all that has the given parts; without any those of everybody.

        `""` selects the default. Raises `Refused`, `TimedOut`.
        """
        parts = {"user": user, "client-id": client_id, "ip": ip}
        components = tuple(
            ComponentData(
                entity_type=kind, match_type=EXACT if name else DEFAULT, match=name or None
            )
            for kind, name in parts.items()
            if name is not None
        )
        request = DescribeClientQuotasRequest(components=components, strict=False)
        return await _describe(self._cluster, request)


async def _alter(cluster: Cluster, request: AlterClientQuotasRequest) -> None:
    async def attempt() -> None:
        answer = await cluster.ask(None, ALTER_CLIENT_QUOTAS, request)
        if not answer.entries:
            raise Retriable("changing quotas: the broker's answer is empty")
        for entry in answer.entries:
            cluster.check(entry.error_code, "changing quotas", entry.error_message)

    await cluster.retrying("changing quotas", attempt)


async def _describe(cluster: Cluster, request: DescribeClientQuotasRequest) -> list[Quotas]:
    async def attempt() -> list[Quotas]:
        answer = await cluster.ask(None, DESCRIBE_CLIENT_QUOTAS, request)
        cluster.check(answer.error_code, "reading quotas", answer.error_message)
        return sorted(map(_quotas, answer.entries or ()), key=_order)

    return await cluster.retrying("reading quotas", attempt)


def _quotas(entry: EntryData) -> Quotas:
    parts = {each.entity_type: each.entity_name or DEFAULT_NAME for each in entry.entity}
    values = {each.key: each.value for each in entry.values}
    return Quotas(parts.get("user"), parts.get("client-id"), parts.get("ip"), values)


def _order(quotas: Quotas) -> tuple[tuple[bool, str], ...]:
    return tuple((part is not None, part or "") for part in quotas[:3])
