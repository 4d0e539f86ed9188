"""A broker that allows only short transactions: administrators reach what is open there, too."""

from odradek.broker.testing import run_broker
from odradek.client import Admin, Producer
from tests.client.live import name_of

LIMIT_MS = 5_000


async def test_a_producer_is_fenced_whatever_time_out_its_broker_allows() -> None:
    name = name_of("short")
    with run_broker(config={"transaction.max.timeout.ms": str(LIMIT_MS)}) as broker:
        async with (
            Producer(broker.address, transactional_id=name, transaction_timeout_ms=LIMIT_MS),
            Admin(broker.address) as admin,
        ):
            fenced = await admin.force_terminate_transaction(name)
            found = await admin.describe_transaction(name)
    assert fenced.producer_epoch == found.producer_epoch == 1
    assert 0 < found.timeout_ms <= LIMIT_MS
