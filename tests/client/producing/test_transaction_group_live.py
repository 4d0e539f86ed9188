"""Transaction groups on a real broker: members in other processes, one decision."""

# ruff: noqa: SIM117, PT012 - nested blocks show which one a call is in, and which one raises

import base64
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
import trio

from odradek.client import (
    Aborted,
    Admin,
    DetachedTransaction,
    Fatal,
    Fenced,
    GroupBounds,
    Producer,
    Refused,
    TransactionGroup,
    blocking,
)
from tests.client.live import name_of, read_all
from tests.client.producing import detach_and_die
from tests.client.producing.test_producer_live import make_topic


@pytest.fixture
def ours(odradek_address: str) -> str:
    return odradek_address


async def detached(
    group: TransactionGroup, bootstrap: str, topic: str, member: str, value: bytes = b""
) -> DetachedTransaction:
    """Return the transaction of a member whose producer is closed."""
    async with (
        Producer(bootstrap, transactional_id=group.transactional_id(member)) as producer,
        producer.transaction() as transaction,
    ):
        await transaction.send(topic, value or member.encode())
        return await transaction.detach()


async def values_in(bootstrap: str, topic: str, partitions: int = 1) -> set[bytes]:
    records = await read_all(bootstrap, topic, partitions=partitions)
    return {record.value or b"" for record in records}


async def settle(bootstrap: str, *members: DetachedTransaction) -> None:
    """Wait until no transaction of these ids is under way."""
    async with Admin(bootstrap) as admin:
        while True:
            found = [await admin.describe_transaction(each.transactional_id) for each in members]
            if all(each.state.startswith("Complete") for each in found):
                return
            await trio.sleep(0.02)


async def test_members_in_other_processes_are_committed_together(ours: str) -> None:
    topic = await make_topic(ours, 1)
    async with TransactionGroup(ours, name_of("group")) as group:
        members = []
        for number in range(3):
            ended = await trio.run_process(
                [
                    sys.executable,
                    str(Path(detach_and_die.__file__)),
                    ours,
                    group.transactional_id(f"task-{number}"),
                    topic,
                    f"value-{number}",
                ],
                capture_stdout=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                check=False,
            )
            assert ended.returncode == -9
            members.append(pickle.loads(base64.b64decode(ended.stdout)))
        assert await values_in(ours, topic) == set()
        await group.commit(members)
        await settle(ours, *members)
    assert await values_in(ours, topic) == {b"value-0", b"value-1", b"value-2"}


async def test_an_aborted_group_leaves_nothing(ours: str) -> None:
    topic = await make_topic(ours, 2)
    async with TransactionGroup(ours, name_of("group")) as group:
        members = [await detached(group, ours, topic, name) for name in "abc"]
        await group.abort(members)
        await settle(ours, *members)
    assert await values_in(ours, topic, 2) == set()


async def test_a_client_knows_the_bounds_and_sends_nothing_beyond_them(ours: str) -> None:
    async with TransactionGroup(ours, name_of("group")) as group:
        bounds = await group.bounds()
        assert bounds == GroupBounds(members=10_000, partitions=200_000, bytes=16 * 1024 * 1024)
        member = DetachedTransaction(group.transactional_id("a"), 1, 0)
        most = [
            replace(member, transactional_id=group.transactional_id(f"a-task-{number}"))
            for number in range(10_000)
        ]
        most[-1] = replace(most[-1], partitions=200_000, size_bytes=bounds.bytes)
        beyond = [
            ([member] * 10_001, "10001 members, and the broker takes at most 10000"),
            ([replace(member, partitions=150_000)] * 2, "300000 partitions, and the broker"),
            ([replace(member, size_bytes=9 * 1024 * 1024)] * 2, "18874368 bytes, and the broker"),
        ]
        for members, what in beyond:
            with pytest.raises(Refused, match=f"the group has {what}"):
                await group.commit(members)
        with pytest.raises(Aborted, match="has no producer id"):
            await group.commit(most)
    with blocking.TransactionGroup(ours, group.name) as again:
        assert again.bounds() == bounds


async def test_a_detached_transaction_knows_what_counts_for_the_bounds(ours: str) -> None:
    topic, other = await make_topic(ours, 2), await make_topic(ours, 1)
    async with TransactionGroup(ours, name_of("group")) as group:
        name = group.transactional_id("a")
        async with (
            Producer(ours, transactional_id=name) as producer,
            producer.transaction() as transaction,
        ):
            for partition in (0, 1, 0):
                await transaction.send(topic, b"1", partition=partition)
            await transaction.send(other, b"1")
            member = await transaction.detach()
        assert member.partitions == 3
        assert member.size_bytes == len(name) + len(topic) + len(other) + 3 * 4
        await group.abort([member])


async def test_the_same_call_may_be_made_again_with_its_decision_id(ours: str) -> None:
    topic = await make_topic(ours)
    async with TransactionGroup(ours, name_of("group")) as group:
        members = [await detached(group, ours, topic, name) for name in "ab"]
        await group.commit(members, decision_id=UUID(int=1))
        await group.commit(members, decision_id=UUID(int=1))
        with pytest.raises(Aborted, match="another decision has ended"):
            await group.commit(members, decision_id=UUID(int=2))
        with pytest.raises(Aborted, match="another decision has ended"):
            await group.commit(members)


async def test_a_member_that_was_taken_over_is_named_and_nothing_is_committed(ours: str) -> None:
    topic = await make_topic(ours)
    async with TransactionGroup(ours, name_of("group")) as group:
        members = [await detached(group, ours, topic, name) for name in "abc"]
        async with Producer(ours, transactional_id=members[1].transactional_id):
            pass
        with pytest.raises(Aborted, match=r"'\{.*\}\.b' was fenced: a new instance"):
            await group.commit(members)
        assert await values_in(ours, topic) == set()
        await group.abort([members[0], members[2]])


async def test_a_member_that_wrote_nothing_is_left_out(ours: str) -> None:
    topic = await make_topic(ours)
    async with TransactionGroup(ours, name_of("group")) as group:
        name = group.transactional_id("idle")
        async with (
            Producer(ours, transactional_id=name) as producer,
            producer.transaction() as transaction,
        ):
            idle = await transaction.detach()
        assert idle.is_empty
        await group.commit([idle])
        members = [idle, await detached(group, ours, topic, "a")]
        await group.commit(members)
        await settle(ours, members[1])
    assert await values_in(ours, topic) == {b"a"}


async def test_after_detach_the_producer_only_aborts(ours: str) -> None:
    topic = await make_topic(ours)
    async with TransactionGroup(ours, name_of("group")) as group:
        async with Producer(ours, transactional_id=group.transactional_id("a")) as producer:
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"1")
                member = await transaction.detach()
                assert transaction.state == "detached"
                for call in (
                    lambda: transaction.send(topic, b"2"),
                    lambda: transaction.send_offsets({}, "g"),
                    transaction.flush,
                    transaction.prepare,
                    transaction.detach,
                    transaction.commit,
                ):
                    with pytest.raises(Refused, match="detached"):
                        await call()
            with pytest.raises(Refused, match="make a new producer"):
                async with producer.transaction():
                    pass
            await transaction.abort()
            await settle(ours, member)
            with pytest.raises(Aborted, match="another decision has ended"):
                await group.commit([member])
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"3")
    assert [record.value for record in await read_all(ours, topic, count=1)] == [b"3"]


async def test_an_exception_after_detach_leaves_the_end_to_the_group(ours: str) -> None:
    topic = await make_topic(ours)
    members = []
    async with TransactionGroup(ours, name_of("group")) as group:
        with pytest.raises(RuntimeError) as raised:
            async with (
                Producer(ours, transactional_id=group.transactional_id("a")) as producer,
                producer.transaction() as transaction,
            ):
                await transaction.send(topic, b"1")
                members.append(await transaction.detach())
                raise RuntimeError("later")
        assert "is detached and stays open" in raised.value.__notes__[0]
        await group.commit(members)
        await settle(ours, *members)
    assert await values_in(ours, topic) == {b"1"}


async def test_an_abort_after_the_decision_cannot_undo_it(ours: str) -> None:
    topic = await make_topic(ours)
    async with TransactionGroup(ours, name_of("group")) as group:
        async with Producer(ours, transactional_id=group.transactional_id("a")) as producer:
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"1")
                member = await transaction.detach()
            await group.commit([member])
            with pytest.raises((Fatal, Fenced)):
                await transaction.abort()
    assert [record.value for record in await read_all(ours, topic, count=1)] == [b"1"]


@pytest.mark.slow
async def test_an_idle_member_keeps_its_whole_group_open(ours: str) -> None:
    topic = await make_topic(ours)
    async with TransactionGroup(ours, name_of("group")) as group:
        async with Producer(
            ours, transactional_id=group.transactional_id("a"), transaction_timeout_ms=1_500
        ) as producer:
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"a")
                members = [await transaction.detach()]
            members.append(await detached_with(group, ours, topic, "b", 1_500))
            await trio.sleep(5)
            await group.commit(members)
        await settle(ours, *members)
        assert await values_in(ours, topic) == {b"a", b"b"}
        alone = await detached_with(group, ours, topic, "c", 1_500)
        await settle(ours, alone)
        with pytest.raises(Aborted, match="was fenced: its transaction was open for longer"):
            await group.commit([alone])


async def detached_with(
    group: TransactionGroup, bootstrap: str, topic: str, member: str, timeout_ms: int
) -> DetachedTransaction:
    async with (
        Producer(
            bootstrap,
            transactional_id=group.transactional_id(member),
            transaction_timeout_ms=timeout_ms,
        ) as producer,
        producer.transaction() as transaction,
    ):
        await transaction.send(topic, member.encode())
        return await transaction.detach()


async def test_only_a_member_of_a_group_can_detach(ours: str) -> None:
    topic = await make_topic(ours)
    async with Producer(ours, transactional_id=name_of("plain")) as producer:
        async with producer.transaction() as transaction:
            await transaction.send(topic, b"1")
            with pytest.raises(Refused, match="needs the group's name in braces"):
                await transaction.detach()
    assert [record.value for record in await read_all(ours, topic, count=1)] == [b"1"]


@pytest.mark.parametrize("name", ["", "{a}", "a}", "{", 5])
def test_a_group_has_a_name_without_braces(name: str) -> None:
    for which in (TransactionGroup, blocking.TransactionGroup):
        with pytest.raises(ValueError, match="name of a transaction group"):
            which("127.0.0.1:1", name)


async def test_a_text_is_no_member(ours: str) -> None:
    async with TransactionGroup(ours, name_of("group")) as group:
        with pytest.raises(Refused, match="a member is what detach returned"):
            await group.commit(["{g}.a"])  # type: ignore[list-item]


async def test_a_member_of_another_group_is_refused(ours: str) -> None:
    topic = await make_topic(ours)
    async with (
        TransactionGroup(ours, name_of("group")) as group,
        TransactionGroup(ours, name_of("group")) as other,
    ):
        members = [await detached(each, ours, topic, "a") for each in (group, other)]
        with pytest.raises(Refused, match="is not in the transaction group of"):
            await group.commit(members)
        await group.abort(members[:1])
        await other.abort(members[1:])


def test_it_works_without_an_event_loop(ours: str) -> None:
    topic = trio.run(make_topic, ours)
    with blocking.TransactionGroup(ours, name_of("group")) as group:
        name = group.transactional_id("a")
        with blocking.Producer(ours, transactional_id=name) as producer:
            with producer.transaction() as transaction:
                transaction.send(topic, b"1")
                member = transaction.detach()
                with pytest.raises(Refused):
                    transaction.send(topic, b"2")
        group.commit([member])
        trio.run(settle, ours, member)
    assert trio.run(values_in, ours, topic) == {b"1"}


async def test_a_broker_without_groups_is_named(bootstrap: str, ours: str) -> None:
    """With --peers: a real Kafka decides nothing for the leader alone."""
    if bootstrap == ours:
        return
    topic = await make_topic(bootstrap)
    name = f"{{{name_of('group')}}}.a"
    async with TransactionGroup(bootstrap, "g") as group:
        async with Producer(bootstrap, transactional_id=name) as producer:
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"1")
                with pytest.raises(Refused, match="has no transaction groups"):
                    await transaction.detach()
                member = DetachedTransaction(name, producer.producer_id, producer.producer_epoch)
                with pytest.raises(Refused, match="has no transaction groups"):
                    await group.commit([member])
    assert [record.value for record in await read_all(bootstrap, topic, count=1)] == [b"1"]
