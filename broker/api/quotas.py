"""DescribeClientQuotas, key 48, versions 0-1.

Behaviour: returns no quota, as there are none. The filter is checked: an empty or repeated type of
entity, a match that does not fit its type, and a filter of ip beside another are INVALID_REQUEST; a
type other than user, client-id and ip is UNSUPPORTED_VERSION.

Versions: both are alike.

Differs from Kafka:

- There are no quotas. DescribeClientQuotas is always empty, and AlterClientQuotas is not served.
"""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import DESCRIBE_CLUSTER_CONFIGS
from odradek.protocol.apis.client_quotas import (
    DEFAULT,
    DESCRIBE_CLIENT_QUOTAS,
    EXACT,
    SPECIFIED,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.text import shortened

IP: Final = "ip"
TYPES: Final = frozenset({"user", "client-id", IP})
WITHOUT_TEXT: Final = {DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}


async def describe_client_quotas(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    turns = Turns()
    seen: set[str] = set()
    try:
        context.access.check_cluster(DESCRIBE_CLUSTER_CONFIGS)
        for component in request.components:
            await turns.take()
            _check(component, seen)
            seen.add(component.entity_type)
        if IP in seen and len(seen) > 1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Invalid entity filter component combination. IP filter component should not be "
                "used with user or clientId filter component.",
            )
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message="", entries=())


def _check(component: ComponentData, seen: set[str]) -> None:
    kind, match_type = component.entity_type, component.match_type
    shown = shortened(kind)
    code, problem = ErrorCode.INVALID_REQUEST, ""
    if not kind:
        problem = "Invalid empty entity type."
    elif kind in seen:
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


SERVED: Final = (
    ServedApi(DESCRIBE_CLIENT_QUOTAS, describe_client_quotas, (Need(DESCRIBE_CLUSTER_CONFIGS),)),
)
