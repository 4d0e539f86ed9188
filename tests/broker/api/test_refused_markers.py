"""A coordinator's marker that a partition refuses, because an administrator's was there before."""

from collections.abc import Iterator

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import Writer
from tests.broker.api.test_markers_by_hand import mark, offsets
from tests.broker.raw import RawClient

E = ErrorCode
FAR_AHEAD = 2**31 - 1


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with run_broker() as running:
        yield running
        assert "Traceback" not in running.log, running.log


@pytest.fixture
def writer(broker: RunningBroker) -> Iterator[Writer]:
    with RawClient(broker) as client:
        yield Writer(client)


@pytest.mark.parametrize("coordinator_epoch", [7, FAR_AHEAD])
def test_a_coordinator_epoch_of_an_administrator_does_not_lock_the_coordinator_out(
    broker: RunningBroker, writer: Writer, coordinator_epoch: int
) -> None:
    """In Kafka every later transaction of the id hangs, and the last stable offset with it."""
    writer.write(0)
    code = mark(writer.client, writer.topic, writer.producer, coordinator_epoch=coordinator_epoch)
    assert code == [E.NONE]
    for committed in (True, True, False):
        writer.end(committed=committed)  # returns when the transaction is complete
        low, high = offsets(writer.client, writer.topic, 0)
        assert low == high
        writer.write(0)
    assert (
        f"it knows coordinator epoch {coordinator_epoch} from an administrator's marker"
        in broker.log
    )


def test_an_epoch_of_an_administrator_does_not_leave_the_id_prepared(
    broker: RunningBroker, writer: Writer
) -> None:
    writer.write(0)
    writer.write(1)
    assert mark(writer.client, writer.topic, (writer.producer[0], 100)) == [E.NONE]
    writer.end(committed=True)
    assert writer.described().transaction_state == "CompleteCommit"
    for partition in (0, 1):
        assert offsets(writer.client, writer.topic, partition) == (2, 2)
    assert f"for {writer.topic}-0 were refused" in broker.log
    assert "otherwise than by the commit that was decided" in broker.log
