"""Settings of topics and brokers.

DescribeConfigs (key 32), versions 1-4, flexible from 4.

- 3: the type of a setting's value, and its documentation if the request asks for it.

AlterConfigs (key 33), versions 0-2, flexible from 2, replaces all settings of a resource.
IncrementalAlterConfigs (key 44), versions 0-1, flexible from 1, changes those that it names.

ListConfigResources (key 74), versions 0-1, both flexible. Version 0 is the older API
ListClientMetricsResources.

- 1: the types that the request asks for, and the type of each resource (KIP-1142).
"""

from enum import IntEnum
from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, boolean, int8, int16, int32, message, string


class ResourceType(IntEnum):
    """The kinds of what has settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The place that the value of a setting comes from."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ConfigOperation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@message
class DescribeConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: tuple[str, ...] | None = array("string", nullable=0)


@message
class DescribeConfigsRequest:
    resources: tuple[DescribeConfigsResource, ...] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(default=False)
    include_documentation: bool = boolean(default=False, since=3)


@message
class DescribeConfigsSynonym:
    name: str = string()
    value: str | None = string(nullable=0)
    source: int = int8()


@message
class DescribeConfigsResourceResult:
    name: str = string()
    value: str | None = string(nullable=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: tuple[DescribeConfigsSynonym, ...] = array(DescribeConfigsSynonym)
    config_type: int = int8(default=0, since=3)
    documentation: str | None = string(default="", since=3, nullable=0)


@message
class DescribeConfigsResult:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()
    configs: tuple[DescribeConfigsResourceResult, ...] = array(DescribeConfigsResourceResult)


@message
class DescribeConfigsResponse:
    throttle_time_ms: int = int32(default=0)
    results: tuple[DescribeConfigsResult, ...] = array(DescribeConfigsResult)


DESCRIBE_CONFIGS: Final = Api(
    key=32,
    name="DescribeConfigs",
    min_version=1,
    max_version=4,
    flexible_from=4,
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
)


@message
class AlterConfigsEntry:
    name: str = string()
    value: str | None = string(nullable=0)


@message
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: tuple[AlterConfigsEntry, ...] = array(AlterConfigsEntry)


@message
class AlterConfigsRequest:
    resources: tuple[AlterConfigsResource, ...] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@message
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()


@message
class AlterConfigsResponse:
    throttle_time_ms: int = int32(default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = array(AlterConfigsResourceResponse)


ALTER_CONFIGS: Final = Api(
    key=33,
    name="AlterConfigs",
    min_version=0,
    max_version=2,
    flexible_from=2,
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
)


@message
class AlterableConfig:
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable=0)


@message
class IncrementalAlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: tuple[AlterableConfig, ...] = array(AlterableConfig)


@message
class IncrementalAlterConfigsRequest:
    resources: tuple[IncrementalAlterConfigsResource, ...] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


@message
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = int32(default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = array(AlterConfigsResourceResponse)


INCREMENTAL_ALTER_CONFIGS: Final = Api(
    key=44,
    name="IncrementalAlterConfigs",
    min_version=0,
    max_version=1,
    flexible_from=1,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
)


@message
class ListConfigResourcesRequest:
    resource_types: tuple[int, ...] = array("int8", default=(), since=1)


@message
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8(default=16, since=1)


@message
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    config_resources: tuple[ConfigResource, ...] = array(ConfigResource)


LIST_CONFIG_RESOURCES: Final = Api(
    key=74,
    name="ListConfigResources",
    min_version=0,
    max_version=1,
    flexible_from=0,
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
)
