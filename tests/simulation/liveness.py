"""Liveness: soon after all faults have ended, everything works and nothing is left open."""

from collections.abc import Iterator

import trio

from odradek.broker.cluster.image import PartitionImage
from odradek.broker.partitions.partition import Partition
from odradek.broker.values.topic_partition import TopicPartition
from tests.simulation.world import World

REST_SECONDS = 30.0


class Lame(Exception):
    """The brokers have not come to rest: one sentence for a person."""


async def until_at_rest(world: World) -> None:
    """Return when every partition is led and its last stable offset is its end. Raises `Lame`.

    A broker that stays dead is not missed. Over a cut that is left, neither fetches nor markers
    reach a leader: a partition that is led at an end of it may wait for the end of a transaction.
    """
    unrest = ["nothing was looked at"]
    with trio.move_on_after(REST_SECONDS):
        while unrest:
            await trio.sleep(0.2)
            unrest = [*_damage(world), *_unrest(world), *_open_too_long(world)]
    if unrest:
        raise Lame(f"after {REST_SECONDS:.0f} s {unrest[0]}, and {len(unrest) - 1} more")


def _damage(world: World) -> Iterator[str]:
    """Yield a sentence for each replica that is damaged and was not fetched anew."""
    for node, where in world.damaged():
        if world.machines[node].is_left:
            continue
        yield f"{where} is still damaged on broker {node}"


def _unrest(world: World) -> Iterator[str]:
    """Yield a sentence for each partition that has not come to rest."""
    for topic in world.image().topics.values():
        for index, image in enumerate(topic.partitions):
            where = TopicPartition(topic.name, index)
            machine = world.machines.get(image.leader)
            core = None if machine is None else machine.core
            partition = None if core is None else core.partitions.find(where)
            if partition is None or partition.leading is None:
                yield f"{where} is not led ({image})"
            elif missing := _missing(world, image):
                yield f"of {where} {missing} are not in sync ({image})"
            elif not _is_at_rest(partition) and not world.has_left_cut(image.leader):
                yield f"{partition!r} is not at rest: open are {partition.open_transactions()}"


def _open_too_long(world: World) -> Iterator[str]:
    """Yield a sentence for each transaction that is decided, or open beyond its time-out."""
    for machine in world.machines.values():
        for each in () if machine.core is None else machine.core.transactions.transactions():
            if each.state.is_prepared and not world.net.left:
                yield f"{each.transactional_id} is not ended: {each}"
            elif each.times_out_in_ms is not None and each.times_out_in_ms < 0:
                yield f"{each.transactional_id} is open beyond its time-out: {each}"


def _missing(world: World, image: PartitionImage) -> list[int]:
    """Return the replicas that could be in sync and are not."""
    return [
        node
        for node in image.replicas
        if node not in image.isr
        and not world.machines[node].is_left
        and not world.is_left_cut(node, image.leader)
    ]


def _is_at_rest(partition: Partition) -> bool:
    end = partition.log_end_offset
    return partition.last_stable_offset == partition.high_watermark == end
