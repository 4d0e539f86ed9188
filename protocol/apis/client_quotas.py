"""DescribeClientQuotas (key 48), AlterClientQuotas (49), versions 0-1, flexible from 1.

The versions have the same fields. An entity has a name for one or two types (user, client-id, ip);
null stands for the default.

A filter has components. Each names a type of entity and how it matches: an exact name (0), the
default (1), any name (2).
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, boolean, float64, int8, int16, int32, message, string

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2


@message
class ComponentData:
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable=0)


@message
class DescribeClientQuotasRequest:
    components: tuple[ComponentData, ...] = array(ComponentData)
    strict: bool = boolean()


@message
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


@message
class ValueData:
    key: str = string()
    value: float = float64()


@message
class EntryData:
    entity: tuple[EntityData, ...] = array(EntityData)
    values: tuple[ValueData, ...] = array(ValueData)


@message
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    entries: tuple[EntryData, ...] | None = array(EntryData, nullable=0)


DESCRIBE_CLIENT_QUOTAS: Final = Api(
    key=48,
    name="DescribeClientQuotas",
    min_version=0,
    max_version=1,
    flexible_from=1,
    request=DescribeClientQuotasRequest,
    response=DescribeClientQuotasResponse,
)


@message
class OpData:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@message
class AlterEntryData:
    entity: tuple[EntityData, ...] = array(EntityData)
    ops: tuple[OpData, ...] = array(OpData)


@message
class AlterClientQuotasRequest:
    entries: tuple[AlterEntryData, ...] = array(AlterEntryData)
    validate_only: bool = boolean()


@message
class AlteredEntryData:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    entity: tuple[EntityData, ...] = array(EntityData)


@message
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32(default=0)
    entries: tuple[AlteredEntryData, ...] = array(AlteredEntryData)


ALTER_CLIENT_QUOTAS: Final = Api(
    key=49,
    name="AlterClientQuotas",
    min_version=0,
    max_version=1,
    flexible_from=1,
    request=AlterClientQuotasRequest,
    response=AlterClientQuotasResponse,
)
