"""DescribeConfigs, key 32, versions 1-4.

Behaviour: returns the settings of topics and of this broker, each with the source of its value. A
null list of names asks for all settings; a name that does not exist is left out. A resource that is
named several times is looked up once and answered each time. The value of a password is null, and
marked as sensitive.

Versions: 3 adds each setting's type and its documentation.

Differs from Kafka: settings are those that Odradek has. The broker's cannot be changed while it
runs, so all are read-only; the cluster-wide default (resource name "") has none. Documentation is
always null.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.cluster.image import TopicImage
from odradek.broker.cluster.new_topic import check_name, not_hosted, shown_name
from odradek.broker.config.broker import BrokerConfig, broker_settings
from odradek.broker.config.settings import ConfigType, Setting, text_of
from odradek.broker.config.topic import TOPIC_SETTINGS, has_broker_value, topic_value
from odradek.broker.turns import Turns
from odradek.protocol.apis.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from odradek.protocol.errors import ErrorCode, KafkaError

SETTING_BYTES: Final = 150
"""The size of a setting in an answer, with its synonyms."""

DESCRIBE_STEPS: Final = 100
"""The cost of one resource, in steps of a turn."""

KEYS_A_STEP: Final = 20
"""Names of settings that are looked up in one step."""


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


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
        if resource.configuration_keys is not None:
            count = min(count, len(resource.configuration_keys))
        setting_count += count
    return setting_count * SETTING_BYTES


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
    names = None if keys is None else frozenset(keys)
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            config if request.include_synonyms else _without_synonyms(config)
            for config in found
            if names is None or config.name in names
        ),
    )


def _configs_of(
    context: RequestContext, resource: DescribeConfigsResource
) -> Sequence[DescribeConfigsResourceResult]:
    name, core = resource.resource_name, context.core
    if resource.resource_type == ResourceType.TOPIC:
        topic = core.cluster.image.topics.get(name)
        if topic is None:
            check_name(name)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, not_hosted(name))
        return topic_configs(topic, core.config)
    if resource.resource_type == ResourceType.BROKER:
        if name == "":
            return ()
        if name != str(core.config.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {core.config.node_id} or empty string, but "
                f"received {shown_name(name)}. Ask that broker itself.",
            )
        return broker_configs(core.config)
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"Resources of type {resource.resource_type} have no settings."
    )


def topic_configs(
    topic: TopicImage, broker: BrokerConfig
) -> tuple[DescribeConfigsResourceResult, ...]:
    """Return every setting of a topic with the value that is in force."""
    return tuple(_topic_config(topic, name, broker) for name in TOPIC_SETTINGS)


def _topic_config(
    topic: TopicImage, name: str, broker: BrokerConfig
) -> DescribeConfigsResourceResult:
    known = TOPIC_SETTINGS[name]
    synonyms = []
    if name in topic.configs:
        synonyms.append((name, topic.configs[name], ConfigSource.TOPIC))
    if known.broker_name is not None:
        if has_broker_value(name, broker):
            inherited = text_of(topic_value(name, {}, broker))
            synonyms.append((known.broker_name, inherited, ConfigSource.STATIC_BROKER))
        default = text_of(broker_settings()[known.broker_name].default)
        synonyms.append((known.broker_name, default, ConfigSource.DEFAULT))
    source = synonyms[0][2] if synonyms else ConfigSource.DEFAULT
    value = text_of(topic_value(name, topic.configs, broker))
    return _result(name, value, source, known.setting, synonyms, read_only=False)


def broker_configs(broker: BrokerConfig) -> tuple[DescribeConfigsResourceResult, ...]:
    """Return every setting of the broker with the value that is in force."""
    return tuple(
        _broker_config(name, setting, broker) for name, setting in broker_settings().items()
    )


def _broker_config(
    name: str, setting: Setting, broker: BrokerConfig
) -> DescribeConfigsResourceResult:
    value = getattr(broker, name.replace(".", "_"))
    synonyms = [(name, text_of(setting.default), ConfigSource.DEFAULT)]
    if value != setting.default:
        synonyms.insert(0, (name, text_of(value), ConfigSource.STATIC_BROKER))
    return _result(name, text_of(value), synonyms[0][2], setting, synonyms, read_only=True)


def _result(
    name: str,
    value: str,
    source: ConfigSource,
    setting: Setting,
    synonyms: Sequence[tuple[str, str, ConfigSource]],
    *,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    is_sensitive = setting.type is ConfigType.PASSWORD
    return DescribeConfigsResourceResult(
        name=name,
        value=None if is_sensitive else value,
        read_only=read_only,
        config_source=source,
        is_sensitive=is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=name, value=None if is_sensitive else value, source=source)
            for name, value, source in synonyms
        ),
        config_type=setting.type,
        documentation=None,
    )


def _without_synonyms(config: DescribeConfigsResourceResult) -> DescribeConfigsResourceResult:
    return replace(config, synonyms=())
