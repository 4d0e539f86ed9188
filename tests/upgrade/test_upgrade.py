"""Data directories of earlier versions: this one opens them with all that was acknowledged."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

from odradek.broker.testing import run_broker
from odradek.client import Completion, PreparedTransaction, TopicPartition
from odradek.client.administration.admin import OffsetSpec
from odradek.client.blocking import Consumer as BlockingConsumer
from odradek.client.producing.detached import DetachedTransaction
from tests.simulation.world import World
from tests.upgrade import contents as c
from tests.upgrade.archive import Facts, members_of, unpack

HERE: Final = Path(__file__).parent
MADE: Final = sorted(path.relative_to(HERE).as_posix() for path in HERE.glob("*/*.tar.xz"))
SINCE_0_2: Final = [made for made in MADE if not made.startswith("0.1.")]
"""Those that have access control, quotas and a journal."""
BROKERS: Final = {"one.tar.xz": 1, "three.tar.xz": 3}


@asynccontextmanager
async def opened(made: str) -> AsyncIterator[tuple[World, Facts]]:
    """Start brokers on the data directories of an archive, at the time at which it was made."""
    path = HERE / made
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=BROKERS[path.name], properties=c.PROPERTIES)
        facts = unpack(world, path)
        for machine in world.machines.values():
            machine.clock.skew_ms = round(facts["seconds"] * 1000)
        await world.start()
        await world.all_registered()
        yield world, facts
        assert world.trace.tracebacks == []
        nursery.cancel_scope.cancel()


async def again(world: World) -> None:
    """Stop all brokers, and start them again on what they have written."""
    for machine in world.machines.values():
        await machine.stop()
    await world.start()
    await world.all_registered()


async def read(world: World, *places: TopicPartition) -> list[bytes | None]:
    """Return the values in partitions up to their last stable offsets, one after the other."""
    found: list[bytes | None] = []
    async with world.admin() as admin, world.consumer() as consumer:
        wanted: dict[TopicPartition, OffsetSpec] = {place: "latest" for place in places}
        ends = await admin.list_offsets(wanted, isolation_level="read_committed")
        for place in places:
            consumer.assign([place])
            await consumer.seek_to_beginning()
            with trio.fail_after(30):
                while await consumer.position(place) < ends[place].offset:
                    found += [record.value for record in await consumer.poll()]
    return found


@pytest.mark.parametrize("made", MADE)
async def test_records_and_settings_are_there(made: str) -> None:
    async with opened(made) as (world, _):
        for _ in range(2):
            assert await read(world, c.RECORDS) == c.VALUES
            assert await read(world, c.DECISIONS) == [c.DECISION]
            async with world.admin() as admin:
                configs = (await admin.describe_topic_configs(c.RECORDS.topic))[c.RECORDS.topic]
                wanted = {**c.KEPT_FOR_EVER, **c.CHANGED_LATER}
                assert {name: configs[name].value for name in wanted} == wanted
                cluster = await admin.describe_cluster_configs()
                assert {name: cluster[name].value for name in cluster} == c.CLUSTER_SETTING
            await again(world)


@pytest.mark.parametrize("made", MADE)
async def test_what_was_deleted_stays_deleted(made: str) -> None:
    async with opened(made) as (world, _):
        for _ in range(2):
            assert await read(world, c.TRIMMED) == c.VALUES[c.TRIMMED_AT :]
            async with world.admin() as admin:
                assert c.DELETED not in await admin.list_topics()
                first = await admin.list_offsets({c.TRIMMED: "earliest"})
                assert first[c.TRIMMED].offset == c.TRIMMED_AT
            await again(world)


@pytest.mark.parametrize("made", MADE)
async def test_a_compacted_topic_has_the_newest_value_of_each_key(made: str) -> None:
    async with opened(made) as (world, _):
        for _ in range(2):
            found = await read(world, c.COMPACTED)
            assert found[-c.KEYS :] == [
                c.compacted_value(key, c.ROUNDS - 1) for key in range(c.KEYS)
            ]
            assert len(found) < c.KEYS * c.ROUNDS
            await again(world)


@pytest.mark.parametrize("made", MADE)
async def test_groups_have_their_offsets_and_members(made: str) -> None:
    async with opened(made) as (world, _), world.admin() as admin:
        classic = await admin.describe_group(c.CLASSIC)
        consumer = await admin.describe_group(c.CONSUMER)
        assert (classic.group_type, len(classic.members)) == ("classic", 1)
        assert (consumer.group_type, len(consumer.members)) == ("consumer", 1)
        assert consumer.group_epoch is not None
        for _ in range(2):
            for name in (c.CLASSIC, c.CONSUMER, c.ALONE):
                [(place, found)] = (await admin.committed(name)).items()
                assert place == c.RECORDS
                assert (found.offset, found.metadata) == (c.STORED, c.STORED_METADATA)
            pending = await admin.committed(c.PENDING, require_stable=False)
            assert pending[c.RECORDS].offset == 1
            await again(world)


@pytest.mark.parametrize("made", MADE)
async def test_open_transactions_can_be_ended(made: str) -> None:
    both = [TopicPartition(c.TRANSACTIONS, partition) for partition in range(2)]
    async with opened(made) as (world, facts):
        assert await read(world, *both) == [c.COMMITTED] * 2
        group = world.group(c.TRANSACTION_GROUP)
        async with group:
            await group.commit(
                DetachedTransaction(group.transactional_id(name), *identity)
                for name, identity in zip(c.MEMBERS, facts["members"], strict=True)
            )
        members = [c.GROUPED] * len(c.MEMBERS)
        assert await read(world, *both) == [c.COMMITTED, *members] * 2
        async with world.producer(
            transactional_id=c.PREPARED_ID, two_phase_commit=True, keep_prepared=True
        ) as producer:
            decided = PreparedTransaction.parse(facts["prepared"])
            assert await producer.complete(decided) is Completion.COMMITTED
        async with (
            world.producer(transactional_id=c.LEFT_ID) as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send(c.TRANSACTIONS, b"new", partition=0)
        await again(world)
        everything = [c.COMMITTED, *members, c.PREPARED]
        assert await read(world, both[0]) == [*everything, b"new"]
        assert await read(world, both[1]) == everything
        async with world.admin() as admin:
            assert (await admin.committed(c.PENDING))[c.RECORDS].offset == 2


@pytest.mark.parametrize("made", SINCE_0_2)
async def test_who_may_do_what_and_how_much_is_kept(made: str) -> None:
    async with opened(made) as (world, _):
        for _ in range(2):
            async with world.admin() as admin:
                assert sorted(await admin.describe_acls()) == sorted(c.ACLS)
                (user,) = await admin.describe_users()
                assert user.name == c.USER
                (of_user,) = await admin.describe_quotas(user=c.USER)
                (of_all,) = await admin.describe_quotas(client_id="")
                assert (of_user.values, of_all.values) == (c.QUOTAS, c.DEFAULT_QUOTAS)
            await again(world)


@pytest.mark.parametrize("made", SINCE_0_2)
async def test_records_that_only_the_journal_had_are_there(made: str) -> None:
    logs = {
        name: content
        for name, content in members_of(HERE / made).items()
        if f"/{c.JOURNALED}/" in name and name.endswith(".log")
    }
    assert any(c.VALUES[-1] not in content for content in logs.values()), "every log has them"
    async with opened(made) as (world, _):
        for _ in range(2):
            assert await read(world, c.JOURNALED) == c.VALUES
            await again(world)


@pytest.mark.parametrize("made", [name for name in MADE if name.endswith("one.tar.xz")])
def test_a_process_opens_them_on_a_real_disk(made: str, tmp_path: Path) -> None:
    for name, content in members_of(HERE / made).items():
        if name.startswith("1/"):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(content)
    with run_broker(data_dir=tmp_path / "1") as broker:
        with BlockingConsumer(broker.address) as consumer:
            consumer.assign([c.RECORDS])
            consumer.seek_to_beginning()
            found: list[bytes | None] = []
            while len(found) < len(c.VALUES):
                found += [record.value for record in consumer.poll()]
        assert found == c.VALUES
        broker.stop()
        assert "ERROR" not in broker.log
        is_first = made not in SINCE_0_2  # which logs were made is noted since then
        assert ("What was lost before cannot be known" in broker.log) == is_first
