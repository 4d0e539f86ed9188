"""The last epochs, 32,765 to 32,767, in every operation that spends an epoch.

Partition leaders judge the markers by Kafka's rules: a marker with a wrong epoch hangs the id.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.transaction import ProducerIdAndEpoch, State, TransactionMetadata
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.txn.world import (
    CLIENT,
    ID,
    OTHER,
    P0,
    P1,
    START_MS,
    ModelLeaders,
    World,
    producer,
)

pytestmark = pytest.mark.slow

CONFIG = TransactionConfig(
    transaction_state_log_num_partitions=1,
    transaction_two_phase_commit_enable=True,
    transaction_abort_on_disconnect=True,
)

Way = Callable[[World, ProducerIdAndEpoch, int], Awaitable[None]]


async def commit(world: World, me: ProducerIdAndEpoch, version: int) -> None:
    await world.commit(me, version)


async def abort(world: World, me: ProducerIdAndEpoch, version: int) -> None:
    await world.abort(me, version)


async def fence(world: World, me: ProducerIdAndEpoch, version: int) -> None:
    await world.init(client=OTHER)


async def resume(world: World, me: ProducerIdAndEpoch, version: int) -> None:
    await world.init(me)


async def time_out(world: World, me: ProducerIdAndEpoch, version: int) -> None:
    await trio.sleep(61)


async def disconnect(world: World, me: ProducerIdAndEpoch, version: int) -> None:
    seat = world.coordinator.presence.seat()
    seat.note_served(ID, me, CLIENT)
    seat.leave(is_gone=True)
    await world.settled()


async def keep_and_commit(world: World, me: ProducerIdAndEpoch, version: int) -> None:
    answer = await world.prepare_anew(keep=True, client=OTHER)
    await world.commit(answer.producer, version)


async def keep_and_abort(world: World, me: ProducerIdAndEpoch, version: int) -> None:
    answer = await world.prepare_anew(me, keep=True)
    await world.abort(answer.producer, version)


async def keep_and_fence(world: World, me: ProducerIdAndEpoch, version: int) -> None:
    await world.prepare_anew(keep=True)
    await world.prepare_anew(keep=True)
    await world.init(client=OTHER)


async def keep_and_time_out(world: World, me: ProducerIdAndEpoch, version: int) -> None:
    await world.prepare_anew(keep=True, two_phase=False)
    await trio.sleep(61)


WAYS: tuple[Way, ...] = (
    commit,
    abort,
    fence,
    resume,
    time_out,
    disconnect,
    keep_and_commit,
    keep_and_abort,
    keep_and_fence,
    keep_and_time_out,
)


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("epoch", [32_763, 32_764, 32_765, 32_766])
@pytest.mark.parametrize("way", WAYS)
async def test_an_id_goes_on_whichever_way_its_epochs_end(
    nursery: trio.Nursery, way: Way, epoch: int, version: int, crashes: bool
) -> None:
    world = World(nursery, CONFIG)
    leaders = ModelLeaders()
    world.markers.answer = leaders.answer
    me = producer(7, epoch)
    planted = TransactionMetadata(
        producer_id=7,
        producer_epoch=epoch,
        previous_producer_id=7,
        timeout_ms=60_000,
        state=State.ONGOING,
        partitions=frozenset({P0}),
        started_ms=START_MS,
        updated_ms=START_MS,
        transaction_version=version,
        client=CLIENT,
    )
    leaders.write(P0, me)
    await world.plant(planted)
    await way(world, me, version)
    if crashes:
        await world.crash()
    await world.settled()
    assert not leaders.open, "the transaction hangs"
    assert not world.transaction.state.is_prepared

    with pytest.raises(KafkaError):
        await world.add(replace(me, producer_epoch=me.producer_epoch - 1), P0)
    seen = {me}
    for _ in range(3):
        following = await world.init()
        assert following not in seen, "two producers have one identity"
        assert following.producer_epoch <= 32_766
        assert following.producer_id == 7 or following.producer_id >= 1000
        await world.add(following, P1, version=version)
        leaders.write(P1, following)
        told = await world.commit(following, version)
        assert await world.settled() is State.COMPLETE_COMMIT
        assert told == world.transaction.current
        seen |= {following, told}
    assert not leaders.open
    world.stop()


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("epoch", [5, 32_764, 32_765, 32_766])
@pytest.mark.parametrize("state", [State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT])
async def test_an_answer_may_be_lost_as_often_as_it_likes(
    nursery: trio.Nursery, state: State, epoch: int, keep: bool, crashes: bool
) -> None:
    """But for one: that a producer id takes the place of 32,766 is repeated at most once, for the
    repetition forgets the id before. Kafka's own retries are fenced there, too; only a transaction
    that is kept, which is ours, can be claimed any number of times."""
    world = World(nursery, CONFIG)
    me = producer(7, epoch)
    await world.plant(
        TransactionMetadata(
            producer_id=7,
            producer_epoch=epoch,
            previous_producer_id=7,
            timeout_ms=60_000,
            state=state,
            partitions=frozenset({P0} if state is State.ONGOING else ()),
            started_ms=START_MS,
            updated_ms=START_MS,
            transaction_version=2,
            client=CLIENT,
        )
    )
    answers = []
    is_forgotten = epoch == 32_766 and not (keep and state is State.ONGOING)
    for _ in range(1 if is_forgotten else 4):
        answers.append(await world.prepare_anew(me, keep=keep))
        if crashes:
            await world.crash()
    assert len(set(answers)) == 1, "an answer that was lost could not be had again"
    if is_forgotten:
        with pytest.raises(KafkaError) as refused:  # noqa: PT012 - the first may be answered
            for _ in range(2):
                await world.prepare_anew(me, keep=keep)
        assert refused.value.code is ErrorCode.PRODUCER_FENCED
    world.stop()


async def test_a_producer_id_that_is_worn_out_has_no_owner_any_more(nursery: trio.Nursery) -> None:
    """Else what is known of owners grows with every one, and a stranger's batch has a name."""
    world = World(nursery, CONFIG)
    await world.plant(
        TransactionMetadata(
            producer_id=7, producer_epoch=32_766, timeout_ms=60_000, transaction_version=2
        )
    )
    for worn_out, following in ((7, 1000), (1000, 1000)):
        assert world.coordinator.owner_of(worn_out) == ID
        me = world.transaction.current
        await world.add(me, P0)
        await world.commit(me)
        await world.settled()
        assert world.coordinator.owner_of(following) == ID
    assert world.coordinator.owner_of(7) is None
    world.stop()
