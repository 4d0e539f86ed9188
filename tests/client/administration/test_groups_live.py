"""Groups through `Admin`, on a real broker: ours, and with --peers Apache Kafka."""

import pytest
import trio

from odradek.client import (
    Admin,
    Consumer,
    GroupLag,
    OffsetAndMetadata,
    OffsetReset,
    Producer,
    Refused,
    ResetTo,
    TopicPartition,
)
from odradek.client.config import ConsumerOptions
from odradek.client.errors import OdradekError
from odradek.protocol.errors import ErrorCode
from tests.client.live import WAIT_MS, name_of


async def test_a_group_is_reset_and_its_lag_follows(bootstrap: str) -> None:
    topic, group = name_of("topic"), name_of("group")
    place = TopicPartition(topic, 0)
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(topic, partitions=1)
        for _ in range(3):
            await producer.send(topic, b"a")
        await producer.flush()
        await admin.set_group_offsets(group, {place: 2})
        assert await admin.group_lag(group) == {place: GroupLag(2, 3)}
        to = ResetTo(shift=-1)
        assert await admin.reset_group(group, to, dry_run=True) == {place: OffsetReset(2, 1)}
        assert await admin.committed(group) == {place: OffsetAndMetadata(2)}
        assert await admin.reset_group(group, to) == {place: OffsetReset(2, 1)}
        assert (await admin.group_lag(group))[place].lag == 2
        await admin.delete_group_offsets(group, [place])
        assert await admin.group_lag(group, [place]) == {place: GroupLag(None, 3)}


async def test_groups_that_are_there_and_others(bootstrap: str) -> None:
    topic, group, absent = name_of("topic"), name_of("group"), name_of("absent")
    async with Admin(bootstrap) as admin, Consumer(bootstrap, group_id=group) as consumer:
        await admin.create_topic(topic, partitions=1)
        await consumer.commit({TopicPartition(topic, 0): 0})
        found = await admin.describe_groups(group, absent, group)
        assert list(found) == [group, absent]
        there, missing = found.values()
        assert not isinstance(there, OdradekError)
        assert (there.state, there.members, there.protocol) == ("Empty", (), "")
        assert isinstance(missing, Refused)
        assert missing.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert (await admin.describe_group(group)).group_id == group
        (listed,) = [each for each in await admin.list_groups() if each.group_id == group]
        assert (listed.state, listed.group_type) == ("Empty", "classic")
        with pytest.raises(Refused, match=f"no group '{absent}'"):
            await admin.delete_groups(absent, group)
        with pytest.raises(Refused, match="no group"):
            await admin.describe_group(group)


@pytest.mark.slow
async def test_a_group_of_the_new_protocol_is_described_with_epochs_and_targets(
    bootstrap: str,
) -> None:
    topic, group = name_of("topic"), name_of("group")
    every = [TopicPartition(topic, number) for number in range(4)]
    first_options: ConsumerOptions = {"group_id": group, "client_id": "first"}
    second_options: ConsumerOptions = {"group_id": group, "client_id": "second"}
    async with (
        Admin(bootstrap) as admin,
        Consumer(bootstrap, **first_options) as first,
        Consumer(bootstrap, **second_options) as second,
    ):
        await admin.create_topic(topic, partitions=4)
        first.subscribe(topic)
        second.subscribe(topic)
        with trio.fail_after(WAIT_MS / 1000):
            while len(first.assignment()) < 4:
                await first.poll(50)
            while True:  # the second one waits for what the first one, which does not poll, has
                await second.poll(50)
                found = await admin.describe_group(group)
                reached = {member.member_epoch for member in found.members}
                if len(reached) == 2 and found.group_epoch == found.assignment_epoch in reached:
                    break
            assert (found.group_type, found.protocol) == ("consumer", "uniform")
            assert found.state == "Reconciling"
            by_client = {member.client_id: member for member in found.members}
            old, new = by_client["first"], by_client["second"]
            assert (list(old.partitions), new.partitions) == (every, ())
            assert sorted((*(old.target or ()), *(new.target or ()))) == every
            assert old.member_epoch is not None
            assert old.member_epoch < (found.assignment_epoch or 0) == new.member_epoch
            assert {old.is_classic, new.is_classic} == {False}
            while len(second.assignment()) < 2:
                await first.poll(50)
                await second.poll(50)
            while (found := await admin.describe_group(group)).state != "Stable":
                await first.poll(50)
            assert {member.target for member in found.members} == {
                member.partitions for member in found.members
            }
        for refused in (
            admin.set_group_offsets(group, {every[0]: 0}),
            admin.reset_group(group, ResetTo(earliest=True), partitions=every),
            admin.delete_groups(group),
        ):
            with pytest.raises(Refused, match=r"stop (them|the group's members) first"):
                await refused


async def test_many_groups_in_one_call(bootstrap: str) -> None:
    names = [name_of("absent") for _ in range(1_200)]
    async with Admin(bootstrap) as admin:
        found = await admin.describe_groups(*names)
        assert list(found) == names
        assert {type(each) for each in found.values()} == {Refused}
        assert await admin.describe_groups() == {}
        await admin.delete_groups()


async def test_offsets_of_partitions_that_do_not_exist_are_not_deleted(bootstrap: str) -> None:
    topic, group = name_of("topic"), name_of("group")
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=1)
        await admin.set_group_offsets(group, {TopicPartition(topic, 0): 0})
        with pytest.raises(Refused, match="no partition"):
            await admin.delete_group_offsets(group, [TopicPartition(topic, 9)])


@pytest.mark.parametrize(
    "options", [{}, {"offset": 1, "shift": 1}, {"earliest": True, "latest": True}, {"offset": -1}]
)
def test_a_reset_goes_to_one_place(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"one of|negative"):
        ResetTo(**options)  # type: ignore[arg-type]
