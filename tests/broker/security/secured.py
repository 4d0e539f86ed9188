"""A broker in this process whose authoriser is switched on when the test says so."""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final

import trio

from odradek.broker.api.context import Core
from odradek.broker.broker import Address, serve
from odradek.broker.config.addresses import Listener
from odradek.broker.config.sasl_listeners import sasl_of
from odradek.broker.environment.env import Env
from odradek.broker.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)
from odradek.broker.security.rights import Right
from odradek.protocol.api import Api
from odradek.protocol.connection import ClientProtocol
from tests.broker.config.configured import from_properties
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk
from tests.fakes.meta_store import FakeMetaStore
from tests.fakes.net import FakeClient, FakeNetwork

ANONYMOUS: Final = "User:ANONYMOUS"
SECONDS: Final = 60
PLAIN_LISTENER: Final = Listener(host="127.0.0.1", port=9092)


class Asker:
    """One connection. It keeps every frame that it was answered."""

    def __init__(self, client: FakeClient, client_id: str) -> None:
        self.client = client
        self._connection = ClientProtocol(client_id)
        self._count = 0

    @property
    def host(self) -> str:
        return self.client.peer.rpartition(":")[0]

    def send(self, api: Api[Any, Any], version: int, message: Any) -> None:
        _, parts = self._connection.request(api, version, message)
        self.client.send(b"".join(parts))

    async def frame(self) -> bytes | None:
        """Return the next answer as its bytes; None if the broker has closed the connection."""
        self._count += 1
        frames = await self.client.frames(self._count)
        return None if len(frames) < self._count else bytes(frames[-1])

    async def ask(self, api: Api[Any, Any], version: int, message: Any) -> Any:
        """Return the answer; None if the broker has closed the connection."""
        self.send(api, version, message)
        return await self.answer()

    async def answer(self) -> Any:
        """Return the next answer; None if the broker has closed the connection."""
        frame = await self.frame()
        return None if frame is None else self._connection.response(frame)[1]


class Secured:
    """The broker, and who connects to it."""

    def __init__(self, network: FakeNetwork, core: Core) -> None:
        self._network = network
        self.core = core

    def connect(self, client_id: str = "c", host: str = "", *, is_local: bool = False) -> Asker:
        return Asker(self._network.client(host=host, is_local=is_local), client_id)

    def switch_on(self) -> None:
        """Let the authoriser count for connections that are opened from now on."""
        self.core.authorizer.is_on = True

    async def permit(
        self,
        right: Right,
        name: str = CLUSTER_NAME,
        *,
        permission: Permission = Permission.ALLOW,
        pattern: PatternType = PatternType.LITERAL,
        host: str = "*",
    ) -> None:
        """Add an entry for the principal of all clients."""
        await self.core.acls.create(
            [
                (
                    ResourcePattern(right.kind, pattern, name),
                    AclEntry(ANONYMOUS, host, right.operation, permission),
                )
            ]
        )

    async def revoke_all(self) -> None:
        from odradek.broker.security.acls import AclFilter

        await self.core.acls.delete([AclFilter()])

    async def permit_all(self, permission: Permission = Permission.ALLOW) -> None:
        for kind in (
            ResourceKind.TOPIC,
            ResourceKind.GROUP,
            ResourceKind.CLUSTER,
            ResourceKind.TRANSACTIONAL_ID,
        ):
            await self.permit(Right(AclOperation.ALL, kind), "*", permission=permission)


@asynccontextmanager
async def secured(
    network: FakeNetwork | None = None,
    *,
    listener: Listener = PLAIN_LISTENER,
    store: FakeMetaStore | None = None,
    peer_port: int | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
    **properties: str,
) -> AsyncIterator[Secured]:
    network = network or FakeNetwork()
    config = {
        "num.partitions": "1",
        "auto.create.topics.enable": "false",
        "log.flush": "os",
        "broker.session.timeout.ms": str(10 * SECONDS * 1000),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        **{name.replace("_", "."): value for name, value in properties.items()},
        **more,
    }
    env = Env(
        clock=FakeClock(),
        net=network,
        disk=FakeDisk(),
        meta=store or FakeMetaStore(),
        rng=random.Random(1),
        offload=in_thread,
    )
    settings = from_properties(config)
    sasl = {listener.name: sasl_of(settings, listener.name, no_file)} if listener.has_sasl else {}
    started = trio.Event()
    cores: list[Core] = []
    with trio.fail_after(2 * SECONDS):
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                await serve(
                    env,
                    settings,
                    directory="/data",
                    address=Address(listeners=(listener,), sasl=sasl, peer_port=peer_port),
                    started=lambda _: started.set(),
                    stop=trio.Event(),
                    made=cores.append,
                )

            nursery.start_soon(run)
            await started.wait()
            yield Secured(network, cores[0])
            nursery.cancel_scope.cancel()


def no_file(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


async def in_thread(function: Callable[[], Any]) -> Any:
    return await trio.to_thread.run_sync(function)
