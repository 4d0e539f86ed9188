"""Authorised operations in Metadata, DescribeCluster and DescribeGroups, as a real Kafka has them
(with --peers).
"""

from typing import Any

import pytest

from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.group import DESCRIBE_GROUPS, DescribeGroupsRequest
from odradek.protocol.apis.metadata import (
    DESCRIBE_CLUSTER,
    METADATA,
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import settled, unique, until
from tests.broker.api.topics import TOPIC_OPERATIONS, topic_of
from tests.broker.raw import RawClient

E = ErrorCode
NO_OPERATIONS = -(2**31)
CLUSTER_OPERATIONS = 8096
GROUP_OPERATIONS = 3400


@pytest.mark.parametrize("version", range(8, 14))
def test_metadata_has_all_operations_if_they_are_asked_for(either: RawClient, version: int) -> None:
    topic = topic_of(either)
    topics = tuple(MetadataRequestTopic(name=name) for name in (topic, "absent", "a/b"))
    for is_asked in (True, False):
        request = MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=is_asked,
            include_cluster_authorized_operations=is_asked,
        )
        answer = either.ask(METADATA, version, request)
        expected = TOPIC_OPERATIONS if is_asked else NO_OPERATIONS
        assert [each.topic_authorized_operations for each in answer.topics] == [expected] * 3
        of_cluster = CLUSTER_OPERATIONS if is_asked and version <= 10 else NO_OPERATIONS
        assert answer.cluster_authorized_operations == of_cluster


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_has_all_operations_if_they_are_asked_for(
    either: RawClient, version: int
) -> None:
    for is_asked in (True, False):
        request = DescribeClusterRequest(include_cluster_authorized_operations=is_asked)
        answer = either.ask(DESCRIBE_CLUSTER, version, request)
        expected = CLUSTER_OPERATIONS if is_asked else NO_OPERATIONS
        assert answer.cluster_authorized_operations == expected


def test_a_group_has_all_operations_if_they_are_asked_for(either: RawClient) -> None:
    group = unique("group")
    request = FindCoordinatorRequest(key=group, key_type=0)
    settled(lambda: either.ask(FIND_COORDINATOR, 3, request))

    def described(is_asked: bool) -> Any:
        request = DescribeGroupsRequest(groups=(group,), include_authorized_operations=is_asked)
        answer = either.ask(DESCRIBE_GROUPS, 5, request)
        return answer.groups[0]

    found = until(lambda: described(True), lambda each: each.error_code == E.NONE)
    assert found.authorized_operations == GROUP_OPERATIONS
    assert described(False).authorized_operations == NO_OPERATIONS
