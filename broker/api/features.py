"""UpdateFeatures, key 57, versions 0-2.

Behaviour: no feature can be changed. A request for the levels that are finalised succeeds; any
other is refused as a whole, with INVALID_UPDATE_VERSION and Kafka's sentence about the first
feature that cannot have the level.

Versions: 1 names the kind of change, before it is an upgrade; 2 has no results of single features.

Differs from Kafka:

- UpdateFeatures accepts the levels that are finalised. It refuses every other level, also a
  downgrade that Kafka would make.
"""

from collections.abc import Mapping
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.api.versions import FINALIZED, GROUPS_FINALIZED, SUPPORTED
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import ALTER_CLUSTER
from odradek.protocol.apis.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPDATE_FEATURES,
    UPGRADE,
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.text import shortened

KINDS: Final = frozenset({UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE})
RANGES: Final = {each.name: (each.min_version, each.max_version) for each in SUPPORTED}
FAILED: Final = "The update failed for all features since the following feature had an error:"


async def update_features(
    context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    turns = Turns()
    image = context.core.cluster.image
    finalized = {each.name: each.max_version_level for each in FINALIZED}
    if image.has_transaction_groups:
        finalized[GROUPS_FINALIZED.name] = GROUPS_FINALIZED.max_version_level
    try:
        context.access.check_cluster(ALTER_CLUSTER)
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    try:
        for update in request.feature_updates:
            await turns.take()
            _check(update, finalized, image.controller_id)
    except KafkaError as error:
        return UpdateFeaturesResponse(
            error_code=error.code, error_message=f"{FAILED} {error.message}"
        )
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=tuple(await turns.map(_to_result, request.feature_updates)),
    )


def _check(update: FeatureUpdateKey, finalized: Mapping[str, int], controller_id: int) -> None:
    """Raise KafkaError INVALID_UPDATE_VERSION unless a feature has the level already."""
    name, level = shortened(update.feature), update.max_version_level
    low, high = RANGES.get(update.feature, (0, 0))
    current = finalized.get(update.feature, 0)
    problem = ""
    if update.upgrade_type not in KINDS:
        problem = "The controller does not support the given upgrade type."
    elif level < 0:
        problem = "A feature version cannot be less than 0."
    elif not low <= level <= high:
        supports = (
            f"only supports versions {low}-{high}" if high else "does not support this feature."
        )
        problem = f"Local controller {controller_id} {supports}"
    elif update.feature not in RANGES:
        problem = f"Feature {name} not found."
    elif level > current and update.upgrade_type != UPGRADE:
        problem = "Can't downgrade to a newer version."
    elif level > current:
        problem = "It is finalised when every broker has it, and cannot be changed by a request."
    elif level < current and update.upgrade_type == UPGRADE:
        problem = (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    elif level < current:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported {name} downgrade from {current} to {level}. "
            "Features are never downgraded here.",
        )
    if problem:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid update version {level} for feature {name}. {problem}",
        )


def _to_result(update: FeatureUpdateKey) -> UpdatableFeatureResult:
    return UpdatableFeatureResult(
        feature=update.feature, error_code=ErrorCode.NONE, error_message="NONE"
    )


SERVED: Final = (ServedApi(UPDATE_FEATURES, update_features, (Need(ALTER_CLUSTER),)),)
