"""DescribeConfigs, key 32, versions 1-4.

Behaviour: returns the settings of topics, of groups and of this broker, each with the source of its
value: the topic's or group's own, a change of this broker's or of all brokers', what the broker was
started with, or the default. The cluster-wide resource (name "") has what was changed for all
brokers. A null or empty list of names asks for all settings; a name that does not exist is left
out. A resource that is named several times is looked up once and answered each time. The value of a
password is null, and marked as sensitive.

Versions: 3 adds each setting's type and its documentation.

Differs from Kafka: settings are those that Odradek has. min.insync.replicas is kept with a topic
when it is created, and shown as the topic's own where that of the broker is another by now.
Settings of share and streams groups are not there. A broker has no loggers with a level of their
own. A subscription of client metrics cannot be made, so each has Kafka's defaults.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.cluster.image import TopicImage
from odradek.broker.cluster.new_topic import check_name, not_hosted, shown_name
from odradek.broker.config.broker import broker_settings, value_of
from odradek.broker.config.changes import MIN_ISR
from odradek.broker.config.group import GROUP_SETTINGS, broker_name_of, group_value
from odradek.broker.config.live import ALL_BROKERS, DYNAMIC, NO_CONFIGS, LiveConfig
from odradek.broker.config.settings import ConfigType, Setting, text_of
from odradek.broker.config.topic import TOPIC_SETTINGS, about_topic, topic_value
from odradek.broker.turns import Turns
from odradek.protocol.apis.configs import (
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
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


def topic_configs(
    topic: TopicImage, settings: LiveConfig
) -> tuple[DescribeConfigsResourceResult, ...]:
    """Return every setting of a topic with the value that is in force."""
    return tuple(_topic_config(topic, name, settings) for name in TOPIC_SETTINGS)


def _topic_config(
    topic: TopicImage, name: str, settings: LiveConfig
) -> DescribeConfigsResourceResult:
    known = TOPIC_SETTINGS[name]
    value = text_of(topic_value(name, topic.configs, settings.now))
    if name == MIN_ISR and topic.min_insync_replicas is not None:
        value = str(topic.min_insync_replicas)
    synonyms = []
    inherited = text_of(topic_value(name, {}, settings.now))
    if name in topic.configs or (name == MIN_ISR and value != inherited):
        synonyms.append((name, topic.configs.get(name, value), ConfigSource.TOPIC))
    if known.broker_name is not None:
        synonyms += _synonyms(known.broker_name, settings)
    source = synonyms[0][2] if synonyms else ConfigSource.DEFAULT
    return _result(name, value, source, known.setting, synonyms, about=about_topic(name))


def group_configs(
    own: Mapping[str, str], settings: LiveConfig
) -> tuple[DescribeConfigsResourceResult, ...]:
    """Return every setting of a consumer group with the value that is in force."""
    found = []
    for name, setting in GROUP_SETTINGS.items():
        synonyms = [(name, own[name], ConfigSource.GROUP)] if name in own else []
        synonyms += _synonyms(broker_name_of(name), settings)
        value = str(group_value(name, own, settings.now))
        found.append(_result(name, value, synonyms[0][2], setting, synonyms, about=setting.about))
    return tuple(found)


def broker_configs(settings: LiveConfig) -> tuple[DescribeConfigsResourceResult, ...]:
    """Return every setting of the broker with the value that is in force."""
    return tuple(_broker_config(name, settings) for name in broker_settings())


def _broker_config(name: str, settings: LiveConfig) -> DescribeConfigsResourceResult:
    synonyms = _synonyms(name, settings)
    value = text_of(value_of(settings.now, name))
    setting = broker_settings()[name]
    return _result(
        name,
        value,
        synonyms[0][2],
        setting,
        synonyms,
        about=setting.documentation,
        read_only=name not in DYNAMIC,
    )


def configs_of_all_brokers(settings: LiveConfig) -> tuple[DescribeConfigsResourceResult, ...]:
    """Return the settings that were changed for all brokers."""
    found = []
    for name, text in settings.of_all.items():
        setting = broker_settings().get(name)
        if setting is not None:
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER
            synonyms = [(name, text, source)]
            about = setting.documentation
            found.append(_result(name, text, source, setting, synonyms, about=about))
    return tuple(found)


def _synonyms(name: str, settings: LiveConfig) -> list[tuple[str, str, ConfigSource]]:
    """Return the values of a setting of the broker, the one that counts first."""
    default = broker_settings()[name].default
    given = value_of(settings.given, name)
    found = []
    if name in settings.own:
        found.append((name, settings.own[name], ConfigSource.DYNAMIC_BROKER))
    if name in settings.of_all:
        found.append((name, settings.of_all[name], ConfigSource.DYNAMIC_DEFAULT_BROKER))
    if name in settings.given.given or given != default:
        found.append((name, text_of(given), ConfigSource.STATIC_BROKER))
    return [*found, (name, text_of(default), ConfigSource.DEFAULT)]


def _result(
    name: str,
    value: str,
    source: ConfigSource,
    setting: Setting,
    synonyms: Sequence[tuple[str, str, ConfigSource]],
    *,
    about: str,
    read_only: bool = False,
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
        documentation=about,
    )
