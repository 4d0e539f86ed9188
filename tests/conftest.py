"""What all tests share: the brokers that tests of clients run against, and who may leave them out.

`bootstrap` is the address of a running broker, once ours and once a real Apache Kafka: a test that
asks for it tests Kafka's behaviour and not our belief. The second half needs `--peers`.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.compat import agents
from tests.peers.etcd_server import RealEtcd
from tests.peers.jars import PeersMissing, require_tools
from tests.peers.kafka import RealKafka

MUST_NOT_SKIP: Final = "ODRADEK_CI"  # .ci/run sets it to 1
FRANZ_GO_848: Final = "franz-go-848"
"""franz-go with groups of the new protocol."""
# A test about a transaction's time-out should not wait for a reaper that comes every 10 s.
BROKER_SETTINGS: Final = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    # How soon a member of the new group protocol learns of a change, and is missed.
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
}

# Every run has the same examples, and none is judged by its time: a machine may be slow.
settings.register_profile(
    "the same everywhere",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # of a machine that stalls
)
settings.load_profile("the same everywhere")


TOGETHER: Final = ("tests/judge", "tests/spark")
"""Folders of which one process runs all tests: what they share takes long to make."""


class FileByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives the tests of one file to one process, as they share what the file makes."""

    def _split_scope(self, nodeid: str) -> str:
        file = PurePosixPath(nodeid.partition("::")[0])
        for folder in TOGETHER:
            if file.is_relative_to(folder):
                return folder
        return str(file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileByFile:
    return FileByFile(config, log)


def pytest_configure() -> None:
    """Take SIGINT as Python does: a shell has programs in the background ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--peers",
        action="store_true",
        help="also run what needs a real Apache Kafka (a JDK 17 or later and Maven)",
    )
    parser.addoption("--all", action="store_true", help="also run what takes minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--all"):
        long = [item for item in items if item.get_closest_marker("minutes") is not None]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    with_peers = [item for item in items if item.get_closest_marker("peers") is not None]
    if not config.getoption("--peers"):
        config.hook.pytest_deselected(items=with_peers)
        items[:] = [item for item in items if item not in with_peers]
        return
    try:
        require_tools()
    except PeersMissing as missing:
        if os.environ.get(MUST_NOT_SKIP) == "1":
            raise pytest.UsageError(f"{missing} {MUST_NOT_SKIP}=1 forbids to skip.") from None
        for item in with_peers:
            item.add_marker(pytest.mark.skip(reason=str(missing)))


@pytest.fixture(scope="session")
def odradek_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our broker, one real process for the whole run."""
    from odradek.broker.testing import run_broker

    with run_broker(
        data_dir=tmp_path_factory.mktemp("odradek"), config=dict(BROKER_SETTINGS)
    ) as broker:
        yield broker.address


@pytest.fixture(scope="session")
def real_kafka() -> Iterator[RealKafka]:
    """A real Apache Kafka, one process for the whole run. Mark the test `peers`."""
    with RealKafka(settings=BROKER_SETTINGS) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def real_etcd() -> Iterator[RealEtcd]:
    """A real etcd of one node, one process for the whole run. Mark the test `peers`.

    Use a key prefix of your own.
    """
    try:
        etcd = RealEtcd()
    except PeersMissing as missing:
        if os.environ.get(MUST_NOT_SKIP) == "1":
            pytest.fail(f"{missing} {MUST_NOT_SKIP}=1 forbids to skip.")
        pytest.skip(str(missing))
    with etcd:
        yield etcd


@pytest.fixture(scope="session", params=["odradek", pytest.param("kafka", marks=pytest.mark.peers)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Address of a running broker: every test with it runs on ours and, with --peers, on Kafka.

    The brokers are shared by the whole run: use topics, groups and transactional ids of your own.
    """
    if request.param == "kafka":
        kafka: RealKafka = request.getfixturevalue("real_kafka")
        return kafka.address
    address: str = request.getfixturevalue("odradek_address")
    return address


@pytest.fixture(scope="session")
def java_agent(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the agent over Kafka's own client, compiled. Mark the test `peers`."""
    return agents.java_command(tmp_path_factory.mktemp("java-agent"))


@pytest.fixture(scope="session")
def go_agent(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the agent over franz-go, built. Mark the test `peers`."""
    try:
        return agents.go_command(tmp_path_factory.mktemp("go-agent"))
    except PeersMissing as missing:
        if os.environ.get(MUST_NOT_SKIP) == "1":
            pytest.fail(f"{missing} {MUST_NOT_SKIP}=1 forbids to skip.")
        pytest.skip(str(missing))


@pytest.fixture(
    params=[
        "confluent",
        pytest.param("java", marks=pytest.mark.peers),
        pytest.param("franz-go", marks=pytest.mark.peers),
    ]
)
def client(request: pytest.FixtureRequest) -> agents.Client:
    """A client library that a process can be started with: one after the other."""
    name: str = request.param
    built = {"java": "java_agent", "franz-go": "go_agent", FRANZ_GO_848: "go_agent"}.get(name)
    if built is None:
        return agents.Client(name, agents.python_command(name), transaction_version=1)
    command: list[str] = request.getfixturevalue(built)
    if name == FRANZ_GO_848:
        command = ["env", "FRANZ_GO_848=1", *command]
    return agents.Client(name, command, transaction_version=2)
