"""Clients that authenticate, and use what they have a right to. Each notes what it is answered.

A client goes on with its connections, fetch sessions and transactions while its rights change.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final, Protocol

import trio

from odradek.broker.cluster.image import NO_LEADER
from odradek.protocol.api import Api
from odradek.protocol.apis.coordinator import FIND_COORDINATOR
from odradek.protocol.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from odradek.protocol.apis.txn import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, decode_batch, encode_batch
from tests.simulation.machine import START_MS
from tests.simulation.permits import REFUSED, Deed, Permit
from tests.simulation.raw import (
    ANSWER_SECONDS,
    VERSIONS,
    GivenUp,
    Login,
    RawClient,
    RawProducer,
    Wire,
    error_code_of,
)
from tests.simulation.users import PORT, exchange_of, mechanism_of
from tests.simulation.world import World

PAUSE_SECONDS: Final = 0.15
FEED_SECONDS: Final = 0.2
WAITS_MS: Final = (0, 300, 1000, 3000)
"""How long a Fetch may wait."""
POLL_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 1.5
TRANSACTION_MS: Final = 3000
LOOK_PROBABILITY: Final = 0.3
SESSION_PROBABILITY: Final = 0.8
USED: Final = "used"
"""A topic that every user may use who has no other one."""
SOURCE: Final = "orders"
"""The topic for which offsets are stored."""
BY_HAND: Final = -1
NO_SESSION: Final = (0, -1)
NEW_SESSION: Final = (0, 0)

IsOver = Callable[[], bool]
Use = Callable[[Permit, IsOver, Random], Awaitable[None]]
"""Uses what a permit is about, until that is over or an error ends it."""


class Note(Protocol):
    def __call__(self, code: int, *, since: float) -> None:
        """Note the error code of a decision that was made after a moment."""


def ignore(code: int, *, since: float) -> None:
    """Note nothing."""


def login_of(user: str, rng: Random, note: Note = ignore) -> Login:
    """Return how a client of a user authenticates. `note` is called with what the broker says."""

    async def authenticate(wire: Wire) -> None:
        await wire.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism_of(user)))
        exchange = exchange_of(user, rng)
        token: bytes | None = exchange.first()
        since = trio.current_time()
        while token is not None:
            since = trio.current_time()
            answer = await wire.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))
            if answer.error_code:
                note(answer.error_code, since=since)
                raise OSError(f"{user} cannot authenticate: {answer.error_message}")
            token = await exchange.respond(answer.auth_bytes)
        note(ErrorCode.NONE, since=since)

    return Login(port=PORT, authenticate=authenticate)


async def log_in_again(permit: Permit, is_over: IsOver, rng: Random) -> None:
    """Authenticate on a new connection again and again."""
    while not is_over():
        node = rng.choice(list(permit.world.machines))
        login = login_of(permit.user, rng, partial(permit.note, node, Deed.USE))
        client = RawClient(permit.world, permit.user, rng, login=login, host="logins")
        try:
            with suppress(OSError):
                await client.ask(node, API_VERSIONS, 0, ApiVersionsRequest())
        finally:
            with trio.CancelScope(shield=True):
                await client.close()
        await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))


class UserProducer(RawProducer):
    """A producer, or a client, that authenticates as the user of a permit.

    `deeds` has the keys of the APIs whose answers show what the user may do.
    """

    def __init__(self, permit: Permit, name: str, rng: Random, deeds: dict[int, Deed]) -> None:
        super().__init__(
            permit.world,
            name,
            rng,
            transaction_version=rng.randrange(len(VERSIONS)),
            timeout_ms=TRANSACTION_MS,
            login=login_of(permit.user, rng),
            host=permit.user,
        )
        self._permit = permit
        self._deeds = deeds

    async def ask(
        self,
        node: int,
        api: Api[Any, Any],
        version: int,
        request: Any,
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        since = trio.current_time()
        answer = await super().ask(node, api, version, request, seconds=seconds)
        deed = self._deeds.get(api.key)
        if deed is not None:
            self._permit.note(node, deed, error_code_of(answer), since=since)
        return answer

    async def write(self, topic: str) -> None:
        """Write a record without a transaction. Raises OSError."""
        await self.ask(leader_of(self._world, topic), PRODUCE, 11, produce_to(topic, b"w"))

    async def look(self, topic: str) -> None:
        """Ask some broker about a topic. Raises OSError."""
        node = self._rng.choice(list(self._world.machines))
        wanted = MetadataRequestTopic(name=topic)
        request = MetadataRequest(topics=(wanted,), allow_auto_topic_creation=False)
        since = trio.current_time()
        answer = await self.ask(node, METADATA, 9, request)
        self._permit.note(node, Deed.LOOK, answer.topics[0].error_code, since=since)

    async def store(self, group: str) -> None:
        """Store an offset in a group. Raises `GivenUp`."""
        offset = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=BY_HAND,
            member_id="",
            topics=(OffsetCommitRequestTopic(name=SOURCE, partitions=(offset,)),),
        )
        await self._ask_coordinator(
            OFFSET_COMMIT, 8, request, group=group, patience=PATIENCE_SECONDS
        )


def leader_of(world: World, topic: str) -> int:
    """Return the broker that leads the first partition of a topic."""
    if world.is_alone:
        return 1
    found = world.image().partition(topic, 0)
    return NO_LEADER if found is None else found.leader


def produce_to(topic: str, value: bytes) -> ProduceRequest:
    records = encode_batch([Record(key=None, value=value, timestamp_ms=START_MS)])
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
    )


async def write(permit: Permit, is_over: IsOver, rng: Random) -> None:
    """Write to a topic, one time without transactions, another time in one."""
    name = f"ann-{rng.getrandbits(48):x}"
    deeds = {PRODUCE.key: Deed.USE, ADD_PARTITIONS_TO_TXN.key: Deed.USE}
    producer = UserProducer(permit, name, rng, deeds)
    is_in_transactions = rng.random() < 0.5
    try:
        if is_in_transactions:
            await producer.init()
        for _ in range(rng.randint(1, 20)):
            if is_over():
                break
            with suppress(OSError):
                if rng.random() < LOOK_PROBABILITY:
                    await producer.look(permit.name)
                if is_in_transactions:
                    await producer.send(permit.name, 0, b"t", patience=PATIENCE_SECONDS)
                else:
                    await producer.write(permit.name)
            await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))
        if is_in_transactions:
            await producer.end(committed=True)
    except GivenUp as error:
        permit.world.trace("error", permit.user, error)
    finally:
        with trio.CancelScope(shield=True):
            await producer.close()


async def use_id(permit: Permit, is_over: IsOver, rng: Random) -> None:
    """Use a transactional id, for one transaction after the other."""
    uses = (INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, PRODUCE, END_TXN)
    deeds = {FIND_COORDINATOR.key: Deed.LOOK, **{api.key: Deed.USE for api in uses}}
    producer = UserProducer(permit, permit.name, rng, deeds)
    is_under_way = False
    try:
        await producer.init()
        while not is_over():
            for _ in range(rng.randint(1, 5)):
                await producer.send(USED, 0, b"u", patience=PATIENCE_SECONDS)
                is_under_way = True
                await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))
            await producer.end(committed=rng.random() < 0.8)
            is_under_way = False
    except GivenUp as error:
        permit.world.trace("error", permit.user, error)
        if is_under_way and not permit.allows:
            permit.world.reached("a right was taken away in a transaction")
    finally:
        with trio.CancelScope(shield=True):
            await producer.close()


async def store_offsets(permit: Permit, is_over: IsOver, rng: Random) -> None:
    """Store offsets in a group as no member of it."""
    deeds = {FIND_COORDINATOR.key: Deed.LOOK, OFFSET_COMMIT.key: Deed.USE}
    client = UserProducer(permit, permit.name, rng, deeds)
    try:
        while not is_over():
            with suppress(GivenUp):
                await client.store(permit.name)
            await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))
    finally:
        with trio.CancelScope(shield=True):
            await client.close()


class Feeder:
    """Writes records to the topic that a user reads, and notes when each was sent."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sent: dict[bytes, float] = {}

    async def run(self, permit: Permit, is_over: IsOver, rng: Random) -> None:
        client = RawClient(self._world, "feeder", rng)
        try:
            while not is_over():
                value = b"fed-%d" % len(self.sent)
                self.sent[value] = trio.current_time()
                with suppress(OSError):
                    node = leader_of(self._world, permit.name)
                    await client.ask(node, PRODUCE, 11, produce_to(permit.name, value))
                await trio.sleep(rng.expovariate(1 / FEED_SECONDS))
        finally:
            with trio.CancelScope(shield=True):
                await client.close()


async def read(permit: Permit, is_over: IsOver, rng: Random, *, feeder: Feeder) -> None:
    """Read a topic, with a fetch session most of the time."""
    client = UserProducer(permit, "bob", rng, {})
    reader = _Reader(permit, client, feeder, rng)
    try:
        while not is_over():
            with suppress(OSError):
                if rng.random() < LOOK_PROBABILITY:
                    await client.look(permit.name)
                await reader.fetch()
            await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))
    finally:
        with trio.CancelScope(shield=True):
            await client.close()


class _Reader:
    """The position of a reader, and its fetch session."""

    def __init__(self, permit: Permit, client: UserProducer, feeder: Feeder, rng: Random) -> None:
        self._permit = permit
        self._client = client
        self._feeder = feeder
        self._rng = rng
        self._offset = 0
        self._node = NO_LEADER
        self._session = NEW_SESSION

    async def fetch(self) -> None:
        """Send one Fetch, and judge its answer. Raises OSError."""
        node = leader_of(self._permit.world, self._permit.name)
        if node != self._node:
            self._node, self._session = node, self._new_session()
        since = trio.current_time()
        session, self._session = self._session, self._new_session()
        answer = await self._client.ask(
            node, FETCH, 12, self._request(session), seconds=POLL_SECONDS
        )
        if answer.error_code:
            return
        if session != NO_SESSION and answer.session_id:
            self._session = answer.session_id, session[1] + 1
        for topic in answer.responses:
            for partition in topic.partitions:
                self._judge(node, partition, since)

    def _new_session(self) -> tuple[int, int]:
        return NEW_SESSION if self._rng.random() < SESSION_PROBABILITY else NO_SESSION

    def _request(self, session: tuple[int, int]) -> FetchRequest:
        partition = FetchPartition(
            partition=0, fetch_offset=self._offset, partition_max_bytes=10_000
        )
        return FetchRequest(
            max_wait_ms=self._rng.choice(WAITS_MS),
            min_bytes=1,
            session_id=session[0],
            session_epoch=session[1],
            topics=(FetchTopic(topic=self._permit.name, partitions=(partition,)),),
        )

    def _judge(self, node: int, partition: PartitionData, since: float) -> None:
        """Judge what was returned. The decision came after the newest record was written."""
        newest = since
        for header, batch in iter_batches(partition.records or b""):
            self._offset = max(self._offset, header.next_offset)
            for record in decode_batch(batch):
                newest = max(newest, self._feeder.sent[bytes(record.value or b"")])
        permit = self._permit
        if partition.error_code in REFUSED and permit.phases[-1].begun > since:
            permit.world.reached("a right was taken away from a long poll")
        permit.note(node, Deed.USE, partition.error_code, since=newest)
