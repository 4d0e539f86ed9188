"""DescribeCluster, key 60, versions 0-2.

Behaviour: returns the brokers, as of one image of the cluster, with the addresses of the listener
that was asked; a broker without it is left out. Authorised operations that a request asks for are
all of them, as there is no authoriser.

Versions: 2 returns also fenced brokers, if they are asked for: here those that are away and were
not forgotten (UnregisterBroker).

Differs from Kafka: in nothing that is known.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.leaders import reachable_brokers
from odradek.broker.api.needs import NOTHING
from odradek.broker.api.operations import NOT_ASKED
from odradek.broker.api.served_api import ServedApi
from odradek.broker.cluster.image import BrokerImage
from odradek.protocol.apis.metadata import (
    DESCRIBE_CLUSTER,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.errors import ErrorCode

BROKERS: Final = 1
CONTROLLERS: Final = 2
"""The endpoint type of DescribeCluster that is served; 2 would be controllers."""


async def describe_cluster(
    context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    image = context.core.cluster.image
    if request.endpoint_type != BROKERS:
        return _no_such_endpoints(request)
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=(
            *_described_brokers(context, image.brokers, is_fenced=False),
            *_described_brokers(
                context, image.away if request.include_fenced_brokers else (), is_fenced=True
            ),
        ),
        cluster_authorized_operations=context.access.cluster_operations()
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _no_such_endpoints(request: DescribeClusterRequest) -> DescribeClusterResponse:
    code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    message = f"Unsupported endpoint type {request.endpoint_type}. Ask for the brokers, type 1."
    if request.endpoint_type == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER. Here is no controller to ask; use the broker."
        )
    return DescribeClusterResponse(
        error_code=code, error_message=message, cluster_id="", brokers=()
    )


def _described_brokers(
    context: RequestContext, brokers: Iterable[BrokerImage], *, is_fenced: bool
) -> Iterator[DescribeClusterBroker]:
    for broker, host, port in reachable_brokers(context, brokers):
        yield DescribeClusterBroker(
            broker_id=broker.node_id, host=host, port=port, rack=broker.rack, is_fenced=is_fenced
        )


SERVED: Final = (ServedApi(DESCRIBE_CLUSTER, describe_cluster, NOTHING),)
