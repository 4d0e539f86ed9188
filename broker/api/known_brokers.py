"""UnregisterBroker, key 64, version 0.

Behaviour: forgets a broker that is away and has no replica: DescribeCluster returns it as fenced no
more. BROKER_ID_NOT_REGISTERED for one that is not known, or is forgotten already. Any broker serves
it. A broker that is forgotten and comes back registers as a new one does.

Differs from Kafka:

- UnregisterBroker refuses a broker that is alive, or has a replica (INVALID_REQUEST). Kafka forgets
  it, and its replicas stay offline.
"""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.security.rights import ALTER_CLUSTER
from odradek.protocol.apis.known_brokers import (
    UNREGISTER_BROKER,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError


async def unregister_broker(
    context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    try:
        context.access.check_cluster(ALTER_CLUSTER)
        await context.core.known_brokers.forget(request.broker_id)
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None)


SERVED: Final = (ServedApi(UNREGISTER_BROKER, unregister_broker, (Need(ALTER_CLUSTER),)),)
