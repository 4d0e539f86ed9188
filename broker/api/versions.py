"""ApiVersions, key 18, versions 0-4.

Behaviour: lists every API that is served with its versions, and the features. A version of the
request that is not known is answered in the format of version 0 with UNSUPPORTED_VERSION and the
versions of ApiVersions alone, so that a newer client tries again (KIP-511); the connection stays.
With the whole list franz-go would not ask again, and would take this broker for an old one, as it
never gets the features.

Versions: 3 adds the client's software name and version, whose form is checked (INVALID_REQUEST),
and features. 4 may list a feature whose lowest version is 0; 3 must leave it out, because older
Java clients fail on it (KAFKA-17492), but may list it as finalised.

Differs from Kafka:

- Few features are there. `transaction.version` 2 (KIP-890), `group.version` 1 (KIP-848) and
  `metadata.version`, which names the rules that are followed; it does not mean that a Kafka quorum
  keeps the metadata. `transaction.groups` 1 is Odradek's: it is finalised while every broker has
  it, unless the state topic was made before there were groups. Tagged fields, which other clients
  skip, then have the bounds of a group.
"""

import re
from collections.abc import Iterable
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.late_table import ApiRow
from odradek.broker.api.needs import NOTHING
from odradek.broker.api.served_api import Listeners, ServedApi
from odradek.broker.txn.transaction_group import BATCH_MAX_BYTES, MEMBERS_MAX, PARTITIONS_MAX
from odradek.protocol.apis.versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from odradek.protocol.errors import ErrorCode

SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
SOFTWARE_MAX: Final = 64
"""The characters that are kept of the name and of the version of a client's software."""
FEATURES_EPOCH: Final = 0
TRANSACTION_GROUPS: Final = "transaction.groups"
"""Odradek's feature: one EndTxn decides the transactions of many producers."""
METADATA_VERSION: Final = 30
"""The level that Kafka 4.3 finalises."""

SUPPORTED: Final = (
    SupportedFeatureKey(name="metadata.version", min_version=7, max_version=METADATA_VERSION),
    SupportedFeatureKey(name="transaction.version", min_version=0, max_version=2),
    SupportedFeatureKey(name="group.version", min_version=0, max_version=1),
    SupportedFeatureKey(name=TRANSACTION_GROUPS, min_version=1, max_version=1),
)
FINALIZED: Final = (
    FinalizedFeatureKey(
        name="metadata.version",
        min_version_level=METADATA_VERSION,
        max_version_level=METADATA_VERSION,
    ),
    FinalizedFeatureKey(name="transaction.version", min_version_level=2, max_version_level=2),
    FinalizedFeatureKey(name="group.version", min_version_level=1, max_version_level=1),
)


GROUPS_FINALIZED: Final = FinalizedFeatureKey(
    name=TRANSACTION_GROUPS,
    min_version_level=1,
    max_version_level=1,
)


async def api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if not context.is_version_known:
        own = [row for row in context.apis.rows if row.key == API_VERSIONS.key]
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=to_api_versions(own)
        )
    if context.api_version >= 3 and not _is_software(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=())
    context.allowance.software = (
        request.client_software_name[:SOFTWARE_MAX],
        request.client_software_version[:SOFTWARE_MAX],
    )
    lowest = 0 if context.api_version >= 4 else 1
    has_groups = context.core.cluster.image.has_transaction_groups
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=to_api_versions(context.apis.rows),
        supported_features=tuple(f for f in SUPPORTED if f.min_version >= lowest),
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=(*FINALIZED, GROUPS_FINALIZED) if has_groups else FINALIZED,
        group_members_max=MEMBERS_MAX if has_groups else 0,
        group_partitions_max=PARTITIONS_MAX if has_groups else 0,
        group_decision_max_bytes=BATCH_MAX_BYTES if has_groups else 0,
    )


def to_api_versions(rows: Iterable[ApiRow]) -> tuple[ApiVersion, ...]:
    """Return the versions of each API, in the order of the rows, which is that of the keys."""
    return tuple(
        ApiVersion(api_key=row.key, min_version=row.min_version, max_version=row.max_version)
        for row in rows
    )


def _is_software(request: ApiVersionsRequest) -> bool:
    return all(
        SOFTWARE_NAME.fullmatch(text)
        for text in (request.client_software_name, request.client_software_version)
    )


SERVED: Final = (ServedApi(API_VERSIONS, api_versions, NOTHING, on=Listeners.ALL),)
