"""A gateway with a script in the place of etcd."""

import base64
import json
from collections.abc import Callable
from random import Random
from typing import Any

import httpx2
import trio

from odradek.broker.cluster.etcd_gateway import EtcdGateway
from odradek.broker.cluster.store_etcd import EtcdStore
from odradek.broker.config.broker import BrokerConfig

Answer = httpx2.Response | Exception
HEADER = {"revision": "7"}
WRITTEN = {"header": HEADER, "succeeded": True}
REFUSED_CONNECTION = httpx2.ConnectError("refused")
LOST_ANSWER = httpx2.ReadTimeout("")


def ok(body: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(200, json=body)


def error(code: int, message: str, status: int = 400) -> httpx2.Response:
    return httpx2.Response(status, json={"code": code, "message": message})


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class ScriptedEtcd:
    """Answers each request as `answer` says, and notes the requests."""

    def __init__(self, *, endpoints: int = 1, user: str = "") -> None:
        hosts = [f"http://etcd{1 + index}:2379" for index in range(endpoints)]
        self.config = BrokerConfig(
            etcd_endpoints=",".join(hosts),
            etcd_key_prefix="/o",
            etcd_user=user,
            etcd_password="secret" if user else "",
        )
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.tokens: list[str | None] = []
        self.answer: Callable[[str, str], Answer] = lambda host, path: ok(WRITTEN)
        self.rng = Random(1)
        self.made = 0
        """How often new connections were begun."""
        self.gateway = EtcdGateway(self.config, self._connections, 2.0, self.rng)
        self.store = EtcdStore(self.gateway, "/o", self.rng)

    def _connections(self) -> httpx2.MockTransport:
        self.made += 1
        return httpx2.MockTransport(self._serve)

    async def _serve(self, request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        self.asked.append((request.url.host, request.url.path))
        self.tokens.append(request.headers.get("Authorization"))
        self.bodies.append(json.loads(request.content or b"null"))
        answer = self.answer(request.url.host, request.url.path)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answers(self, *answers: Answer) -> None:
        """Give these answers, one after the other, and then the last of them."""
        left = list(answers)
        self.answer = lambda host, path: left.pop(0) if len(left) > 1 else left[0]

    @property
    def hosts(self) -> list[str]:
        return [host for host, _ in self.asked]
