"""The metadata store of a cluster: etcd, version 3.4 or later, over its JSON gateway.

etcd's revisions, leases, transactions and watches are those of `MetaStore`, so this module only
translates. All keys begin with `etcd.key.prefix`. Answers are read in `etcd_answers.py`.

A watch is one request with an endless answer. Its revisions are never split: etcd sends the events
of a revision in one message. The first message says that the watch was created. If nothing has
changed since then it becomes a progress notice.

Other applications can write to the same etcd. Then revisions move that no watch of ours returns,
and a watch that is well looks like one that is silent. etcd sends progress notices only at
`--watch-progress-notify-interval`, every 10 minutes by default, and its gateway cannot be asked for
one. So `show_progress` writes `MARK`, a key within the prefix. The event of that key is the
progress notice of all watches.
"""

import base64
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from random import Random
from typing import Final

import trio

from odradek.broker.cluster.etcd_answers import (
    WatchAnswer,
    WatchEvent,
    read_any,
    read_kept,
    read_lease,
    read_range,
    read_txn,
    read_watch,
)
from odradek.broker.cluster.etcd_gateway import NOT_FOUND, EtcdGateway, EtcdRefused, Message
from odradek.broker.cluster.etcd_pace import drawn
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.settings import ConfigError
from odradek.broker.environment.env import (
    NO_PUTS,
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
PAGE_KEYS: Final = 500
"""Keys that are asked for at once: the answer stays far below what is read of one."""
KEYS_MAX: Final = 1_000_000
"""Keys of a range in all. No cluster has so many."""
TIMEOUT_S: Final = 2.0
PAUSE_S: Final = 1.0
LOSES_EVENTS_BEFORE: Final = (3, 5, 21)

LOGGER: Final = logging.getLogger(__name__)


class EtcdStore:
    """A `MetaStore` in etcd. Make it with `open`."""

    max_operations: Final = OPERATIONS_MAX

    def __init__(self, gateway: EtcdGateway, key_prefix: str, rng: Random) -> None:
        self._gateway = gateway
        self._key_prefix = key_prefix
        self._rng = rng

    @classmethod
    @asynccontextmanager
    async def open(
        cls, config: BrokerConfig, *, timeout_s: float = TIMEOUT_S, rng: Random
    ) -> AsyncIterator["EtcdStore"]:
        """Open the store at `etcd.endpoints`. Wait until etcd answers, and log that.

        `timeout_s` is the time for the answer of one endpoint. Raises `ConfigError` if etcd does
        not accept the certificates, the user or the password, or the broker not etcd's certificate.
        """
        async with EtcdGateway.open(config, timeout_s=timeout_s, rng=rng) as gateway:
            store = cls(gateway, config.etcd_key_prefix, rng)
            await store.wait_for_etcd()
            yield store

    async def wait_for_etcd(self) -> None:
        is_waiting = False
        while True:
            try:
                version = await self._gateway.version()
                # An etcd without a leader states its version, and so does one that lets nobody
                # read. A range needs both: without it the broker would start, and fail at its first
                # read.
                await self.range(MARK)
                break
            # Brokers and etcd are started in any order, so the broker waits, with one line for all
            # attempts.
            except StoreUnreachable as error:
                if not is_waiting:
                    LOGGER.warning("waiting for etcd: %s", error.message)
                is_waiting = True
            # Waiting does not change a wrong password or a missing permission.
            except EtcdRefused as error:
                raise ConfigError(
                    f"{error.message} Check etcd.user, etcd.password, and the user's permissions "
                    "for etcd.key.prefix."
                ) from None
            await trio.sleep(drawn(self._rng, PAUSE_S))
        if is_waiting:
            LOGGER.info("etcd answers")
        if _numbers(version) < LOSES_EVENTS_BEFORE:
            LOGGER.warning(
                "etcd is version %s: before 3.5.21 watches can lose events (etcd #18089, #19179). "
                "Update etcd.",
                version,
            )

    async def range(self, prefix: str) -> tuple[dict[str, Versioned], int]:
        first, after = self._bounds(prefix)
        found: dict[str, Versioned] = {}
        revision = 0
        while True:
            request = {
                **_between(first, after),
                "limit": str(PAGE_KEYS),
                # All pages are of the revision of the first (0 is the newest). Otherwise a change
                # between two pages would give an image that the store never had.
                "revision": str(revision),
            }
            try:
                answer = await self._gateway.call("/v3/kv/range", request, read_range(first, after))
            except EtcdRefused as error:
                # The revision of the first page may have been compacted meanwhile. That is no fault
                # of the caller: a range from the beginning finds a newer one.
                if not revision:
                    raise
                raise StoreUnreachable(f"etcd refuses the rest of a range: {error}") from error
            revision = revision or answer.header.revision
            for pair in answer.pairs:
                found[self._name(pair.key)] = pair.stored
            if not answer.has_more:
                break
            if len(found) > KEYS_MAX:
                raise StoreUnreachable(f"etcd has more than {KEYS_MAX} keys below {prefix}.")
            # The smallest key behind the last one. `read_range` has checked that the keys ascend,
            # so a wrong answer cannot keep this loop where it is.
            first = answer.pairs[-1].key + b"\0"
        found.pop(MARK, None)
        return found, revision

    async def txn(
        self,
        compares: Sequence[Compare],
        puts: Mapping[str, bytes | None],
        *,
        lease: int | None = None,
        lasting: Mapping[str, bytes | None] = NO_PUTS,
    ) -> tuple[bool, int]:
        check_operations(compares, {**puts, **lasting}, self.max_operations)
        assert not puts.keys() & lasting.keys(), (list(puts), list(lasting))
        request = {
            "compare": [
                condition for compare in compares for condition in self._conditions(compare)
            ],
            "success": [
                *(self._operation(key, value, lease) for key, value in puts.items()),
                *(self._operation(key, value, None) for key, value in lasting.items()),
            ],
        }
        try:
            answer = await self._gateway.call("/v3/kv/txn", request, read_txn, writes=True)
        except EtcdRefused as error:
            # etcd refuses the whole transaction if its lease has ended. A caller must know that
            # from other refusals: it registers again instead of giving up.
            _check_lease(error, lease)
            raise
        return answer.succeeded, answer.header.revision

    async def grant_lease(self, ttl_s: int) -> int:
        request = {"TTL": str(ttl_s)}
        answer = await self._gateway.call("/v3/lease/grant", request, read_lease)
        return answer.lease

    async def keep_lease(self, lease: int) -> int:
        request = {"ID": str(lease)}
        # `keep` and not `call`: a lease must not wait behind slow calls, or the broker loses its
        # leads although etcd is well.
        kept = await self._gateway.keep("/v3/lease/keepalive", request, read_kept(lease))
        # etcd answers for a lease that has ended, too, with a time of 0.
        if not kept.ttl_s:
            raise LeaseExpired(f"lease {lease} has expired")
        return kept.header.revision

    async def revoke_lease(self, lease: int) -> None:
        try:
            await self._gateway.call("/v3/lease/revoke", {"ID": str(lease)}, read_any)
        except EtcdRefused as error:
            # The lease has ended by itself, which is what was wanted.
            if error.status != NOT_FOUND:
                raise

    async def show_progress(self) -> None:
        try:
            await self.txn([], {MARK: b""})
        # It only hurries the watches. If the write fails, the watch that is silent is replaced.
        except KafkaError as error:
            LOGGER.info("the mark for watches was not written: %s", error)

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[AsyncIterator[Changes]]:
        first, after = self._bounds(prefix)
        wanted = {
            "create_request": {
                **_between(first, after),
                "start_revision": str(from_revision),
                "progress_notify": True,
            }
        }
        read = read_watch(first, after)
        async with self._gateway.stream("/v3/watch", wanted, read) as messages:
            yield _EtcdWatch(self, messages, from_revision)

    def changes_of(self, message: WatchAnswer, from_revision: int) -> Iterable[Changes]:
        """Return what a message of a watch says. Raises `Compacted`, `StoreUnreachable`."""
        # Such a watch would begin at a later revision without a word, and leave changes out.
        if message.compact_revision:
            raise Compacted(f"etcd has forgotten what is before {message.compact_revision}")
        if message.is_canceled:
            self._gateway.forget_token()  # it may be the reason
            raise StoreUnreachable(f"etcd has ended a watch: {message.cancel_reason}.")
        # The message that a watch was created has etcd's revision of that moment. Events between
        # `from_revision` and that one are still to come, so it is no progress notice for them. If
        # there are none, it is one: the caller learns that nothing has changed.
        if message.is_created:
            if message.header.revision < from_revision:
                yield Changes(revision=from_revision - 1, values={})
        elif not message.events:
            yield Changes(revision=message.header.revision, values={})
        # A revision may have changed several keys. Its events are in one message, and must count in
        # one step: half of it would show a topic without some of its partitions.
        for revision, together in groupby(message.events, key=_revision_of):
            values = {self._name(event.key): event.stored for event in together}
            values.pop(MARK, None)
            yield Changes(revision=revision, values=values)

    def _key(self, key: str) -> str:
        assert key.startswith("/"), key  # so that no key leaves the prefix
        return base64.b64encode(f"{self._key_prefix}{key}".encode()).decode()

    def _bounds(self, prefix: str) -> tuple[bytes, bytes]:
        """Return the first key that may start with `prefix`, and the first behind all of them."""
        first = f"{self._key_prefix}{prefix}".encode()
        # etcd has no search by prefix, only ranges. No byte of UTF-8 is 255, so adding one to the
        # last byte never overflows.
        return first, first[:-1] + bytes([first[-1] + 1])

    def _name(self, key: bytes) -> str:
        # Another program may have written a key that is not UTF-8. It is none of ours.
        return key.decode(errors="backslashreplace").removeprefix(self._key_prefix)

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
        self, store: EtcdStore, messages: AsyncIterator[WatchAnswer], from_revision: int
    ) -> None:
        self._store = store
        self._messages = messages
        self._from_revision = from_revision
        self._read: deque[Changes] = deque()

    async def __anext__(self) -> Changes:
        await trio.lowlevel.checkpoint()
        # A message may hold several revisions, and the first one may hold none.
        while not self._read:
            message = await anext(self._messages)
            self._read.extend(self._store.changes_of(message, self._from_revision))
        return self._read.popleft()


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _between(first: bytes, after: bytes) -> Message:
    return {"key": _text(first), "range_end": _text(after)}


def _revision_of(event: WatchEvent) -> int:
    return event.revision


def _check_lease(error: EtcdRefused, lease: int | None) -> None:
    """Raise `LeaseExpired` if that is why etcd refused a transaction."""
    if lease is not None and error.status == NOT_FOUND and "lease not found" in error.reason:
        raise LeaseExpired(f"lease {lease} has expired") from None


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers; what is behind them (`-rc.1`) is left out."""
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdecimal())
