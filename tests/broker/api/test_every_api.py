"""Every API in every version: an answer in the right format, and the connection stays."""

from typing import Any

import pytest

from odradek.broker.api import APIS, APIS_WITH_2PC, HANDLERS
from odradek.broker.txn.transaction_group import BATCH_MAX_BYTES, MEMBERS_MAX, PARTITIONS_MAX
from odradek.protocol.api import Api
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.errors import ErrorCode
from tests.broker.raw import RawClient
from tests.broker.samples import sample
from tests.protocol import declared
from tests.protocol.kafka_versions import KAFKA_4_3

CASES = [(api, v) for api in APIS.values() for v in range(api.min_version, api.max_version + 1)]
SOFTWARE = {"client_software_name": "raw", "client_software_version": "1"}


def test_every_api_that_is_declared_has_a_handler_of_its_name() -> None:
    assert dict(APIS) == declared.APIS
    assert dict(APIS_WITH_2PC) == declared.APIS_WITH_2PC
    assert list(HANDLERS) == sorted(APIS)
    for key, handler in HANDLERS.items():
        name = handler.__name__.replace("_", "")
        assert name == APIS[key].name.lower()


@pytest.mark.slow
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
    assert said == {key: KAFKA_4_3[key] for key in APIS}


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
