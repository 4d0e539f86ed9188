"""Producers that have lived for long: the state topic has them with epochs near the last one."""

from collections.abc import Sequence
from typing import Final

from odradek.broker.txn import store
from odradek.broker.txn.transaction import LAST_EPOCH, TransactionMetadata
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.broker.own_records import append_records
from tests.simulation.machine import START_MS
from tests.simulation.world import World

FIRST_ID: Final = 1_000_000
"""Far from the producer ids that the brokers give out in a run."""
EPOCHS_LEFT: Final = 4


async def make_old(world: World, names: Sequence[str]) -> None:
    """Write the records that long lives leave, and have all brokers start with them."""
    for number, name in enumerate(names):
        await _write(
            world,
            name,
            TransactionMetadata(
                producer_id=FIRST_ID + number,
                producer_epoch=LAST_EPOCH - EPOCHS_LEFT,
                timeout_ms=1000,
                updated_ms=START_MS,
            ),
        )
    for machine in world.machines.values():
        machine.kill()
        await machine.ended()
        world.revive(machine)
    await world.all_registered()


async def _write(world: World, name: str, transaction: TransactionMetadata) -> None:
    core = world.machines[1].core
    assert core is not None
    where = TopicPartition(TRANSACTION_STATE_TOPIC, core.transactions.partition_for(name))
    leader = 1 if world.is_alone else world.leader_of(*where)
    core = world.machines[leader].core
    assert core is not None
    partition = core.partitions.find(where)
    assert partition is not None
    appended = append_records(partition, [store.encode(name, transaction)])
    await partition.leader().wait_committed(appended.last_offset + 1)
