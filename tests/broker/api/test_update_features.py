"""UpdateFeatures, as a real Kafka answers it (with --peers)."""

from typing import Any

import pytest

from odradek.protocol.apis.features import (
    UPDATE_FEATURES,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.raw import RawClient

E = ErrorCode
DOWNGRADE, UNSAFE = 2, 3


def update(client: RawClient, version: int, *updates: tuple[str, int, int]) -> Any:
    request = UpdateFeaturesRequest(
        feature_updates=tuple(
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        )
    )
    return client.ask(UPDATE_FEATURES, version, request)


@pytest.mark.parametrize("version", range(3))
def test_the_levels_that_are_finalised_are_no_change(either: RawClient, version: int) -> None:
    answer = update(either, version, ("metadata.version", 30, 1), ("transaction.version", 2, 3))
    assert (answer.error_code, answer.error_message) == (E.NONE, None)
    found = [(each.feature, each.error_code, each.error_message) for each in answer.results]
    features = ("metadata.version", "transaction.version")
    assert found == ([(name, E.NONE, "NONE") for name in features] if version < 2 else [])
    assert update(either, version).error_code == E.NONE


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("name", "level", "kind", "phrase"),
    [
        ("nonsense", 1, 1, "feature nonsense. Local controller 1 does not support this feature."),
        ("nonsense", 0, 1, "Invalid update version 0 for feature nonsense. Feature nonsense not"),
        ("", 1, 1, "Invalid update version 1 for feature . Local controller 1 does not support"),
        ("metadata.version", 31, 1, "Local controller 1 only supports versions 7-30"),
        ("metadata.version", 7, 1, "Can't downgrade the version of this feature without setting"),
        ("transaction.version", 3, 1, "Local controller 1 only supports versions 0-2"),
        ("transaction.version", -1, 1, "A feature version cannot be less than 0."),
        ("transaction.version", 1, 1, "Can't downgrade the version of this feature without"),
    ],
)
def test_other_levels_are_refused(
    either: RawClient, version: int, name: str, level: int, kind: int, phrase: str
) -> None:
    answer = update(either, version, ("metadata.version", 30, 1), (name, level, kind))
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert answer.error_message.startswith(
        "The update failed for all features since the following feature had an error: "
    )
    assert phrase in answer.error_message
    assert answer.results == ()


@pytest.mark.parametrize(("kind", "phrase"), [(DOWNGRADE, "downgrade"), (UNSAFE, "downgrade")])
def test_the_metadata_is_not_downgraded(either: RawClient, kind: int, phrase: str) -> None:
    answer = update(either, 2, ("metadata.version", 8, kind))
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert "Unsupported metadata.version downgrade from 30 to 8." in answer.error_message


def test_a_kind_of_change_that_does_not_exist(either: RawClient) -> None:
    answer = update(either, 1, ("metadata.version", 30, 9))
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert "The controller does not support the given upgrade type." in answer.error_message


def test_a_downgrade_that_kafka_would_make_is_refused_here(client: RawClient) -> None:
    for name in ("transaction.version", "transaction.groups"):
        answer = update(client, 2, (name, 1 if name == "transaction.version" else 0, DOWNGRADE))
        assert answer.error_code == E.INVALID_UPDATE_VERSION
