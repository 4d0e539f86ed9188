"""Groups through `Admin`, on a real broker: ours, and with --peers Apache Kafka."""

import pytest

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
from odradek.client.errors import OdradekError
from odradek.protocol.errors import ErrorCode
from tests.client.live import name_of


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
