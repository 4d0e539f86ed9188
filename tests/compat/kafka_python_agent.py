"""The agent over kafka-python: `python -m tests.compat.kafka_python_agent`; see `agents.py`."""

import re
import sys
from typing import Any, Final

from kafka import (
    ConsumerRebalanceListener,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.errors import (
    FencedInstanceIdError,
    InvalidProducerEpochError,
    KafkaConnectionError,
    KafkaError,
    ProducerFencedError,
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
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
    "retry_backoff_ms": 20,
    **given_settings(),
}
EARLIER: Final = re.compile(r"we are in an error state: (?:\[Error -?\d+\] )?(\w+)")
FOR_EVER: Final = (ProducerFencedError, InvalidProducerEpochError, FencedInstanceIdError)


class KafkaPythonAgent(Agent):
    """The producers of one process, by name."""

    refusal = KafkaError

    def __init__(self) -> None:
        self._producers: dict[str, Any] = {}

    def kind_of(self, refused: Exception) -> str:
        # A call after the one that failed names the failure only in its text.
        found = EARLIER.search(str(refused))
        return super().kind_of(refused) if found is None else found[1]

    def do_open(self, name: str, bootstrap: str, transactional_id: str, timeout_ms: str) -> None:
        self._producers[name] = _opened(bootstrap, transactional_id, int(timeout_ms))

    def do_begin(self, name: str) -> None:
        self._producers[name].begin_transaction()

    def do_commit(self, name: str) -> None:
        self._producers[name].commit_transaction()

    def do_abort(self, name: str) -> None:
        self._producers[name].abort_transaction()

    def do_send(self, name: str, topic: str, partition: str, value: str) -> int:
        answer = self._producers[name].send(topic, value.encode(), partition=int(partition))
        return int(answer.get(TIMEOUT_SECONDS).offset)

    def do_offsets(self, name: str, group: str, topic: str, partition: str, offset: str) -> None:
        places = {TopicPartition(topic, int(partition)): OffsetAndMetadata(int(offset), "", -1)}
        self._producers[name].send_offsets_to_transaction(places, group)

    def do_relay(self, *words: str) -> str:
        return _relay(*words[:6], count=int(words[6]), batch=int(words[7]))


def _opened(bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> Any:
    made = KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        **QUICK,
    )
    _keep_requests(made)
    made.init_transactions()
    return made


def _keep_requests(producer: Any) -> None:
    """Mend kafka-python 3.0.12, which loses the request whose coordinator cannot be reached.

    The call that made the request waits for ever then. The sender of the library asks for such a
    request again if `await_ready` returns False, but `await_ready` raises instead.
    """
    client = producer._sender._client
    await_ready = client.await_ready

    def is_ready(*args: Any, **options: Any) -> bool:
        try:
            return bool(await_ready(*args, **options))
        except KafkaConnectionError:
            return False

    client.await_ready = is_ready


def _join_in_one_poll(consumer: Any) -> None:
    """Mend kafka-python 3.0.12, which forgets an assignment that arrives between two polls.

    The next poll joins again then. If this member is the leader, that makes all members join again,
    and so on, for as long as they take longer to join than a poll: seen for two minutes. A poll
    waits for the assignment now, however long the other members take.
    """
    coordinator = consumer._coordinator
    ensure_active_group = coordinator.ensure_active_group
    coordinator.ensure_active_group = lambda **_: ensure_active_group(timeout_ms=None)


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
) -> str:
    sender = _opened(bootstrap, transactional_id)
    receiver = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=None if instance == NO_INSTANCE else instance,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **_times_of(instance),
        heartbeat_interval_ms=300,
        fetch_max_wait_ms=50,
        max_poll_records=batch,
        **QUICK,
    )
    _join_in_one_poll(receiver)
    member = _Membership(receiver)
    receiver.subscribe([source], listener=member)
    number = committed = aborted = 0
    try:
        while True:
            records = receiver.poll(timeout_ms=100)
            if not records:
                if sum(_stored(receiver).values()) == count:
                    break
                continue
            number += 1
            commits = number % EVERY_THIRD != 0
            if _transact(sender, member.metadata, records, target, commits=commits):
                committed += 1
                say("progress", committed)
            else:
                aborted += 1
                for place, offset in _stored(receiver).items():  # KAFKA-17582
                    receiver.seek(place, offset)
    finally:
        receiver.close()
        sender.close()
    return f"{committed} {aborted}"


def _times_of(instance: str) -> dict[str, int]:
    if instance != NO_INSTANCE:
        return {"session_timeout_ms": 45_000}
    return {"session_timeout_ms": SHORT_SESSION_MS, "max_poll_interval_ms": LONGEST_POLL_MS}


class _Membership(ConsumerRebalanceListener):  # type: ignore[misc]
    """The member as it was when it got its partitions.

    A heartbeat may find that the coordinator has forgotten the member. It has no id and no
    generation then, and the offsets of such a one are always stored in a transaction.
    """

    def __init__(self, receiver: Any) -> None:
        self.metadata: Any = None
        self._receiver = receiver

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.metadata = self._receiver.group_metadata()

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Let the partitions go: no transaction is open during a poll."""


def _transact(sender: Any, metadata: Any, records: Any, target: str, *, commits: bool) -> bool:
    """Whether it was committed. Raises KafkaError: nothing more can be done."""
    sender.begin_transaction()
    try:
        for place, some in records.items():
            for record in some:
                sender.send(target, record.value, partition=place.partition)
        sender.send_offsets_to_transaction(
            {
                place: OffsetAndMetadata(some[-1].offset + 1, "", -1)
                for place, some in records.items()
            },
            metadata,
        )
        if commits:
            sender.commit_transaction()
            return True
    except FOR_EVER:
        raise
    except KafkaError as error:
        print(f"to be aborted: {error!r}", file=sys.stderr)
    sender.abort_transaction()
    return False


def _stored(receiver: Any) -> dict[TopicPartition, int]:
    return {place: receiver.committed(place) or 0 for place in receiver.assignment()}


if __name__ == "__main__":
    KafkaPythonAgent().run(sys.stdin)
