"""`odradek cluster move` and `drain`: the plan, and what one broker answers (ours and Kafka)."""

import json
from collections.abc import Sequence
from uuid import UUID

import pytest
from click.testing import CliRunner

from odradek.client import PartitionMove
from odradek.client.cli.cluster import cluster
from odradek.client.cli.placement import balanced, drained
from odradek.client.errors import Refused
from odradek.client.types import (
    BrokerDescription,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from tests.client.live import Run, name_of


def topic(*replicas: tuple[int, ...]) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(number, nodes[0], 0, nodes, nodes)
        for number, nodes in enumerate(replicas)
    )
    return TopicDescription("t", UUID(int=1), False, partitions)


def plan(
    topics: list[TopicDescription],
    alive: list[int],
    node_id: int,
    moves: dict[TopicPartition, PartitionMove] | None = None,
) -> dict[int, tuple[int, ...]]:
    found = drained(topics, dict.fromkeys(alive), node_id, moves or {})
    return {place.partition: replicas for place, replicas in found.items()}


def test_each_replica_goes_to_the_broker_that_has_fewest() -> None:
    spread = topic((1, 2), (2, 1), (3, 2), (1, 3))
    assert plan([spread], [1, 2, 3, 4], 1) == {0: (4, 2), 1: (2, 4), 3: (4, 3)}
    assert plan([spread], [1, 2, 3, 4], 4) == {}


def test_the_broker_that_is_drained_may_be_away() -> None:
    assert plan([topic((1, 2), (2, 3))], [1, 2], 3) == {1: (2, 1)}


def test_a_partition_that_cannot_go_anywhere_is_named() -> None:
    with pytest.raises(Refused, match=r"replica of t-1 on broker 3, .* \(1, 2, 3\)"):
        plan([topic((1, 2), (1, 2, 3))], [1, 2, 3], 3)


def rebalanced(
    topics: list[TopicDescription], racks: dict[int, str | None], factor: int | None = None
) -> dict[int, tuple[int, ...]]:
    found = balanced(topics, racks, {}, replication_factor=factor)
    return {place.partition: replicas for place, replicas in found.items()}


def test_a_cluster_in_balance_stays_as_it_is() -> None:
    assert rebalanced([topic((1, 2), (2, 3), (3, 1))], dict.fromkeys((1, 2, 3))) == {}


def test_a_new_broker_gets_its_part() -> None:
    before = ((1, 2), (2, 1), (1, 2), (2, 1))
    after: list[tuple[int, ...]] = list(before)
    for index, replicas in rebalanced([topic(*before)], dict.fromkeys((1, 2, 3))).items():
        after[index] = replicas
    counts = [sum(node in replicas for replicas in after) for node in (1, 2, 3)]
    leads = [sum(replicas[0] == node for replicas in after) for node in (1, 2, 3)]
    assert (sorted(counts), sorted(leads)) == ([2, 3, 3], [1, 1, 2])


def test_no_two_replicas_stay_in_one_rack_where_the_racks_are_enough() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    found = rebalanced([topic((1, 2), (2, 1), (3, 4), (4, 3))], racks)
    assert len(found) == 4
    assert all({racks[node] for node in replicas} == {"a", "b"} for replicas in found.values())


def test_partitions_get_more_replicas_and_fewer() -> None:
    one = topic((1,), (1,), (1,))
    found = rebalanced([one], dict.fromkeys((1, 2, 3)), 3)
    assert all(set(replicas) == {1, 2, 3} for replicas in found.values())
    assert sorted(replicas[0] for replicas in found.values()) == [1, 2, 3]
    three = topic((1, 2, 3), (2, 3, 1), (3, 1, 2))
    found = rebalanced([three], dict.fromkeys((1, 2, 3)), 1)
    assert sorted(found.values()) == [(1,), (2,), (3,)]
    with pytest.raises(Refused, match="4 replicas need as many brokers"):
        rebalanced([one], dict.fromkeys((1, 2, 3)), 4)


def test_what_is_drained_goes_to_another_rack_than_the_rest() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "a", 4: "b"}
    found = drained([topic((1, 2), (2, 1))], racks, 1, {})
    assert {replicas for replicas in found.values()} == {(3, 2), (2, 3)}


def test_what_is_on_its_way_off_is_left_and_what_is_on_its_way_to_it_turns() -> None:
    moving = {
        TopicPartition("t", 0): PartitionMove((2, 3, 1), (3,), (1,)),
        TopicPartition("t", 1): PartitionMove((1, 2, 3), (1,), (3,)),
    }
    assert plan([topic((2, 3, 1), (1, 2, 3))], [1, 2, 3, 4], 1, moving) == {1: (4, 2)}


class LastMove:
    """An administrator's client of a cluster in which t-0 moves from broker 1 to broker 3."""

    looks = 0
    in_the_end = (3, 2)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> "LastMove":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_cluster(self) -> ClusterDescription:
        brokers = tuple(BrokerDescription(node, "127.0.0.1", 9092, None) for node in (1, 2, 3))
        return ClusterDescription("cluster", 2, brokers)

    def list_topics(self, *, internal: bool) -> list[str]:
        assert internal
        return ["t"]

    def describe_topics(self, *_: str) -> list[TopicDescription]:
        return [topic((3, 2, 1) if LastMove.looks <= 2 else LastMove.in_the_end)]

    def move_partitions(self, targets: dict[TopicPartition, tuple[int, ...]]) -> None:
        assert targets == {TopicPartition("t", 0): (3, 2)}

    def list_moves(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionMove]:
        LastMove.looks += 1
        assert not partitions or list(partitions) == [TopicPartition("t", 0)]
        if LastMove.looks > 2:
            return {}
        return {TopicPartition("t", 0): PartitionMove((3, 2, 1), (3,), (1,))}


def test_a_broker_is_not_drained_while_moves_from_it_are_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek.client.cli.moves.Admin", LastMove)
    still = "1 move under way from broker 1: it still has these replicas.\n"
    LastMove.looks = 0
    seen = CliRunner().invoke(cluster, ["drain", "1"])
    assert (seen.exit_code, seen.output) == (0, still)
    LastMove.looks = 0
    waited = CliRunner().invoke(cluster, ["drain", "1", "--wait"])
    assert waited.output == f"{still}Broker 1 has no replicas any more.\n"
    assert LastMove.looks == 3, "it has looked until the move was complete"


ELSEWHERE = "Error: t-0 is on brokers 2, 1: its move was cancelled, or another took its place.\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["move", "t-0", "--to", "3,2", "--wait"], ELSEWHERE),
        (
            ["move", "t-0", "--to", "3,2", "--wait", "--json"],
            json.dumps({"error": ELSEWHERE[len("Error: ") : -1], "code": None}) + "\n",
        ),
        (
            ["drain", "1", "--wait"],
            "Error: Broker 1 has a replica of t-0: a move was cancelled, or a topic was created; "
            "drain it again.\n",
        ),
    ],
)
def test_a_move_that_was_cancelled_is_not_shown_as_complete(
    monkeypatch: pytest.MonkeyPatch, command: list[str], said: str
) -> None:
    """It said that the broker has no replicas any more."""
    monkeypatch.setattr("odradek.client.cli.moves.Admin", LastMove)
    monkeypatch.setattr("odradek.client.cli.moves.SHOWN_SECONDS", 0)
    monkeypatch.setattr(LastMove, "looks", 0)
    monkeypatch.setattr(LastMove, "in_the_end", (2, 1))
    ended = CliRunner().invoke(cluster, command)
    assert (ended.exit_code, ended.stderr) == (1, said)


def test_one_broker_moves_nothing(run: Run) -> None:
    name = name_of("topic")
    run.said("topic", "create", name, "--partitions", "1")
    assert run.said("cluster", "move") == "No move is under way.\n"
    assert run.said("cluster", "move", f"{name}-0", "--to", "1", "--wait") == (
        f"{name}-0 is on broker 1 already.\n"
    )
    refused = run("cluster", "move", f"{name}-0", "--to", "1,9")
    assert refused.exit_code == 1
    assert "INVALID_REPLICA_ASSIGNMENT" in refused.stderr
    assert "broker 9, but no such broker is registered" in refused.stderr
    cancelled = run("cluster", "move", f"{name}-0", "--cancel")
    assert "NO_REASSIGNMENT_IN_PROGRESS" in cancelled.stderr
    stuck = run("cluster", "drain", "1", "--yes")
    assert (stuck.exit_code, stuck.stdout) == (1, "")
    assert "start another broker" in stuck.stderr


@pytest.mark.slow
@pytest.mark.parametrize("more", [("--to", "1"), ("--cancel",), ("--wait",), ()], ids=" ".join)
def test_a_partition_that_does_not_exist_is_not_moved_and_not_waited_for(
    run: Run, more: tuple[str, ...]
) -> None:
    """The command asked again until its time was over, or said that nothing moves."""
    name = name_of("topic")
    absent = run("cluster", "move", f"{name}-0", *more)
    assert (absent.exit_code, absent.stdout) == (1, "")
    assert absent.stderr == f"Error: There is no topic '{name}'.\n"
    run.said("topic", "create", name, "--partitions", "1")
    beyond = run("cluster", "move", f"{name}-0", f"{name}-1", *more)
    assert (beyond.exit_code, beyond.stdout) == (1, "")
    assert beyond.stderr == f"Error: There is no partition {name}-1.\n"


def test_a_broker_that_does_not_exist_is_not_drained(run: Run) -> None:
    """It was said to have no replicas, so a wrong number looked like a success."""
    drained = run("cluster", "drain", "7", "--yes", "--wait")
    assert (drained.exit_code, drained.stdout) == (1, "")
    assert drained.stderr == "Error: There is no broker 7: the cluster has broker 1 now.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "1,x"), "broker ids"),
        (("--to", "1"), "Name the partitions"),
        (("t-0", "--to", "1", "--cancel"), "exclude"),
        (("nowhere", "--to", "1"), "TOPIC-PARTITION"),
    ],
)
def test_mistakes_are_told_in_a_sentence(run: Run, arguments: tuple[str, ...], said: str) -> None:
    result = run("cluster", "move", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
