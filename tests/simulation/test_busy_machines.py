"""Three brokers on machines that are twenty times too busy, for two minutes."""

import trio

from tests.simulation.machine import Machine
from tests.simulation.scheduling import let_processes_freeze
from tests.simulation.world import World

BUSY_SECONDS = 120.0
PERIOD_SECONDS = 0.4
SHARE = 1 / 20
TOPIC = "t"
PARTITIONS = 6


async def starve(machine: Machine) -> None:
    """Give a broker a twentieth of the time, in slices, as a quota of the processor does."""
    until = trio.current_time() + BUSY_SECONDS
    while trio.current_time() < until:
        machine.pause()
        await trio.sleep(PERIOD_SECONDS * (1 - SHARE))
        machine.resume()
        await trio.sleep(PERIOD_SECONDS * SHARE)


def is_led(world: World) -> bool:
    """Return True if every partition has a leader that knows of it."""
    topic = world.image().topics.get(TOPIC)
    if topic is None:
        return False
    for index, image in enumerate(topic.partitions):
        machine = world.machines.get(image.leader)
        if machine is None or machine.core is None:
            return False
        partition = machine.core.partitions.get_replica(TOPIC, index)
        if partition.leading is None or partition.leading.leader_epoch != image.leader_epoch:
            return False
    return True


async def test_brokers_that_were_short_of_time_have_their_leaders_within_seconds() -> None:
    """All partitions were without a leader for two minutes: calls were given up too early."""
    let_processes_freeze()
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.start()
        await trio.sleep(1)  # the images of all have all
        async with world.admin() as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS)
            led = samples = 0
            async with trio.open_nursery() as busy:
                for machine in world.machines.values():
                    # what a call needs of the processor takes so much longer, too
                    assert machine.meta is not None
                    machine.meta.delay_s = lambda: 0.2
                    busy.start_soon(starve, machine)
                while busy.child_tasks:
                    await trio.sleep(1)
                    samples += 1
                    led += is_led(world)
            assert led > samples * 0.9, f"led in {led} of {samples} seconds"
            with trio.fail_after(5):
                while not is_led(world):  # noqa: ASYNC110 (nothing tells of it)
                    await trio.sleep(0.1)
            await admin.create_topic("after", partitions=1)
        nursery.cancel_scope.cancel()
