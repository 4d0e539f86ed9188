"""The way back to the earlier version, and clients of one version at a broker of the other."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.testing import BrokerDidNotStart, RunningBroker, run_broker
from tests.cluster.running import ODRADEK
from tests.secured_broker import AUTHORIZER
from tests.upgrade.earlier import broker_of

pytestmark = pytest.mark.slow

TOPIC: Final = "greetings"
SECONDS: Final = 120.0


def run_command(program: Path, broker: RunningBroker, *words: str, given: str = "") -> str:
    """Run a command of a version against a broker, and return what it printed."""
    ran = subprocess.run(
        [program, *words, "--bootstrap", broker.address],
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def produce(program: Path, broker: RunningBroker, value: str) -> None:
    run_command(program, broker, "produce", TOPIC, given=f"{value}\n")


def consume(program: Path, broker: RunningBroker) -> list[str]:
    return run_command(program, broker, "consume", TOPIC, "--from-beginning").split()


@pytest.mark.parametrize("is_client_earlier", [True, False], ids=["earlier client", "our client"])
def test_the_client_of_one_version_works_with_the_broker_of_the_other(
    earlier: Path, is_client_earlier: bool
) -> None:
    client = earlier if is_client_earlier else ODRADEK
    kind = RunningBroker if is_client_earlier else broker_of(earlier)
    with run_broker(kind=kind) as broker:
        run_command(client, broker, "topic", "create", TOPIC, "--partitions", "1")
        produce(client, broker, "hello")
        assert consume(client, broker) == ["hello"]
        assert TOPIC in run_command(client, broker, "topic", "list")
        transactional = ("--transactional-id", "greeter")
        run_command(client, broker, "produce", TOPIC, *transactional, given="committed\n")
        assert consume(client, broker) == ["hello", "committed"]
        assert "greeter" in run_command(client, broker, "txn", "list")


@pytest.mark.parametrize("flush", ["ack", "journal"])
def test_the_earlier_version_opens_what_this_one_has_stopped_in_good_order(
    earlier: Path, tmp_path: Path, flush: str
) -> None:
    with run_broker(data_dir=tmp_path, config={"log.flush": flush}) as ours:
        run_command(ODRADEK, ours, "topic", "create", TOPIC, "--partitions", "1")
        produce(ODRADEK, ours, "one")
        assert ours.stop() == 0
    with run_broker(data_dir=tmp_path, kind=broker_of(earlier)) as back:
        assert consume(ODRADEK, back) == ["one"]
        produce(ODRADEK, back, "two")
        assert back.stop() == 0
    with run_broker(data_dir=tmp_path, config={"log.flush": flush}) as again:
        produce(ODRADEK, again, "three")
        assert consume(ODRADEK, again) == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("authorizer.class.name", AUTHORIZER, "authorizer.class.name is not a setting"),
        ("sasl.enabled.mechanisms", "PLAIN", "sasl.enabled.mechanisms is not a setting"),
        ("ssl.keystore.location", "keys.pem", "ssl.keystore.location is not a setting"),
        ("log.flush", "journal", "log.flush is ack or os, not 'journal'"),
    ],
)
def test_the_earlier_version_refuses_the_settings_of_what_it_does_not_know(
    earlier: Path, name: str, value: str, sentence: str
) -> None:
    with (
        pytest.raises(BrokerDidNotStart, match=sentence) as refused,
        run_broker(kind=broker_of(earlier), config={name: value}),
    ):
        pass
    assert len(str(refused.value).strip().splitlines()) == 1
