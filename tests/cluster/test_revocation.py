"""Three real brokers and an etcd: a right is taken away, while brokers are cut off or killed."""

import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.broker.cluster.metadata import BEHIND_SECONDS
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.security.acls import AclOperation, PatternType, ResourceKind
from odradek.protocol.api import Api
from odradek.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from odradek.protocol.connection import ClientProtocol, FrameReader
from odradek.protocol.errors import ErrorCode
from tests.cluster.running import TemporaryCluster
from tests.cluster.test_network import wait_until
from tests.simulation.acls import Entry, codes_in, created, deleted

pytestmark = [pytest.mark.peers, pytest.mark.slow]

SESSION_SECONDS: Final = BrokerConfig().broker_session_timeout_ms / 1000
LONGEST_SECONDS: Final = SESSION_SECONDS + 2 * BEHIND_SECONDS
"""For so long a broker may go by old entries, as docs/acls.md says."""
ANSWER_SECONDS: Final = 30
TOPIC: Final = "payments"
ENTRY: Final = Entry(
    ResourceKind.TOPIC,
    PatternType.LITERAL,
    TOPIC,
    "User:CN=bob,O=Flights",
    "*",
    AclOperation.READ,
)
OF_BOB: Final = """
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
    -subj "/O=Flights/CN=bob" -keyout bob.key -out bob.csr
openssl x509 -req -in bob.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out bob.crt
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with TemporaryCluster(directory, is_loopback=True, is_secure=True) as running:
        subprocess.run(
            ["bash", "-ec", OF_BOB],
            cwd=directory / "certificates",
            check=True,
            capture_output=True,
            timeout=ANSWER_SECONDS,
        )
        yield running


class Asker:
    """A client of one broker, which keeps its connection."""

    def __init__(self, cluster: TemporaryCluster, broker: str, name: str) -> None:
        """`name` is that of the client's certificate."""
        (address,) = cluster.client([f"{broker}:9092"])
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        certificates: Path = cluster.directory / "certificates"
        self._context = ssl.create_default_context(cafile=certificates / "ca.crt")
        self._context.load_cert_chain(certificates / f"{name}.crt", certificates / f"{name}.key")
        self._socket: ssl.SSLSocket | None = None

    def __enter__(self) -> "Asker":
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, api: Api[Any, Any], version: int, request: Any) -> Any:
        """Return the answer; None if the broker is away, or closes the connection."""
        protocol, reader = ClientProtocol("asker"), FrameReader()
        try:
            if self._socket is None:
                plain = socket.create_connection(self._address, timeout=ANSWER_SECONDS)
                try:
                    self._socket = self._context.wrap_socket(
                        plain, server_hostname=self._address[0]
                    )
                except BaseException:
                    plain.close()
                    raise
            _, parts = protocol.request(api, version, request)
            self._socket.sendall(b"".join(parts))
            while (frame := reader.next_frame()) is None:
                count = self._socket.recv_into(reader.buffer())
                if not count:
                    raise ConnectionError("the broker has closed the connection")
                reader.note_received(count)
            return protocol.response(frame)[1]
        except OSError:
            self._drop()
            return None

    def may_read(self) -> bool | None:
        """Return True if the broker grants it; None if it gives no answer."""
        topics = (MetadataRequestTopic(name=TOPIC),)
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = self.ask(METADATA, 9, request)
        if answer is None:
            return None
        return bool(answer.topics[0].error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def change(self, request: tuple[Api[Any, Any], int, Any]) -> float:
        """Have the broker change an entry. Return the time at which it has acknowledged it."""
        answer = self.ask(*request)
        assert answer is not None
        assert set(codes_in(answer)) == {ErrorCode.NONE}
        return time.monotonic()


@pytest.fixture
def bob(cluster: TemporaryCluster) -> Iterator[dict[str, Asker]]:
    """Return the connections of a user, by broker."""
    askers = {broker: Asker(cluster, broker, "bob") for broker in cluster.brokers}
    with ExitStack() as stack:
        yield {broker: stack.enter_context(asker) for broker, asker in askers.items()}


def test_a_broker_that_is_cut_off_from_etcd_grants_nothing_that_was_revoked(
    cluster: TemporaryCluster, bob: dict[str, Asker]
) -> None:
    with Asker(cluster, "broker1", "alice") as admin:
        admin.change(created(ENTRY))
        wait_until(lambda: all(asker.may_read() for asker in bob.values()))
        cluster.cut("broker3", "etcd")
        revoked = admin.change(deleted(ENTRY))
    assert bob["broker1"].may_read() is False
    wait_until(lambda: bob["broker2"].may_read() is False)

    def closes() -> bool:
        sent = time.monotonic()
        is_granted = bob["broker3"].may_read()
        assert not (is_granted and sent - revoked > LONGEST_SECONDS), sent - revoked
        return is_granted is None

    wait_until(closes)
    assert [bob["broker3"].may_read() for _ in range(5)] == [None] * 5
    cluster.mend("broker3", "etcd")

    def is_refused() -> bool:
        is_granted = bob["broker3"].may_read()
        assert not is_granted
        return is_granted is False

    wait_until(is_refused)
    assert [asker.may_read() for asker in bob.values()] == [False] * 3


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_change_counts_everywhere_although_its_broker_is_killed_at_once(
    cluster: TemporaryCluster, bob: dict[str, Asker], number: int
) -> None:
    killed = f"broker{number}"
    others = [asker for broker, asker in bob.items() if broker != killed]
    for change, is_granted in ((created(ENTRY), True), (deleted(ENTRY), False)):
        with Asker(cluster, killed, "alice") as admin:
            admin.change(change)
            cluster.end(killed, signal.SIGKILL)
        wait_until(partial(do_answer, others, is_granted=is_granted))
        cluster.start(killed)
        assert first_answer(bob[killed]) is is_granted, "the first answer after the start"


def do_answer(askers: list[Asker], *, is_granted: bool) -> bool:
    """Return True if each broker answers so."""
    return all(asker.may_read() is is_granted for asker in askers)


def first_answer(asker: Asker) -> bool:
    """Return what a broker that starts answers as soon as it does."""
    found: list[bool | None] = []

    def is_there() -> bool:
        found.append(asker.may_read())
        return found[-1] is not None

    wait_until(is_there)
    return bool(found[-1])
