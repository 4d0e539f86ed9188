"""Administration of settings: those of topics, of groups, of brokers, and of all brokers."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from odradek.client.cluster.bounded import bounded
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.errors import Refused, Retriable, code_of
from odradek.client.types import ConfigEntry
from odradek.protocol.apis.configs import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    ConfigOperation,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ResourceType,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.text import shortened

ALL_BROKERS: Final = ""
SOURCES: Final[Mapping[int, str]] = MappingProxyType(
    {
        ConfigSource.TOPIC: "topic",
        ConfigSource.DYNAMIC_BROKER: "broker",
        ConfigSource.DYNAMIC_DEFAULT_BROKER: "all brokers",
        ConfigSource.STATIC_BROKER: "file",
        ConfigSource.DEFAULT: "default",
        ConfigSource.GROUP: "group",
    }
)
"""The words for where a value comes from."""

Changes = Mapping[str, str | None]


@ends_where_it_waits
class ConfigAdmin:
    """The calls about settings of an administrator's client."""

    _cluster: Cluster

    async def describe_topic_configs(self, *names: str) -> dict[str, dict[str, ConfigEntry]]:
        """Return the settings of topics, by topic and name. Raises `Refused`."""
        return await _describe(self._cluster, None, ResourceType.TOPIC, names)

    async def describe_group_configs(self, *group_ids: str) -> dict[str, dict[str, ConfigEntry]]:
        """Return the settings of consumer groups, by group and name. Raises `Refused`."""
        return await _describe(self._cluster, None, ResourceType.GROUP, group_ids)

    @bounded("reading the settings of brokers")
    async def describe_broker_configs(self, *node_ids: int) -> dict[int, dict[str, ConfigEntry]]:
        """Return the settings of brokers, by node id and name."""
        found: dict[int, dict[str, ConfigEntry]] = {}
        for node_id in node_ids:
            name = str(node_id)
            configs = await _describe(self._cluster, node_id, ResourceType.BROKER, (name,))
            found[node_id] = configs[name]
        return found

    async def describe_cluster_configs(self) -> dict[str, ConfigEntry]:
        """Return the settings that were changed for all brokers, by name."""
        names = (ALL_BROKERS,)
        found = await _describe(self._cluster, None, ResourceType.BROKER, names)
        return found[ALL_BROKERS]

    async def alter_topic_configs(
        self, topic: str, changes: Changes, *, validate_only: bool = False
    ) -> None:
        """Change settings of a topic, by name. With None a setting has its default again.

        With `validate_only`, only check that it is possible. The change counts without a restart.
        Raises `Refused`: there is no such topic, or a name or value is wrong.
        """
        await _alter(self._cluster, None, ResourceType.TOPIC, topic, changes, validate_only)

    async def alter_group_configs(
        self, group_id: str, changes: Changes, *, validate_only: bool = False
    ) -> None:
        """Change settings of a consumer group (KIP-848), there or not. See `alter_topic_configs`.

        They are `consumer.session.timeout.ms`, `consumer.heartbeat.interval.ms` and
        `consumer.assignment.interval.ms`; those of the brokers count where a group has none.
        """
        await _alter(self._cluster, None, ResourceType.GROUP, group_id, changes, validate_only)

    async def alter_broker_configs(
        self, node_id: int, changes: Changes, *, validate_only: bool = False
    ) -> None:
        """Change settings of one broker while it runs. See `alter_topic_configs`.

        Raises `Refused` also for a setting that a broker reads at its start only.
        """
        name = str(node_id)
        await _alter(self._cluster, node_id, ResourceType.BROKER, name, changes, validate_only)

    async def alter_cluster_configs(self, changes: Changes, *, validate_only: bool = False) -> None:
        """Change settings of all brokers while they run. See `alter_broker_configs`.

        What was changed for one broker counts before it.
        """
        await _alter(self._cluster, None, ResourceType.BROKER, ALL_BROKERS, changes, validate_only)


async def _describe(
    cluster: Cluster, node_id: int | None, kind: ResourceType, names: Sequence[str]
) -> dict[str, dict[str, ConfigEntry]]:
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for name in names
        )
    )

    async def attempt() -> dict[str, dict[str, ConfigEntry]]:
        answer = await cluster.ask(node_id, DESCRIBE_CONFIGS, request)
        for result in answer.results:
            doing = f"reading the settings of {_named(kind, result.resource_name)}"
            _check(cluster, result.error_code, doing, result.error_message)
        there = {result.resource_name for result in answer.results}
        for name in names:
            if name not in there:
                raise Retriable(f"reading settings: the broker's answer leaves out {name!r}")
        return {
            result.resource_name: {entry.name: _entry(entry) for entry in result.configs}
            for result in answer.results
        }

    if not names:
        return {}
    return await cluster.retrying("reading settings", attempt)


async def _alter(
    cluster: Cluster,
    node_id: int | None,
    kind: ResourceType,
    name: str,
    changes: Changes,
    validate_only: bool,
) -> None:
    """Change settings. A retry is safe: it sets the same values again."""
    doing = f"changing settings of {_named(kind, name)}"
    resource = IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            AlterableConfig(
                name=setting,
                config_operation=ConfigOperation.DELETE if value is None else ConfigOperation.SET,
                value=value,
            )
            for setting, value in changes.items()
        ),
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)

    async def attempt() -> None:
        answer = await cluster.ask(node_id, INCREMENTAL_ALTER_CONFIGS, request)
        for result in answer.responses:
            if (result.resource_type, result.resource_name) == (kind, name):
                _check(cluster, result.error_code, doing, result.error_message)
                return
        raise Retriable(f"{doing}: the broker's answer leaves it out")

    await cluster.retrying(doing, attempt)


def _named(kind: ResourceType, name: str) -> str:
    if kind is ResourceType.TOPIC:
        return f"the topic {shortened(name)!r}"
    if kind is ResourceType.GROUP:
        return f"the group {shortened(name)!r}"
    return f"broker {shortened(name)}" if name else "all brokers"


def _check(cluster: Cluster, number: int, doing: str, said: str | None) -> None:
    if number == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise Refused(f"{doing}: there is no such topic", code=code_of(number))
    cluster.check(number, doing, said)


def _entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        entry.value,
        entry.config_source == ConfigSource.DEFAULT,
        entry.read_only,
        entry.is_sensitive,
        SOURCES.get(entry.config_source, "unknown"),
    )
