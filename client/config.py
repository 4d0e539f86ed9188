"""The options of producers, consumers and admins, with their defaults and bounds.

The docstrings of `Producer`, `Consumer` and `Admin` describe each option for users. A test compares
the names and the defaults. Each dataclass checks its values, so a wrong option raises when the
object is made, and not when it is used. The typed dictionaries repeat the names for code that
passes options on, such as the blocking classes, so that the options keep their types.

Time, randomness, the network and threads are options too, so that a simulation can replace them.
"""

import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, fields
from os import PathLike
from typing import Any, Final, Literal, Protocol, TypeVar

import trio

from odradek.client.network import Connect, connect_tcp
from odradek.client.options import check_kinds, check_one_of, known_as
from odradek.client.security_options import SecurityArguments, SecurityOptions
from odradek.client.statistics import OnConsumerStatistics, OnProducerStatistics
from odradek.client.tracing import Tracer
from odradek.client.types import ASSIGNOR_NAMES, AssignorName
from odradek.late import dataclass
from odradek.protocol.batch import Codec

Isolation = Literal["read_committed", "read_uncommitted"]
Order = Literal["offset", "commit"]
OffsetReset = Literal["earliest", "latest", "error"]
GroupProtocol = Literal["consumer", "classic"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Acks = Literal["all", -1, 0, 1]
CODECS: Final[dict[str, Codec]] = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
MAX_IN_FLIGHT: Final = 5
"""Requests under way for each connection. A broker recognises this many batches as repeated."""

KIB: Final = 1024
MIB: Final = 1024 * KIB


Offload = Callable[[Callable[[], Any]], Awaitable[Any]]
"""A function that calls a slow function without blocking the event loop."""


async def in_thread(function: Callable[[], Any]) -> Any:
    """Call `function` in a thread of trio's pool: the `Offload` of a program with trio."""
    return await trio.to_thread.run_sync(function)


class Partitioner(Protocol):
    """A function that returns the partition of a record. It gets topic, key and partition count."""

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int: ...


def system_wall_ms() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def parse_bootstrap(bootstrap: str | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Read `"host:port"`, several separated by commas, or a sequence of them; IPv6 in brackets.

    Raises ValueError.
    """
    addresses = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    return tuple(_parse_address(address.strip()) for address in addresses)


def _parse_address(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"a broker's address is HOST:PORT, and {address!r} is not")
    return host, int(port)


def _at_least(minimum: float, **values: float) -> None:
    for name, value in values.items():
        if not value >= minimum:  # nor is NaN
            raise ValueError(f"{name} is at least {minimum}, and {value} was given")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(SecurityOptions):
    """The options of every client."""

    client_id: str = "odradek"
    request_timeout_ms: int = 30_000
    retry_backoff_ms: float = 20
    retry_backoff_max_ms: float = 1_000
    metadata_max_age_ms: int = 300_000
    max_block_ms: int = 60_000
    first_connect_ms: int | None = 10_000
    connect: Connect = connect_tcp
    wall_ms: Callable[[], int] = system_wall_ms
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        check_kinds(self)
        _at_least(
            1,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
            metadata_max_age_ms=self.metadata_max_age_ms,
            max_block_ms=self.max_block_ms,
            first_connect_ms=1 if self.first_connect_ms is None else self.first_connect_ms,
        )
        self.check_security()
        if self.has_tls and self.connect is not connect_tcp:
            raise ValueError(
                "connect replaces the network with its TLS: leave security_protocol out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The options of a producer."""

    transactional_id: str | None = None
    acks: Acks = "all"
    idempotent: bool | None = None
    linger_ms: float = 0
    batch_bytes: int = 64 * KIB
    request_bytes: int = 1 * MIB
    compression: Compression = "none"
    buffer_bytes: int = 32 * MIB
    delivery_timeout_ms: int = 120_000
    flush_on_error: bool = True
    transaction_timeout_ms: int = 60_000
    two_phase_commit: bool = False
    keep_prepared: bool = False
    partitioner: Partitioner | None = None
    tracer: Tracer | None = None
    on_statistics: OnProducerStatistics | None = None
    statistics_interval_ms: float = 10_000

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        _at_least(1, statistics_interval_ms=self.statistics_interval_ms)
        check_one_of(("all", -1, 0, 1), acks=self.acks)
        check_one_of(tuple(CODECS), compression=self.compression)
        _at_least(0, linger_ms=self.linger_ms)
        _at_least(
            1,
            delivery_timeout_ms=self.delivery_timeout_ms,
            transaction_timeout_ms=self.transaction_timeout_ms,
        )
        _at_least(KIB, batch_bytes=self.batch_bytes, request_bytes=self.request_bytes)
        _at_least(self.batch_bytes, buffer_bytes=self.buffer_bytes)
        if self.tracer is not None and not hasattr(self.tracer, "start_span"):
            raise ValueError(
                f"tracer is what opentelemetry.trace.get_tracer returns, or None, and "
                f"{self.tracer!r} was given"
            )
        if self.transactional_id == "":
            raise ValueError("transactional_id is a str of at least one character, or None")
        if not self.waits_for_all and (self.idempotent or self.transactional_id is not None):
            raise ValueError('idempotence and transactions need acks="all"')
        if self.transactional_id is None and (self.two_phase_commit or self.keep_prepared):
            raise ValueError("two_phase_commit and keep_prepared need a transactional_id")
        if self.transactional_id is not None and self.idempotent is False:
            raise ValueError("a transactional producer is idempotent: leave idempotent out")

    @property
    def waits_for_all(self) -> bool:
        return self.acks in ("all", -1)

    @property
    def is_idempotent(self) -> bool:
        return self.waits_for_all if self.idempotent is None else self.idempotent

    @property
    def acks_number(self) -> int:
        return -1 if self.acks == "all" else self.acks

    def sends_rest(self, exc: BaseException | None) -> bool:
        """Return True if a producer that is left by `exc` sends what it has first.

        A cancellation and Ctrl-C must end quickly, and a transaction that is left by an exception
        aborts.
        """
        if exc is None:
            return True
        is_error = isinstance(exc, Exception)
        return is_error and self.flush_on_error and self.transactional_id is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicOptions:
    """The options that a member has only in the classic protocol, and their defaults."""

    partition_assignors: Sequence[AssignorName] = ("cooperative-sticky",)
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000


_BROKERS_OWN: Final = {
    "partition_assignors": "group.consumer.assignors (group_remote_assignor chooses one of them)",
    "session_timeout_ms": "group.consumer.session.timeout.ms",
    "heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
}
"""The options of `ClassicOptions`, and what decides about the same in the new protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The options of a consumer."""

    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: GroupProtocol | None = None
    group_remote_assignor: str | None = None
    client_rack: str | None = None
    partition_assignors: Sequence[AssignorName] | None = None
    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    max_poll_interval_ms: int = 300_000
    enable_auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    isolation_level: Isolation = "read_committed"
    order: Order = "offset"
    transaction_buffer_bytes: int = 64 * MIB
    spill_directory: str | PathLike[str] | None = None
    auto_offset_reset: OffsetReset = "earliest"
    fetch_max_bytes: int = 16 * MIB
    partition_fetch_bytes: int = 1 * MIB
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    max_poll_records: int = 5_000
    prefetch_bytes: int = 32 * MIB
    check_crcs: bool = True
    offload: Offload = in_thread
    on_statistics: OnConsumerStatistics | None = None
    statistics_interval_ms: float = 10_000

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        _at_least(1, statistics_interval_ms=self.statistics_interval_ms)
        check_one_of(("read_committed", "read_uncommitted"), isolation_level=self.isolation_level)
        check_one_of(("offset", "commit"), order=self.order)
        if self.is_in_commit_order and self.isolation_level != "read_committed":
            raise ValueError('order="commit" returns committed records: leave isolation_level out')
        _at_least(0, transaction_buffer_bytes=self.transaction_buffer_bytes)
        check_one_of(("earliest", "latest", "error"), auto_offset_reset=self.auto_offset_reset)
        _at_least(0, fetch_max_wait_ms=self.fetch_max_wait_ms, fetch_min_bytes=self.fetch_min_bytes)
        _at_least(
            1,
            fetch_max_bytes=self.fetch_max_bytes,
            partition_fetch_bytes=self.partition_fetch_bytes,
            max_poll_records=self.max_poll_records,
            prefetch_bytes=self.prefetch_bytes,
        )
        _at_least(
            1,
            session_timeout_ms=self.classic.session_timeout_ms,
            heartbeat_interval_ms=self.classic.heartbeat_interval_ms,
            max_poll_interval_ms=self.max_poll_interval_ms,
            auto_commit_interval_ms=self.auto_commit_interval_ms,
        )
        check_one_of(("consumer", "classic", None), group_protocol=self.group_protocol)
        self._check_protocol()
        if self.classic.heartbeat_interval_ms >= self.classic.session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be less than session_timeout_ms")
        assignors = self.classic.partition_assignors
        if isinstance(assignors, str) or not isinstance(assignors, Sequence) or not assignors:
            raise ValueError(
                f"partition_assignors is a sequence of at least one name, and {assignors!r} was "
                f"given"
            )
        for name in assignors:
            check_one_of(ASSIGNOR_NAMES, partition_assignors=name)
        if self.group_id is None and (self.enable_auto_commit or self.group_instance_id):
            raise ValueError("enable_auto_commit and group_instance_id need a group_id")
        if self.client_rack == "":
            raise ValueError("client_rack is a str of at least one character, or None")
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ValueError("fetch_max_wait_ms must be less than request_timeout_ms")

    def _check_protocol(self) -> None:
        """Raise ValueError if an option belongs to the other protocol."""
        assignor, classic = self.group_remote_assignor, self._given_of_classic()
        if assignor is not None and not (isinstance(assignor, str) and assignor):
            raise ValueError("group_remote_assignor is a name, such as 'uniform', or None")
        if assignor is not None and self.group_protocol == "classic":
            raise ValueError(
                'group_remote_assignor belongs to group_protocol="consumer"; with "classic" the '
                "members divide the partitions (partition_assignors)"
            )
        if classic and (self.group_protocol == "consumer" or assignor is not None):
            raise ValueError(
                f'{classic[0]} belongs to group_protocol="classic"; with "consumer" the broker '
                f"decides: its settings {_BROKERS_OWN[classic[0]]}, or those of the group"
            )

    def _given_of_classic(self) -> list[str]:
        return [name for name in _BROKERS_OWN if getattr(self, name) is not None]

    @property
    def chosen_protocol(self) -> GroupProtocol | None:
        """The group protocol that the options ask for; None if the broker decides."""
        if self.group_protocol is None and self._given_of_classic():
            return "classic"
        if self.group_protocol is None and self.group_remote_assignor is not None:
            return "consumer"
        return self.group_protocol

    @property
    def classic(self) -> ClassicOptions:
        """The options of the classic protocol, with their defaults."""
        given = {name: getattr(self, name) for name in self._given_of_classic()}
        return ClassicOptions(**given)

    @property
    def is_in_commit_order(self) -> bool:
        return self.order == "commit"


Config = TypeVar("Config", bound=ClientConfig)
FUNCTIONS: Final[dict[type[ClientConfig], tuple[str, ...]]] = {
    ClientConfig: (),
    ProducerConfig: ("key_serializer", "value_serializer"),
    ConsumerConfig: ("key_deserializer", "value_deserializer", "on_error"),
}
"""The options that a class has beside those of its configuration."""


def read_options(kind: type[Config], of: str, options: Mapping[str, Any]) -> Config:
    """Return the configuration of a client of the class `of`.

    Raises TypeError for an option that it does not have, with the one that may be meant, and
    ValueError for a wrong value.
    """
    names = [each.name for each in fields(kind)]
    for name in options:
        if name not in names:
            raise TypeError(f"{of} {known_as(name, [*names, *FUNCTIONS[kind]])}")
    return kind(**options)


class ClientOptions(SecurityArguments, total=False):
    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    metadata_max_age_ms: int
    max_block_ms: int
    first_connect_ms: int | None
    connect: Connect
    wall_ms: Callable[[], int]
    rng: random.Random


class PoolOptions(ClientOptions, total=False):
    acks: Acks
    idempotent: bool | None
    linger_ms: float
    batch_bytes: int
    request_bytes: int
    compression: Compression
    buffer_bytes: int
    delivery_timeout_ms: int
    flush_on_error: bool
    transaction_timeout_ms: int
    partitioner: Partitioner | None
    tracer: Tracer | None
    on_statistics: OnProducerStatistics | None
    statistics_interval_ms: float


class ProducerOptions(PoolOptions, total=False):
    transactional_id: str | None
    two_phase_commit: bool
    keep_prepared: bool


class ConsumerOptions(ClientOptions, total=False):
    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocol | None
    group_remote_assignor: str | None
    client_rack: str | None
    partition_assignors: Sequence[AssignorName] | None
    session_timeout_ms: int | None
    heartbeat_interval_ms: int | None
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: Isolation
    order: Order
    transaction_buffer_bytes: int
    spill_directory: str | PathLike[str] | None
    auto_offset_reset: OffsetReset
    fetch_max_bytes: int
    partition_fetch_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    max_poll_records: int
    prefetch_bytes: int
    check_crcs: bool
    offload: Offload
    on_statistics: OnConsumerStatistics | None
    statistics_interval_ms: float


def pool_config(of: str, prefix: str, size: int, options: PoolOptions) -> ProducerConfig:
    """Return the configuration of a pool's first producer. Raises as `read_options` does."""
    if not isinstance(prefix, str) or not prefix:
        raise ValueError(f"prefix is a str of at least one character, and {prefix!r} was given")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f"size is a whole number of producers, at least 1, and not {size!r}")
    for name in ("transactional_id", "two_phase_commit", "keep_prepared"):
        if name in options:
            raise TypeError(f"{of} has no option {name!r}: its ids are the prefix and a number")
    return read_options(ProducerConfig, of, {**options, "transactional_id": f"{prefix}-0"})
