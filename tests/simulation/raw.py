"""Producers made of single requests, in the versions of older and newer clients.

Transaction version 0 and 1 add partitions by a request of their own and keep their epoch. Version 2
adds them with the first batch, and every end of a transaction gives a new epoch. A request that is
not answered is sent again as it is, on a new connection.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import trio

from odradek.broker.cluster.image import NO_LEADER
from odradek.broker.environment.env import Connection
from odradek.protocol.api import Api
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.txn import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from odradek.protocol.connection import ClientProtocol, FrameReader
from odradek.protocol.errors import RETRIABLE, ErrorCode
from odradek.protocol.record import Record, encode_batch
from tests.simulation.machine import CLIENT_PORT, START_MS
from tests.simulation.world import World

PATIENCE_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 1.5
GROUP: Final = 0
TRANSACTION: Final = 1
"""The kinds of key in FindCoordinator."""
AGAIN: Final = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}


class GivenUp(Exception):
    """The producer cannot go on: a new one takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The versions of the requests of a client."""

    init: int
    add: int | None
    produce: int
    end: int


VERSIONS: Final = (
    Versions(init=1, add=0, produce=3, end=0),
    Versions(init=4, add=3, produce=11, end=4),
    Versions(init=5, add=None, produce=12, end=5),
)
"""By transaction version."""


class Wire:
    """One connection, on which a request is answered before the next one is sent."""

    def __init__(self, stream: Connection, name: str) -> None:
        self.stream = stream
        self._protocol = ClientProtocol(name)
        self._reader = FrameReader()

    async def ask(self, api: Api[Any, Any], version: int, request: Any) -> Any:
        """Return the answer. Raises OSError if the broker closes the connection."""
        _, parts = self._protocol.request(api, version, request)
        await self.stream.send_all(parts)
        while (frame := self._reader.next_frame()) is None:
            count = await self.stream.receive_into(self._reader.buffer())
            if not count:
                raise OSError("the connection was closed")
            self._reader.note_received(count)
        return self._protocol.response(frame)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The listener on which clients authenticate, and how a client does."""

    port: int
    authenticate: Callable[[Wire], Awaitable[None]]
    """Raises OSError if the broker refuses."""


class RawClient:
    """Single requests to the brokers, each on a connection that is kept.

    Without a `login` it uses the plain listener. `host` is that of its name unless it is given.
    """

    def __init__(
        self,
        world: World,
        name: str,
        rng: Random,
        *,
        login: Login | None = None,
        host: str | None = None,
    ) -> None:
        self._world = world
        self._host = world.net.host(host or name)
        self.name = name
        self._rng = rng
        self._login = login
        self._wires: dict[int, Wire] = {}

    async def close(self) -> None:
        for wire in self._wires.values():
            await wire.stream.aclose()
        self._wires.clear()

    async def ask(
        self,
        node: int,
        api: Api[Any, Any],
        version: int,
        request: Any,
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        """Ask a broker once. Raises OSError if there is no answer."""
        try:
            with trio.fail_after(seconds):
                if node not in self._wires:
                    self._wires[node] = await self._open(node)
                return await self._wires[node].ask(api, version, request)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
            await self._drop(node)
            raise OSError(str(error)) from error
        except trio.Cancelled:
            await self._drop(node)  # or the answer would be taken for that of the next request
            raise

    async def _open(self, node: int) -> Wire:
        machine = self._world.machines.get(node)
        if machine is None:
            raise OSError("no broker leads")
        port = CLIENT_PORT if self._login is None else self._login.port
        wire = Wire(await self._host.connect(machine.host.name, port), self.name)
        if self._login is not None:
            try:
                await self._login.authenticate(wire)
            except BaseException:
                with trio.CancelScope(shield=True):
                    await wire.stream.aclose()
                raise
        return wire

    async def _drop(self, node: int) -> None:
        found = self._wires.pop(node, None)
        if found is not None:
            with trio.CancelScope(shield=True):
                await found.stream.aclose()


class RawProducer(RawClient):
    """A transactional producer. Every method raises `GivenUp`."""

    def __init__(
        self,
        world: World,
        name: str,
        rng: Random,
        *,
        transaction_version: int,
        timeout_ms: int,
        login: Login | None = None,
        host: str | None = None,
    ) -> None:
        super().__init__(world, name, rng, login=login, host=host)
        self._versions = VERSIONS[transaction_version]
        self._timeout_ms = timeout_ms
        self._producer = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}
        self._added: dict[tuple[str, int], None] = {}

    @property
    def producer(self) -> tuple[int, int]:
        """The producer id and epoch; -1 before `init`."""
        return self._producer

    async def init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=self._timeout_ms
        )
        answer = await self._ask_coordinator(INIT_PRODUCER_ID, self._versions.init, request)
        self._begin_epoch(answer.producer_id, answer.producer_epoch)

    async def new_producer_id(self, node: int) -> int:
        """Have a broker give a producer id, as an idempotent producer does. Raises OSError."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = await self.ask(node, INIT_PRODUCER_ID, self._versions.init, request)
        return int(answer.producer_id)

    def _begin_epoch(self, producer_id: int, epoch: int) -> None:
        if 0 <= epoch < self._producer[1]:
            self._world.reached("the epochs of a producer ran out")
        self._producer = (producer_id, epoch)
        self._sequences.clear()

    async def send(
        self, topic: str, partition: int, value: bytes, *, patience: float = PATIENCE_SECONDS
    ) -> int:
        """Send one record in the transaction. Return its offset."""
        where = topic, partition
        if self._versions.add is not None and where not in self._added:
            await self.add(topic, partition)
        self._added[where] = None
        sequence = self._sequences.get(where, 0)
        records = encode_batch(
            [Record(key=None, value=value, timestamp_ms=START_MS)],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        data = PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=1000,
            topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
        )

        async def ask() -> Any:
            answer = await self.ask(
                self._leader_of(topic, partition), PRODUCE, self._versions.produce, request
            )
            return answer.responses[0].partition_responses[0]

        answer = await self._again(ask, patience)
        self._sequences[where] = sequence + 1
        return int(answer.base_offset)

    def _leader_of(self, topic: str, partition: int) -> int:
        if self._world.is_alone:
            return 1
        found = self._world.image().partition(topic, partition)
        return NO_LEADER if found is None else found.leader

    async def send_again(self, topic: str, partition: int, value: bytes) -> int:
        """Send the latest record once more, as if its answer had been lost. Return its offset."""
        self._sequences[topic, partition] -= 1
        return await self.send(topic, partition, value)

    async def send_unadded(
        self, topic: str, partition: int, value: bytes, *, patience: float = PATIENCE_SECONDS
    ) -> int:
        """Send a record as if its partition were in the transaction."""
        self._added[topic, partition] = None
        return await self.send(topic, partition, value, patience=patience)

    async def add(self, topic: str, partition: int) -> None:
        """Add a partition to the transaction. Transaction version 2 does it with the record."""
        assert self._versions.add is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=(partition,)),),
        )
        await self._ask_coordinator(ADD_PARTITIONS_TO_TXN, self._versions.add, request)
        self._added[topic, partition] = None

    async def end(self, *, committed: bool) -> None:
        """End the transaction; without records there is none."""
        if not self._added:
            return
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=committed,
        )
        answer = await self._ask_coordinator(END_TXN, self._versions.end, request)
        self._added.clear()
        if self._versions.add is None:
            self._begin_epoch(answer.producer_id, answer.producer_epoch)

    # requests

    async def _ask_coordinator(
        self,
        api: Api[Any, Any],
        version: int,
        request: Any,
        *,
        group: str | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> Any:
        """Ask the coordinator of this producer, or that of a group."""
        key, key_type = (self.name, TRANSACTION) if group is None else (group, GROUP)

        async def ask() -> Any:
            where = FindCoordinatorRequest(key=key, key_type=key_type)
            node = self._rng.choice(list(self._world.machines))
            found = await self.ask(node, FIND_COORDINATOR, 2, where)
            if found.error_code:
                return found
            return await self.ask(found.node_id, api, version, request)

        return await self._again(ask, patience)

    async def _again(self, ask: Any, patience: float = PATIENCE_SECONDS) -> Any:
        """Ask until there is an answer that is not about the moment. Raises `GivenUp`."""
        with trio.move_on_after(patience):
            while True:
                try:
                    answer = await ask()
                except OSError:
                    await trio.sleep(0.05)
                    continue
                code = error_code_of(answer)
                if code == ErrorCode.NONE:
                    return answer
                if code not in AGAIN:
                    raise GivenUp(f"{self.name}: {ErrorCode(code).name}")
                await trio.sleep(0.02)
        raise GivenUp(f"{self.name}: no answer")


def error_code_of(answer: Any) -> int:
    """Return the error code of an answer, or of the one partition in it."""
    written = getattr(answer, "responses", ())
    if written:
        return int(written[0].partition_responses[0].error_code)
    added = getattr(answer, "results_by_topic_v3_and_below", ())
    if added:
        return int(added[0].results_by_partition[0].partition_error_code)
    stored = getattr(answer, "topics", ())
    if stored:
        return int(stored[0].partitions[0].error_code)
    return int(answer.error_code)
