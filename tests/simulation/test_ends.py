"""A broker of three that has been told to stop ends, whatever it was doing."""

from contextlib import suppress
from functools import partial

import trio

from odradek.client.errors import OdradekError
from tests.simulation.machine import Machine
from tests.simulation.world import World


async def test_a_broker_stops_although_the_store_went_away_while_it_created_a_topic() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.start()
        await trio.sleep(1)  # until no broker writes anything else
        cut_off: list[Machine] = []

        def cut(machine: Machine) -> None:
            """Cut off the broker that creates the topic; others note that they have its logs."""
            assert machine.meta is not None
            if not cut_off:
                machine.meta.cut()
                cut_off.append(machine)

        for machine in world.machines.values():
            assert machine.meta is not None
            machine.meta.before_txn = partial(cut, machine)

        async def create() -> None:
            with suppress(OdradekError):
                async with world.admin() as admin:
                    await admin.create_topic("t")

        nursery.start_soon(create)
        await trio.sleep(1)
        (creating,) = cut_off
        with trio.fail_after(30):
            await creating.stop()
        nursery.cancel_scope.cancel()
