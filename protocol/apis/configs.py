"""Settings of topics and brokers.

DescribeConfigs (key 32), versions 1-4, flexible from 4.

- 3: the type of a setting's value, and its documentation if the request asks for it.
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, boolean, int8, int16, int32, message, string


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
