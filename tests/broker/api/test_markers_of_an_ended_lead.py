"""A marker is acknowledged only in the lead in which it was appended."""

from types import SimpleNamespace
from typing import cast

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.api.markers import write_txn_markers
from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.protocol.apis.txn import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.storage.samples import TOPIC, Machine

NODE = 1


def marker(*partitions: int) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=1,
        producer_epoch=0,
        transaction_result=True,
        topics=(WritableTxnMarkerTopic(name=TOPIC, partition_indexes=partitions),),
        coordinator_epoch=0,
    )


async def test_a_marker_of_a_lead_that_ended_is_not_acknowledged_by_the_next_lead() -> None:
    """KAFKA-9235: A to B to A while a long request is served: B may have cut the marker off."""
    machine = Machine()
    partition = await machine.start()
    partition.begin_lead(InSyncView.alone(NODE, 1))

    def leave_and_return(_point: str) -> None:
        partition.end_lead(2)
        partition.begin_lead(InSyncView.alone(NODE, 3))

    core = SimpleNamespace(partitions=machine.partitions, reached=leave_and_return)
    context = RequestContext(
        core=cast(Core, core), api_version=1, client_id="", host="", is_from_broker=True
    )

    async def codes(asked: WritableTxnMarker) -> list[int]:
        answer = await write_txn_markers(context, WriteTxnMarkersRequest(markers=(asked,)))
        return [each.error_code for each in answer.markers[0].topics[0].partitions]

    assert await codes(marker(0, 1)) == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await codes(marker(0)) == [ErrorCode.NONE]
