"""What clients use: who shares an account, and how many accounts there may be."""

import tracemalloc

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
from odradek.broker.quotas.throttle import Throttle
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


async def test_a_client_that_was_idle_for_long_has_saved_up_no_more_than_its_bucket_holds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One request of any size was free after a long idle time."""
    table = {PRODUCER_BYTE_RATE: 10.0, CONNECTION_CREATION_RATE: 1.0}
    found = Counted(QuotaTable({((USER, "u"),): table, ((IP, None),): table}))
    assert found.accounts.use(PRODUCER_BYTE_RATE, "u", "a", 100) == 0
    assert found.accounts.connect("10.0.0.1") == 0
    await trio.sleep(3_600)
    assert found.accounts.use(PRODUCER_BYTE_RATE, "u", "a", 200) == pytest.approx(10)
    assert [found.accounts.connect("10.0.0.1") for _ in range(10)] == [0] * 10
    assert found.accounts.connect("10.0.0.1") > 0


async def test_long_ids_are_not_kept_and_each_has_its_own_account(
    autojump_clock: trio.testing.MockClock,
) -> None:
    names = [f"{number:03}" + "x" * 30_000 for number in range(100)]
    found = Counted(
        QuotaTable(
            {
                ((CLIENT_ID, None),): {PRODUCER_BYTE_RATE: 10},
                ((USER, "u"), (CLIENT_ID, "y" * 4_000)): {PRODUCER_BYTE_RATE: 1_000},
            }
        )
    )
    use = found.accounts.use
    use(PRODUCER_BYTE_RATE, "u", "a", 1)
    tracemalloc.start()
    try:
        for name in names:
            # A string of its own, as each request has it.
            use(PRODUCER_BYTE_RATE, "u", name.encode().decode(), 1_000)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 30_000 * len(names) / 10
    assert [use(PRODUCER_BYTE_RATE, "u", name, 0) > 0 for name in names] == [True] * len(names)
    assert use(PRODUCER_BYTE_RATE, "u", "another" + "x" * 30_000, 50) == 0
    assert use(PRODUCER_BYTE_RATE, "u", "y" * 4_000, 5_000) == 0
    assert use(PRODUCER_BYTE_RATE, "u", "y" * 4_000, 6_000) == pytest.approx(1)


async def test_the_time_of_a_request_is_used_by_the_client_that_has_sent_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    found = Counted(QuotaTable({((CLIENT_ID, None),): {REQUEST_PERCENTAGE: 1}}))
    throttle = Throttle(found.accounts)

    def must_wait(client_id: str) -> bool:
        return found.accounts.wait_seconds(REQUEST_PERCENTAGE, "u", client_id) > 0

    throttle.use_loop_time("u", "a")
    autojump_clock.jump(0.5)  # this step takes as long
    await trio.lowlevel.checkpoint()
    throttle.use_loop_time("u", "b")
    assert (must_wait("a"), must_wait("b")) == (True, False)
    assert throttle.left_ms == 0
    autojump_clock.jump(0.5)
    throttle.leave()
    assert (must_wait("a"), must_wait("b")) == (True, True)


async def test_a_connection_over_its_quota_is_closed_after_a_second_at_most(
    autojump_clock: trio.testing.MockClock,
) -> None:
    table = QuotaTable({((IP, None),): {CONNECTION_CREATION_RATE: 1}})
    settings = from_properties({"quota.window.num": "2", "quota.window.size.seconds": "3600"})
    accounts = QuotaAccounts(lambda: table, lambda: settings)
    for _ in range(3_600):
        assert accounts.connect("10.0.0.1") == 0
    table = QuotaTable({((IP, None),): {CONNECTION_CREATION_RATE: 0.01}})
    assert accounts.connect("10.0.0.1") == 1


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
