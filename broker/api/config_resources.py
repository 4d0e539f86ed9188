"""ListConfigResources, key 74, versions 0-1: the resources that have settings.

Behaviour: lists the groups, brokers and topics that have settings, or those of some types.

Versions: 0 is the older ListClientMetricsResources, of which there are none.

Differs from Kafka: in nothing that is known.
"""

from collections.abc import Sequence
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.security.rights import DESCRIBE_CLUSTER_CONFIGS
from odradek.protocol.apis.configs import (
    LIST_CONFIG_RESOURCES,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ResourceType,
)
from odradek.protocol.errors import ErrorCode, KafkaError

LISTED: Final = (ResourceType.GROUP, ResourceType.BROKER, ResourceType.TOPIC)
"""The types that have resources here, in Kafka's order."""


async def list_config_resources(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    try:
        context.access.check_cluster(DESCRIBE_CLUSTER_CONFIGS)
    except KafkaError as error:
        return ListConfigResourcesResponse(error_code=error.code, config_resources=())
    wanted = frozenset(request.resource_types) or frozenset(ResourceType)
    if context.api_version == 0:
        wanted = frozenset({ResourceType.CLIENT_METRICS})
    if not wanted <= frozenset(ResourceType):
        return ListConfigResourcesResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=()
        )
    image = context.core.cluster.image
    names: dict[ResourceType, Sequence[str]] = {
        ResourceType.GROUP: list(image.group_configs),
        ResourceType.BROKER: [str(broker.node_id) for broker in image.brokers],
        ResourceType.TOPIC: list(image.topics),
    }
    listed = [kind for kind in LISTED if kind in wanted]
    await context.expect(sum(len(names[kind]) for kind in listed))
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=tuple(
            [
                ConfigResource(resource_name=name, resource_type=kind)
                for kind in listed
                for name in names[kind]
            ]
        ),
    )


SERVED: Final = (
    ServedApi(LIST_CONFIG_RESOURCES, list_config_resources, (Need(DESCRIBE_CLUSTER_CONFIGS),)),
)
