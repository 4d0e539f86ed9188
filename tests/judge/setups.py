"""The brokers that stories run on: ours and a real Kafka, prepared alike.

A setup is a set of settings. Before its stories run, the records of `__transaction_state` that they
need are written, through Produce with the client id that Kafka allows to write to internal topics.
Then the broker is restarted, so that its coordinator reads them.
"""

import contextlib
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.api import Api
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.group_offsets import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.state_topics import (
    TRANSACTION_STATE_TOPIC,
    TransactionLogKey,
    encode_key,
    encode_value,
    state_partition,
)
from tests.judge.doors import CHIEF, PRINCIPAL, Doors, make_certificates
from tests.judge.line import HERE, PATIENCE_SECONDS, Line
from tests.judge.reading import STATE_PARTITIONS
from tests.judge.scram_users import make_scram_users
from tests.judge.story import (
    BRIEF,
    GIVING_UP,
    GROUPS,
    POLICIES,
    SASL,
    SCRAM,
    SECURED,
    SHARED,
    Story,
    with_policy,
)
from tests.peers.kafka import RealKafka, free_ports

ADMIN_CLIENT: Final = "__admin_client"
FIND_VERSION: Final = 4
DESCRIBE_VERSION: Final = 0
OFFSET_FETCH_VERSION: Final = 8
PRODUCE_VERSION: Final = 9
GROUP, TRANSACTION = 0, 1
READY: Final = frozenset({ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})

# A time-out should not wait for a reaper that comes every 10 s.
COMMON: Final = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
}
EXPIRES_MS: Final = 1_500
"""The time after which unused ids expire in the setup BRIEF."""
MEMBERS_MAX: Final = 3
"""The size of a group in the setup GROUPS."""
OF_GROUPS: Final = {
    **COMMON,
    "group.max.size": str(MEMBERS_MAX),
    "group.consumer.max.size": str(MEMBERS_MAX),
    "group.consumer.assignment.interval.ms": "0",
}
SESSION_MS: Final = 3_600_000
"""The time after which a client of the listener AGAIN must authenticate anew."""
_LOGIN: Final = "org.apache.kafka.common.security"
PLAIN_LOGIN: Final = (
    f"{_LOGIN}.plain.PlainLoginModule required "
    'user_alice="of alice" user_bob="of bob" user_eve="of=eve,";'
)
SCRAM_LOGIN: Final = f"{_LOGIN}.scram.ScramLoginModule required;"
POLICY: Final = "group.consumer.migration.policy"


def _of_sasl(logins: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of listeners with these mechanisms."""
    return {
        **COMMON,
        "sasl.enabled.mechanisms": ",".join(logins).upper(),
        "connection.failed.authentication.delay.ms": "20",
        **{
            f"listener.name.{listener}.{mechanism}.sasl.jaas.config": login
            for listener in ("sasl_plaintext", "again")
            for mechanism, login in logins.items()
        },
        **{
            f"listener.name.again.{mechanism}.connections.max.reauth.ms": str(SESSION_MS)
            for mechanism in logins
        },
    }


SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    SHARED: COMMON,
    GIVING_UP: COMMON,
    BRIEF: {
        **COMMON,
        "transactional.id.expiration.ms": str(EXPIRES_MS),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
        "producer.id.expiration.ms": str(EXPIRES_MS),
        "producer.id.expiration.check.interval.ms": "100",
    },
    GROUPS: OF_GROUPS,
    **{with_policy(policy): {**OF_GROUPS, POLICY: policy} for policy in POLICIES[1:]},
    SECURED: {
        **OF_GROUPS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;{PRINCIPAL.format(CHIEF)}",
        "ssl.client.auth": "required",
        "transaction.two.phase.commit.enable": "true",
    },
    SASL: _of_sasl({"plain": PLAIN_LOGIN}),
    SCRAM: _of_sasl(
        {"plain": PLAIN_LOGIN, "scram-sha-256": SCRAM_LOGIN, "scram-sha-512": SCRAM_LOGIN}
    ),
}
LISTENERS: Final[Mapping[str, Sequence[str]]] = {
    SECURED: ("SSL",),
    SASL: ("SASL_PLAINTEXT", "AGAIN:SASL_PLAINTEXT"),
    SCRAM: ("SASL_PLAINTEXT", "AGAIN:SASL_PLAINTEXT"),
}
"""The listeners of a setup beside the plain one."""
KAFKAS: Final[Mapping[str, Mapping[str, str]]] = {
    setup: {"group.consumer.assignor.offload.enable": "false"}
    for setup in SETTINGS
    if setup.startswith((GROUPS, SECURED))
}
"""Settings that only a real Kafka has: an assignment is in the answer to the request for it."""
OURS: Final = {"log.flush": "os"}
"""Only answers are compared: nothing here needs to survive a power cut."""
WAIT_MS: Final = "100"
NO_WAIT_MS: Final = "1"
"""The wait in the setup GIVING_UP, where decided transactions never end. A request that waits long
and one that is retried get the same last answer."""


class Address(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


@dataclass(frozen=True, slots=True)
class SecuredAddress:
    """The address of a broker for super users, and the doors for others."""

    host: str
    port: int
    doors: Doors


class Startable(Address, Protocol):
    def start(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Setup:
    """A running broker, and the setups whose stories can run on it."""

    serves: Collection[str]
    broker: Address


class GivingUp(RunningBroker):
    """A broker whose coordinator gives up (`held.py`)."""

    command = (sys.executable, "-m", "tests.judge.held", "serve")


Open = Callable[[str, Iterable[Story]], contextlib.AbstractContextManager[Setup]]


@contextlib.contextmanager
def our_setup(setup: str, stories: Iterable[Story]) -> Iterator[Setup]:
    """Run our broker with the settings and records of a setup."""
    kind = GivingUp if setup == GIVING_UP else RunningBroker
    wait_ms = NO_WAIT_MS if setup == GIVING_UP else WAIT_MS
    if setup in LISTENERS:
        with _our_secured_setup(setup, stories) as secured:
            yield secured
        return
    config = {**SETTINGS[setup], **OURS, "transaction.concurrent.wait.ms": wait_ms}
    with run_broker(config=config, kind=kind) as broker:
        if _prepare(broker, setup, stories):
            broker.restart()
            _wait_until_coordinating(broker)
        yield Setup([setup], broker)


@contextlib.contextmanager
def kafka_setup(setup: str, stories: Iterable[Story]) -> Iterator[Setup]:
    """Run a real Kafka with the settings and records of a setup."""
    if setup in LISTENERS:
        with _secured_kafka_setup(setup, stories) as secured:
            yield secured
        return
    with RealKafka(settings={**SETTINGS[setup], **KAFKAS.get(setup, {})}) as kafka:
        if _prepare(kafka, setup, stories):
            kafka.stop()
            kafka.start()
            _wait_until_coordinating(kafka)
        yield Setup(served_by(setup), kafka)


class SecuredBroker(RunningBroker):
    """A broker with further listeners."""

    further: ClassVar[Sequence[str]] = ("SSL",)
    """Their protocols, or NAME:PROTOCOL."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        names = [each.partition(":")[0] for each in self.further]
        self.port, *ports = free_ports(1 + len(names))
        self.ports = dict(zip(names, ports, strict=True))

    @property
    def listening(self) -> Sequence[str]:
        ports = {"PLAINTEXT": self.port, **self.ports}
        listeners = ",".join(f"{name}://{HERE}:{port}" for name, port in ports.items())
        protocols = ",".join(
            f"{each.partition(':')[0]}:{each.rpartition(':')[2]}"
            for each in ("PLAINTEXT", *self.further)
        )
        return (
            *("--set", f"listeners={listeners}"),
            *("--set", f"listener.security.protocol.map={protocols}"),
        )


class SaslBroker(SecuredBroker):
    further = LISTENERS[SASL]


@contextlib.contextmanager
def _our_secured_setup(setup: str, stories: Iterable[Story]) -> Iterator[Setup]:
    kind = SecuredBroker if setup == SECURED else SaslBroker
    with tempfile.TemporaryDirectory() as name:
        settings = {**SETTINGS[setup], **_of_tls(Path(name)), **OURS}
        with run_broker(config=settings, kind=kind) as broker:
            assert isinstance(broker, SecuredBroker)
            _prepare(broker, setup, stories)
            if setup == SCRAM:
                make_scram_users(broker.address)
            doors = Doors(broker.ports, Path(name))
            yield Setup([setup], SecuredAddress(broker.host, broker.port, doors))


@contextlib.contextmanager
def _secured_kafka_setup(setup: str, stories: Iterable[Story]) -> Iterator[Setup]:
    with tempfile.TemporaryDirectory() as name:
        settings = {
            **SETTINGS[setup],
            **KAFKAS.get(setup, {}),
            **_of_tls(Path(name)),
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "unstable.api.versions.enable": "true",
        }
        with RealKafka(settings=settings, listeners=LISTENERS[setup]) as kafka:
            _prepare(kafka, setup, stories)
            if setup == SCRAM:
                make_scram_users(kafka.address)
            doors = Doors(kafka.ports, Path(name))
            yield Setup([setup], SecuredAddress(kafka.host, kafka.port, doors))


def _of_tls(directory: Path) -> dict[str, str]:
    """Make certificates, and return the settings of a broker that has one of them."""
    make_certificates(directory)
    return {
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.location": str(directory / "ca.crt"),
    }


def served_by(setup: str) -> Collection[str]:
    """Return the setups with the same settings of Kafka: some differ only in our broker's."""
    return [name for name, settings in SETTINGS.items() if settings == SETTINGS[setup]]


def _prepare(broker: RunningBroker | RealKafka, setup: str, stories: Iterable[Story]) -> bool:
    """Make the state topics and write the stories' records. Return True if there were any."""
    _wait_until_coordinating(broker)
    line = Line(broker.host, broker.port, ADMIN_CLIENT)
    try:
        here = [story for story in stories if story.setup in served_by(setup)]
        records = records_to_plant(here)
        for partition, of_partition in records.items():
            _plant(line, partition, of_partition)
        return bool(records)
    finally:
        line.close()


def records_to_plant(stories: Iterable[Story]) -> dict[int, list[Record]]:
    """Return the records that the stories need, by partition of the state topic."""
    records: dict[int, list[Record]] = {}
    for story in stories:
        for prefix, (name, value) in itertools.product(story.prefixes, story.planted.items()):
            wire = prefix + name
            key = encode_key(TransactionLogKey(transactional_id=wire))
            record = Record(key=key, value=encode_value(value), timestamp_ms=1)
            records.setdefault(state_partition(wire, STATE_PARTITIONS), []).append(record)
    return records


def _plant(line: Line, partition: int, records: list[Record]) -> None:
    data = PartitionProduceData(index=partition, records=encode_batch(records))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=(TopicProduceData(name=TRANSACTION_STATE_TOPIC, partition_data=(data,)),),
    )
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:  # a real Kafka's coordinator is ready before each partition of its topic is
        answer = line.ask(PRODUCE, PRODUCE_VERSION, request).responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            return
        assert time.monotonic() < give_up, (partition, answer)


def _wait_until_coordinating(broker: Address) -> None:
    """Wait until every partition of the state topics is loaded.

    FindCoordinator makes the topics, and returns an error until they exist. Then the coordinators
    read them, and return an error for each partition until it is read.
    """
    ids = _one_of_each_partition()
    groups = tuple(OffsetFetchRequestGroup(group_id=group, topics=None) for group in ids)
    line = Line(broker.host, broker.port)
    try:
        for key_type in (GROUP, TRANSACTION):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=ids)
            _ask_until_ready(line, FIND_COORDINATOR, FIND_VERSION, find, lambda r: r.coordinators)
        describe = DescribeTransactionsRequest(transactional_ids=ids)
        _ask_until_ready(
            line, DESCRIBE_TRANSACTIONS, DESCRIBE_VERSION, describe, lambda r: r.transaction_states
        )
        fetch = OffsetFetchRequest(groups=groups)
        _ask_until_ready(line, OFFSET_FETCH, OFFSET_FETCH_VERSION, fetch, lambda r: r.groups)
    finally:
        line.close()


def _one_of_each_partition() -> tuple[str, ...]:
    """Return an unused id for every partition of the state topics."""
    found: dict[int, str] = {}
    for number in itertools.count():
        found.setdefault(state_partition(f"k{number}", STATE_PARTITIONS), f"k{number}")
        if len(found) == STATE_PARTITIONS:
            return tuple(found.values())
    raise AssertionError


def _ask_until_ready(
    line: Line,
    api: Api[Any, Any],
    version: int,
    request: object,
    results: Callable[[Any], Iterable[Any]],
) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not {r.error_code for r in results(line.ask(api, version, request))} <= READY:
        assert time.monotonic() < give_up, api.name
