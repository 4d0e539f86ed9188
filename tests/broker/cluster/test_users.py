"""Users in the metadata store: changes in parts, at the maximum, and beside a later version."""

from typing import Any

import msgpack
import pytest

from odradek.broker.cluster import users as cluster_users
from odradek.broker.cluster.user_keys import CLUSTER_SECRET, user_key
from odradek.broker.cluster.users import UserChange
from odradek.broker.security.scram_users import ScramMechanism, credential_from
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from tests.broker.security.secured import secured
from tests.fakes.meta_store import FakeMetaStore

MECHANISM = ScramMechanism.SCRAM_SHA_256


def upsertion(name: str, salt: bytes = b"salt") -> UserChange:
    credential = credential_from(MECHANISM, b"salted", salt, 4096)
    return UserChange(user=name, mechanism=MECHANISM, credential=credential)


class CountingStore(FakeMetaStore):
    """A store that refuses a transaction on request, and keeps what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.writes_left = 1_000_000

    async def range(self, prefix: str) -> Any:
        self.reads.append(prefix)
        return await super().range(prefix)

    async def txn(self, compares: Any, puts: Any, **other: Any) -> Any:
        if any(key.startswith("/users/") for key in puts):
            self.writes_left -= 1
            if self.writes_left < 0:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "full")
        return await super().txn(compares, puts, **other)


async def test_only_users_of_parts_that_were_not_written_have_an_error() -> None:
    store = CountingStore()
    async with secured(store=store) as broker:
        store.writes_left = 1
        names = [f"user {number:03}" for number in range(120)]
        errors = await broker.core.users.alter([upsertion(name) for name in names])
        assert sorted(broker.core.users.users) == names[:50]
        assert sorted(errors) == names[50:]


async def test_a_password_can_be_changed_when_there_are_as_many_users_as_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_users, "USERS_MAX", 2)
    async with secured() as broker:
        alter = broker.core.users.alter
        assert await alter([upsertion("a"), upsertion("b")]) == {}
        assert await alter([upsertion("a", b"new salt")]) == {}
        assert broker.core.users.users["a"][MECHANISM].salt == b"new salt"
        errors = await alter([upsertion("c")])
        assert errors["c"].code == ErrorCode.POLICY_VIOLATION
        assert set(broker.core.users.users) == {"a", "b"}


async def test_a_change_reads_only_the_keys_that_it_concerns() -> None:
    store = CountingStore()
    async with secured(store=store) as broker:
        store.reads.clear()
        await broker.core.users.alter([upsertion("a"), upsertion("b")])
        assert store.reads == [user_key("a"), user_key("b")]


async def test_a_mechanism_of_a_later_version_is_kept() -> None:
    store = FakeMetaStore()
    async with secured(store=store) as broker:
        await store.txn([], {user_key("a"): msgpack.packb({"v": 1, "LATER": {"x": b"y"}})})
        await broker.core.users.alter([upsertion("a")])
        await broker.core.users.alter([UserChange(user="a", mechanism=MECHANISM, credential=None)])
        assert msgpack.unpackb(store.values[user_key("a")].value)["LATER"] == {"x": b"y"}


async def test_without_its_secret_a_broker_makes_no_false_salts() -> None:
    store = FakeMetaStore()
    async with secured(store=store) as broker:
        users = broker.core.users
        await users.make_secret()
        await users.alter([upsertion("b")])
        assert len(users.secret) == 32
        await store.txn([], {CLUSTER_SECRET: None})
        await users.alter([upsertion("a")])
        with pytest.raises(ProtocolError, match="is missing"):
            _ = users.secret
