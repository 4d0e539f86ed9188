"""What all tests share: the brokers that tests of clients run against, and who may leave them out.

`bootstrap` is the address of a running broker, once ours and once a real Apache Kafka: a test that
asks for it tests Kafka's behaviour and not our belief. The second half needs `--peers`.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any, Final, TypeVar

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.compat import agents
from tests.compat.kafka_tool import KafkaTools
from tests.peers.etcd_server import RealEtcd
from tests.peers.jars import PeersMissing, require_tools
from tests.peers.kafka import RealKafka

Found = TypeVar("Found")
MUST_NOT_SKIP: Final = "ODRADEK_CI"  # .ci/run sets it to 1
FRANZ_GO_848: Final = "franz-go-848"
"""franz-go with groups of the new protocol."""
# A test about a transaction's time-out should not wait for a reaper that comes every 10 s.
BROKER_SETTINGS: Final = {
    "log.retention.ms": "-1",  # the tests have records of 1970
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    # How soon a member of the new group protocol learns of a change, and is missed.
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
}

# pytest-trio imports hypothesis, which takes long, to have the order of trio's tasks repeatable; so
# does trio when hypothesis is imported. A stand-in is enough for a start that draws no examples.
# `-p no:trio` in pyproject.toml keeps pytest from importing the plugin before this.
stand_in = ModuleType("hypothesis")
stand_in.__dict__.update(register_random=lambda random: None, is_hypothesis_test=lambda test: False)
sys.modules["hypothesis"] = stand_in
import_module("pytest_trio.plugin")
del sys.modules["hypothesis"]
pytest_plugins = ["pytest_trio.plugin"]

OF_EXAMPLES: Final = (
    *("--all", "--hypothesis-profile", "--hypothesis-verbosity"),
    *("--hypothesis-explain", "--hypothesis-seed", "--hypothesis-show-statistics"),
)
"""The options that change what hypothesis draws."""

TOGETHER: Final = ("tests/spark", "tests/judge")
"""Folders of which one process runs all tests: what they share takes long to make.

They come first, so that no process is still at work on one of them when nothing else is left.
"""


def folder_of(nodeid: str) -> str | None:
    """Return the folder of `TOGETHER` that a test is in."""
    file = PurePosixPath(nodeid.partition("::")[0])
    return next((folder for folder in TOGETHER if file.is_relative_to(folder)), None)


class FileByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives the tests of one file to one process, as they share what the file makes."""

    def _split_scope(self, nodeid: str) -> str:
        return folder_of(nodeid) or nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileByFile:
    return FileByFile(config, log)


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    if any(config.getoption(option) for option in OF_EXAMPLES):
        from tests import drawing  # its profiles, before hypothesis looks for the one it is given

        if config.getoption("--all") and not config.getoption("--hypothesis-profile"):
            drawing.settings.load_profile(drawing.MANY)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if "hypothesis" not in sys.modules:  # its plugin would import it to add nothing to the summary
        session.config.pluginmanager.unregister(name="hypothesispytest")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--peers",
        action="store_true",
        help="also run what needs a real Apache Kafka (a JDK 17 or later and Maven)",
    )
    parser.addoption(
        "--all",
        action="store_true",
        help="also run what takes minutes, and more examples of hypothesis",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let Python's collector pass over what the collection of tests makes, which all stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if " at 0x" in item.nodeid:  # the processes of a run would not agree on its name
            raise pytest.UsageError(f"The name of a test has an address: {item.nodeid}")
    if not config.getoption("--all"):
        leave_out(config, items, "minutes")
    items.sort(key=lambda item: folder_of(item.nodeid) is None)  # only the folders move
    if not config.getoption("--peers"):
        leave_out(config, items, "peers")
        return
    with_peers = [item for item in items if item.get_closest_marker("peers") is not None]
    try:
        require_tools()
    except PeersMissing as missing:
        if os.environ.get(MUST_NOT_SKIP) == "1":
            raise pytest.UsageError(f"{missing} {MUST_NOT_SKIP}=1 forbids to skip.") from None
        for item in with_peers:
            item.add_marker(pytest.mark.skip(reason=str(missing)))


def leave_out(config: pytest.Config, items: list[pytest.Item], marker: str) -> None:
    """Deselect the tests with a mark."""
    left_out = {item for item in items if item.get_closest_marker(marker) is not None}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


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
    with found_or_skipped(RealEtcd) as etcd:
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
def kafka_tools() -> Iterator[KafkaTools]:
    """Kafka's command line tools in one JVM for the whole run. Mark the test `peers`."""
    with KafkaTools() as tools:
        yield tools


@pytest.fixture(scope="session")
def java_agent(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the agent over Kafka's own client, compiled. Mark the test `peers`."""
    return agents.java_command(tmp_path_factory.mktemp("java-agent"))


@pytest.fixture(scope="session")
def go_agent(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the agent over franz-go, built. Mark the test `peers`."""
    return found_or_skipped(lambda: agents.go_command(tmp_path_factory.mktemp("go-agent")))


@pytest.fixture(scope="session")
def sarama_agent(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the agent over sarama, built. Mark the test `peers`."""
    directory = tmp_path_factory.mktemp("sarama-agent")
    return found_or_skipped(lambda: agents.go_command(directory, "sarama"))


@pytest.fixture(scope="session")
def kafkajs_agent(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the agent over KafkaJS, installed. Mark the test `peers`."""
    return found_or_skipped(lambda: agents.node_command(tmp_path_factory.mktemp("kafkajs")))


def found_or_skipped(find: Callable[[], Found]) -> Found:
    """Return what a machine may not have; without it skip the test, or fail in CI."""
    try:
        return find()
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
