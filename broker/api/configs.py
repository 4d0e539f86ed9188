"""DescribeConfigs, key 32, versions 1-4.

Behaviour: returns the settings of topics, of groups and of this broker, each with the source of its
value: the topic's or group's own, a change of this broker's or of all brokers', what the broker was
started with, or the default. The cluster-wide resource (name "") has what was changed for all
brokers. A null or empty list of names asks for all settings; a name that does not exist is left
out. A resource that is named several times is looked up once and answered each time. The value of a
password is null, and marked as sensitive.

Versions: 3 adds each setting's type and its documentation.

Differs from Kafka:

- Which settings of a broker can change while it runs is in [configuration.md](configuration.md)
  (*live*).
- Some defaults belong to other settings. `log.retention.ms` has a default, and in Kafka
  `log.retention.hours` has. `log.retention.ms` and `log.roll.ms` have no coarser synonyms in
  DescribeConfigs. Kafka sets `min.insync.replicas` for the cluster when it formats the metadata
  (KIP-966).
- A broker has no loggers whose levels could be changed. DescribeConfigs and ListConfigResources
  show none. The levels of Odradek's log are options of the program.
- A subscription of client metrics has Kafka's defaults. It cannot be changed.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final

from odradek.broker.api.config_values import (
    broker_configs,
    configs_of_all_brokers,
    group_configs,
    topic_configs,
)
from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.cluster.new_topic import check_name, not_hosted, shown_name
from odradek.broker.config.broker import broker_settings
from odradek.broker.config.live import ALL_BROKERS, NO_CONFIGS
from odradek.broker.config.settings import ConfigType
from odradek.broker.config.topic import TOPIC_SETTINGS
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import (
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    Right,
)
from odradek.protocol.apis.configs import (
    DESCRIBE_CONFIGS,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    ResourceType,
)
from odradek.protocol.errors import ErrorCode, KafkaError

_NODE_ID: Final = re.compile(r"-?[0-9]{1,10}")

SETTING_BYTES: Final = 150
"""The size of a setting in an answer, with its synonyms."""

DOCUMENTATION_BYTES: Final = 100
"""The size of a setting's sentence."""

DESCRIBE_STEPS: Final = 100
"""The cost of one resource, in steps of a turn."""

CLIENT_METRICS: Final = tuple(
    DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=False,
        config_source=ConfigSource.DEFAULT,
        is_sensitive=False,
        synonyms=(),
        config_type=kind,
        documentation=about,
    )
    for name, value, kind, about in (
        ("interval.ms", "300000", ConfigType.INT, "The interval at which clients send metrics."),
        ("match", "", ConfigType.LIST, "The clients that send them."),
        ("metrics", "", ConfigType.LIST, "The metrics that they send."),
    )
)
"""A subscription of client metrics that is not there."""

DESCRIBE: Final = (DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_CLUSTER_CONFIGS)
"""The rights that describing needs, of a topic, a group and anything else."""

KEYS_A_STEP: Final = 20
"""Names of settings that are looked up in one step."""


async def describe_configs(
    context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    await context.expect(0, extra_bytes=await _size_bytes(request))
    turns = Turns()
    known: dict[Hashable, DescribeConfigsResult] = {}
    results = []
    for resource in request.resources:
        keys = resource.configuration_keys
        await turns.take(1 + len(keys or ()) // KEYS_A_STEP)
        named = resource.resource_type, resource.resource_name, keys
        result = known.get(named)
        if result is None:
            await turns.take(DESCRIBE_STEPS)
            result = known[named] = _describe(context, request, resource)
        results.append(result)
    return DescribeConfigsResponse(results=tuple(results))


async def _size_bytes(request: DescribeConfigsRequest) -> int:
    """Estimate the size of an answer with every setting that the request names."""
    turns = Turns()
    setting_count = 0
    for resource in request.resources:
        await turns.take()
        is_broker = resource.resource_type == ResourceType.BROKER
        count = len(broker_settings()) if is_broker else len(TOPIC_SETTINGS)
        if resource.configuration_keys:
            count = min(count, len(resource.configuration_keys))
        setting_count += count
    each = SETTING_BYTES + (DOCUMENTATION_BYTES if request.include_documentation else 0)
    return setting_count * each


def _describe(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    code, message = ErrorCode.NONE, None
    found: Sequence[DescribeConfigsResourceResult] = ()
    try:
        found = _configs_of(context, resource)
    except KafkaError as error:
        code, message = error.code, error.message
    keys = resource.configuration_keys
    names = frozenset(keys) if keys else None
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            replace(
                config,
                synonyms=config.synonyms if request.include_synonyms else (),
                documentation=config.documentation if request.include_documentation else None,
            )
            for config in found
            if names is None or config.name in names
        ),
    )


def _configs_of(
    context: RequestContext, resource: DescribeConfigsResource
) -> Sequence[DescribeConfigsResourceResult]:
    name, core = resource.resource_name, context.core
    check_may(context, DESCRIBE, resource.resource_type, name)
    if resource.resource_type == ResourceType.TOPIC:
        topic = core.cluster.image.topics.get(name)
        if topic is None:
            check_name(name)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, not_hosted(name))
        return topic_configs(topic, core.settings)
    if resource.resource_type == ResourceType.BROKER:
        if name == ALL_BROKERS:
            return configs_of_all_brokers(core.settings)
        check_is_here(name, core.config.node_id, or_all=True)
        return broker_configs(core.settings)
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_configs(core.cluster.image.group_configs.get(name, NO_CONFIGS), core.settings)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        check_is_here(name, core.config.node_id)
        return ()
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
            )
        return CLIENT_METRICS
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"Resources of type {resource.resource_type} have no settings."
    )


def check_may(
    context: RequestContext, rights: tuple[Right, Right, Right], kind: int, name: str
) -> None:
    """Raise KafkaError unless the client has the right on the settings of a resource.

    `rights` are those for a topic, a group and anything else. The settings of brokers, of their
    loggers and of client metrics are the cluster's.
    """
    of_topic, of_group, of_others = rights
    if kind == ResourceType.TOPIC:
        context.access.check(of_topic, name)
    elif kind == ResourceType.GROUP:
        context.access.check(of_group, name)
    else:
        context.access.check_cluster(of_others)


def check_is_here(name: str, node_id: int, *, or_all: bool = False) -> None:
    """Raise INVALID_REQUEST unless `name` is the id of this broker."""
    if not _NODE_ID.fullmatch(name):
        what = "Broker id" if or_all else "Node id"
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{what} must be an integer, but it is: {shown_name(name)}. Name a broker by its "
            "number, or all of them by an empty name.",
        )
    if int(name) != node_id:
        expected = f"{node_id} or empty string" if or_all else f"{node_id}"
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {expected}, but received {shown_name(name)}. Ask "
            "that broker itself.",
        )


SERVED: Final = (
    ServedApi(
        DESCRIBE_CONFIGS,
        describe_configs,
        (
            Need(DESCRIBE_TOPIC_CONFIGS, "of a topic"),
            Need(DESCRIBE_GROUP_CONFIGS, "of a group"),
            Need(DESCRIBE_CLUSTER_CONFIGS, "of anything else"),
        ),
    ),
)
