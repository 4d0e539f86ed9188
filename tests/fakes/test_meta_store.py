"""The fake metadata store compares revisions as etcd does."""

from odradek.broker.env import Compare
from tests.fakes.meta_store import FakeMetaStore


async def test_a_transaction_happens_only_if_its_comparisons_hold() -> None:
    store = FakeMetaStore()
    absent = Compare(key="/a", mod_revision=0)
    assert await store.txn([absent], {"/a": b"1"}) == (True, 1)
    assert await store.txn([absent], {"/a": b"2"}) == (False, 1)
    assert await store.txn([Compare(key="/a", mod_revision=1)], {"/a": b"3"}) == (True, 2)
    found, revision = await store.range("/")
    assert (found["/a"].value, found["/a"].create_revision, revision) == (b"3", 1, 2)
    made = Compare(key="/a", create_revision=1)
    assert await store.txn([made], {"/a": None}) == (True, 3)
    assert (await store.range("/"))[0] == {}
