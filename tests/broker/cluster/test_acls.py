"""Entries that one broker changes: other brokers, other writers, and values that cannot be read."""

from collections.abc import Callable
from random import Random

import pytest
import trio
import trio.testing

from odradek.broker.cluster.acl_keys import (
    CLOSED,
    EVERY_RESOURCE,
    acl_key,
    closing_puts,
    pack_entries,
    resource_of_key,
)
from odradek.broker.cluster.acls import ENTRIES_MAX, ClusterAcls
from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.metadata import ClusterMetadata, find_cluster_id
from odradek.broker.cluster.store import broker_key, known_broker_key, pack, pack_broker
from odradek.broker.environment.env import Unreadable, Versioned
from odradek.broker.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.cluster.members import ReadMetadata, metadata_of
from tests.drawing import given, st
from tests.fakes.meta_store import FakeMetaStore, MetaServer

READ, WRITE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER


def topic(name: str) -> ResourcePattern:
    return ResourcePattern(ResourceKind.TOPIC, PatternType.LITERAL, name)


def alice(operation: AclOperation = READ) -> AclEntry:
    return AclEntry("User:alice", "*", operation, Permission.ALLOW)


def is_allowed(metadata: ReadMetadata, name: str, operation: AclOperation = READ) -> bool:
    found = metadata.image.acls.decide("User:alice", "h", operation, ResourceKind.TOPIC, name)
    return found.is_allowed


async def test_what_one_broker_takes_holds_at_every_broker() -> None:
    store = FakeMetaStore()
    here, there = [await metadata_of(store, Random(n)) for n in (1, 2)]
    acls = ClusterAcls(store, here)
    await acls.create([(topic("t"), alice()), (topic("u"), alice())])
    await there.wait_reached(here.image.revision)
    assert is_allowed(there, "t")
    table = there.image.acls
    await acls.delete([AclFilter(name="t")])
    assert not is_allowed(here, "t")
    await there.wait_reached(here.image.revision)
    assert not is_allowed(there, "t")
    assert is_allowed(there, "u")
    assert there.image.acls is not table, (
        "decisions are remembered as long as the table is the same"
    )
    assert is_allowed(await metadata_of(store, Random(3)), "u")


async def test_of_several_entries_of_a_resource_the_others_stay_when_one_is_removed() -> None:
    """CVE-2024-27309: a broker that took over enforced none of those that were left."""
    store = FakeMetaStore()
    metadata, other = [await metadata_of(store, Random(n)) for n in (1, 2)]
    acls = ClusterAcls(store, metadata)
    await acls.create([(topic("t"), alice(each)) for each in (READ, WRITE, ALTER)])
    await acls.create([(topic("t"), alice(READ))])  # a second time changes nothing
    assert metadata.image.acls.entry_count == 3
    deleted = await acls.delete(
        [AclFilter(name="t", operation=WRITE), AclFilter(operation=WRITE), AclFilter(name="u")]
    )
    assert deleted == [[(topic("t"), alice(WRITE))]] * 2 + [[]]
    # at this broker, at one that follows, and at one that starts and takes over afterwards
    await other.wait_reached(metadata.image.revision)
    for broker in (metadata, other, await metadata_of(store, Random(3))):
        allowed = [is_allowed(broker, "t", each) for each in (READ, WRITE, ALTER)]
        assert allowed == [True, False, True]


async def test_two_brokers_that_change_at_once_lose_neither_change() -> None:
    store = FakeMetaStore()
    here, there = [await metadata_of(store, Random(n)) for n in (1, 2)]
    first, second = ClusterAcls(store, here), ClusterAcls(store, there)

    def meanwhile() -> None:
        store.before_txn = lambda: None
        store.put({acl_key(topic("t")): pack_entries([alice(WRITE)])})

    store.before_txn = meanwhile
    await first.create([(topic("t"), alice(READ))])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.create, [(topic("t"), alice(ALTER))])
        nursery.start_soon(second.create, [(topic("u"), alice(READ))])
    await there.wait_reached(here.image.revision)
    for operation in (READ, WRITE, ALTER):
        assert is_allowed(there, "t", operation)
    assert is_allowed(here, "u")


async def test_a_deletion_whose_answer_is_lost_is_made_and_tells_what_it_removed() -> None:
    store = FakeMetaStore()
    metadata = await metadata_of(store, Random(1))
    acls = ClusterAcls(store, metadata)
    await acls.create([(topic("t"), alice())])
    losses = [True, False]  # what is read is answered, and what is written not
    store.loses_answer = lambda: bool(losses and losses.pop())
    assert await acls.delete([AclFilter(name="t")]) == [[(topic("t"), alice())]]
    assert not is_allowed(metadata, "t")


async def test_an_image_that_lacks_a_known_change_is_behind(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, other = FakeMetaStore(server := MetaServer()), FakeMetaStore(server)
    metadata = ClusterMetadata(store)
    await metadata.load()
    assert not metadata.is_behind
    other.put({acl_key(topic("t")): pack_entries([alice()])})
    revision = (await other.range("/acls/"))[1]
    metadata.note_revision(revision)
    assert not metadata.is_behind
    await trio.sleep(3)
    assert metadata.is_behind
    await metadata.read_anew(nothing_to_do)
    assert metadata.image.revision >= revision
    assert not metadata.is_behind
    metadata.note_lapse()
    assert not metadata.is_behind
    metadata.note_revision(revision + 1)
    metadata.note_lapse()
    assert metadata.is_behind, "who could not hear of changes does not go by an old image at all"


class BusyStore(FakeMetaStore):
    """A store that others write to while a broker reads it."""

    write: Callable[[], None] = staticmethod(lambda: None)

    async def range(self, prefix: str) -> tuple[dict[str, Versioned], int]:
        found = await super().range(prefix)
        self.write()
        return found


@pytest.mark.parametrize("wrong", [0, 10**6])
async def test_an_image_that_follows_steady_writes_is_not_behind(
    autojump_clock: trio.testing.MockClock, wrong: int
) -> None:
    """Each write was heard of before it came. The broker closed all clients after two seconds.

    A revision `wrong` that the store never had is forgotten with the answer that named it.
    """
    store = BusyStore()
    await find_cluster_id(store, Random(1))
    metadata = ClusterMetadata(store)
    await metadata.load()
    taken = 0

    def write() -> None:
        store.put({"/configs/groups/g": pack({})})
        metadata.note_revision(store.revision)

    async def take(_before: object, _after: object) -> None:
        nonlocal taken
        taken += 1
        write()
        await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(metadata.run, take)
        nursery.start_soon(metadata.replace_silent_watches)
        metadata.note_revision(wrong)
        store.write = write
        write()
        write()  # from now on the image lacks the last write, which is always another one
        await trio.sleep(2.1)
        for _ in range(1_000):
            await trio.sleep(0.01)
            assert not metadata.is_behind, taken
        assert taken > 900
        store.silence_watches()
        started = trio.current_time()
        while not metadata.is_behind:
            write()
            await trio.sleep(0.01)
            assert trio.current_time() - started < 2.1
        nursery.cancel_scope.cancel()


class SharedStore(FakeMetaStore):
    """A store to which another program writes, so that only a mark brings its revision."""

    async def show_progress(self) -> None:
        self.put({"/.mark": b""})


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.4, 0.6, 1.1, 1.6, 1.9])
async def test_writes_of_other_programs_to_the_same_store_do_not_leave_an_image_behind(
    autojump_clock: trio.testing.MockClock, delay_s: float
) -> None:
    store = SharedStore()
    metadata = await metadata_of(store, Random(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metadata.run, nothing_to_do)
        nursery.start_soon(metadata.replace_silent_watches)
        await trio.sleep(20 + delay_s)
        store.put({"theirs": b""})
        metadata.is_at(store.revision)  # as the answer of a lease says
        await trio.sleep(1.01)
        assert metadata.image.revision > store.values["theirs"].mod_revision
        for _ in range(500):
            store.put({"theirs": b""})
            metadata.is_at(store.revision)
            await trio.sleep(0.01)
            assert not metadata.is_behind
        nursery.cancel_scope.cancel()


async def nothing_to_do(_before: object, _after: object) -> None:
    """Take no roles."""


async def test_an_entry_that_cannot_be_read_closes_its_resource() -> None:
    store = FakeMetaStore()
    metadata = await metadata_of(store, Random(1))
    acls = ClusterAcls(store, metadata)
    prefixed = ResourcePattern(ResourceKind.TOPIC, PatternType.PREFIXED, "t")
    await acls.create([(each, alice()) for each in (topic("t"), topic("u"), prefixed)])
    store.put({acl_key(topic("t")): b"\xc1"})
    await metadata.wait_reached((await store.range("/acls/"))[1])
    # what cannot be read may deny what another pattern allows
    assert is_allowed(metadata, "t2")
    assert not is_allowed(metadata, "t")
    assert is_allowed(metadata, "u")
    # and so it is for a broker that starts with it
    assert not is_allowed(await metadata_of(store, Random(2)), "t")


@pytest.mark.parametrize("value", [b"\xc1", pack({"entries": [["User:bob", "*", 99, 2]]})])
async def test_an_entry_does_not_open_what_is_closed_by_others_that_cannot_be_read(
    value: bytes,
) -> None:
    """A new entry took the place of those of a later version, among which one denied."""
    store = FakeMetaStore()
    metadata = await metadata_of(store, Random(1))
    acls = ClusterAcls(store, metadata)
    key = acl_key(topic("t"))
    store.put({key: value})
    await metadata.wait_reached(store.revision)
    with pytest.raises(
        KafkaError, match="cannot read the ACL entries of the LITERAL pattern 't'"
    ) as (found):
        await acls.create([(topic("u"), alice()), (topic("t"), alice())])
    assert found.value.code is ErrorCode.POLICY_VIOLATION
    assert not is_allowed(metadata, "t")
    assert await acls.delete([AclFilter(name="t", principal="User:bob")]) == [[]]
    assert store.values[key].value == value
    removed = await acls.delete([AclFilter(name="t", operation=AclOperation.ALL)])
    assert removed == [[(topic("t"), CLOSED)]]
    assert key not in store.values
    await acls.create([(topic("t"), alice())])
    assert is_allowed(metadata, "t")


async def test_entries_that_close_a_rebuilt_cluster_are_ordinary_ones() -> None:
    store = FakeMetaStore()
    metadata = await metadata_of(store, Random(1))
    acls = ClusterAcls(store, metadata)
    store.put(closing_puts())
    await metadata.wait_reached(store.revision)
    await acls.create([(EVERY_RESOURCE[0], alice())])
    assert not is_allowed(metadata, "t")
    await acls.delete([AclFilter(principal="User:*")])
    assert is_allowed(metadata, "t")


@pytest.mark.parametrize("is_away", [False, True])
async def test_no_entry_is_taken_while_a_broker_would_not_enforce_it(is_away: bool) -> None:
    store = FakeMetaStore()
    metadata = await metadata_of(store, Random(1))
    acls = ClusterAcls(store, metadata)
    old = BrokerImage(node_id=7, host="h", port=1, knows_acls=False)
    key = known_broker_key(7) if is_away else broker_key(7)
    store.put({key: pack_broker(old, "d")})
    await metadata.wait_reached((await store.range("/"))[1])
    with pytest.raises(KafkaError, match="brokers 7 are of a version") as found:
        await acls.create([(topic("t"), alice())])
    assert found.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert metadata.image.acls.entry_count == 0


async def test_the_number_and_the_size_of_entries_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = FakeMetaStore()
    metadata = await metadata_of(store, Random(1))
    acls = ClusterAcls(store, metadata)
    assert ENTRIES_MAX == 100_000
    monkeypatch.setattr("odradek.broker.cluster.acls.ENTRIES_MAX", 3)
    many = [(topic(f"t{n}"), alice()) for n in range(4)]
    with pytest.raises(KafkaError, match="There would be 4 ACL entries"):
        await acls.create(many)
    await acls.create(many[:3])
    monkeypatch.setattr("odradek.broker.cluster.acls.ENTRIES_MAX", 10_000)
    long = [
        (topic("t"), AclEntry(f"User:{'x' * 400}{n}", "*", READ, Permission.ALLOW))
        for n in range(1_000)
    ]
    with pytest.raises(KafkaError, match="would take"):
        await acls.create(long)
    assert metadata.image.acls.entry_count == 3


@given(st.text(min_size=1), st.text(min_size=1))
def test_no_names_key_begins_another_ones(name: str, other: str) -> None:
    try:
        key, another = acl_key(topic(name)), acl_key(topic(other))
    except UnicodeEncodeError:
        return  # a lone surrogate, which no request can have
    assert resource_of_key(key) == topic(name)
    assert key == another or not another.startswith(key)


def test_a_key_of_no_resource_is_not_read() -> None:
    for key in ("/acls/topic/literal/", "/acls/shelf/literal/t/", "/acls/topic/literal/t"):
        with pytest.raises(Unreadable):
            resource_of_key(key)
