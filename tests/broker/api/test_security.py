"""Without security: what tools ask about ACLs, tokens, credentials and log directories first.

A real Kafka without an authoriser answers the same (with --peers).
"""

from dataclasses import replace
from typing import Any, Final

import pytest

from odradek.protocol.apis.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from odradek.protocol.apis.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ResourceType,
)
from odradek.protocol.apis.credentials import (
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.protocol.apis.log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from odradek.protocol.errors import ErrorCode as E
from tests.broker.api.altering import TOPIC, described
from tests.broker.asks import create_topic
from tests.broker.raw import RawClient
from tests.client.live import name_of

ANY: Final = 1
OF_ANY: Final[dict[str, Any]] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
READ: Final = AclCreation(
    resource_type=2,
    resource_name="t",
    principal="User:ada",
    host="*",
    operation=3,
    permission_type=3,
)
IN_ALL: Final = pytest.mark.parametrize("version", [1, 2, 3])


@IN_ALL
def test_acls_are_switched_off_without_an_authoriser(either: RawClient, version: int) -> None:
    answer = either.ask(DESCRIBE_ACLS, version, DescribeAclsRequest(**OF_ANY))
    assert (answer.error_code, answer.resources) == (E.SECURITY_DISABLED, ())
    assert answer.error_message == "No Authorizer is configured on the broker"
    created = either.ask(CREATE_ACLS, version, CreateAclsRequest(creations=(READ, READ)))
    said = [(result.error_code, result.error_message) for result in created.results]
    assert said == [(E.SECURITY_DISABLED, "No Authorizer is configured.")] * 2
    filters = (DeleteAclsFilter(**OF_ANY),) * 3
    deleted = either.ask(DELETE_ACLS, version, DeleteAclsRequest(filters=filters))
    results = [(each.error_code, each.matching_acls) for each in deleted.filter_results]
    assert results == [(E.SECURITY_DISABLED, ())] * 3


UNKNOWN: Final = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_element_of_an_acl_closes_the_connection(either: RawClient, name: str) -> None:
    either.request(DESCRIBE_ACLS, 3, DescribeAclsRequest(**{**OF_ANY, name: 0}))
    assert either.is_closed_by_broker()


def test_an_acl_of_an_unknown_operation_closes_the_connection(either: RawClient) -> None:
    either.request(CREATE_ACLS, 3, CreateAclsRequest(creations=(READ, replace(READ, operation=0))))
    assert either.is_closed_by_broker()


@IN_ALL
@pytest.mark.parametrize("owners", [None, (), ("ada",)])
def test_clients_without_a_name_may_not_ask_for_tokens(
    either: RawClient, version: int, owners: tuple[str, ...] | None
) -> None:
    named = None
    if owners is not None:
        kind = "User"
        named = tuple(
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for name in owners
        )
    request = DescribeDelegationTokenRequest(owners=named)
    answer = either.ask(DESCRIBE_DELEGATION_TOKEN, version, request)
    assert (answer.error_code, answer.tokens) == (E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ())


@pytest.mark.parametrize(
    ("users", "found"),
    [
        (None, {}),
        ((), {}),
        (("ada", "bob"), {"ada": E.RESOURCE_NOT_FOUND, "bob": E.RESOURCE_NOT_FOUND}),
        (("ada", "bob", "ada"), {"ada": E.DUPLICATE_RESOURCE, "bob": E.RESOURCE_NOT_FOUND}),
    ],
)
def test_no_user_has_credentials(
    either: RawClient, users: tuple[str, ...] | None, found: dict[str, int]
) -> None:
    request = DescribeUserScramCredentialsRequest(
        users=None if users is None else tuple(UserName(name=name) for name in users)
    )
    answer = either.ask(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request)
    assert (answer.error_code, answer.error_message) == (0, "")
    assert {result.user: result.error_code for result in answer.results} == found
    for result in answer.results:
        assert result.error_message.endswith(f": {result.user}")
        assert result.credential_infos == ()


def moved(client: RawClient, version: int, *dirs: tuple[str, str, tuple[int, ...]]) -> Any:
    request = AlterReplicaLogDirsRequest(
        dirs=tuple(
            AlterReplicaLogDir(
                path=path, topics=(AlterReplicaLogDirTopic(name=name, partitions=indexes),)
            )
            for path, name, indexes in dirs
        )
    )
    answer = client.ask(ALTER_REPLICA_LOG_DIRS, version, request)
    return {
        (topic.topic_name, partition.partition_index): partition.error_code
        for topic in answer.results
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_to_no_directory_that_is_not_there(either: RawClient, version: int) -> None:
    topic = name_of("moved")
    assert create_topic(either, topic).error_code == 0
    described(either, TOPIC, topic)
    (result,) = either.ask(DESCRIBE_LOG_DIRS, 5, DescribeLogDirsRequest(topics=())).results
    here = result.log_dir
    assert moved(either, version, (here, topic, (0, 0, 5)), (here, "nobody", (0,))) == {
        (topic, 0): 0,
        (topic, 5): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("nobody", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    for path in ("/nowhere", "", f"{here}/"):
        assert moved(either, version, (path, topic, (0, 1))) == {
            (topic, 0): E.LOG_DIR_NOT_FOUND,
            (topic, 1): E.LOG_DIR_NOT_FOUND,
        }
    last = moved(either, version, (here, topic, (0,)), ("/nowhere", topic, (0,)))
    assert last == {(topic, 0): E.LOG_DIR_NOT_FOUND}
    assert moved(either, version) == {}


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (ResourceType.BROKER_LOGGER, "1", 0),
        (ResourceType.BROKER_LOGGER, "2", E.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "", E.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "x", E.INVALID_REQUEST),
        (ResourceType.CLIENT_METRICS, "x", 0),
        (ResourceType.CLIENT_METRICS, "", E.INVALID_REQUEST),
        (1, "x", E.INVALID_REQUEST),
    ],
)
def test_loggers_and_client_metrics_are_described_as_where_there_are_none(
    either: RawClient, kind: int, name: str, code: int
) -> None:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(
        resources=(asked,), include_synonyms=True, include_documentation=True
    )
    (result,) = either.ask(DESCRIBE_CONFIGS, 4, request).results
    assert (result.error_code, bool(result.error_message)) == (code, code != 0)
    if kind == ResourceType.CLIENT_METRICS and code == 0:
        shown = [(each.name, each.value, each.config_type) for each in result.configs]
        assert shown == [("interval.ms", "300000", 3), ("match", "", 7), ("metrics", "", 7)]
