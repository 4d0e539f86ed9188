"""A right that one broker takes away holds at no other a second later, whatever is cut."""

from dataclasses import replace
from random import Random

import pytest
import trio

from odradek.broker.api.context import Core
from odradek.broker.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)
from odradek.broker.security.principal import Principal
from odradek.broker.security.rights import READ_TOPIC
from odradek.protocol.apis.credentials import AlterUserScramCredentialsResponse
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.simulation.acls import user_deleted, user_made
from tests.simulation.raw import RawClient
from tests.simulation.user_clients import login_of
from tests.simulation.users import AUTHORIZER, SECURED, SESSION_MS
from tests.simulation.world import World

ALICE = Principal("User", "alice")
ENTRY = AclEntry(str(ALICE), "*", AclOperation.READ, Permission.ALLOW)
TOPIC = ResourcePattern(ResourceKind.TOPIC, PatternType.LITERAL, "t")


def may_read(core: Core) -> bool:
    """Return True if a broker grants it now; a broker that closes connections does not."""
    try:
        return core.authorizer.access_of(ALICE, "10.0.0.1").shows(READ_TOPIC, "t")
    except ProtocolError:
        return False


async def test_what_one_broker_revokes_no_other_grants() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=3, seed=7)
        for machine in world.machines.values():
            machine.config = replace(machine.config, authorizer_class_name=AUTHORIZER)
        await world.start()
        await world.all_registered()
        first, second, third = (machine.core for machine in world.machines.values())
        assert first is not None
        assert second is not None
        assert third is not None
        cut_off = world.machines[3].meta
        assert cut_off is not None
        await first.acls.create([(TOPIC, ENTRY)])
        await trio.sleep(1)
        assert [may_read(core) for core in (first, second, third)] == [True] * 3
        # the third hears nothing of the store any more, and the second does
        cut_at = trio.current_time()
        cut_off.cut()
        await first.acls.delete([AclFilter(name="t")])
        assert not may_read(first)
        await trio.sleep(1)
        assert not may_read(second)
        timeout_s = world.machines[3].config.broker_session_timeout_ms / 1000
        await trio.sleep(cut_at + timeout_s + 0.1 - trio.current_time())
        with pytest.raises(ProtocolError, match="no connection to the metadata store"):
            third.authorizer.access_of(ALICE, "10.0.0.1").shows(READ_TOPIC, "t")
        cut_off.heal()
        for _ in range(200):
            assert not may_read(third)
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()


async def test_a_user_that_was_deleted_is_let_in_nowhere() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=3, seed=7, properties=SECURED)
        await world.start()
        await world.all_registered()
        admin = RawClient(world, "admin", Random(1))
        assert codes_of(await admin.ask(1, *user_made("eve"))) == {ErrorCode.NONE}
        await trio.sleep(1)
        assert [await is_let_in(world, node) for node in world.machines] == [True] * 3
        # the third is told nothing by the store any more
        cut_off = world.machines[3].meta
        assert cut_off is not None
        cut_off.cut()
        assert codes_of(await admin.ask(1, *user_deleted("eve"))) == {ErrorCode.NONE}
        assert not await is_let_in(world, 1)
        await trio.sleep(1)
        assert not await is_let_in(world, 2)
        await trio.sleep(SESSION_MS / 1000)
        assert not await is_let_in(world, 3)
        cut_off.heal()
        for _ in range(50):
            assert not await is_let_in(world, 3)
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()


async def is_let_in(world: World, node: int) -> bool:
    """Return True if a broker lets the user `eve` in."""
    client = RawClient(world, "eve", Random(node), login=login_of("eve", Random(node)))
    try:
        await client.ask(node, API_VERSIONS, 0, ApiVersionsRequest())
    except OSError:
        return False
    else:
        return True
    finally:
        await client.close()


def codes_of(answer: AlterUserScramCredentialsResponse) -> set[int]:
    return {each.error_code for each in answer.results}
