"""The APIs and features of a broker. A client sends this request first.

ApiVersions (key 18), versions 0-4, flexible from 3.

- Every response has a header of version 0, even in a flexible version, because the client does not
  know the broker's versions yet. The broker answers a request of an unknown version in version 0,
  with UNSUPPORTED_VERSION and the list (KIP-511). `connection.py` does both.
- 3: the name and version of the client's software in the request, features in the response.
- 4: a supported feature may start at level 0. A response of version 3 leaves out such a feature,
  because older Java clients refuse a 0 (KAFKA-17011, KAFKA-17492).

The tagged fields from 10,000 on are Odradek's: the bounds of a transaction group. They are fields
of the response and not of the feature, because kafka-python reads no tagged fields inside a tagged
field.
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, boolean, int16, int32, int64, message, string


@message
class ApiVersionsRequest:
    client_software_name: str = string(default="", since=3)
    client_software_version: str = string(default="", since=3)


@message
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@message
class SupportedFeatureKey:
    name: str = string(since=3)
    min_version: int = int16(since=3)
    max_version: int = int16(since=3)


@message
class FinalizedFeatureKey:
    name: str = string(since=3)
    max_version_level: int = int16(since=3)
    min_version_level: int = int16(since=3)


@message
class ApiVersionsResponse:
    error_code: int = int16()
    api_keys: tuple[ApiVersion, ...] = array(ApiVersion)
    throttle_time_ms: int = int32(default=0, since=1)
    supported_features: tuple[SupportedFeatureKey, ...] = array(
        SupportedFeatureKey, default=(), since=3, tag=0
    )
    finalized_features_epoch: int = int64(default=-1, since=3, tag=1)
    finalized_features: tuple[FinalizedFeatureKey, ...] = array(
        FinalizedFeatureKey, default=(), since=3, tag=2
    )
    zk_migration_ready: bool = boolean(default=False, since=3, tag=3)
    group_members_max: int = int32(default=0, since=3, tag=10_000)
    group_partitions_max: int = int32(default=0, since=3, tag=10_001)
    group_decision_max_bytes: int = int32(default=0, since=3, tag=10_002)


API_VERSIONS: Final = Api(
    key=18,
    name="ApiVersions",
    min_version=0,
    max_version=4,
    flexible_from=3,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
)
