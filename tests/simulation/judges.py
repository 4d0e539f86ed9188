"""What must hold inside the brokers at any time: looked at on a timer, and in the end."""

from collections.abc import Iterator

import trio

from odradek.broker.partitions.partition import Partition
from tests.simulation.world import World

LOOK_SECONDS = 0.25


async def watch(
    world: World,
    violations: list[str],
    task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Look at every running broker now and then, until cancelled."""
    with trio.CancelScope() as scope:
        task_status.started(scope)
        while True:
            await trio.sleep(LOOK_SECONDS)
            violations += [
                wrong for _, partition in _replicas(world) for wrong in _marks(partition)
            ]


async def judge(world: World) -> list[str]:
    """Return what is wrong when all is at rest."""
    return [wrong for _, partition in _replicas(world) for wrong in _marks(partition)]


def _replicas(world: World) -> Iterator[tuple[int, Partition]]:
    for node_id, machine in world.machines.items():
        if machine.core is not None:
            for partition in machine.core.partitions.all():
                yield node_id, partition


def _marks(partition: Partition) -> Iterator[str]:
    marks = (
        partition.log_start_offset,
        partition.last_stable_offset,
        partition.high_watermark,
        partition.log_end_offset,
    )
    if list(marks) != sorted(marks):
        yield f"marks: {partition!r}"
