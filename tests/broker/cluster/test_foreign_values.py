"""Values in the metadata store that no broker has written, and answers that cannot be."""

import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from odradek.broker.cluster.image import PartitionImage, TopicImage
from odradek.broker.cluster.metadata import ClusterMetadata, find_cluster_id
from odradek.broker.cluster.store import CLUSTER, pack, read_deletions, topic_puts
from odradek.broker.environment.env import OutcomeUnknown, Unreadable
from odradek.broker.txn.producer_ids import PRODUCER_IDS_KEY, ProducerIds
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.cluster.members import ReadMetadata, metadata_of, nothing
from tests.fakes.meta_store import FakeMetaStore

PARTITION = PartitionImage(leader=1, leader_epoch=3, replicas=(1, 2), isr=(1, 2))
TOPIC = TopicImage(name="t", topic_id=UUID(int=5), configs={}, partitions=(PARTITION, PARTITION))
NOT_OURS = (
    *(b"", b"\xc1", b"\xff" * 9, b"hello", b"\x81", b"\xd4\x05x", b"\x91" * 2000 + b"\x90"),
    *(pack(None), pack(7), pack([]), pack({}), pack({1: 2}), pack({"id": 5, "configs": []})),
    pack({"leader": "1", "leader_epoch": [], "replicas": 1, "isr": None, "id": True}),
    pack({"leader": 2**40, "leader_epoch": -9, "replicas": ["x"], "isr": [{}], "id": b"short"}),
    pack({"host": 1, "port": "x", "peer_host": None, "peer_port": 2**40, "leaving": 0}),
)
KEYS = (
    *("/topics/t", "/partitions/t/0", "/partitions/t/1", "/partitions/t/x", "/partitions/t"),
    *("/partitions/t/-7", "/partitions/../../etc/0", "/topics/../../etc", "/topics/", "/topics/u"),
    *("/brokers/zzz", "/brokers/", "/brokers/99999999999", "/brokers/2", "/controller"),
    *("/cluster", "/configs/brokers/1", "/configs/groups/g", "/unknown", "\\xff", "/deletions/x/y"),
)


async def cluster() -> tuple[FakeMetaStore, ReadMetadata]:
    store = FakeMetaStore()
    store.put(topic_puts(TOPIC))
    return store, await metadata_of(store, random.Random(1))


@pytest.mark.slow
@pytest.mark.parametrize("is_known", [True, False], ids=["known before", "at the start"])
async def test_a_value_that_is_not_ours_does_not_end_the_broker_and_is_named(
    is_known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A foreign or damaged value below the prefix ended every broker with a traceback."""
    for key in KEYS:
        for value in NOT_OURS:
            store, metadata = await cluster()
            before = metadata.image
            caplog.clear()
            store.put({key: value})
            if not is_known:
                metadata = ReadMetadata(store)
            await metadata.read_anew(nothing)
            named = [line for line in caplog.messages if key in line]
            if is_known:
                assert metadata.image.topics.keys() == before.topics.keys(), (key, value)
                assert metadata.image.topics["t"].topic_id == TOPIC.topic_id
                assert metadata.image.cluster_id == before.cluster_id
            if value == b"\xc1" and key not in ("/unknown", "\\xff", "/deletions/x/y"):
                assert named or not is_known or key == CLUSTER, key


async def test_a_topic_whose_key_of_a_partition_is_gone_is_not_taken_for_a_deleted_one() -> None:
    """Its logs would be removed."""
    for gone in ("/partitions/t/0", "/partitions/t/1"):
        store, metadata = await cluster()
        store.put({gone: None})
        await metadata.read_anew(nothing)
        assert metadata.image.topics["t"].topic_id == TOPIC.topic_id
        store.put(topic_puts(TOPIC))
        await metadata.read_anew(nothing)
        assert metadata.image.topics["t"].partitions[0].epoch == store.revision


async def test_a_store_that_is_empty_or_of_another_cluster_removes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An etcd that was made anew under its address had every log removed."""
    store, metadata = await cluster()
    before = metadata.image
    everything = dict.fromkeys(store.values)
    for left in ({}, {CLUSTER: pack({"id": "other"})}, {CLUSTER: b"\xc1"}):
        store.put({**everything, **left})
        await metadata.read_anew(nothing)
        assert metadata.image is before
        assert "correct its address, or restore it" in caplog.messages[-1]


def test_a_deletion_that_cannot_be_read_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    store = FakeMetaStore()
    good = UUID(int=7)
    store.put(
        {
            "/deletions/zz/1": pack({"name": "t"}),
            f"/deletions/{UUID(int=6).hex}/1": pack({"name": "../../etc"}),
            f"/deletions/{UUID(int=8).hex}/1": b"\xc1",
            f"/deletions/{good.hex}/1": pack({"name": "t"}),
        }
    )
    assert read_deletions(store.values, 1) == {good: "t"}
    assert len(caplog.messages) == 3


@pytest.mark.parametrize("value", [b"", b"abc", b"-5", b"9" * 30, b"\xc1", "٣".encode()])
async def test_a_next_producer_id_that_is_no_number_is_an_error_that_clients_retry(
    value: bytes,
) -> None:
    store = FakeMetaStore()
    store.put({PRODUCER_IDS_KEY: value})
    with pytest.raises(KafkaError, match="/ids/producer") as refused:
        await ProducerIds(store).next()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert isinstance(refused.value.__cause__, Unreadable)


@asynccontextmanager
async def followed(store: FakeMetaStore) -> AsyncIterator[ClusterMetadata]:
    await find_cluster_id(store, random.Random(1))
    metadata = ClusterMetadata(store)
    await metadata.load()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metadata.run, nothing)
        nursery.start_soon(metadata.replace_silent_watches)
        yield metadata
        nursery.cancel_scope.cancel()


async def test_a_revision_that_the_store_does_not_have_is_not_awaited_for_ever(
    autojump_clock: MockClock,
) -> None:
    """One answer with a revision too high held up every later creation of a topic."""
    store = FakeMetaStore()
    async with followed(store) as metadata:
        with trio.fail_after(60), pytest.raises(OutcomeUnknown, match="has not reached"):
            await metadata.wait_reached(10**6)
        store.put(topic_puts(TOPIC))
        with trio.fail_after(60):
            await metadata.wait_reached(store.revision)


async def test_an_image_that_is_ahead_of_the_store_goes_back_to_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """One event with a revision too high hid every change that came after it."""
    store = FakeMetaStore()
    with caplog.at_level(logging.WARNING):
        async with followed(store) as metadata:
            metadata.image = replace(metadata.image, revision=10**6)
            await trio.sleep(1.5)
            metadata.is_at(store.revision)  # as the answer of a lease says
            store.put(topic_puts(TOPIC))
            with trio.fail_after(60):
                while "t" not in metadata.image.topics:
                    await metadata.next_step()
    assert "although it has answered 1000000" in "".join(caplog.messages)


async def test_a_store_that_was_restored_from_a_backup_does_not_take_leader_epochs_back() -> None:
    store, metadata = await cluster()
    later = replace(TOPIC, partitions=(replace(PARTITION, leader_epoch=9), PARTITION))
    store.put(topic_puts(later))
    await metadata.read_anew(nothing)
    ahead = metadata.image = replace(metadata.image, revision=10**6)
    store.put(topic_puts(TOPIC))
    await metadata.read_anew(nothing)
    assert metadata.image is ahead
