"""The agent over confluent-kafka: `python -m tests.compat.confluent_agent`; see `agents.py`."""

import sys
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.compat.agent import (
    EVERY_THIRD,
    LONGEST_POLL_MS,
    NO_INSTANCE,
    SHORT_SESSION_MS,
    Agent,
    given_settings,
    say,
)

TIMEOUT_SECONDS: Final = 30.0
QUICK: Final[dict[str, Any]] = {  # how soon a broker that died is looked for again
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    # With the default, send_offsets_to_transaction waits for ever once all brokers were gone: what
    # is remembered of the group's coordinator is a connection that was given up (librdkafka 5511).
    "metadata.recovery.strategy": "none",
    **given_settings(),
}
REFUSALS: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)


class ConfluentAgent(Agent):
    """The producers of one process, by name."""

    def __init__(self) -> None:
        self._producers: dict[str, Producer] = {}
        self._bootstrap = ""

    refusal = KafkaException

    def kind_of(self, refused: Exception) -> str:
        error: KafkaError = refused.args[0]
        return error.name()

    def do_open(self, name: str, bootstrap: str, transactional_id: str, timeout_ms: str) -> None:
        self._bootstrap = bootstrap
        self._producers[name] = _opened(bootstrap, transactional_id, int(timeout_ms))

    def do_begin(self, name: str) -> None:
        self._producers[name].begin_transaction()

    def do_commit(self, name: str) -> None:
        _until_done(self._producers[name].commit_transaction)

    def do_abort(self, name: str) -> None:
        _until_done(self._producers[name].abort_transaction)

    def do_send(self, name: str, topic: str, partition: str, value: str) -> int:
        sender = self._producers[name]
        answers: list[tuple[KafkaError | None, int | None]] = []

        def answered(error: KafkaError | None, message: "Message[bytes, bytes]") -> None:
            answers.append((error, message.offset()))

        sender.produce(topic, value.encode(), partition=int(partition), on_delivery=answered)
        try:
            sender.flush(TIMEOUT_SECONDS)
        except SystemError as crashed:  # confluent-kafka raises a fatal error inside the callback
            if isinstance(crashed.__cause__, KafkaException):
                raise crashed.__cause__ from None
            raise
        ((error, offset),) = answers
        if error is not None:
            raise KafkaException(error)
        assert offset is not None
        return offset

    def do_offsets(self, name: str, group: str, topic: str, partition: str, offset: str) -> None:
        places = [TopicPartition(topic, int(partition), int(offset))]
        stranger = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, **QUICK})
        metadata = stranger.consumer_group_metadata()  # of a group that nobody has joined
        sender = self._producers[name]
        _until_done(lambda t: sender.send_offsets_to_transaction(places, metadata, t))
        stranger.close()

    def do_relay(self, *words: str) -> str:
        protocol = words[8] if len(words) > 8 else "classic"
        return _relay(*words[:6], count=int(words[6]), batch=int(words[7]), protocol=protocol)


def _opened(bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 0,
            **QUICK,
        }
    )
    _until_done(made.init_transactions)
    return made


def _until_done(call: Callable[[float], Any]) -> None:
    """librdkafka says which errors mean that the very same call may be made again."""
    while True:
        try:
            call(TIMEOUT_SECONDS)
            return
        except KafkaException as refused:
            if not refused.args[0].retriable():
                raise


def _relay(
    bootstrap: str,
    transactional_id: str,
    group: str,
    instance: str,
    source: str,
    target: str,
    *,
    count: int,
    batch: int,
    protocol: str,
) -> str:
    sender = _opened(bootstrap, transactional_id)
    receiver = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            **_settings_of(instance, protocol),
            **QUICK,
        }
    )
    member = _Membership(receiver, protocol)
    member.subscribe(source)
    number = committed = aborted = 0
    try:
        while True:
            records = _records(receiver.consume(batch, timeout=0.1))
            if not records:
                if _is_done(receiver, count):
                    break
                continue
            number += 1
            commits = number % EVERY_THIRD != 0
            if _transact(sender, member.metadata(), records, target, commits=commits):
                committed += 1
                say("progress", committed)
            else:
                aborted += 1
                _rewind(receiver)
    finally:
        receiver.close()
    return f"{committed} {aborted}"


class _Membership:
    """The member as it was when it got its partitions.

    When a coordinator has refused the generation and later the member, both are gone from the live
    metadata, while records from before still wait in the queue of `consume`. The offsets of such a
    stranger are always stored in a transaction, though another member has the partitions.
    """

    def __init__(self, receiver: Consumer, protocol: str) -> None:
        self._receiver = receiver
        self._is_classic = protocol == "classic"
        self._of_assignment: Any = None

    def subscribe(self, topic: str) -> None:
        self._receiver.subscribe([topic], on_assign=self._assigned)

    def metadata(self) -> Any:
        # In the new protocol a member keeps its id, and its epoch grows without a new assignment.
        if self._is_classic:
            return self._of_assignment
        return self._receiver.consumer_group_metadata()

    def _assigned(self, receiver: Consumer, places: list[TopicPartition]) -> None:
        self._of_assignment = receiver.consumer_group_metadata()


def _settings_of(instance: str, protocol: str) -> dict[str, Any]:
    """Return the options of a member. In the new protocol, the broker has the other times."""
    member: dict[str, Any] = {"group.instance.id": instance}
    if instance == NO_INSTANCE:
        member = {"max.poll.interval.ms": LONGEST_POLL_MS}
    if protocol == "consumer":
        return {**member, "group.protocol": protocol}
    session_ms = SHORT_SESSION_MS if instance == NO_INSTANCE else 45_000
    return {**member, "session.timeout.ms": session_ms, "heartbeat.interval.ms": 300}


def _is_done(receiver: Consumer, count: int) -> bool:
    """Whether all has been done: the source holds plain records only, from offset 0 on."""
    return sum(max(place.offset, 0) for place in _stored(receiver)) == count


def _stored(receiver: Consumer) -> list[TopicPartition]:
    """The group's offsets; none of them while the broker is not there."""
    try:
        return receiver.committed(receiver.assignment(), TIMEOUT_SECONDS)
    except KafkaException as refused:
        if refused.args[0].fatal():
            raise
        return []


def _records(messages: "list[Message[bytes, bytes]]") -> "list[Message[bytes, bytes]]":
    for message in messages:
        error = message.error()
        if error is not None and (error.fatal() or error.code() in REFUSALS):
            raise KafkaException(error)
    return [message for message in messages if message.error() is None]


def _transact(
    sender: Producer,
    metadata: Any,
    records: "list[Message[bytes, bytes]]",
    target: str,
    *,
    commits: bool,
) -> bool:
    """Whether it was committed. Raises KafkaException: nothing more can be done."""
    next_offsets: dict[int, TopicPartition] = {}
    sender.begin_transaction()
    try:
        for record in records:
            topic, partition, offset = record.topic(), record.partition(), record.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            sender.produce(target, record.value(), partition=partition)
            next_offsets[partition] = TopicPartition(topic, partition, offset + 1)
        places = list(next_offsets.values())
        _until_done(lambda t: sender.send_offsets_to_transaction(places, metadata, t))
        if commits:
            _until_done(sender.commit_transaction)
            return True
    except KafkaException as refused:
        if not refused.args[0].txn_requires_abort():
            raise
    _until_done(sender.abort_transaction)
    return False


def _rewind(receiver: Consumer) -> None:
    """Consume again what an aborted transaction had consumed (KAFKA-17582)."""
    while len(places := _stored(receiver)) < len(receiver.assignment()):
        time.sleep(0.05)  # between two tries
    for place in places:
        receiver.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))


if __name__ == "__main__":
    ConfluentAgent().run(sys.stdin)
