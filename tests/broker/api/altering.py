"""Requests that describe and change settings, in the newest version unless they say otherwise."""

import time
from typing import Any

from odradek.protocol.apis.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsEntry,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ResourceType,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.raw import PATIENCE_SECONDS, RawClient

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER

Entry = tuple[str, int, str | None]


def resource(kind: int, name: str, *entries: Entry) -> IncrementalAlterConfigsResource:
    configs = [AlterableConfig(name=n, config_operation=op, value=v) for n, op, v in entries]
    return IncrementalAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=tuple(configs)
    )


def alter_all(
    client: RawClient, *resources: IncrementalAlterConfigsResource, validate_only: bool = False
) -> list[Any]:
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    return list(client.ask(INCREMENTAL_ALTER_CONFIGS, 1, request).responses)


def alter(
    client: RawClient, kind: int, name: str, *entries: Entry, validate_only: bool = False
) -> Any:
    (answer,) = alter_all(client, resource(kind, name, *entries), validate_only=validate_only)
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer


def replace_all(
    client: RawClient, kind: int, name: str, validate_only: bool = False, **configs: str | None
) -> Any:
    """AlterConfigs; `a_b="1"` sets `a.b`."""
    entries = [AlterConfigsEntry(name=n.replace("_", "."), value=v) for n, v in configs.items()]
    changed = AlterConfigsResource(resource_type=kind, resource_name=name, configs=tuple(entries))
    request = AlterConfigsRequest(resources=(changed,), validate_only=validate_only)
    return client.ask(ALTER_CONFIGS, 2, request).responses[0]


def described(client: RawClient, kind: int, name: str, *keys: str) -> dict[str, Any]:
    """The settings by name, with synonyms and documentation, once the topic is known.

    A real Kafka answers the creation of a topic before that.
    """
    asked = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys or None
    )
    request = DescribeConfigsRequest(
        resources=(asked,), include_synonyms=True, include_documentation=True
    )
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        (result,) = client.ask(DESCRIBE_CONFIGS, 4, request).results
        is_unknown = result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not is_unknown or time.monotonic() >= give_up:
            break
        time.sleep(0.01)  # between two looks, not for luck
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def shown(client: RawClient, kind: int, name: str, key: str, *sources: int) -> Any:
    """One setting, once its value has these sources: a real Kafka answers before a change counts.

    Raises AssertionError if that does not happen.
    """
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = described(client, kind, name, key)[key]
        if [synonym.source for synonym in found.synonyms] == list(sources):
            return found
        assert time.monotonic() < give_up, found
        time.sleep(0.01)  # between two looks, not for luck
