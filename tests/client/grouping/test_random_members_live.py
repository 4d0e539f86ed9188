"""Members that come, go and are killed at random, of both protocols: who owns which partition."""

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
import trio

from odradek.client import Consumer, OdradekError, Producer, TopicPartition
from odradek.client.network import TcpStream, connect_tcp
from odradek.protocol.schema import Buffer
from tests.client.grouping.test_exactly_once_live import OPTIONS
from tests.client.live import WAIT_MS, name_of
from tests.client.producing.test_producer_live import make_topic

PARTITIONS = 6
STEPS = 14
MEMBERS_MAX = 4
KILLS_MAX = 2
"""A killed member is missed only after its session, which takes seconds."""


class Cable:
    """The network of one member, which can be cut. Its coordinator then hears nothing from it."""

    def __init__(self) -> None:
        self.is_cut = False
        self._streams: list[TcpStream] = []

    async def connect(self, host: str, port: int) -> "CutStream":
        if self.is_cut:
            raise ConnectionRefusedError(111, "the cable is cut")
        stream = await connect_tcp(host, port)
        self._streams.append(stream)
        return CutStream(self, stream)

    async def cut(self) -> None:
        self.is_cut = True
        for stream in self._streams:
            await stream.aclose()


class CutStream:
    def __init__(self, cable: Cable, stream: TcpStream) -> None:
        self._cable = cable
        self._stream = stream
        self.peer = stream.peer

    async def receive_into(self, buffer: memoryview) -> int:
        return await self._stream.receive_into(buffer)

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        if self._cable.is_cut:
            raise trio.BrokenResourceError("the cable is cut")
        return self._stream.send_now(parts)

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        if self._cable.is_cut:
            raise trio.BrokenResourceError("the cable is cut")
        await self._stream.send_all(parts)

    async def aclose(self) -> None:
        await self._stream.aclose()


class Members:
    """The members of a group, and which of them owns each partition, by their callbacks."""

    def __init__(self, bootstrap: str, topic: str, options: dict[str, Any]) -> None:
        self.bootstrap, self.topic, self.options = bootstrap, topic, options
        self.owners: dict[TopicPartition, str] = {}
        self.killed: set[str] = set()
        self.running: dict[str, tuple[trio.CancelScope, Cable]] = {}
        self.read: list[int] = []

    async def run(
        self, name: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        cable, scope = Cable(), trio.CancelScope()
        self.running[name] = (scope, cable)
        task_status.started()

        def assigned(partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                owner = self.owners.get(partition)
                assert owner in (None, *self.killed), f"{partition}: {owner}, and {name}"
                self.owners[partition] = name

        def gone(partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                if self.owners.get(partition) == name:
                    del self.owners[partition]

        with suppress(OdradekError):  # a killed one cannot store its offsets
            async with Consumer(
                self.bootstrap, enable_auto_commit=True, connect=cable.connect, **self.options
            ) as consumer:
                consumer.subscribe(self.topic, on_assigned=assigned, on_revoked=gone)
                with scope:
                    while True:
                        for record in await consumer.poll(20):
                            self.read.append(int(record.value or b""))
        self.running.pop(name, None)

    def leave(self, name: str) -> None:
        self.running.pop(name)[0].cancel()

    async def kill(self, name: str) -> None:
        """End a member without a word: its coordinator must find out by itself."""
        scope, cable = self.running.pop(name)
        self.killed.add(name)
        await cable.cut()
        scope.cancel()

    def is_settled(self) -> bool:
        owners = set(self.owners.values())
        return len(self.owners) == PARTITIONS and owners == set(self.running)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", OPTIONS)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.minutes)])
async def test_every_partition_has_one_owner_and_every_record_is_read(
    bootstrap: str, protocol: str, seed: int
) -> None:
    drawn = random.Random(seed)
    topic = await make_topic(bootstrap, PARTITIONS)
    members = Members(bootstrap, topic, {"group_id": name_of("group"), **OPTIONS[protocol]})
    sent = 0
    async with Producer(bootstrap) as producer:
        with trio.fail_after(2 * WAIT_MS / 1000):
            async with trio.open_nursery() as nursery:
                await nursery.start(members.run, "first")
                for step in range(STEPS):
                    running = sorted(members.running)
                    choice = drawn.random()
                    if len(running) < 2 or (choice < 0.5 and len(running) < MEMBERS_MAX):
                        await nursery.start(members.run, f"m{step}")
                    elif choice < 0.75 or len(members.killed) == KILLS_MAX:
                        members.leave(drawn.choice(running))
                    else:
                        await members.kill(drawn.choice(running))
                    for _ in range(PARTITIONS):
                        await producer.send(topic, b"%d" % sent, partition=sent % PARTITIONS)
                        sent += 1
                    await trio.sleep(drawn.uniform(0, 0.5))
                while not members.is_settled() or len(set(members.read)) < sent:  # noqa: ASYNC110
                    await trio.sleep(0.05)
                nursery.cancel_scope.cancel()
    assert set(members.read) == set(range(sent))
