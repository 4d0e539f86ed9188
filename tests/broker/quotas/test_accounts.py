"""What clients use: who shares an account, and how many accounts there may be."""

import pytest
import trio
import trio.testing

from odradek.broker.quotas import accounts as accounts_module
from odradek.broker.quotas.accounts import QuotaAccounts
from odradek.broker.quotas.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    NO_QUOTAS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaTable,
)
from tests.broker.config.configured import from_properties


class Counted:
    """Accounts with quotas that the test changes."""

    def __init__(self, table: QuotaTable) -> None:
        self.table = table
        self.accounts = QuotaAccounts(lambda: self.table, lambda: from_properties({}))


async def test_all_connections_of_a_user_share_its_quota(
    autojump_clock: trio.testing.MockClock,
) -> None:
    found = Counted(QuotaTable({((USER, "alice"),): {PRODUCER_BYTE_RATE: 10}}))
    use = found.accounts.use
    assert use(PRODUCER_BYTE_RATE, "alice", "a", 100) == 0
    assert use(PRODUCER_BYTE_RATE, "alice", "b", 100) > 9
    assert use(PRODUCER_BYTE_RATE, "bob", "a", 10_000) == 0


async def test_each_client_id_has_the_quota_of_the_default_for_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    found = Counted(QuotaTable({((CLIENT_ID, None),): {PRODUCER_BYTE_RATE: 10}}))
    use = found.accounts.use
    assert use(PRODUCER_BYTE_RATE, "alice", "a", 200) > 9
    assert use(PRODUCER_BYTE_RATE, "alice", "b", 100) == 0
    assert use(PRODUCER_BYTE_RATE, "bob", "a", 1) > 9


async def test_a_changed_quota_counts_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    found = Counted(NO_QUOTAS)
    use = found.accounts.use
    assert use(PRODUCER_BYTE_RATE, "alice", "a", 1_000) == 0
    found.table = QuotaTable({((USER, "alice"),): {PRODUCER_BYTE_RATE: 10}})
    assert use(PRODUCER_BYTE_RATE, "alice", "a", 1_000) > 9
    found.table = QuotaTable({((USER, "alice"),): {PRODUCER_BYTE_RATE: 10_000}})
    assert found.accounts.wait_seconds(PRODUCER_BYTE_RATE, "alice", "a") < 1
    found.table = NO_QUOTAS
    assert use(PRODUCER_BYTE_RATE, "alice", "a", 10**9) == 0


async def test_clients_that_choose_many_ids_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounts_module, "ACCOUNTS_MAX", 3)
    table = {PRODUCER_BYTE_RATE: 10.0, CONTROLLER_MUTATION_RATE: 1.0}
    found = Counted(QuotaTable({((CLIENT_ID, None),): table}))
    for name in "abcd":
        found.accounts.use(PRODUCER_BYTE_RATE, "u", name, 1_000)
        found.accounts.mutate("u", name, 100, is_strict=True)
        found.accounts.use(PRODUCER_BYTE_RATE, "u", "a", 1)
        found.accounts.mutate("u", "a", 1, is_strict=False)
    waits = [found.accounts.wait_seconds(PRODUCER_BYTE_RATE, "u", name) > 0 for name in "abcd"]
    # That which was not used for the longest time is forgotten.
    assert waits == [True, False, True, True]
    refused = [found.accounts.mutate("u", name, 1, is_strict=True) > 0 for name in "acd"]
    assert refused == [True] * 3


async def test_a_percentage_is_one_of_the_time_of_the_loop(
    autojump_clock: trio.testing.MockClock,
) -> None:
    found = Counted(QuotaTable({((USER, "alice"),): {REQUEST_PERCENTAGE: 5}}))
    use = found.accounts.use
    assert use(REQUEST_PERCENTAGE, "alice", "a", 0.5) == 0  # 5 % of 10 s
    assert use(REQUEST_PERCENTAGE, "alice", "a", 0.01) == pytest.approx(0.2)
    assert use(REQUEST_PERCENTAGE, "alice", "a", 5) == 1  # no longer than one sample


async def test_an_address_opens_connections_at_its_rate(
    autojump_clock: trio.testing.MockClock,
) -> None:
    found = Counted(QuotaTable({((IP, None),): {CONNECTION_CREATION_RATE: 2}}))
    connect = found.accounts.connect
    assert [connect("10.0.0.1") for _ in range(20)] == [0] * 20  # those of 10 s
    assert connect("10.0.0.1") == pytest.approx(0.5)
    assert connect("10.0.0.1") == pytest.approx(0.5)  # what is refused does not count
    assert connect("10.0.0.2") == 0
    await trio.sleep(11)
    assert connect("10.0.0.1") == 0
