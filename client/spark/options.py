"""The data source's options: how they are read and checked, and the messages of refused options.

They have the names of Spark's Kafka connector, so a job changes only the name of the format. Spark
passes the names in lower case (`option_names.py`). An option of the connector that this source does
not have is refused and not ignored, because a job may rely on it. The few that a job cannot rely on
have no effect (`READ_WITHOUT_EFFECT`, `WRITE_WITHOUT_EFFECT`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final, Literal, TypeVar, cast

from odradek.client.config import (
    KIB,
    MIB,
    ClientConfig,
    ClientOptions,
    ConsumerConfig,
    ConsumerOptions,
    ProducerConfig,
    ProducerOptions,
)
from odradek.client.security_settings import take_setting, used_options
from odradek.client.spark.offsets import (
    EndingOffsets,
    OffsetError,
    Offsets,
    StartingOffsets,
    parse_assignment,
    parse_offsets,
)
from odradek.client.spark.option_names import (
    NAMES,
    OF_SPARK,
    TIMES_OF_JAVA,
    Direction,
    near_to,
    not_served,
)
from odradek.client.spark.option_values import (
    Mode,
    NotAWord,
    boolean,
    bootstrap,
    codec,
    duration_ms,
    exactly,
    isolation,
    mode,
    names,
    not_negative,
    pattern,
    positive,
    positive_int,
    prefix,
    strategy,
    topic_name,
)
from odradek.client.types import EARLIEST, LATEST, SPARK_PREFIX_DEFAULT
from odradek.late import dataclass
from odradek.protocol.batch import Codec

T = TypeVar("T")
D = TypeVar("D")
Use = Literal["batch", "stream"]

KAFKA: Final = "kafka."
"""How the names of options begin that are settings of Kafka's clients."""
PREFIX_DEFAULT: Final = SPARK_PREFIX_DEFAULT
INLINE_MAX_BYTES: Final = MIB
RELAY_MAX_TASK_BYTES: Final = 32 * MIB
RELAY_MAX_BYTES: Final = 256 * MIB
BATCH_MAX_BYTES: Final = 1000 * KIB
"""A little below 1,048,588 bytes, the default of a topic's max.message.bytes."""
POLL_TIMEOUT_MS: Final = 120_000
MEMBER_TIMEOUT_MS: Final = 15 * 60 * 1000
"""The time-out of a task's transaction: the most that brokers allow by default. It runs from the
latest request of any task of the same query, so only a write that makes a pause as long as this, or
that was given up, is aborted by it."""
NO_GROUPS: Final = (
    "The option exactlyOnce.mode is group, and the broker has no transaction groups: nothing is "
    "written. Leave the option out, so that the driver writes what tasks return (at most "
    "relay.max.task.bytes for each), or use Odradek as broker."
)
MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000
FIRST_CONNECT_MS: Final = 7_000
"""The time that a new read or write looks for a broker. With Spark's part, a wrong host is reported
within ten seconds. Each micro-batch opens connections, and the broker may restart just then. So a
read or write that has begun waits as long as a call may take (`max_block_ms`)."""


class OptionError(ValueError):
    """An option is wrong, missing or not served. The message is one sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The choice of the partitions that are read. Exactly one of the three is given."""

    assigned: tuple[tuple[str, int], ...] | None = None
    subscribed: tuple[str, ...] | None = None
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    bootstrap: str
    topics: Topics
    starting_offsets: StartingOffsets
    ending_offsets: EndingOffsets = LATEST
    fail_on_data_loss: bool = True
    include_headers: bool = False
    starting_times_ms: int | Offsets | None = None
    """Counts instead of `starting_offsets`: begin at the first record at or after this time."""
    ending_times_ms: int | Offsets | None = None
    """Counts instead of `ending_offsets`: end before the first record at or after this time."""
    is_latest_without_match: bool = False
    """Begin at the end of a partition that has no record at or after the time."""
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    client: ClientOptions = field(default_factory=ClientOptions, repr=False)
    """The options of each client of the reader. They may have secrets."""
    consumer: ConsumerOptions = field(default_factory=ConsumerOptions)
    """The further options of its consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A batch write that may run again. `version` grows, and each is written at most once."""

    application_id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    bootstrap: str
    topic: str | None = None
    include_headers: bool = True
    prefix: str = PREFIX_DEFAULT
    application: Application | None = None
    mode: Mode = "auto"
    """Whether tasks write in transactions of their own (group), or the driver writes for them
    (relay); by what the broker has (auto)."""
    inline_max_bytes: int = INLINE_MAX_BYTES
    task_max_bytes: int = RELAY_MAX_TASK_BYTES
    relay_max_bytes: int = RELAY_MAX_BYTES
    batch_max_bytes: int = BATCH_MAX_BYTES
    batch_full_bytes: int | None = None
    """A batch is closed before it has more than this, unless one record alone has more."""
    codec: Codec = Codec.NONE
    client: ClientOptions = field(default_factory=ClientOptions, repr=False)
    """The options of each client of the sink. They may have secrets."""
    producer: ProducerOptions = field(default_factory=ProducerOptions)
    """The further options of its producer."""


def read_options(options: Mapping[str, str], use: Use) -> ReadOptions:
    """Read the options of a read. Raises `OptionError`."""
    given = _Given(options, "read")
    security = given.security()
    starting, ending = _offsets(given, use)
    parsed = ReadOptions(
        bootstrap=given.bootstrap(),
        topics=_topics(given),
        starting_offsets=starting,
        ending_offsets=ending,
        fail_on_data_loss=given.get("failOnDataLoss", boolean, True),
        include_headers=given.get("includeHeaders", boolean, False),
        starting_times_ms=_times(given, "startingTimestamp", "startingOffsetsByTimestamp"),
        ending_times_ms=_times(given, "endingTimestamp", "endingOffsetsByTimestamp"),
        is_latest_without_match=given.get("startingOffsetsByTimestampStrategy", strategy, False),
        min_partitions=given.get("minPartitions", positive, None),
        max_records_per_partition=given.get("maxRecordsPerPartition", positive, None),
        min_offsets_per_trigger=_min_offsets(given, use),
        max_trigger_delay_ms=given.get("maxTriggerDelay", duration_ms, MAX_TRIGGER_DELAY_MS),
        max_offsets_per_trigger=given.get("maxOffsetsPerTrigger", positive, None),
        poll_timeout_ms=given.get("kafkaConsumer.pollTimeoutMs", positive, POLL_TIMEOUT_MS),
        client=cast(
            ClientOptions,
            security
            | {"first_connect_ms": None}
            | given.present(
                client_id=("kafka.client.id", str),
                request_timeout_ms=("kafka.request.timeout.ms", positive_int),
                retry_backoff_ms=("kafka.retry.backoff.ms", positive),
                max_block_ms=("kafka.default.api.timeout.ms", positive_int),
            ),
        ),
        consumer=cast(
            ConsumerOptions,
            given.present(
                isolation_level=("kafka.isolation.level", isolation),
                fetch_max_bytes=("kafka.fetch.max.bytes", positive_int),
                partition_fetch_bytes=("kafka.max.partition.fetch.bytes", positive_int),
                fetch_max_wait_ms=("kafka.fetch.max.wait.ms", positive_int),
                fetch_min_bytes=("kafka.fetch.min.bytes", positive_int),
                check_crcs=("kafka.check.crcs", boolean),
            ),
        ),
    )
    given.check_together(ConsumerConfig, {**parsed.client, **parsed.consumer})
    return parsed


def write_options(options: Mapping[str, str], use: Use) -> WriteOptions:
    """Read the options of a write. Raises `OptionError`."""
    given = _Given(options, "write")
    security = given.security()
    for name, values in (("kafka.acks", ("all", "-1")), ("kafka.enable.idempotence", ("true",))):
        given.get(name, exactly(*values), None)
    parsed = WriteOptions(
        bootstrap=given.bootstrap(),
        topic=given.get("topic", topic_name, None),
        include_headers=given.get("includeHeaders", boolean, True),
        prefix=given.get("transactionalIdPrefix", prefix, PREFIX_DEFAULT),
        application=_application(given, use),
        mode=given.get("exactlyOnce.mode", mode, "auto"),
        inline_max_bytes=given.get("inline.max.bytes", not_negative, INLINE_MAX_BYTES),
        task_max_bytes=given.get("relay.max.task.bytes", positive, RELAY_MAX_TASK_BYTES),
        relay_max_bytes=given.get("relay.max.bytes", positive, RELAY_MAX_BYTES),
        batch_max_bytes=given.get("kafka.max.request.size", positive_int, BATCH_MAX_BYTES),
        batch_full_bytes=given.get("kafka.batch.size", positive_int, None),
        codec=given.get("kafka.compression.type", codec, Codec.NONE),
        client=cast(
            ClientOptions,
            security
            | {"first_connect_ms": None}
            | given.present(
                client_id=("kafka.client.id", str),
                request_timeout_ms=("kafka.request.timeout.ms", positive_int),
                retry_backoff_ms=("kafka.retry.backoff.ms", positive),
                max_block_ms=("kafka.max.block.ms", positive),
            ),
        ),
        producer=cast(
            ProducerOptions,
            given.present(
                buffer_bytes=("kafka.buffer.memory", positive),
                delivery_timeout_ms=("kafka.delivery.timeout.ms", positive_int),
                transaction_timeout_ms=("kafka.transaction.timeout.ms", positive_int),
            ),
        ),
    )
    given.check_together(ProducerConfig, {**parsed.client, **parsed.producer})
    given.check_together(ConsumerConfig, {**parsed.client})  # it reads the decisions
    return parsed


class _Given:
    """The given options, of which all names are known."""

    def __init__(self, options: Mapping[str, str], direction: Direction) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        self._usual = {"fetch_max_wait_ms": "the wait of a fetch, 500 ms,"}
        """The words for the clients' own names in messages."""
        known = {name.lower() for name in NAMES[direction]}
        for name in sorted(self._values.keys() - known - OF_SPARK):
            if name.startswith(TIMES_OF_JAVA):
                continue
            raise OptionError(f"The option {not_served(name, direction)}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def get(self, name: str, parse: Callable[[str], T], default: D) -> T | D:
        """Return a parsed option. Raises `OptionError` if `parse` raises `ValueError`."""
        if name not in self:
            return default
        value = self._values[name.lower()]
        try:
            return parse(value.strip())
        except ValueError as error:
            near = near_to(value, error.words) if isinstance(error, NotAWord) else None
            hint = f": did you mean {near}?" if near else "."
            raise OptionError(f"The option {name} {error}, not {value!r}{hint}") from None

    def present(self, **names: tuple[str, Callable[[str], Any]]) -> dict[str, Any]:
        """Return the given ones of some options, by their names in the client."""
        self._usual |= {key: name for key, (name, _) in names.items()}
        return {
            key: self.get(name, parse, None) for key, (name, parse) in names.items() if name in self
        }

    def check_together(self, config: type[ClientConfig], options: Mapping[str, Any]) -> None:
        """Raise `OptionError` for values that a client would refuse when a task or commit begins.

        Its message has the client's own names.
        """
        try:
            config(**options)
        except ValueError as error:
            words = re.sub(r"\w+", lambda word: self._usual.get(word[0], word[0]), str(error))
            raise OptionError(f"The options do not suit the clients: {words}.") from None

    def bootstrap(self) -> str:
        if "kafka.bootstrap.servers" not in self:
            raise OptionError(
                "The option kafka.bootstrap.servers is missing: give it the address of a broker, "
                "HOST:PORT."
            )
        return self.get("kafka.bootstrap.servers", bootstrap, "")

    def security(self) -> dict[str, Any]:
        """Return the options of TLS and SASL, checked as on the driver. No message has a secret."""
        found: dict[str, Any] = {}
        try:
            for name, value in self._values.items():
                if name.startswith(KAFKA):
                    take_setting(name.removeprefix(KAFKA), value, found)
            used = used_options(found)
            ClientConfig(**used)
        except ValueError as error:
            raise OptionError(f"The options of TLS and SASL are wrong: {error}.") from None
        is_plain = used["security_protocol"] == "PLAINTEXT"
        return {} if is_plain else dict(used)


def _topics(given: _Given) -> Topics:
    chosen = [name for name in ("assign", "subscribe", "subscribePattern") if name in given]
    if len(chosen) != 1:
        raise OptionError(
            "Give exactly one of the options assign, subscribe and subscribePattern, "
            f"not {' and '.join(chosen) or 'none'}."
        )
    return Topics(
        assigned=given.get("assign", _assignment, None),
        subscribed=given.get("subscribe", names, None),
        pattern=given.get("subscribePattern", pattern, None),
    )


def _offsets(given: _Given, use: Use) -> tuple[StartingOffsets, EndingOffsets]:
    if use == "stream":
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in given:
                raise OptionError(f"The option {name} belongs to batch reads: leave it out.")
        parse = _offsets_of({"earliest": EARLIEST, "latest": LATEST}, (EARLIEST, LATEST))
        return given.get("startingOffsets", parse, LATEST), LATEST
    parse_start = _offsets_of({"earliest": EARLIEST}, (EARLIEST,))
    parse_end = _offsets_of({"latest": LATEST}, (LATEST,))
    return (
        given.get("startingOffsets", parse_start, EARLIEST),
        given.get("endingOffsets", parse_end, LATEST),
    )


def _times(given: _Given, for_all: str, for_each: str) -> int | Offsets | None:
    """Read times in milliseconds since 1970, of all partitions or of each."""
    everywhere = given.get(for_all, not_negative, None)
    if everywhere is not None:
        return everywhere
    return given.get(for_each, _times_by_partition, None)


def _in_json(what: str, sample: str, parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return `parse` with an error that shows a sample, and says where the JSON is wrong."""

    def parse_json(value: str) -> T:
        try:
            return parse(value)
        except OffsetError as error:
            is_json = value.startswith(("{", "["))
            why = f" ({error})" if is_json else ""
            raise ValueError(f'is {what}, as in {{"orders":{sample}}}{why}') from None

    return parse_json


_assignment: Final = _in_json("partitions in JSON", "[0,1]", parse_assignment)
_times_by_partition: Final = _in_json(
    "times in JSON, in milliseconds since 1970",
    '{"0":1700000000000}',
    lambda value: parse_offsets(value, allowed=()),
)


def _min_offsets(given: _Given, use: Use) -> int | None:
    least = given.get("minOffsetsPerTrigger", positive, None)
    most = given.get("maxOffsetsPerTrigger", positive, None)
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"The option minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger {most}: give the "
            "first a smaller number."
        )
    return least if use == "stream" else None


def _offsets_of(words: dict[str, int], numbers: tuple[int, ...]) -> Callable[[str], int | Offsets]:
    parse_json = _in_json(
        f"{' or '.join(words)} here, or offsets in JSON",
        '{"0":23}',
        lambda value: parse_offsets(value, allowed=numbers),
    )

    def parse(value: str) -> int | Offsets:
        if value.lower() in words:
            return words[value.lower()]
        try:
            return parse_json(value)
        except ValueError as error:
            raise NotAWord(str(error), words) from None

    return parse


def _application(given: _Given, use: Use) -> Application | None:
    names = ("txnAppId", "txnVersion")
    present = [name for name in names if name in given]
    if not present:
        return None
    if use == "stream":
        raise OptionError(
            f"The option {present[0]} belongs to batch writes: a streaming query has an id and "
            "numbered batches of its own."
        )
    if len(present) == 1:
        raise OptionError("The options txnAppId and txnVersion go together: give both or none.")
    return Application(
        application_id=given.get("txnAppId", prefix, ""),
        version=given.get("txnVersion", not_negative, 0),
    )
