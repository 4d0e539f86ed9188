"""The bounds of a transaction group at a broker that does not announce them."""

import pytest
from trio.testing import MockClock

from odradek.client import Aborted, DetachedTransaction, Refused, TransactionGroup
from odradek.protocol.apis.txn import END_TXN
from odradek.protocol.errors import ErrorCode
from tests.client.fake_broker import ADDRESS, FakeBroker, refused


async def test_without_announced_bounds_the_broker_alone_decides(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    members = [DetachedTransaction(f"{{g}}.{number}", number, 0) for number in range(20_000)]
    async with TransactionGroup(ADDRESS, "g", connect=fake_broker.connect) as group:
        with pytest.raises(Refused, match="does not announce them"):
            await group.bounds()
        fake_broker.next(END_TXN, refused(ErrorCode.INVALID_TXN_STATE))
        with pytest.raises(Aborted, match="nothing of the group was decided"):
            await group.commit(members)
