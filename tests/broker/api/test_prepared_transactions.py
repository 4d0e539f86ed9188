"""What is told of a transaction that is decided and has partitions that do not know it yet."""

from types import SimpleNamespace
from typing import cast

import trio
import trio.testing

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.api.transactions import describe_transactions, list_transactions
from odradek.protocol.apis.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TransactionState,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.txn.world import ID, P0, P1, P2, World


async def test_only_partitions_that_wait_for_their_marker_are_told(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    world = World(nursery)
    await world.start()
    core = cast(Core, SimpleNamespace(transactions=world.coordinator))
    asker = RequestContext(core=core, api_version=2, client_id="admin", host="127.0.0.1")

    async def described() -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=(ID,))
        (state,) = (await describe_transactions(asker, request)).transaction_states
        return state

    async def listed() -> list[str]:
        request = ListTransactionsRequest(
            state_filters=("PrepareCommit", "PrepareAbort"), producer_id_filters=()
        )
        answer = await list_transactions(asker, request)
        return [transaction.transaction_state for transaction in answer.transaction_states]

    who = await world.init()
    await world.add(who, P2, P0, P1)
    state = await described()
    assert (state.transaction_state, state.topics[0].partitions) == ("Ongoing", (0, 1, 2))

    is_stuck = True
    world.markers.answer = lambda marker: (
        ErrorCode.NOT_LEADER_OR_FOLLOWER if is_stuck and marker.partition == P1 else ErrorCode.NONE
    )
    await world.commit(who)
    await trio.sleep(1)  # of a clock that jumps: everybody who can answer has
    state = await described()
    assert (state.transaction_state, state.topics[0].partitions) == ("PrepareCommit", (1,))
    assert state.times_out_in_ms == -1
    assert await listed() == ["PrepareCommit"]

    is_stuck = False
    await trio.sleep(10)
    state = await described()
    assert (state.transaction_state, state.topics) == ("CompleteCommit", ())
    assert await listed() == []
    world.stop()
