"""Steps for stories about administration: topics by name or by id, settings, partitions.

Every field of an answer is recorded, but for times and messages.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from odradek.protocol.api import Api
from odradek.protocol.apis.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    AlterableConfig,
    AlterConfigsEntry,
    AlterConfigsRequest,
    AlterConfigsResource,
    ConfigOperation,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
    ResourceType,
)
from tests.judge.asker import asked_until
from tests.judge.broker import Broker
from tests.judge.names import code_name

TOPIC: Final = ResourceType.TOPIC
BROKER: Final = ResourceType.BROKER
GROUP: Final = ResourceType.GROUP
OF_STORIES: Final = (TOPIC, GROUP)
"""What a story makes or names itself: its names have the story's prefix."""
SET: Final = ConfigOperation.SET
DELETE: Final = ConfigOperation.DELETE
APPEND: Final = ConfigOperation.APPEND
SUBTRACT: Final = ConfigOperation.SUBTRACT

Change = tuple[str, int, str | None]
"""The name of a setting, an operation, and a value."""
Resource = tuple[int, str]
"""The type and name of what has settings."""


def ask(
    broker: Broker,
    what: str,
    api: Api[Any, Any],
    version: int,
    request: object,
    answer: Callable[[Any], str] | None = None,
) -> Any:
    return broker.ask(f"{what} v{version}", api, version, request, answer)


def wire_name(broker: Broker, resource: Resource) -> str:
    kind, name = resource
    return broker.names.on_wire(name) if kind in OF_STORIES else name


def shown(resource: Resource) -> str:
    kind, name = resource
    names = {TOPIC: "topic", BROKER: "broker", GROUP: "group"}
    return f"{names.get(ResourceType(kind), kind) if kind in names else kind} {name!r}"


def change(
    broker: Broker,
    *resources: tuple[Resource, Sequence[Change]],
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    """IncrementalAlterConfigs."""
    request = IncrementalAlterConfigsRequest(
        resources=tuple(
            IncrementalAlterConfigsResource(
                resource_type=resource[0],
                resource_name=wire_name(broker, resource),
                configs=tuple(
                    AlterableConfig(name=name, config_operation=operation, value=value)
                    for name, operation, value in changes
                ),
            )
            for resource, changes in resources
        ),
        validate_only=validate_only,
    )
    words = " | ".join(
        f"{shown(resource)} "
        + " ".join(f"{name} {_operation(each)} {value!r}" for name, each, value in changes)
        for resource, changes in resources
    )
    what = f"change {words}" + " (only validated)" * validate_only
    return ask(broker, what, INCREMENTAL_ALTER_CONFIGS, version, request, _by_resource(broker))


def _operation(operation: int) -> str:
    try:
        return ConfigOperation(operation).name
    except ValueError:
        return str(operation)


def replace_all(
    broker: Broker,
    *resources: tuple[Resource, Mapping[str, str | None]],
    version: int = 2,
    validate_only: bool = False,
) -> Any:
    """AlterConfigs."""
    request = AlterConfigsRequest(
        resources=tuple(
            AlterConfigsResource(
                resource_type=resource[0],
                resource_name=wire_name(broker, resource),
                configs=tuple(
                    AlterConfigsEntry(name=name, value=value) for name, value in configs.items()
                ),
            )
            for resource, configs in resources
        ),
        validate_only=validate_only,
    )
    words = " | ".join(f"{shown(resource)} {dict(configs)}" for resource, configs in resources)
    what = f"replace {words}" + " (only validated)" * validate_only
    return ask(broker, what, ALTER_CONFIGS, version, request, _by_resource(broker))


def _by_resource(broker: Broker) -> Callable[[Any], str]:
    """Format the answer for each resource, in the order of their names: Java's has none."""

    def answer(response: Any) -> str:
        said = (
            f"{shown((each.resource_type, broker.names.here(each.resource_name)))} "
            f"{code_name(each.error_code)}"
            for each in response.responses
        )
        return " | ".join(sorted(said))

    return answer


def settings(
    broker: Broker,
    *resources: Resource,
    keys: Sequence[str] | None,
    only: Sequence[str] = (),
    until: str | None = None,
    synonyms: bool = True,
    documentation: bool = False,
    version: int = 4,
) -> Any:
    """DescribeConfigs: each setting with its source, synonyms, type, and if it is documented.

    `only`: those that are recorded, where all are asked for. `until`: the value of the first one
    that is waited for ("": none is there), and until it counts. A real Kafka answers a change
    before.
    """
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=resource[0],
                resource_name=wire_name(broker, resource),
                configuration_keys=None if keys is None else tuple(keys),
            )
            for resource in resources
        ),
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    if until is not None:
        asked_until(
            lambda: broker.line.ask(DESCRIBE_CONFIGS, version, request).results[0].configs,
            lambda configs: (
                {config.name: config.value for config in configs}.get(next(iter(keys or ())), "")
                == until
            ),
        )
        _wait_until_it_counts(broker)

    def answer(response: Any) -> str:
        said = []
        for each in response.results:
            name = shown((each.resource_type, broker.names.here(each.resource_name)))
            configs = sorted(each.configs, key=lambda config: str(config.name))
            chosen = [_setting(config) for config in configs if not only or config.name in only]
            said.append(" ; ".join((f"{name} {code_name(each.error_code)}", *chosen)))
        return " | ".join(said)

    words = " | ".join(map(shown, resources))
    words += " all" if keys is None else f" {' '.join(keys)}"
    return ask(broker, f"settings of {words}", DESCRIBE_CONFIGS, version, request, answer)


def _wait_until_it_counts(broker: Broker) -> None:
    """Return when a setting that is shown counts for logs and groups, too; record nothing.

    A real Kafka shows a setting a moment before it counts, and takes one change after the other:
    the first counts when it shows the next, which is here one of a group that nobody has.
    """
    key, value, group = "consumer.session.timeout.ms", "46000", f"nobody-{uuid.uuid4()}"
    config = AlterableConfig(name=key, config_operation=SET, value=value)
    change = IncrementalAlterConfigsResource(
        resource_type=GROUP, resource_name=group, configs=(config,)
    )
    shown = DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=(key,)
    )
    broker.line.ask(
        INCREMENTAL_ALTER_CONFIGS,
        1,
        IncrementalAlterConfigsRequest(resources=(change,), validate_only=False),
    )
    asked_until(
        lambda: broker.line.ask(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=(shown,))),
        lambda response: [each.value for each in response.results[0].configs] == [value],
    )


def _setting(found: Any) -> str:
    said = [f"{found.name}={found.value!r} from {found.config_source}"]
    said.append(f"type {found.config_type}")
    said.append("read-only" * found.read_only + "sensitive" * found.is_sensitive)
    said += [f"({each.name}={each.value!r} {each.source})" for each in found.synonyms]
    said.append("documented" if found.documentation else repr(found.documentation))
    return " ".join(filter(None, said))


def resources(broker: Broker, *kinds: int, version: int = 1) -> None:
    """ListConfigResources: the topics and groups of the story, and the brokers."""

    def answer(response: Any) -> str:
        said = [
            shown((each.resource_type, broker.names.here(each.resource_name)))
            for each in response.config_resources
            if each.resource_type not in OF_STORIES or broker.names.is_here(each.resource_name)
        ]
        return " ".join((code_name(response.error_code), *sorted(said)))

    request = ListConfigResourcesRequest(resource_types=tuple(kinds))
    words = f"resources of {list(kinds)}"
    ask(broker, words, LIST_CONFIG_RESOURCES, version, request, answer)
