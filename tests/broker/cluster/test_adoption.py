"""The metadata of a broker that was alone moves to a cluster, whatever interrupts it."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from odradek.broker.cluster.adoption import Adopted, CannotAdopt, adopt
from odradek.broker.cluster.image import PartitionImage
from odradek.broker.cluster.metadata import find_cluster_id
from odradek.broker.cluster.node_identity import WrongDirectory, check_alone, claim_directory
from odradek.broker.cluster.store import (
    CLUSTER,
    broker_configs_key,
    broker_key,
    known_broker_key,
    made_logs_key,
    pack,
    pack_partition,
    partition_key,
    topic_key,
    unpack,
)
from odradek.broker.cluster.store_embedded import COPY, FILE, EmbeddedStore
from odradek.broker.config.settings import ConfigError
from odradek.broker.environment.env import StoreUnreachable
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.fakes.disk import FakeDisk, PowerOff
from tests.fakes.meta_store import FakeMetaStore

DIRECTORY = "/data"
ID = "bYx5cLQ4SdGmfCVpqRNtZg"
NODE = 7
TOPICS = 250


def keys() -> dict[str, bytes | None]:
    """The keys of a broker that was alone, more than one write takes."""
    here = pack_partition(
        PartitionImage(leader=NODE, leader_epoch=3, replicas=(NODE,), isr=(NODE,))
    )
    found: dict[str, bytes | None] = {
        CLUSTER: pack({"id": ID}),
        broker_configs_key(""): pack({"max.connections": "9"}),
        "/configs/groups/g": pack({"consumer.session.timeout.ms": "50000"}),
        "/acls/topic/literal/t/": pack({"entries": [["User:a", "*", 3, 3]]}),
        "/quotas/user/a/": pack({"producer_byte_rate": 1.0}),
        "/users/a/": pack({"SCRAM-SHA-256": {"salt": b"s", "iterations": 4096}}),
        "/secrets/cluster": pack({"secret": bytes(32)}),
        "/ids/producer": b"3000",
        made_logs_key(NODE): pack({}),
        known_broker_key(NODE): pack({"host": "old"}),
        topic_key(TRANSACTION_STATE_TOPIC): pack({"id": bytes(16), "configs": {}, "min_isr": 1}),
        partition_key(TRANSACTION_STATE_TOPIC, 0): here,
    }
    for number in range(TOPICS):
        found[topic_key(f"t{number}")] = pack({"id": number.to_bytes(16), "configs": {}})
        found[partition_key(f"t{number}", 0)] = here
    return found


async def stopped(disk: FakeDisk, **changes: bytes | None) -> None:
    """Make the directory of a broker that has stopped."""
    store = await EmbeddedStore.open(disk, DIRECTORY)
    await store.txn([], {**keys(), **changes})
    store.close()


async def adopted(
    disk: FakeDisk, store: FakeMetaStore, *, node_id: int | None = None, seed: int = 1
) -> Adopted:
    return await adopt(
        disk, DIRECTORY, store, node_id=node_id, state_min_isr=2, rng=random.Random(seed)
    )


async def check_moved(disk: FakeDisk, store: FakeMetaStore) -> None:
    """Check that the store has what the broker had, and that it starts in the cluster only."""
    expected = keys()
    del expected[known_broker_key(NODE)]
    expected[topic_key(TRANSACTION_STATE_TOPIC)] = pack(
        {"id": bytes(16), "configs": {}, "min_isr": 2}
    )
    found, _ = await store.range("")
    assert {key: stored.value for key, stored in found.items()} == expected
    assert await find_cluster_id(store, random.Random(1)) == ID
    assert await claim_directory(disk, DIRECTORY, cluster_id=ID, node_id=NODE, rng=random.Random(9))
    with pytest.raises(WrongDirectory, match=r"etcd\.endpoints"):
        check_alone(disk, DIRECTORY)
    assert not disk.has(f"{DIRECTORY}/{FILE}")
    assert not disk.has(f"{DIRECTORY}/{COPY}")


async def test_all_that_a_broker_had_is_in_the_store_and_a_second_run_finds_it_done() -> None:
    disk, store = FakeDisk(), FakeMetaStore(max_operations=128)
    await stopped(disk)
    first = await adopted(disk, store)
    assert (first.cluster_id, first.node_id, first.was_done) == (ID, NODE, False)
    assert (first.topics, first.partitions) == (TOPICS + 1, TOPICS + 1)
    await check_moved(disk, store)
    again = await adopted(disk, store)
    assert again.was_done
    assert again.topics == TOPICS + 1
    await check_moved(disk, store)


async def test_no_write_is_larger_than_etcd_takes() -> None:
    disk, store = FakeDisk(), FakeMetaStore()
    large = {f"/acls/topic/literal/{n}/": b"x" * 200_000 for n in range(12)}
    await stopped(disk, **large)
    sizes = []
    txn = store.txn

    async def measured(compares: Any, puts: Any, **options: Any) -> Any:
        sizes.append(sum(len(value or b"") for value in puts.values()))
        return await txn(compares, puts, **options)

    store.txn = measured  # type: ignore[method-assign]
    await adopted(disk, store)
    assert max(sizes) < 1_000_000
    assert sum(sizes) > 12 * 200_000
    found, _ = await store.range("/acls/topic/literal/")
    assert len(found) == 13


async def test_a_power_cut_at_any_operation_is_made_up_for_by_the_next_run() -> None:
    disk = FakeDisk()
    await stopped(disk)
    before = disk.operations
    await adopted(disk, FakeMetaStore())
    for operation in range(disk.operations - before):
        disk, store = FakeDisk(), FakeMetaStore()
        await stopped(disk)
        disk.power_off_at(disk.operations + operation)
        with pytest.raises(PowerOff):
            await adopted(disk, store)
        disk.crash(random.Random(operation))
        await adopted(disk, store, seed=2)
        await check_moved(disk, store)


class Interrupted(Exception):
    """The command was killed."""


async def test_an_interruption_before_any_write_is_made_up_for_and_nothing_starts_before() -> None:
    writes = 0
    store = FakeMetaStore()

    def count() -> None:
        nonlocal writes
        writes += 1

    store.before_txn = count
    disk = FakeDisk()
    await stopped(disk)
    await adopted(disk, store)
    assert writes > 5
    for number in range(writes):
        disk, store = FakeDisk(), FakeMetaStore()
        await stopped(disk)
        left = number

        def interrupt() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Interrupted

        store.before_txn = interrupt
        with pytest.raises(Interrupted):
            await adopted(disk, store)
        store.before_txn = lambda: None
        with pytest.raises(WrongDirectory, match="cluster adopt"):
            check_alone(disk, DIRECTORY)
        if number:  # its mark is there
            with pytest.raises(ConfigError, match="cluster adopt"):
                await find_cluster_id(store, random.Random(1))
        await adopted(disk, store, seed=2)
        await check_moved(disk, store)


@pytest.mark.parametrize("every", [2, 3])
async def test_lost_answers_of_the_store_change_nothing(
    every: int, autojump_clock: trio.abc.Clock
) -> None:
    disk, store = FakeDisk(), FakeMetaStore()
    await stopped(disk)
    answers = 0

    def loses() -> bool:
        nonlocal answers
        answers += 1
        return answers % every == 0

    store.loses_answer = loses
    while True:
        try:
            await adopted(disk, store)
            break
        except StoreUnreachable:
            continue  # the answer to a question was lost: the command is run again
    store.loses_answer = lambda: False
    await check_moved(disk, store)


async def other_cluster(_disk: FakeDisk, store: FakeMetaStore) -> None:
    await store.txn([], {CLUSTER: pack({"id": "another"})})


async def leftovers(_disk: FakeDisk, store: FakeMetaStore) -> None:
    await store.txn([], {topic_key("old"): pack({})})


async def other_copy(_disk: FakeDisk, store: FakeMetaStore) -> None:
    copy = FakeDisk()
    await stopped(copy)
    await adopted(copy, store, seed=5)


async def copy_under_way(_disk: FakeDisk, store: FakeMetaStore) -> None:
    await store.txn([], {CLUSTER: pack({"id": ID, "adopting": "another directory"})})


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (other_cluster, "another cluster, another"),
        (leftovers, "/topics/old"),
        (other_copy, "another copy"),
        (copy_under_way, "another copy"),
    ],
)
async def test_a_store_that_is_not_free_is_refused_and_nothing_changes(
    prepare: Callable[[FakeDisk, FakeMetaStore], Awaitable[None]], said: str
) -> None:
    disk, store = FakeDisk(), FakeMetaStore()
    await stopped(disk)
    await prepare(disk, store)
    before, _ = await store.range("")
    with pytest.raises(CannotAdopt, match=said):
        await adopted(disk, store)
    assert (await store.range(""))[0] == before
    check_alone(disk, DIRECTORY)
    assert unpack(keys()[CLUSTER] or b"")["id"] == ID


async def test_a_cluster_that_is_made_at_the_same_moment_is_left_alone() -> None:
    disk, store = FakeDisk(), FakeMetaStore()
    await stopped(disk)

    def other_is_faster() -> None:
        store.before_txn = lambda: None
        store.server.keys.apply({CLUSTER: pack({"id": "another"})})

    store.before_txn = other_is_faster
    with pytest.raises(CannotAdopt, match="another cluster"):
        await adopted(disk, store)
    found, _ = await store.range("")
    assert list(found) == [CLUSTER]
    # with another etcd it goes on, unless that has what a cluster has left
    store = FakeMetaStore()
    await leftovers(disk, store)
    with pytest.raises(CannotAdopt, match="/topics/old"):
        await adopted(disk, store)
    store = FakeMetaStore()
    await adopted(disk, store)
    await check_moved(disk, store)


async def test_a_directory_that_is_not_that_of_a_broker_alone_is_refused() -> None:
    disk, store = FakeDisk(), FakeMetaStore()
    disk.mkdir(DIRECTORY)
    with pytest.raises(CannotAdopt, match="no broker has used it"):
        await adopted(disk, store)
    await stopped(disk)
    with pytest.raises(CannotAdopt, match=r"node\.id 7, not 1"):
        await adopted(disk, store, node_id=1)
    assert not (await store.range(""))[0]
    disk = FakeDisk()
    await claim_directory(disk, DIRECTORY, cluster_id="c", node_id=1, rng=random.Random(1))
    with pytest.raises(CannotAdopt, match="not in this etcd"):
        await adopted(disk, store)
    disk = FakeDisk()
    both = pack_partition(PartitionImage(leader=1, leader_epoch=0, replicas=(1, 2), isr=(1,)))
    await stopped(disk, **{partition_key("t0", 0): both})
    with pytest.raises(CannotAdopt, match="several brokers"):
        await adopted(disk, store)
    assert broker_key(NODE) not in (await store.range(""))[0]
