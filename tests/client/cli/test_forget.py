"""`odradek cluster forget`, and what `cluster describe` says of a broker that is away."""

import json

import pytest
from click.testing import CliRunner

from odradek.client.cli.cluster import cluster
from odradek.client.errors import Refused
from odradek.client.types import BrokerDescription, ClusterDescription
from odradek.protocol.errors import ErrorCode
from tests.client.live import Run


def test_a_broker_that_is_not_known_is_not_forgotten(run: Run) -> None:
    ended = run("cluster", "forget", "9", "--json")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert json.loads(ended.stderr)["code"] == "BROKER_ID_NOT_REGISTERED"


def test_a_broker_that_is_alive_is_not_forgotten(odradek_address: str) -> None:
    ended = Run(odradek_address)("cluster", "forget", "1")
    assert ended.exit_code == 1
    assert "Broker 1 is alive" in ended.stderr


class AwayAdmin:
    """An administrator's client of a cluster of which broker 2 is away."""

    forgotten: tuple[int, ...] = ()

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> "AwayAdmin":
        return self

    def __exit__(self, *_: object) -> None: ...

    def describe_cluster(self, *, include_fenced: bool) -> ClusterDescription:
        assert include_fenced
        brokers = [BrokerDescription(1, "one", 9092, "west")]
        if 2 not in self.forgotten:
            brokers.append(BrokerDescription(2, "two", 9092, "east", True))
        return ClusterDescription("the-cluster", 1, tuple(brokers))

    def list_topics(self, *, internal: bool) -> list[str]:
        return []

    def unregister_broker(self, node_id: int) -> None:
        if node_id != 2:
            code = ErrorCode.BROKER_ID_NOT_REGISTERED
            raise Refused("it is not registered", code=code)
        AwayAdmin.forgotten = (2,)


def test_a_broker_that_is_away_is_shown_as_away_until_it_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek.client.cli.cluster.Admin", AwayAdmin)
    monkeypatch.setattr(AwayAdmin, "forgotten", ())
    shown = CliRunner().invoke(cluster, ["describe"])
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert ["2", "two:9092", "east", "0", "0", "away"] in rows
    done = CliRunner().invoke(cluster, ["forget", "2", "--json"])
    assert json.loads(done.stdout) == {"broker": 2, "forgotten": True}
    shown = CliRunner().invoke(cluster, ["describe", "--json"])
    assert [(each["id"], each["away"]) for each in json.loads(shown.stdout)["brokers"]] == [
        (1, False)
    ]
