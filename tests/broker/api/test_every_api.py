"""Every API in every version: an answer in the right format, and the connection stays."""

from typing import Any

import pytest

from odradek.broker.api import HANDLERS
from odradek.broker.txn.groups import BATCH_MAX_BYTES, MEMBERS_MAX, PARTITIONS_MAX
from odradek.protocol.api import Api
from odradek.protocol.apis import APIS
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.errors import ErrorCode
from tests.broker.raw import RawClient
from tests.broker.samples import sample

CASES = [(api, v) for api in APIS.values() for v in range(api.min_version, api.max_version + 1)]
SOFTWARE = {"client_software_name": "raw", "client_software_version": "1"}

# Kafka 4.3's versions of everything that is served here
ADVERTISED = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9),
    12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 18: (0, 4), 19: (2, 7), 20: (1, 6),
    21: (0, 2),
    22: (0, 5), 23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5),
    29: (1, 3), 30: (1, 3), 31: (1, 3), 32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5),
    37: (0, 3), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1),
    45: (0, 1), 46: (0, 0), 47: (0, 0), 48: (0, 1), 50: (0, 0), 55: (0, 2), 57: (0, 2),
    60: (0, 2), 61: (0, 0), 65: (0, 0), 66: (0, 2),
    68: (0, 1), 69: (0, 1), 74: (0, 1), 75: (0, 0),
}  # fmt: skip


def test_every_api_that_is_declared_has_a_handler_of_its_name() -> None:
    assert list(HANDLERS) == sorted(APIS)
    for key, handler in HANDLERS.items():
        name = handler.__name__.replace("_", "")
        assert name == APIS[key].name.lower()


@pytest.mark.parametrize(("api", "version"), CASES, ids=[f"{a.name}-{v}" for a, v in CASES])
def test_a_sample_request_is_answered(client: RawClient, api: Api[Any, Any], version: int) -> None:
    answer = client.ask(api, version, sample(api.request, version))
    assert isinstance(answer, api.response)
    assert client.ask(API_VERSIONS, 4, ApiVersionsRequest(**SOFTWARE)).error_code == 0


@pytest.mark.parametrize("version", range(5))
def test_the_versions_are_kafkas(client: RawClient, version: int) -> None:
    answer = client.ask(API_VERSIONS, version, ApiVersionsRequest(**SOFTWARE))
    assert answer.error_code == ErrorCode.NONE
    said = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert said == ADVERTISED


def test_a_feature_whose_minimum_is_0_is_kept_from_clients_that_cannot_read_it(
    client: RawClient,
) -> None:
    old = client.ask(API_VERSIONS, 3, ApiVersionsRequest(**SOFTWARE))
    new = client.ask(API_VERSIONS, 4, ApiVersionsRequest(**SOFTWARE))
    assert [f.name for f in old.supported_features] == ["metadata.version", "transaction.groups"]
    supported = {f.name: (f.min_version, f.max_version) for f in new.supported_features}
    assert supported["transaction.version"] == (0, 2)
    assert supported["group.version"] == (0, 1)
    for answer in (old, new):
        finalized = {f.name: f.max_version_level for f in answer.finalized_features}
        assert finalized["transaction.version"] == 2
        assert finalized["group.version"] == 1
        assert finalized["transaction.groups"] == 1
        assert answer.finalized_features_epoch >= 0
        assert answer.group_members_max == MEMBERS_MAX
        assert answer.group_partitions_max == PARTITIONS_MAX
        assert answer.group_decision_max_bytes == BATCH_MAX_BYTES
