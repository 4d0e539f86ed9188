"""A broker that stands still takes connections and answers nothing."""

import trio

from tests.simulation.scheduling import let_processes_freeze
from tests.simulation.world import World


async def test_a_client_that_begins_with_a_frozen_broker_goes_on_to_the_next_address() -> None:
    """It waited for 30 s for the first answer of the first address."""
    let_processes_freeze()
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.start()
        frozen = world.machines[1]  # the first address that a client is given
        frozen.pause()
        async with world.admin() as admin:
            with trio.fail_after(2):
                assert await admin.list_topics() == []
        frozen.resume()
        nursery.cancel_scope.cancel()
