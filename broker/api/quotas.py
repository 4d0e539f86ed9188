"""DescribeClientQuotas, key 48, versions 0-1.

Behaviour: returns the quotas that a filter selects (`quotas/entities.py`); a strict filter selects
only entities of exactly its types. The filter is checked: an empty or repeated type of entity, a
match that does not fit its type, and a filter of ip beside another are INVALID_REQUEST; a type
other than user, client-id and ip is UNSUPPORTED_VERSION.

Versions: both are alike.

Differs from Kafka: in nothing that is known.
"""

from collections.abc import Mapping
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.broker.quotas.entities import IP, TYPES, Entity, Values
from odradek.broker.security.rights import DESCRIBE_CLUSTER_CONFIGS
from odradek.protocol.apis.client_quotas import (
    DEFAULT,
    DESCRIBE_CLIENT_QUOTAS,
    EXACT,
    SPECIFIED,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.text import shortened

WITHOUT_TEXT: Final = {DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}
ITEMS_AN_ENTITY: Final = 4
"""The size of an entity with its quotas in an answer, in items."""

Asked = Mapping[str, ComponentData]
"""The components of a filter by their types."""


async def describe_client_quotas(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    turns = Turns()
    asked: dict[str, ComponentData] = {}
    try:
        context.access.check_cluster(DESCRIBE_CLUSTER_CONFIGS)
        for component in request.components:
            await turns.take()
            _check(component, asked)
            asked[component.entity_type] = component
        if IP in asked and len(asked) > 1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Invalid entity filter component combination. IP filter component should not be "
                "used with user or clientId filter component.",
            )
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    found = []
    for entity, values in context.core.quotas.table.of.items():
        await turns.take()
        if _selects(asked, entity, is_strict=request.strict):
            found.append((entity, values))
    await context.expect(len(found) * ITEMS_AN_ENTITY)
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        error_message="",
        entries=tuple(await turns.map(_to_entry, found)),
    )


def _check(component: ComponentData, asked: Asked) -> None:
    kind, match_type = component.entity_type, component.match_type
    shown = shortened(kind)
    code, problem = ErrorCode.INVALID_REQUEST, ""
    if not kind:
        problem = "Invalid empty entity type."
    elif kind in asked:
        problem = f"Entity type {shown} cannot appear more than once in the filter."
    elif kind not in TYPES:
        code, problem = ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {shown}"
    elif match_type == EXACT and component.match is None:
        problem = "Request specified MATCH_TYPE_EXACT, but set match string to null."
    elif match_type in WITHOUT_TEXT and component.match is not None:
        problem = (
            f"Request specified {WITHOUT_TEXT[match_type]}, but also specified a match string."
        )
    elif match_type != EXACT and match_type not in WITHOUT_TEXT:
        problem = f"Unknown match type {match_type}"
    if problem:
        raise KafkaError(code, problem)


def _selects(asked: Asked, entity: Entity, *, is_strict: bool) -> bool:
    names = dict(entity)
    if is_strict and len(asked) != len(names):
        return False
    return all(
        kind in names and (each.match_type == SPECIFIED or names[kind] == each.match)
        for kind, each in asked.items()
    )


def _to_entry(found: tuple[Entity, Values]) -> EntryData:
    entity, values = found
    return EntryData(
        entity=to_data(entity),
        values=tuple(ValueData(key=kind, value=value) for kind, value in values.items()),
    )


def to_data(entity: Entity) -> tuple[EntityData, ...]:
    """Return an entity as it is in an answer."""
    return tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity)


SERVED: Final = (
    ServedApi(DESCRIBE_CLIENT_QUOTAS, describe_client_quotas, (Need(DESCRIBE_CLUSTER_CONFIGS),)),
)
