"""The names of the options: those that are served, and the reasons why others are refused.

Spark passes names in lower case. Messages have the usual spelling, and a misspelled name gets its
capital letters back from the name that was meant.
"""

import difflib
from collections.abc import Iterable
from typing import Final, Literal

from odradek.client import security_settings

Direction = Literal["read", "write"]

TIMES_OF_JAVA: Final = tuple(f"kafka.{start}" for start in security_settings.TIMES_OF_JAVA)
"""How further names begin, which have no effect."""
OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""The options that Spark itself adds."""

READ_WITHOUT_EFFECT: Final = (
    "groupIdPrefix",
    "kafka.group.id",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafka.max.poll.records",
    "kafka.max.poll.interval.ms",
    "kafka.session.timeout.ms",
    "kafka.heartbeat.interval.ms",
    "kafka.receive.buffer.bytes",
    "kafka.send.buffer.bytes",
)
"""Options of the connector's reader that are accepted and have no effect: no consumer group takes
part, records are not handed out one by one, and what fails is retried until
`kafka.default.api.timeout.ms` is over."""
WRITE_WITHOUT_EFFECT: Final = (
    "kafka.linger.ms",
    "kafka.retries",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.receive.buffer.bytes",
    "kafka.send.buffer.bytes",
)
"""Options of the connector's sink that are accepted and have no effect. A task has its rows at
hand, so it fills batches without waiting; what fails is retried until `kafka.delivery.timeout.ms`
is over; order holds with any number of requests in flight."""
READ_NAMES: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "failOnDataLoss",
    "includeHeaders",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "kafkaConsumer.pollTimeoutMs",
)
WRITE_NAMES: Final = (
    "topic",
    "includeHeaders",
    "transactionalIdPrefix",
    "txnAppId",
    "txnVersion",
    "exactlyOnce.mode",
    "inline.max.bytes",
    "relay.max.task.bytes",
    "relay.max.bytes",
)
COMMON_KAFKA_NAMES: Final = (
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.request.timeout.ms",
    "kafka.retry.backoff.ms",
    *(f"kafka.{name}" for name in security_settings.NAMES),
)
READ_KAFKA_NAMES: Final = (
    *COMMON_KAFKA_NAMES,
    "kafka.isolation.level",
    "kafka.fetch.max.bytes",
    "kafka.max.partition.fetch.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.check.crcs",
    "kafka.default.api.timeout.ms",
    *READ_WITHOUT_EFFECT,
)
WRITE_KAFKA_NAMES: Final = (
    *COMMON_KAFKA_NAMES,
    "kafka.acks",
    "kafka.enable.idempotence",
    "kafka.compression.type",
    "kafka.max.request.size",
    "kafka.batch.size",
    "kafka.buffer.memory",
    "kafka.delivery.timeout.ms",
    "kafka.max.block.ms",
    "kafka.transaction.timeout.ms",
    *WRITE_WITHOUT_EFFECT,
)
NAMES: Final[dict[Direction, tuple[str, ...]]] = {
    "read": READ_NAMES + READ_KAFKA_NAMES,
    "write": WRITE_NAMES + WRITE_KAFKA_NAMES,
}

_SERIALIZERS: Final = "is not served: keys and values are bytes, and the query itself converts them"
_NO_GROUP: Final = (
    "is not served: the checkpoint keeps the position, and no consumer group takes part"
)
REFUSED: Final[dict[str, str]] = {
    "kafka.enable.auto.commit": _NO_GROUP,
    "kafka.auto.offset.reset": "is not served: use startingOffsets",
    "kafka.key.deserializer": _SERIALIZERS,
    "kafka.value.deserializer": _SERIALIZERS,
    "kafka.key.serializer": _SERIALIZERS,
    "kafka.value.serializer": _SERIALIZERS,
    "kafka.interceptor.classes": "is not served: this source runs no Java classes",
    "kafka.partitioner.class": "is not served: give the row a partition column",
    "kafka.transactional.id": "is not served: the sink makes its own; see transactionalIdPrefix",
    "path": 'is not served: name topics by the option "topic", or "subscribe" to read',
}

NEAR: Final = 0.7
"""The likeness from which a word is taken for a misspelled one. `latest` is not `earliest`."""


def not_served(name: str, direction: Direction) -> str:
    """Return a name in its usual spelling, and why the option is refused."""
    reasons = {other.lower(): (other, reason) for other, reason in REFUSED.items()}
    if name in reasons:
        return "{} {}.".format(*reasons[name])
    near = near_to(name, NAMES[direction])
    if near:
        return f"{spelled_as(name, near)} is not served here: did you mean {near}?"
    for other, others in NAMES.items():
        near = near_to(name, others)
        if near and near.lower() == name:
            return f"{near} belongs to a {other}: leave it out."
        if near:
            return f"{spelled_as(name, near)} is not served here: leave it out."
    return f"{name} is not served here: leave it out."


def near_to(given: str, words: Iterable[str]) -> str | None:
    """Return the word that was probably meant, or None."""
    by_lower_case = {word.lower(): word for word in words}
    found = difflib.get_close_matches(given.lower(), by_lower_case, n=1, cutoff=NEAR)
    return by_lower_case[found[0]] if found else None


def spelled_as(name: str, near: str) -> str:
    """Return a lower-case name with the capital letters that it shares with a similar one."""
    letters = list(name)
    matcher = difflib.SequenceMatcher(a=name, b=near.lower(), autojunk=False)
    for start, start_near, size in matcher.get_matching_blocks():
        letters[start : start + size] = near[start_near : start_near + size]
    return "".join(letters)
