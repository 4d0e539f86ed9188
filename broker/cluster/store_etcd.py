"""The metadata store of a cluster: etcd, version 3.4 or later, over its JSON gateway.

etcd's revisions, leases, transactions and watches are those of `MetaStore`, so this module only
translates. All keys begin with `etcd.key.prefix`. In JSON, bytes are base64, 64-bit numbers are
texts, and fields that are zero are left out.

A watch is one request with an endless answer. Its revisions are never split: etcd sends the events
of a revision in one message. The first message says that the watch was created. If nothing has
changed since then it becomes a progress notice.

Other applications can write to the same etcd. Then revisions move that no watch of ours returns,
and a watch that is well looks like one that is silent. etcd sends progress notices only at
`--watch-progress-notify-interval`, every 10 minutes by default, and its gateway cannot be asked for
one. So `keep_lease` writes `MARK`, a key within the prefix, when the watch has not returned what
the call before it has seen. The event of that key is the progress notice of all watches.
"""

import base64
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any, Final

import trio

from odradek.broker.cluster.etcd_gateway import (
    NOT_FOUND,
    EtcdGateway,
    EtcdRefused,
    Message,
)
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.settings import ConfigError
from odradek.broker.env import (
    Changes,
    Compacted,
    Compare,
    LeaseExpired,
    StoreUnreachable,
    Versioned,
    check_operations,
)
from odradek.protocol.errors import KafkaError

OPERATIONS_MAX: Final = 128
"""etcd's default of `--max-txn-ops`."""
MARK: Final = "/.mark"
"""A key whose changes are progress notices. It does not appear otherwise."""
TIMEOUT_S: Final = 2.0
PAUSE_S: Final = 1.0
LOSES_EVENTS_BEFORE: Final = (3, 5, 21)

LOGGER: Final = logging.getLogger(__name__)


class EtcdStore:
    """A `MetaStore` in etcd. Make it with `open`."""

    max_operations: Final = OPERATIONS_MAX

    def __init__(self, gateway: EtcdGateway, key_prefix: str) -> None:
        self._gateway = gateway
        self._key_prefix = key_prefix
        self._watches = 0
        self._watched_revision = 0
        self._kept_revision = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls, config: BrokerConfig, *, timeout_s: float = TIMEOUT_S
    ) -> AsyncIterator["EtcdStore"]:
        """Open the store at `etcd.endpoints`. Wait until etcd answers, and log that.

        `timeout_s` is the time for the answer of one endpoint. Raises `ConfigError` if etcd does
        not accept the certificates, the user or the password, or the broker not etcd's certificate.
        """
        async with EtcdGateway.open(config, timeout_s=timeout_s) as gateway:
            store = cls(gateway, config.etcd_key_prefix)
            await store.wait_for_etcd()
            yield store

    async def wait_for_etcd(self) -> None:
        is_waiting = False
        while True:
            try:
                version = await self._gateway.version()
                await self.range(MARK)  # it needs a leader, and the user's permission
                break
            except StoreUnreachable as error:
                if not is_waiting:
                    LOGGER.warning("waiting for etcd: %s", error.message)
                is_waiting = True
            except EtcdRefused as error:
                raise ConfigError(
                    f"{error.message} Check etcd.user, etcd.password, and the user's permissions "
                    "for etcd.key.prefix."
                ) from None
            await trio.sleep(PAUSE_S)
        if is_waiting:
            LOGGER.info("etcd answers")
        if _numbers(version) < LOSES_EVENTS_BEFORE:
            LOGGER.warning(
                "etcd is version %s: before 3.5.21 watches can lose events (etcd #18089, #19179). "
                "Update etcd.",
                version,
            )

    async def range(self, prefix: str) -> tuple[dict[str, Versioned], int]:
        answer = await self._gateway.call("/v3/kv/range", self._every(prefix))
        found = dict(sorted(map(self._read, answer.get("kvs", ())), key=_by_key))
        found.pop(MARK, None)
        return found, _revision(answer)

    async def txn(
        self,
        compares: Sequence[Compare],
        puts: Mapping[str, bytes | None],
        *,
        lease: int | None = None,
    ) -> tuple[bool, int]:
        check_operations(compares, puts, self.max_operations)
        request = {
            "compare": [
                condition for compare in compares for condition in self._conditions(compare)
            ],
            "success": [self._operation(key, value, lease) for key, value in puts.items()],
        }
        try:
            answer = await self._gateway.call("/v3/kv/txn", request, writes=True)
        except EtcdRefused as error:
            _check_lease(error, lease)
            raise
        return bool(answer.get("succeeded")), _revision(answer)

    async def grant_lease(self, ttl_s: int) -> int:
        answer = await self._gateway.call("/v3/lease/grant", {"TTL": str(ttl_s)})
        return int(answer["ID"])

    async def keep_lease(self, lease: int) -> int:
        answer = await self._gateway.call("/v3/lease/keepalive", {"ID": str(lease)})
        kept: Message = answer["result"]
        if not int(kept.get("TTL", 0)):
            raise LeaseExpired(f"lease {lease} has expired")
        if self._watches and self._watched_revision < self._kept_revision:
            await self._write_mark()
        self._kept_revision = _revision(kept)
        return self._kept_revision

    async def _write_mark(self) -> None:
        try:
            await self.txn([], {MARK: b""})
        except KafkaError as error:
            LOGGER.info("the mark for watches was not written: %s", error)

    async def revoke_lease(self, lease: int) -> None:
        try:
            await self._gateway.call("/v3/lease/revoke", {"ID": str(lease)})
        except EtcdRefused as error:
            if error.status != NOT_FOUND:
                raise

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[AsyncIterator[Changes]]:
        wanted = {
            "create_request": {
                **self._every(prefix),
                "start_revision": str(from_revision),
                "progress_notify": True,
            }
        }
        async with self._gateway.stream("/v3/watch", wanted) as messages:
            self._watches += 1
            try:
                yield _EtcdWatch(self, messages, from_revision)
            finally:
                self._watches -= 1

    def returned(self, revision: int) -> None:
        """Note that a watch has returned everything up to a revision."""
        self._watched_revision = max(self._watched_revision, revision)

    def changes_of(self, message: Message, from_revision: int) -> Iterable[Changes]:
        """Return what a message of a watch says. Raises `Compacted`, `StoreUnreachable`."""
        result: Message = message.get("result", {"canceled": True, "cancel_reason": str(message)})
        if "compact_revision" in result:
            raise Compacted(f"etcd has forgotten what is before {result['compact_revision']}")
        if result.get("canceled"):
            self._gateway.forget_token()  # it may be the reason
            raise StoreUnreachable(f"etcd has ended a watch: {result.get('cancel_reason', '')}.")
        events = result.get("events", ())
        if result.get("created"):
            if _revision(result) < from_revision:
                yield Changes(revision=from_revision - 1, values={})
        elif not events:
            yield Changes(revision=_revision(result), values={})
        for revision, together in groupby(events, key=_revision_of_event):
            values: dict[str, Versioned | None] = {}
            for event in together:
                key, versioned = self._read(event["kv"])
                values[key] = None if event.get("type") == "DELETE" else versioned
            values.pop(MARK, None)
            yield Changes(revision=revision, values=values)

    def _key(self, key: str) -> str:
        return base64.b64encode(f"{self._key_prefix}{key}".encode()).decode()

    def _every(self, prefix: str) -> Message:
        """Return the range of all keys that start with `prefix`."""
        first = f"{self._key_prefix}{prefix}".encode()
        after = first[:-1] + bytes([first[-1] + 1])  # no byte of UTF-8 is 255
        return {"key": base64.b64encode(first).decode(), "range_end": _text(after)}

    def _read(self, pair: Message) -> tuple[str, Versioned]:
        key = base64.b64decode(pair["key"]).decode()
        return key.removeprefix(self._key_prefix), Versioned(
            value=base64.b64decode(pair.get("value", "")),
            create_revision=int(pair.get("create_revision", 0)),
            mod_revision=int(pair["mod_revision"]),
        )

    def _conditions(self, compare: Compare) -> list[Message]:
        return [
            {"key": self._key(compare.key), "target": target, "result": "EQUAL", field: str(value)}
            for target, field, value in (
                ("MOD", "mod_revision", compare.mod_revision),
                ("CREATE", "create_revision", compare.create_revision),
            )
            if value is not None
        ]

    def _operation(self, key: str, value: bytes | None, lease: int | None) -> Message:
        if value is None:
            return {"request_delete_range": {"key": self._key(key)}}
        put = {"key": self._key(key), "value": _text(value), "lease": str(lease or 0)}
        return {"request_put": put}


class _EtcdWatch(AsyncIterator[Changes]):
    def __init__(
        self, store: EtcdStore, messages: AsyncIterator[Message], from_revision: int
    ) -> None:
        self._store = store
        self._messages = messages
        self._from_revision = from_revision
        self._read: deque[Changes] = deque()

    async def __anext__(self) -> Changes:
        await trio.lowlevel.checkpoint()
        while not self._read:
            message = await anext(self._messages)
            self._read.extend(self._store.changes_of(message, self._from_revision))
        changes = self._read.popleft()
        self._store.returned(changes.revision)
        return changes


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _revision(answer: Message) -> int:
    return int(answer["header"]["revision"])


def _revision_of_event(event: Message) -> int:
    return int(event["kv"]["mod_revision"])


def _by_key(found: tuple[str, Any]) -> str:
    return found[0]


def _check_lease(error: EtcdRefused, lease: int | None) -> None:
    """Raise `LeaseExpired` if that is why etcd refused a transaction."""
    if lease is not None and error.status == NOT_FOUND and "lease not found" in error.reason:
        raise LeaseExpired(f"lease {lease} has expired") from None


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers; what is behind them (`-rc.1`) is left out."""
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdecimal())
