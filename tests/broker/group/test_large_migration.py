"""Large groups that change their protocol, and members that leave them, hold nobody up."""

import trio

from odradek.broker.environment.turns import Turns
from odradek.broker.environment.work import Work, whole
from odradek.broker.group.classic_group import ClassicGroup, Member, MemberProtocol
from odradek.broker.group.consumer.consumer_group import ConsumerGroup
from odradek.broker.group.consumer.migration import assignment_of, from_classic, to_classic
from odradek.broker.group.state import GroupState
from odradek.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    decode_assignment,
    encode_versioned,
)
from tests.broker.group.consuming import Consumer, id_of, newest, topics
from tests.broker.group.world import GROUP, World
from tests.fakes.turns import longest_turn

MEMBERS = 100
NAMES = [f"t{number:02d}" for number in range(30)]
SHAPES = topics(**dict.fromkeys(NAMES, MEMBERS))


def classic_group() -> ClassicGroup:
    """Return a group in which each member owns a partition of each topic."""
    metadata = encode_versioned(ConsumerProtocolSubscription(topics=tuple(NAMES)))
    members = {
        f"m{number}": Member(
            member_id=f"m{number}",
            group_instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=300_000,
            session_timeout_ms=45_000,
            protocols=(MemberProtocol("range", metadata),),
            assignment=encode_versioned(
                ConsumerProtocolAssignment(
                    assigned_partitions=tuple(
                        ConsumerTopicPartitions(topic=name, partitions=(number,)) for name in NAMES
                    )
                )
            ),
        )
        for number in range(MEMBERS)
    }
    return ClassicGroup(
        group_id=GROUP,
        state=GroupState.STABLE,
        state_since_ms=0,
        generation_id=3,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name="range",
        leader_id="m0",
        members=members,
    )


def back(group: ConsumerGroup) -> Work[ClassicGroup]:
    return to_classic(group, SHAPES, generation_id=4, now_ms=0)


async def test_the_conversion_of_a_large_group_holds_nobody_up() -> None:
    """It ran in one piece, in which no other client was served, and so did the way back."""
    before = classic_group()
    converted = whole(from_classic(before, SHAPES))
    with longest_turn() as longest:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Turns().do, from_classic(before, SHAPES))
            nursery.start_soon(Turns().do, back(converted))
    assert longest.calls < 15_000, longest
    again = whole(back(converted))
    assert {key: each.assignment for key, each in again.members.items()} == {
        key: each.assignment for key, each in before.members.items()
    }


async def test_the_assignment_that_sync_group_returns_holds_nobody_up() -> None:
    """That of a member that owns 3,000 topics was made in one piece."""
    names = [f"t{number:04d}" for number in range(3_000)]
    shapes = topics(**dict.fromkeys(names, 1))
    member = whole(from_classic(classic_group(), SHAPES)).members["m0"]
    object.__setattr__(member, "assigned", {id_of(name): {0: 3} for name in names})
    listed = decode_assignment(whole(assignment_of(member, shapes))).assigned_partitions
    assert [each.topic for each in listed] == names
    with longest_turn() as longest:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Turns().do, assignment_of(member, shapes))
    assert longest.calls < 15_000, longest


async def test_a_member_that_leaves_a_group_of_thousands_of_topics_holds_nobody_up(
    world: World,
) -> None:
    """What the others read was hashed in one piece."""
    world.shapes = topics(**{f"t{number}": 1 for number in range(4_000)})
    names = tuple(world.shapes.topics)
    stays = Consumer(world=world, member_id="stays", names=names)
    leaves = Consumer(world=world, member_id="leaves", names=names[1:])
    await stays.beat()
    await leaves.beat()
    with longest_turn() as longest:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leaves.leave)
    assert set(newest(world).members) == {"stays"}
    assert longest.calls < 15_000, longest


async def test_a_member_whose_time_ends_in_a_group_of_thousands_of_topics_holds_nobody_up(
    world: World,
) -> None:
    """A member that left was removed in turns, one whose session ended in one piece."""
    world.shapes = topics(**{f"t{number}": 1 for number in range(4_000)})
    names = tuple(world.shapes.topics)
    stays = Consumer(world=world, member_id="stays", names=names)
    late = [Consumer(world=world, member_id=f"late{n}", names=names[1:]) for n in range(2)]
    for each in (*late, stays):
        await each.beat()
    await trio.sleep(40)
    await stays.beat()
    epoch = newest(world).epoch
    with longest_turn() as longest:
        await trio.sleep(10)
    assert set(newest(world).members) == {"stays"}
    assert newest(world).epoch == epoch + 1  # both together
    assert longest.calls < 15_000, longest
