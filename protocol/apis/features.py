"""UpdateFeatures (key 57), versions 0-2, flexible from 0.

- 1: the kind of change (1 upgrade, 2 safe downgrade, 3 unsafe downgrade) instead of a permission to
  downgrade, and a request that only checks. 2: one error for all features, and no results.
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, boolean, int8, int16, int32, message, string

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


@message
class FeatureUpdateKey:
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(default=False, until=0)
    upgrade_type: int = int8(default=UPGRADE, since=1)


@message
class UpdateFeaturesRequest:
    timeout_ms: int = int32(default=60_000)
    feature_updates: tuple[FeatureUpdateKey, ...] = array(FeatureUpdateKey)
    validate_only: bool = boolean(default=False, since=1)


@message
class UpdatableFeatureResult:
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@message
class UpdateFeaturesResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    results: tuple[UpdatableFeatureResult, ...] = array(UpdatableFeatureResult, default=(), until=1)


UPDATE_FEATURES: Final = Api(
    key=57,
    name="UpdateFeatures",
    min_version=0,
    max_version=2,
    flexible_from=0,
    request=UpdateFeaturesRequest,
    response=UpdateFeaturesResponse,
)
