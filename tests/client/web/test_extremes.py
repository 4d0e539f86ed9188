"""What the page shows while a broker does not answer, and of what is very much."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from odradek.client.administration.acls import Acl
from odradek.client.administration.admin import Admin
from odradek.client.administration.descriptions import (
    PartitionProducers,
    Pin,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.administration.group_descriptions import GroupDescription, GroupListing
from odradek.client.administration.quotas import Quotas
from odradek.client.administration.transactions import Producers
from odradek.client.administration.users import ScramUser
from odradek.client.errors import OdradekError, TimedOut
from odradek.client.types import TopicPartition
from odradek.client.web import groups, transactions
from odradek.client.web.access import AccessSource
from odradek.client.web.board import Board
from odradek.client.web.cluster import ClusterSource
from odradek.client.web.groups import GroupSource
from odradek.client.web.transactions import PinSource, TransactionSource
from tests.client.cli.samples import NOW_MS, PLACES, a_look, a_transaction
from tests.client.web.test_rebalances import A, B, a_group

AWAY = TimedOut("broker 2 does not answer")


class ScriptedAdmin:
    """It answers what a test wants."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupDescription | OdradekError] = {}
        self.producers: dict[TopicPartition, PartitionProducers | OdradekError] = {}
        self.pins: dict[TopicPartition, Pin | OdradekError | None] = {}

    @property
    def admin(self) -> Admin:
        return cast(Admin, self)

    async def list_groups(self) -> list[GroupListing]:
        return [GroupListing(name, "Stable", "classic", "consumer", 1) for name in self.groups]

    async def describe_groups(self, *names: str) -> dict[str, GroupDescription | OdradekError]:
        return {name: self.groups[name] for name in names}

    async def group_lag(self, name: str) -> Mapping[TopicPartition, Any]:
        return {}

    async def describe_producers(
        self, wanted: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionProducers | OdradekError]:
        return {name: self.producers[name] for name in wanted}

    async def find_pins(
        self, wanted: Iterable[TopicPartition], producers: Producers
    ) -> dict[TopicPartition, Pin | OdradekError | None]:
        assert producers.keys() >= set(wanted)
        return {name: self.pins[name] for name in wanted}


def rows_of(board: Board, section: str) -> dict[str, Any]:
    return {key: value for of, key, value in board.changes(0).rows if of == section}


async def test_a_group_whose_coordinator_is_away_stays_with_its_lag_over_time() -> None:
    admin, board, source = ScriptedAdmin(), Board(), GroupSource()
    admin.groups = {"g": a_group(), "h": a_group()}
    await source.look(admin.admin, board)
    before = rows_of(board, "group"), rows_of(board, "lag")
    admin.groups["g"] = AWAY
    with pytest.raises(TimedOut):
        await source.look(admin.admin, board)
    assert (rows_of(board, "group"), rows_of(board, "lag")) == before


async def test_rebalances_are_forgotten_after_an_hour_and_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin, board, source = ScriptedAdmin(), Board(), GroupSource()

    async def rebalances() -> int:
        for members in ((A,), (A, B), (A,), ()):
            admin.groups = {"g": a_group(*members)}
            await source.look(admin.admin, board)
        return len(rows_of(board, "group_event"))

    assert await rebalances() == 3
    monkeypatch.setattr(groups, "EVENTS_MAX", 2)
    assert await rebalances() == 2
    monkeypatch.setattr(groups, "KEPT_MS", -1_000)  # so everything is older
    assert await rebalances() == 0


def a_pin(name: TopicPartition) -> Pin:
    return Pin(
        partition=name,
        producer_id=4,
        producer_epoch=7,
        start_offset=5,
        end_offset=8,
        records_behind=3,
        transactional_id="refunds-0",
        state="Ongoing",
        client_id=None,
        client_host=None,
        age_ms=2_000,
        remaining_ms=58_000,
        timeout_ms=60_000,
    )


async def test_a_pin_stays_while_the_leader_of_its_partition_is_away_and_goes_with_its_topic() -> (
    None
):
    admin, board, cluster = ScriptedAdmin(), Board(), ClusterSource()
    cluster.partitions = PLACES
    source = PinSource(TransactionSource(), cluster, "localhost:9092")
    look = a_look(a_transaction())
    admin.producers = dict(look.producers)
    admin.pins = {name: a_pin(name) for name in PLACES}
    await source.look(admin.admin, board)
    before = rows_of(board, "pin")
    assert before.keys() == {"flights-0", "flights-1"}
    admin.producers[PLACES[0]] = AWAY
    cluster.partitions, cluster.leaderless = PLACES[1:], frozenset(PLACES[:1])
    with pytest.raises(TimedOut):
        await source.look(admin.admin, board)
    assert rows_of(board, "pin") == before
    cluster.leaderless = frozenset()
    with pytest.raises(TimedOut):  # it was asked once more
        await source.look(admin.admin, board)
    await source.look(admin.admin, board)
    assert rows_of(board, "pin").keys() == {"flights-1"}


class InfiniteQuota(ScriptedAdmin):
    """An admin of a cluster in which somebody has lifted the quota of a user."""

    async def describe_users(self) -> list[ScramUser]:
        return []

    async def describe_acls(self) -> list[Acl]:
        return []

    async def describe_quotas(self) -> list[Quotas]:
        return [Quotas("alice", None, None, {"producer_byte_rate": float("inf")})]


async def test_a_quota_that_is_infinite_is_a_value_that_json_has() -> None:
    board = Board()
    await AccessSource().look(InfiniteQuota().admin, board)
    (row,) = rows_of(board, "quota").values()
    assert row == {"whose": "user alice", "quota": "producer_byte_rate", "value": None}


class ManyIds(ScriptedAdmin):
    """An admin of a cluster with four ids, of which one is open for longer than the other."""

    described = (
        a_transaction(transactional_id="young"),
        a_transaction("Empty", "idle"),
        a_transaction("CompleteCommit", "busy", updated_ms=NOW_MS),
        a_transaction(transactional_id="old", started_ms=NOW_MS - 9_000),
    )

    async def list_transactions(self) -> list[TransactionListing]:
        return [
            TransactionListing(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                state=each.state,
                coordinator_id=1,
            )
            for each in self.described
        ]

    async def describe_transactions(self, *names: str) -> dict[str, TransactionDescription]:
        return {each.transactional_id: each for each in self.described}


async def test_of_very_many_ids_the_open_ones_are_shown_and_those_that_were_busy_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = Board()
    for limit, shown in ((1, {"old"}), (3, {"old", "young", "busy"})):
        monkeypatch.setattr(transactions, "LANES_MAX", limit)
        await TransactionSource().look(ManyIds().admin, board)
        assert rows_of(board, "lane").keys() == shown
        assert rows_of(board, "count") == {"transactions": {"all": 4, "open": 2}}
