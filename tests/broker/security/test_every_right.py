"""The rights that the modules of the APIs declare are those that their handlers ask for."""

from typing import Any, Final

import pytest

from odradek.broker.api import APIS, _find_served
from odradek.broker.api.index import ROWS
from odradek.broker.api.listeners import Listeners
from odradek.broker.security.access import Access, Authorizer, refusal
from odradek.broker.security.acls import CLUSTER_NAME
from odradek.broker.security.rights import (
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_ID,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    TWO_PHASE_COMMIT,
    WRITE_ID,
    Right,
)
from odradek.protocol.api import Api
from tests.broker.samples import sample
from tests.broker.security.secured import secured
from tests.broker.security.test_no_rights import (
    make_secrets,
    with_everything,
    with_names,
    without_lists,
)

NEEDS: Final = {
    row.key: {need.right for need in _find_served(row).needs}
    for row in ROWS
    if Listeners.CLIENTS in row.on
}


class Recorded(Access):
    """Allows what it is told to allow, and notes what it is asked."""

    __slots__ = ("allowed", "asked")

    def __init__(self, allowed: frozenset[Right]) -> None:
        self.allowed = allowed
        self.asked: set[Right] = set()

    def shows(self, right: Right, name: str = CLUSTER_NAME) -> bool:
        self.asked.add(right)
        return right in self.allowed

    def allows(self, right: Right, name: str) -> bool:
        return self.shows(right, name)

    def check(self, right: Right, name: str) -> None:
        if not self.shows(right, name):
            raise refusal(right.kind)

    def check_cluster(self, *rights: Right) -> None:
        if not any([self.shows(right) for right in rights]):
            raise refusal(rights[0].kind)

    def allows_some(self, right: Right) -> bool:
        return self.shows(right)

    def operations(self, kind: Any, name: str) -> int:
        return 0

    def cluster_operations(self) -> int:
        return 0


@pytest.mark.parametrize("key", APIS, ids=lambda key: APIS[key].name)
async def test_an_api_asks_for_the_rights_that_it_declares_and_no_others(
    key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    api: Api[Any, Any] = APIS[key]
    needs = NEEDS[key]
    asked: set[Right] = set()
    async with secured(auto_create_topics_enable="true") as broker:
        topic_id, _ = await make_secrets(broker)
        broker.switch_on()
        # no right; each alone; all but each; all
        sets = {frozenset[Right](), frozenset(needs)}
        sets |= {frozenset({right}) for right in needs} | {frozenset(needs - {r}) for r in needs}
        for allowed in sorted(sets, key=lambda some: (len(some), sorted(map(str, some)))):
            recorded = Recorded(allowed)
            monkeypatch.setattr(Authorizer, "access_of", lambda *_, to=recorded: to)
            for version in range(api.min_version, api.max_version + 1):
                whole = sample(api.request, version)
                for message in (
                    whole,
                    with_everything(whole, version, topic_id),
                    without_lists(whole, version),
                    with_names(whole, version),
                ):
                    nobody = broker.connect()
                    nobody.send(api, version, message)
                    await nobody.frame()
                    nobody.client.half_close()
                if not allowed and needs:
                    assert recorded.asked, f"{api.name} {version} asks for nothing"
            asked |= recorded.asked
    assert asked <= needs
    assert needs - asked <= LATER.get(api.name, set())


OF_TOPIC_AND_GROUP: Final = {ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS}
LATER: Final[dict[str, set[Right]]] = {
    "CreateTopics": {DESCRIBE_TOPIC_CONFIGS},
    "AlterConfigs": OF_TOPIC_AND_GROUP,
    "IncrementalAlterConfigs": OF_TOPIC_AND_GROUP,
    "DescribeConfigs": {DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS},
    "ConsumerGroupDescribe": {DESCRIBE_TOPIC},
    "DeleteTopics": {DESCRIBE_TOPIC},
    "DescribeProducers": {DESCRIBE_ID},
    "InitProducerId": {TWO_PHASE_COMMIT},
    "Produce": {WRITE_ID},
}
"""Rights that a sample request does not get far enough to need. test_rights.py has them."""


def test_every_api_that_is_served_declares_what_it_needs() -> None:
    assert NEEDS.keys() == APIS.keys()
    assert {APIS[key].name for key, needs in NEEDS.items() if not needs} == {
        "ApiVersions",
        "DescribeCluster",
        "DescribeDelegationToken",
        "SaslAuthenticate",
        "SaslHandshake",
    }
