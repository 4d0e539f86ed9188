"""`odradek cluster describe`: what it makes of the metadata, and against a running broker."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner

from odradek.client.cli.cluster import cluster, facts, furthest, least_in_sync, losses
from odradek.client.cli.common import PartitionName
from odradek.client.cli.topics import topic
from odradek.client.errors import Disconnected
from odradek.client.types import (
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    OffsetAndTimestamp,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)


def with_partitions(*partitions: PartitionDescription) -> dict[str, Any]:
    """Return the facts of a cluster of which brokers 1 and 2 are there, and broker 3 is not."""
    brokers = tuple(BrokerDescription(n, f"broker{n}", 9092, f"rack{n}") for n in (2, 1))
    topic = TopicDescription("ledger", UUID(int=1), False, partitions)
    entry = ConfigEntry("2", is_default=False, is_read_only=False, is_sensitive=False)
    least = least_in_sync({"ledger": {"min.insync.replicas": entry}, "empty": {}})
    return facts(ClusterDescription("the-cluster", 2, brokers), [topic], least)


def test_each_broker_has_its_leads_and_replicas() -> None:
    found = with_partitions(
        PartitionDescription(0, 1, 0, (1, 2), (1, 2)),
        PartitionDescription(1, 1, 0, (2, 1), (2, 1)),
        PartitionDescription(2, 2, 0, (2, 1), (2, 1)),
    )
    assert found["brokers"] == [
        {"id": n, "address": f"broker{n}:9092", "rack": f"rack{n}", "away": False}
        | {"leads": leads, "replicas": 3}
        for n, leads in ((1, 2), (2, 1))
    ]
    assert found["not_in_sync"] == []


def test_a_replica_is_behind_or_its_broker_is_away() -> None:
    found = with_partitions(
        PartitionDescription(0, 1, 4, (1, 2, 3), (1,)),
        PartitionDescription(1, -1, 4, (3,), (3,)),
    )
    assert found["not_in_sync"] == [
        {
            "topic": "ledger",
            "partition": 0,
            "leader": 1,
            "replicas": [1, 2, 3],
            "in_sync": [1],
            "why": ["broker 2 is behind", "broker 3 is away", "fewer than min.insync.replicas = 2"],
        },
        {
            "topic": "ledger",
            "partition": 1,
            "leader": -1,
            "replicas": [3],
            "in_sync": [3],
            "why": ["no leader", "broker 3 is away", "fewer than min.insync.replicas = 2"],
        },
    ]


def test_partitions_are_counted_by_what_is_wrong_with_them() -> None:
    found = with_partitions(
        PartitionDescription(0, 1, 4, (1, 2), (1, 2)),
        PartitionDescription(1, 1, 4, (1, 2, 3), (1, 2)),
        PartitionDescription(2, 2, 4, (1, 2, 3), (2,)),
        PartitionDescription(3, -1, 4, (3, 1), ()),
        PartitionDescription(4, 1, 4, (1,), (1,)),
    )
    assert (found["partitions"], found["offline"]) == (5, 1)
    assert found["under_replicated"] == 3
    assert [each["partition"] for each in found["not_in_sync"]] == [1, 2, 3]
    # The last partition has every replica in sync, and refuses acks=all for ever.
    assert [each["partition"] for each in found["below_min_isr"]] == [2, 3, 4]
    assert found["below_min_isr"][-1]["why"] == ["fewer than min.insync.replicas = 2"]


def test_the_description_of_a_running_broker(odradek_address: str) -> None:
    shown = CliRunner().invoke(cluster, ["describe", "-b", odradek_address])
    assert shown.exit_code == 0, shown.output
    assert odradek_address in shown.output
    printed = CliRunner().invoke(cluster, ["describe", "--json", "-b", odradek_address])
    (broker,) = json.loads(printed.output)["brokers"]
    assert broker["address"] == odradek_address
    assert "rack" in broker


def test_the_description_of_no_broker_is_an_error_in_one_sentence() -> None:
    shown = CliRunner().invoke(cluster, ["describe", "-b", "127.0.0.1:1", "--timeout", "0.2"])
    assert shown.exit_code == 1
    assert shown.output.startswith("Error: ")
    assert shown.output.count("\n") == 1


def end(offset: int, epoch: int) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(offset, -1, epoch)


def test_the_replica_with_the_newest_epoch_loses_least_not_the_longest_log() -> None:
    gone = Disconnected("gone")
    assert furthest({1: end(90, 3), 2: end(70, 4), 3: gone}) == 2
    assert furthest({1: end(70, 4), 2: end(90, 4)}) == 2
    assert furthest({3: gone}) is None


def test_losses_name_the_replicas_that_had_everything_and_the_epochs_that_are_missing() -> None:
    found = PartitionDescription(0, -1, 8, (1, 2, 3), (2, 3))
    same_epoch = " ".join(losses("ledger", found, 1, end(70, 7)))
    assert "In sync were the brokers 2, 3." in same_epoch
    assert "ends at offset 70" in same_epoch
    assert "there were leaders up to" not in same_epoch
    assert "there were leaders up to epoch 7" in " ".join(losses("ledger", found, 1, end(70, 6)))
    none = losses("ledger", PartitionDescription(0, -1, 8, (1,), ()), 1, end(0, -1))
    assert "all of them lost power" in none[0]


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("__transaction_state", "keeps decisions of transactions"),
        ("__consumer_offsets", "keeps the offsets of consumer groups"),
        ("ledger", "'odradek txn hanging'"),
    ],
)
def test_the_loss_of_a_state_topic_is_more_than_records(name: str, lost: str) -> None:
    found = PartitionDescription(0, -1, 8, (1, 2, 3), (2, 3))
    assert lost in losses(name, found, 1, end(70, 7))[-1]


class ThreeReplicas:
    """An administrator's client of a partition whose leader is gone; it takes any election."""

    def __init__(self, *_: object, **__: object) -> None:
        self.partition = PartitionDescription(0, -1, 8, (1, 2, 3), (1,))

    def __enter__(self) -> "ThreeReplicas":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_topics(self, name: str) -> list[TopicDescription]:
        return [TopicDescription(name, UUID(int=1), False, (self.partition,))]

    def log_ends(self, _: TopicPartition) -> dict[int, OffsetAndTimestamp]:
        return {2: end(60, 7), 3: end(70, 7)}

    def elect_leader(self, _: TopicPartition, *, unclean: bool, candidate: int | None) -> None:
        assert unclean
        assert candidate is not None
        self.partition = self.partition._replace(leader=candidate, leader_epoch=9)


def test_what_an_unclean_election_loses_is_shown_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek.client.cli.cluster.Admin", ThreeReplicas)
    for answer in ("n\n", ""):  # a program, which answers nothing, must give --yes
        asked = CliRunner().invoke(cluster, ["elect", "a-b-0", "--unclean"], input=answer)
        assert asked.exit_code == 1
        assert "the partition ends at offset 70" in asked.output
        assert "Elect broker 3" in asked.output
        assert "is led by" not in asked.output
        assert asked.stderr.endswith("Error: Nothing was done.\n")
    made = CliRunner().invoke(cluster, ["elect", "a-b-0", "--unclean", "--yes"])
    assert made.exit_code == 0, made.output
    assert made.output.endswith("a-b-0 is led by broker 3, in leader epoch 9\n")
    made = CliRunner().invoke(cluster, ["elect", "a-b-0", "--unclean", "--yes", "--json"])
    assert json.loads(made.stdout) == {
        "topic": "a-b", "partition": 0, "leader": 3, "leader_epoch": 9,
    }  # fmt: skip
    assert "the partition ends at offset 70" in made.stderr


def test_a_partition_that_is_led_needs_no_election(odradek_address: str) -> None:
    name = f"led-{uuid4().hex[:8]}"
    created = CliRunner().invoke(topic, ["create", name, "-p", "1", "-b", odradek_address])
    assert created.exit_code == 0, created.output
    for options in ([], ["--unclean", "--yes"]):
        run = CliRunner().invoke(cluster, ["elect", f"{name}-0", *options, "-b", odradek_address])
        assert run.exit_code == 1
        assert "lead" in run.output


@pytest.mark.parametrize("mark", ["-", ":"])
def test_a_partition_is_written_with_a_hyphen_or_as_for_consumer_groups_with_a_colon(
    mark: str,
) -> None:
    found = PartitionName().convert(f"led-ger{mark}7", None, None)
    assert found == TopicPartition("led-ger", 7)


@pytest.mark.parametrize("name", ["ledger", "-0", "ledger-", "ledger-x", "ledger-1:", "ledger:-1"])
def test_a_partition_is_a_topic_and_a_number(name: str) -> None:
    run = CliRunner().invoke(cluster, ["elect", "--", name])
    assert run.exit_code == 2
    assert "is not TOPIC-PARTITION" in run.output


def test_the_description_lists_a_partition_that_can_never_have_enough_replicas(
    odradek_address: str,
) -> None:
    run = CliRunner()
    name, least = "two-of-one", "min.insync.replicas=2"
    words = ["create", name, "--partitions", "1", "--config", least, "-b", odradek_address]
    made = run.invoke(topic, words)
    assert made.exit_code == 0, made.output
    shown = run.invoke(cluster, ["describe", "-b", odradek_address]).output
    (row,) = (line for line in shown.splitlines() if line.startswith(f"{name} "))
    assert row.split(maxsplit=4)[1:] == ["0", "1", "1", "fewer than min.insync.replicas = 2"]
    assert run.invoke(topic, ["delete", name, "--yes", "-b", odradek_address]).exit_code == 0
