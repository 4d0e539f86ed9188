"""Members of transaction groups are forgotten sooner than other producers, by everybody."""

import time
from collections.abc import Callable, Iterator

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.broker.values.member_ids import is_member
from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import described_producers
from tests.broker.api.test_group_ends import end
from tests.broker.api.transactor import PATIENCE_S, Transactor
from tests.broker.raw import RawClient

E = ErrorCode


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    config = {
        "transaction.group.id.expiration.ms": "2000",
        "producer.id.expiration.check.interval.ms": "100",
    }
    with run_broker(config=config) as broker:
        yield broker


def producers_in(client: RawClient, topic: str) -> set[int]:
    (partition,) = described_producers(client, topic, 0)
    return {each.producer_id for each in partition.active_producers}


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def begun(client: RawClient) -> Transactor:
    """Return a member with an open transaction; anew if it is forgotten before its first batch."""
    member = Transactor(client)
    member.id = f"{{{member.id}}}.0"
    deadline = time.monotonic() + PATIENCE_S
    while True:
        member.init()
        code = member.produce(b"a", version=12).error_code
        if code == E.NONE:
            return member
        assert code == E.INVALID_PRODUCER_ID_MAPPING
        assert time.monotonic() < deadline


@pytest.mark.slow
def test_a_decided_member_is_forgotten_and_its_late_batch_is_refused(broker: RunningBroker) -> None:
    with RawClient(broker) as client:
        other = Transactor(client)
        other.init()
        assert other.produce(b"a", version=12).error_code == E.NONE
        assert other.end(version=5).error_code == E.NONE
        member, still_open = begun(client), begun(client)
        assert end(client, [member]).error_code == E.NONE
        assert is_member(member.producer[0])
        assert not is_member(other.producer[0])
        wait_until(lambda: not producers_in(client, member.topic))
        late = member.produce(b"late", version=12).error_code
        assert late in (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_EPOCH)
        assert producers_in(client, member.topic) == set()
        assert member.visible().last_stable_offset == 2
        assert producers_in(client, other.topic) == {other.producer[0]}
        assert producers_in(client, still_open.topic) == {still_open.producer[0]}
        assert end(client, [still_open]).error_code == E.NONE
