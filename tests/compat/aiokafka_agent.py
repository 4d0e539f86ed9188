"""The agent over aiokafka: `python -m tests.compat.aiokafka_agent`; see `agents.py`.

Its event loop runs while a command is being obeyed, and stands still between two.
"""

import asyncio
import ssl
import sys
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    InvalidProducerEpoch,
    KafkaError,
    ProducerFenced,
)

from tests.compat.agent import (
    EVERY_THIRD,
    LONGEST_POLL_MS,
    SHORT_SESSION_MS,
    Agent,
    given_settings,
    say,
)

RETRY_BACKOFF_MS: Final = 20
FOR_EVER: Final = (ProducerFenced, InvalidProducerEpoch)


class AiokafkaAgent(Agent):
    """The producers of one process, by name."""

    refusal = KafkaError

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._producers: dict[str, Any] = {}

    def perform(self, command: str, words: list[str]) -> object:
        return self._runner.run(getattr(self, f"do_{command}")(*words))

    async def do_open(
        self, name: str, bootstrap: str, transactional_id: str, timeout_ms: str
    ) -> None:
        self._producers[name] = await _opened(bootstrap, transactional_id, int(timeout_ms))

    async def do_begin(self, name: str) -> None:
        await self._producers[name].begin_transaction()

    async def do_commit(self, name: str) -> None:
        await self._producers[name].commit_transaction()

    async def do_abort(self, name: str) -> None:
        await self._producers[name].abort_transaction()

    async def do_send(self, name: str, topic: str, partition: str, value: str) -> int:
        sender = self._producers[name]
        sent = await sender.send_and_wait(topic, value.encode(), partition=int(partition))
        return int(sent.offset)

    async def do_offsets(
        self, name: str, group: str, topic: str, partition: str, offset: str
    ) -> None:
        place = TopicPartition(topic, int(partition))
        await self._producers[name].send_offsets_to_transaction({place: int(offset)}, group)

    async def do_relay(self, *words: str) -> str:
        return await _relay(*words[:6], count=int(words[6]), batch=int(words[7]))

    async def do_copy(self, *words: str) -> None:
        bootstrap, _, group, _, source, target = words[:6]
        await _copy(bootstrap, group, source, target, batch=int(words[7]))


def _shared_settings() -> dict[str, Any]:
    """Return the options of every client of the process."""
    found: dict[str, Any] = {"retry_backoff_ms": RETRY_BACKOFF_MS, **given_settings()}
    authority = found.pop("ssl_cafile", None)
    if authority is not None:
        found["ssl_context"] = ssl.create_default_context(cafile=authority)
    return found


async def _opened(bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> Any:
    made = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        **_shared_settings(),
    )
    await made.start()
    return made


async def _relay(
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
    sender = await _opened(bootstrap, transactional_id)
    receiver = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=45_000,
        heartbeat_interval_ms=300,
        fetch_max_wait_ms=50,
        **_shared_settings(),
    )
    number = committed = aborted = 0
    try:
        await receiver.start()
        while True:
            records = await receiver.getmany(timeout_ms=100, max_records=batch)
            if not records:
                if sum((await _stored(receiver)).values()) == count:
                    break
                continue
            number += 1
            commits = number % EVERY_THIRD != 0
            if await _transact(sender, group, records, target, commits=commits):
                committed += 1
                say("progress", committed)
            else:
                aborted += 1
                for place, offset in (await _stored(receiver)).items():  # KAFKA-17582
                    receiver.seek(place, offset)
    finally:
        await receiver.stop()
        await sender.stop()
    return f"{committed} {aborted}"


async def _copy(bootstrap: str, group: str, source: str, target: str, *, batch: int) -> None:
    """Copy as a member that is forgotten soon after it was killed: write, then store offsets.

    Offsets of a transaction have no member id in aiokafka, those of `commit` have. So a record is
    copied at least once.
    """
    sender = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, **_shared_settings()
    )
    receiver = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SHORT_SESSION_MS,
        max_poll_interval_ms=LONGEST_POLL_MS,
        heartbeat_interval_ms=300,
        fetch_max_wait_ms=50,
        **_shared_settings(),
    )
    committed = 0
    try:
        await sender.start()
        await receiver.start()
        while True:
            records = await receiver.getmany(timeout_ms=100, max_records=batch)
            if not records:
                continue
            sent = [
                await sender.send(target, record.value, partition=place.partition)
                for place, some in records.items()
                for record in some
            ]
            await asyncio.gather(*sent)
            after = {place: some[-1].offset + 1 for place, some in records.items()}
            try:
                await receiver.commit(after)
            except (CommitFailedError, IllegalStateError) as error:
                print(f"given to another member: {error!r}", file=sys.stderr)
                continue
            committed += 1
            say("progress", committed)
    finally:
        await receiver.stop()
        await sender.stop()


async def _transact(sender: Any, group: str, records: Any, target: str, *, commits: bool) -> bool:
    """Whether it was committed. Raises KafkaError: nothing more can be done."""
    await sender.begin_transaction()
    try:
        sent = [
            await sender.send(target, record.value, partition=place.partition)
            for place, some in records.items()
            for record in some
        ]
        await asyncio.gather(*sent)
        next_offsets = {place: some[-1].offset + 1 for place, some in records.items()}
        await sender.send_offsets_to_transaction(next_offsets, group)
        if commits:
            await sender.commit_transaction()
            return True
    except FOR_EVER:
        raise
    except KafkaError as error:
        print(f"to be aborted: {error!r}", file=sys.stderr)
    await sender.abort_transaction()
    return False


async def _stored(receiver: Any) -> dict[TopicPartition, int]:
    return {place: await receiver.committed(place) or 0 for place in receiver.assignment()}


if __name__ == "__main__":
    with asyncio.Runner() as loop_runner:
        AiokafkaAgent(loop_runner).run(sys.stdin)
