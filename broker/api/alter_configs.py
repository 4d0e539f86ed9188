"""Changes of settings while brokers run.

AlterConfigs, key 33, versions 0-2; IncrementalAlterConfigs, key 44, versions 0-1.

Behaviour: IncrementalAlterConfigs sets settings of topics, brokers and groups, deletes them (the
default counts again), or appends to lists and subtracts from them. AlterConfigs replaces all
settings of a resource. Every resource succeeds or fails on its own, with a sentence that says why;
one that is named twice fails each time. A change of a broker is asked of that broker itself; the
name "" stands for all brokers. With `validate_only` everything is checked and nothing is changed.
On return the change is kept and counts here; other brokers follow as soon as they hear of it.

Versions: the last of each is flexible; the fields are the same.

Differs from Kafka:

- A topic takes all of Kafka's settings. Some have no effect here (`flush.messages`, `preallocate`,
  `*.replication.throttled.replicas` and others): they are kept and described, and the log says once
  for each that it has no effect. The same is true for settings of a broker that Kafka can change
  while it runs, such as numbers of threads; [configuration.md](configuration.md) lists both. Only
  two values are refused, because they would be promises that are not kept:
  `remote.storage.enable=true` and `unclean.leader.election.enable=true`.
- A name that is no setting is refused (INVALID_CONFIG). Kafka keeps any name for a broker. Deleting
  such a setting succeeds.
- An operation that does not exist is INVALID_REQUEST. Kafka answers UNKNOWN_SERVER_ERROR.
- `min.insync.replicas` of all brokers counts for topics that are created afterwards. It is kept
  with each topic, and shown as the topic's own where that of the broker is another by now. It may
  be deleted.
- The settings of state topics that decide what is kept cannot be changed.
- Groups have the settings of consumer groups of the new protocol. These are
  `consumer.session.timeout.ms`, `consumer.heartbeat.interval.ms` and
  `consumer.assignment.interval.ms`. Those of share and streams groups are refused by name. Up to
  10,000 groups may have settings of their own.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from odradek.broker.api.configs import check_is_here, check_may
from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.cluster.new_topic import check_name
from odradek.broker.config.changes import (
    OF_BROKERS,
    Alter,
    Operation,
    SettingChange,
    Wording,
    broker_alteration,
    group_alteration,
    topic_alteration,
    topic_replacement,
)
from odradek.broker.config.consumer_group_settings import GROUP_SETTINGS
from odradek.broker.config.live import ALL_BROKERS, LiveConfig
from odradek.broker.config.settings import ConfigError
from odradek.broker.config.tls import live_setting_of
from odradek.broker.config.topic import TOPIC_SETTINGS
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
)
from odradek.protocol.apis.configs import (
    ALTER_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ResourceType,
)
from odradek.protocol.errors import ErrorCode, KafkaError

ALTER_STEPS: Final = 50
"""The cost of one resource, in steps of a turn."""
NAMED_TWICE: Final = (
    "Each resource must appear at most once. The request names this one more than once."
)
ALTER: Final = (ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS)
"""The rights that altering needs, of a topic, a group and anything else."""
Resource = AlterConfigsResource | IncrementalAlterConfigsResource


async def alter_configs(
    context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    async def alter(resource: Resource, turns: Turns) -> None:
        changes = (
            SettingChange(entry.name, Operation.SET, entry.value) for entry in resource.configs
        )
        worded = await _meaningful_changes(resource, changes, turns)
        await _alter(context, resource, worded, validate_only=request.validate_only, replaces=True)

    return AlterConfigsResponse(responses=await _each(context, request.resources, alter))


async def incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    async def alter(resource: Resource, turns: Turns) -> None:
        assert isinstance(resource, IncrementalAlterConfigsResource)
        changes = (
            SettingChange(entry.name, entry.config_operation, entry.value)
            for entry in resource.configs
        )
        worded = await _meaningful_changes(resource, changes, turns)
        await _alter(context, resource, worded, validate_only=request.validate_only)

    return IncrementalAlterConfigsResponse(responses=await _each(context, request.resources, alter))


async def _each(
    context: RequestContext,
    resources: Sequence[Resource],
    alter: Callable[[Resource, Turns], Awaitable[None]],
) -> tuple[AlterConfigsResourceResponse, ...]:
    """Alter each resource that is named once, and answer all in the order of the request."""
    turns = Turns()
    counts = await turns.distinct((each.resource_type, each.resource_name) for each in resources)
    responses = []
    for resource in resources:
        await turns.take(ALTER_STEPS)
        code, message = ErrorCode.NONE, None
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, NAMED_TWICE)
            check_may(context, ALTER, resource.resource_type, resource.resource_name)
            await alter(resource, turns)
        except KafkaError as error:
            code, message = error.code, error.message
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return tuple(responses)


async def _meaningful_changes(
    resource: Resource, changes: Iterable[SettingChange], turns: Turns
) -> Sequence[SettingChange]:
    """Return the changes that mean something. Raises KafkaError."""
    is_broker = resource.resource_type == ResourceType.BROKER
    is_group = resource.resource_type == ResourceType.GROUP
    known = OF_BROKERS if is_broker else GROUP_SETTINGS if is_group else TOPIC_SETTINGS
    wording = Wording(known)
    for change in changes:
        await turns.take()
        wording.add(change)
    wording.check()
    return wording.changes


async def _alter(
    context: RequestContext,
    resource: Resource,
    changes: Sequence[SettingChange],
    *,
    validate_only: bool,
    replaces: bool = False,
) -> None:
    """Alter one resource. Raises KafkaError."""
    name, core = resource.resource_name, context.core
    if resource.resource_type == ResourceType.BROKER:
        if name != ALL_BROKERS:
            check_is_here(name, core.config.node_id)
            name = str(core.config.node_id)
        alter = broker_alteration(name, changes, replaces=replaces)
        has_files = any(live_setting_of(change.name) for change in changes)
        if has_files:
            alter = _after_check(core.settings, alter)
        await core.broker_configs.alter(name, alter, validate_only=validate_only)
        if has_files and not validate_only:
            core.settings.renew()
    elif resource.resource_type == ResourceType.TOPIC:
        if not name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Default topic resources are not allowed. Change the brokers' settings instead.",
            )
        check_name(name)
        made = topic_replacement if replaces else topic_alteration
        alter = made(name, changes, core.config)
        await core.cluster.alter_configs(name, alter, validate_only=validate_only)
    elif resource.resource_type == ResourceType.GROUP:
        alter = group_alteration(changes, core.config, replaces=replaces)
        await core.broker_configs.alter_group(name, alter, validate_only=validate_only)
    else:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unknown resource type {resource.resource_type}. It is 2 for topics, 4 for brokers, "
            "32 for groups.",
        )


def _after_check(settings: LiveConfig, alter: Alter) -> Alter:
    """Return `alter`, which then raises KafkaError for files that cannot be used."""

    def checked(configs: Mapping[str, str]) -> dict[str, str]:
        changed = alter(configs)
        try:
            settings.check(changed)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Nothing was changed: {error}") from None
        return changed

    return checked


SERVED: Final = (
    ServedApi(
        ALTER_CONFIGS,
        alter_configs,
        (
            Need(ALTER_TOPIC_CONFIGS, "of a topic"),
            Need(ALTER_GROUP_CONFIGS, "of a group"),
            Need(ALTER_CLUSTER_CONFIGS, "of anything else"),
        ),
    ),
    ServedApi(
        INCREMENTAL_ALTER_CONFIGS,
        incremental_alter_configs,
        (
            Need(ALTER_TOPIC_CONFIGS, "of a topic"),
            Need(ALTER_GROUP_CONFIGS, "of a group"),
            Need(ALTER_CLUSTER_CONFIGS, "of anything else"),
        ),
    ),
)
