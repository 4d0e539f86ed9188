"""Every metadata store behaves alike: what the broker may rely on, whichever store it has."""

from collections.abc import AsyncIterator, Sequence

import pytest
import trio

from odradek.broker.environment.env import (
    Changes,
    Compacted,
    Compare,
    LeaseExpired,
    MetaStore,
)
from tests.broker.cluster.meta_stores.conftest import StoreUnderTest

ABSENT = Compare(key="/a", mod_revision=0)
HANGS_S = 60
LONG_S = 3600


async def revision_of(store: MetaStore) -> int:
    return (await store.range("/"))[1]


async def written(store: MetaStore, **values: str | None) -> int:
    """Write `/NAME` for each name and return the revision."""
    puts = {f"/{key}": None if value is None else value.encode() for key, value in values.items()}
    applied, revision = await store.txn([], puts)
    assert applied
    return revision


def seen(changes: Changes) -> tuple[int, dict[str, bytes | None]]:
    return changes.revision, {
        key: None if versioned is None else versioned.value
        for key, versioned in sorted(changes.values.items())
    }


LEASES_END = pytest.mark.parametrize(
    "under_test", ["simulated", pytest.param("etcd", marks=pytest.mark.peers)], indirect=True
)
"""Those of the embedded store do not end by time."""


async def next_changes(watch: AsyncIterator[Changes]) -> tuple[int, dict[str, bytes | None]]:
    """Return the next item that is no progress notice."""
    with trio.fail_after(HANGS_S):
        async for changes in watch:
            if changes.values:
                return seen(changes)
    raise AssertionError("the watch ended")


async def keys_of(store: MetaStore, prefix: str = "/") -> list[str]:
    return list((await store.range(prefix))[0])


async def until_gone(store: MetaStore, key: str) -> None:
    with trio.fail_after(HANGS_S):
        while key in await keys_of(store):  # noqa: ASYNC110  a range expires leases
            await trio.sleep(0.1)


# transactions


async def test_a_key_has_the_revisions_that_made_and_changed_it(store: MetaStore) -> None:
    made = await written(store, a="1", b="x")
    changed = await written(store, a="2", b=None)
    assert changed == made + 1
    found, revision = await store.range("/")
    assert revision == changed
    assert list(found) == ["/a"]
    assert (found["/a"].value, found["/a"].create_revision) == (b"2", made)
    assert found["/a"].mod_revision == changed
    made_anew = await written(store, b="y")
    assert (await store.range("/b"))[0]["/b"].create_revision == made_anew


async def test_a_range_is_in_order_and_has_only_what_begins_so(store: MetaStore) -> None:
    await store.txn([], {"/b/2": b"", "/b/1": b"", "/c": b"", "/a": b"", "/b": b"", "/b0": b""})
    assert await keys_of(store, "/b/") == ["/b/1", "/b/2"]
    assert await keys_of(store, "/b") == ["/b", "/b/1", "/b/2", "/b0"]
    assert await keys_of(store, "/d") == []


async def test_any_bytes_are_a_value(store: MetaStore) -> None:
    for value in (b"", bytes(range(256)), b"\0", b'"}'):
        await store.txn([], {"/a": value})
        assert (await store.range("/a"))[0]["/a"].value == value


async def test_a_transaction_is_applied_only_if_its_comparisons_hold(store: MetaStore) -> None:
    applied, made = await store.txn([ABSENT], {"/a": b"1"})
    assert applied
    assert await store.txn([ABSENT], {"/a": b"2"}) == (False, made)
    assert await store.txn([Compare(key="/a", create_revision=0)], {"/a": b"2"}) == (False, made)
    same = Compare(key="/a", mod_revision=made)
    assert await store.txn([same], {"/a": b"3"}) == (True, made + 1)
    assert await store.txn([same], {"/a": b"4"}) == (False, made + 1)
    both = Compare(key="/a", create_revision=made, mod_revision=made + 1)
    assert await store.txn([both], {"/b": b"5"}) == (True, made + 2)
    absent_and_there = [Compare(key="/z", mod_revision=0), Compare(key="/a", mod_revision=0)]
    assert await store.txn(absent_and_there, {"/z": b""}) == (False, made + 2)
    assert await store.txn([both], {"/a": None}) == (True, made + 3)
    assert await store.txn([ABSENT], {"/a": b"6"}) == (True, made + 4)


async def test_of_many_that_compare_and_set_at_once_one_wins(store: MetaStore) -> None:
    won: list[bool] = []

    async def claim(number: int) -> None:
        won.append((await store.txn([ABSENT], {"/a": b"%d" % number}))[0])

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(claim, number)
    assert sorted(won) == [False] * 7 + [True]


async def test_a_transaction_that_is_too_large_is_refused_as_a_whole(store: MetaStore) -> None:
    most = store.max_operations or 1000
    puts: dict[str, bytes | None] = {f"/{number}": b"" for number in range(most)}
    compares = [Compare(key=key, mod_revision=0) for key in puts]
    assert (await store.txn(compares, puts))[0]
    assert len(await keys_of(store)) == most
    if store.max_operations is None:
        return
    assert most == 128
    with pytest.raises(AssertionError, match="129 operations in a transaction; 128 at most"):
        await store.txn([], {**puts, "/x": b""})
    with pytest.raises(AssertionError, match="129 operations in a transaction; 128 at most"):
        await store.txn([*compares, ABSENT], {"/x": b""})
    assert "/x" not in await keys_of(store)


# leases


@LEASES_END
async def test_the_keys_of_a_lease_go_when_it_is_not_kept(under_test: StoreUnderTest) -> None:
    store = under_test.store
    lease = await store.grant_lease(under_test.shortest_ttl_s)
    await store.txn([], {"/a": b"1", "/b": b"2"}, lease=lease)
    await written(store, c="stays")
    await until_gone(store, "/a")
    assert await keys_of(store) == ["/c"]
    with pytest.raises(LeaseExpired):
        await store.keep_lease(lease)
    with pytest.raises(LeaseExpired):
        await store.txn([], {"/a": b"1"}, lease=lease)
    assert await keys_of(store) == ["/c"]
    await store.revoke_lease(lease)


async def test_a_lease_that_is_kept_keeps_its_keys(under_test: StoreUnderTest) -> None:
    store, ttl_s = under_test.store, under_test.shortest_ttl_s
    lease = await store.grant_lease(ttl_s)
    revision = (await store.txn([], {"/a": b"1"}, lease=lease))[1]
    for _ in range(6):
        await trio.sleep(ttl_s / 2)
        assert await store.keep_lease(lease) == revision
    assert await keys_of(store) == ["/a"]
    await store.revoke_lease(lease)


async def test_keeping_a_lease_returns_the_revision_of_the_store(store: MetaStore) -> None:
    lease = await store.grant_lease(LONG_S)
    revision = await written(store, a="1")
    assert await store.keep_lease(lease) == revision
    assert await store.keep_lease(lease) == await revision_of(store)


async def test_revoking_a_lease_deletes_its_keys_in_one_revision(store: MetaStore) -> None:
    lease, other = await store.grant_lease(LONG_S), await store.grant_lease(LONG_S)
    assert lease != other
    await store.txn([], {"/a": b"1", "/b": b"2"}, lease=lease)
    await store.txn([], {"/c": b"3"}, lease=other)
    before = await revision_of(store)
    async with store.watch("/", before + 1) as watch:
        await store.revoke_lease(lease)
        assert await next_changes(watch) == (before + 1, {"/a": None, "/b": None})
    assert await keys_of(store) == ["/c"]
    await store.revoke_lease(lease)
    assert await revision_of(store) == before + 1


async def test_a_key_belongs_to_the_lease_of_its_last_write(store: MetaStore) -> None:
    lease, other = await store.grant_lease(LONG_S), await store.grant_lease(LONG_S)
    await store.txn([], {"/a": b"1", "/b": b"1", "/c": b"1"}, lease=lease)
    await store.txn([], {"/a": b"2"})
    await store.txn([], {"/b": b"2"}, lease=other)
    await store.revoke_lease(lease)
    assert await keys_of(store) == ["/a", "/b"]
    await store.revoke_lease(other)
    assert await keys_of(store) == ["/a"]
    await store.txn([], {"/a": b"3"}, lease=await store.grant_lease(LONG_S))
    last = await store.grant_lease(LONG_S)
    await store.txn([], {"/a": None, "/d": b"1"}, lease=last)
    assert await keys_of(store) == ["/d"]


async def test_a_deleted_key_that_is_made_anew_is_not_deleted_with_the_old_lease(
    store: MetaStore,
) -> None:
    lease = await store.grant_lease(LONG_S)
    await store.txn([], {"/a": b"1"}, lease=lease)
    await store.txn([], {"/a": None})
    await store.txn([ABSENT], {"/a": b"2"})
    await store.revoke_lease(lease)
    assert await keys_of(store) == ["/a"]


# watches


async def test_a_watch_returns_what_was_changed_before_and_after_it_began(
    store: MetaStore,
) -> None:
    first = await written(store, a="1", b="1")
    await written(store, a=None)
    async with store.watch("/", first) as watch:
        assert await next_changes(watch) == (first, {"/a": b"1", "/b": b"1"})
        assert await next_changes(watch) == (first + 1, {"/a": None})
        await written(store, a="3", c="3")
        assert await next_changes(watch) == (first + 2, {"/a": b"3", "/c": b"3"})
    async with store.watch("/", first + 2) as watch:
        assert await next_changes(watch) == (first + 2, {"/a": b"3", "/c": b"3"})


async def test_a_watch_returns_the_revisions_of_a_key(store: MetaStore) -> None:
    made = await written(store, a="1")
    changed = await written(store, a="2")
    async with store.watch("/", changed) as watch:
        changes = await anext(watch)
        assert changes.revision == changed
        versioned = changes.values["/a"]
        assert versioned is not None
        assert (versioned.create_revision, versioned.mod_revision) == (made, changed)


async def test_a_watch_returns_only_keys_of_its_prefix(store: MetaStore) -> None:
    before = await revision_of(store)
    async with store.watch("/b/", before + 1) as watch:
        await store.txn([], {"/a": b"", "/b/1": b"x", "/b": b"", "/b0": b""})
        await store.txn([], {"/a": None})
        await store.txn([], {"/b/1": None, "/b": None})
        assert await next_changes(watch) == (before + 1, {"/b/1": b"x"})
        assert await next_changes(watch) == (before + 3, {"/b/1": None})


async def test_a_watch_begins_with_a_progress_notice_if_nothing_has_changed_since(
    store: MetaStore,
) -> None:
    revision = await written(store, a="1")
    with trio.fail_after(HANGS_S):
        async with store.watch("/", revision + 1) as watch:
            assert seen(await anext(watch)) == (revision, {})
            await written(store, a="2")
            assert seen(await anext(watch)) == (revision + 1, {"/a": b"2"})


async def test_a_transaction_of_many_keys_is_one_item(store: MetaStore) -> None:
    most = store.max_operations or 1000
    before = await revision_of(store)
    puts: dict[str, bytes | None] = {f"/{number:04}": b"x" * 100 for number in range(most)}
    async with store.watch("/", before + 1) as watch:
        await store.txn([], puts)
        assert await next_changes(watch) == (before + 1, puts)
    async with store.watch("/", before + 1) as watch:
        assert await next_changes(watch) == (before + 1, puts)


async def test_two_watches_return_the_same_changes(store: MetaStore) -> None:
    before = await revision_of(store)
    got: list[Sequence[tuple[int, object]]] = []

    async def follow() -> None:
        async with store.watch("/", before + 1) as watch:
            got.append([await next_changes(watch) for _ in range(20)])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        nursery.start_soon(follow)
        for number in range(20):
            await written(store, a=str(number))
    assert got[0] == got[1]
    assert [revision for revision, _ in got[0]] == [before + 1 + number for number in range(20)]


@LEASES_END
async def test_a_watch_sees_a_lease_expire(under_test: StoreUnderTest) -> None:
    store = under_test.store
    lease = await store.grant_lease(under_test.shortest_ttl_s)
    _, revision = await store.txn([], {"/a": b"1", "/b": b"1"}, lease=lease)
    async with store.watch("/", revision + 1) as watch:
        assert await next_changes(watch) == (revision + 1, {"/a": None, "/b": None})


async def test_a_watch_can_begin_at_a_revision_that_is_not_there_yet(store: MetaStore) -> None:
    before = await revision_of(store)
    async with store.watch("/", before + 2) as watch:
        for value in ("1", "2"):
            await written(store, a=value)
        assert await next_changes(watch) == (before + 2, {"/a": b"2"})


async def test_a_watch_from_a_revision_that_is_compacted_is_refused(
    under_test: StoreUnderTest,
) -> None:
    store = under_test.store
    first = await written(store, a="1")
    last = await written(store, a="2")
    await under_test.compact()
    with pytest.raises(Compacted), trio.fail_after(HANGS_S):
        async with store.watch("/", first) as watch:
            await anext(watch)
    found, revision = await store.range("/")
    assert (found["/a"].value, revision) == (b"2", last)
    async with store.watch("/", revision + 1) as watch:
        await written(store, a="3")
        assert await next_changes(watch) == (revision + 1, {"/a": b"3"})
