"""The accounts of what clients use of their quotas.

A bucket (`rates.py`) is shared by the connections that share a quota (`entities.py`). It is made
when a client with a quota first uses something. Clients choose their ids, so the number of buckets
is bounded: for another one, that which was not used for the longest time is forgotten. Its client
begins anew. Long names are kept as digests.

Times are those of trio's clock.
"""

from collections.abc import Callable
from hashlib import blake2b
from math import inf
from typing import Final

import trio

from odradek.broker.config.quotas import QuotaSettings
from odradek.broker.quotas.entities import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    NO_QUOTAS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Found,
    QuotaTable,
)
from odradek.broker.quotas.loop_times import LoopTimes
from odradek.broker.quotas.rates import Bucket
from odradek.broker.values.histogram import Histogram

WAIT_MAX_SECONDS: Final = 20.0
"""The longest time for which a connection is not read. Kafka has no bound for bytes, and clients
give up a connection that answers nothing for their request.timeout.ms, which is mostly 30 s. A
request that is under way when the wait begins needs the rest of it."""
REFUSED_WAIT_MAX_SECONDS: Final = 1.0
"""The longest time after which a connection that is over its quota is closed. It is Kafka's."""
NAME_REMEMBERED_MAX: Final = 255
"""The most characters of a name that is remembered as it is. Clients choose up to 32,767."""
ACCOUNTS_MAX: Final = 10_000
"""The most accounts of one kind of quota."""
FOUND_MAX: Final = 10_000
"""The most clients whose quotas are remembered, so that they are not looked up each time."""
OF_SMALL_REQUESTS: Final = (PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE)

Sharers = tuple[str | None, str | None]


class QuotaAccounts:
    """The accounts of this broker's clients."""

    def __init__(
        self, table: Callable[[], QuotaTable], settings: Callable[[], QuotaSettings]
    ) -> None:
        """`table` returns the quotas of the newest image."""
        self._newest_table = table
        self._settings = settings
        self._table = NO_QUOTAS  # so that the first quotas are a change, also those after a start
        self._found: dict[tuple[str, str, str], Found | None] = {}
        self._buckets: dict[str, dict[Sharers, Bucket]] = {}
        self.loop_times = LoopTimes()
        self.waits: Final[dict[str, Histogram]] = {}
        """How long connections were told to wait, by the kind of the quota."""

    @property
    def are_there_any(self) -> bool:
        """True if there is a quota of any client or address."""
        return bool(self._newest_table().of)

    def find(self, kind: str, user: str, client_id: str) -> Found | None:
        """Return the quota of a client; None without one."""
        table = self._newest_table()
        if table is not self._table or len(self._found) >= FOUND_MAX:
            self._table = table
            self._found.clear()
            self.loop_times.switch(is_on=REQUEST_PERCENTAGE in table.kinds)
        if kind not in table.kinds:
            return None
        if max(len(user), len(client_id)) > NAME_REMEMBERED_MAX:
            return _with_short_names(table.find(kind, user, client_id))
        asked = kind, user, client_id
        if asked not in self._found:
            self._found[asked] = table.find(kind, user, client_id)
        return self._found[asked]

    def limits_small_requests(self, user: str, client_id: str) -> bool:
        """Return True if each small request of a client must be counted."""
        return any(self.find(kind, user, client_id) for kind in OF_SMALL_REQUESTS)

    def use(self, kind: str, user: str, client_id: str, amount: float) -> float:
        """Count what a client uses. Return the seconds that it must wait, 0 without a quota."""
        found = self.find(kind, user, client_id)
        if found is None:
            return 0.0
        bucket = self._bucket(kind, found)
        self._wait_seconds(kind, found)  # fills the bucket first: it is full at its bound
        bucket.take(amount)
        waits = self._wait_seconds(kind, found)
        if kind == REQUEST_PERCENTAGE:  # as in Kafka: for its time a client waits for one sample
            return min(waits, self._settings().quota_window_size_seconds)
        return waits

    def wait_seconds(self, kind: str, user: str, client_id: str) -> float:
        """Return the seconds that a client must wait for what it has used before."""
        found = self.find(kind, user, client_id)
        return 0.0 if found is None else self._wait_seconds(kind, found)

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """Return the bytes of records that one answer may have for a client; None: no limit."""
        found = self.find(CONSUMER_BYTE_RATE, user, client_id)
        return None if found is None else found.limit * self._burst_seconds(CONSUMER_BYTE_RATE)

    def connect(self, address: str) -> float:
        """Count a connection. Return the seconds after which it is closed; 0 if it may stay."""
        kind, limit = CONNECTION_CREATION_RATE, self._newest_table().connection_rate(address)
        if limit is None:
            return 0.0
        found = Found(limit, (address, None))
        bucket = self._bucket(kind, found)
        self._wait_seconds(kind, found)
        bucket.take(1)
        waits = self._wait_seconds(kind, found)
        if waits:
            bucket.take(-1)
        waits = min(waits, REFUSED_WAIT_MAX_SECONDS)
        self.note_wait(kind, waits)
        return waits

    def mutate(self, user: str, client_id: str, count: int, *, is_strict: bool) -> float:
        """Count changes of topics. Return the seconds to wait.

        A strict client that must wait makes no change, so nothing is counted then. One request may
        overdraw the bucket.
        """
        kind = CONTROLLER_MUTATION_RATE
        found = self.find(kind, user, client_id)
        if found is None:
            return 0.0
        bucket = self._bucket(kind, found)
        waits = self._wait_seconds(kind, found)
        if is_strict and waits:
            return waits
        bucket.take(count)
        return 0.0 if is_strict else self._wait_seconds(kind, found)

    def note_wait(self, kind: str, seconds: float) -> None:
        """Note that a connection waits, if it does."""
        if seconds > 0:
            self.waits.setdefault(kind, Histogram()).note(seconds)

    def _bucket(self, kind: str, found: Found) -> Bucket:
        buckets = self._buckets.setdefault(kind, {})
        bucket = buckets.pop(found.sharers, None)
        if bucket is None:
            burst = _in_units(kind, found.limit) * self._burst_seconds(kind)
            bucket = Bucket(burst, trio.current_time())
            if len(buckets) >= ACCOUNTS_MAX:
                del buckets[next(iter(buckets))]
        buckets[found.sharers] = bucket  # at the end: it was used last
        return bucket

    def _wait_seconds(self, kind: str, found: Found) -> float:
        bucket = self._buckets.get(kind, {}).get(found.sharers)
        if bucket is None:
            return 0.0
        rate = _in_units(kind, found.limit)
        return bucket.wait_seconds(
            rate,
            rate * self._burst_seconds(kind),
            trio.current_time(),
            debt_max_seconds=inf if kind == CONTROLLER_MUTATION_RATE else WAIT_MAX_SECONDS,
        )

    def _burst_seconds(self, kind: str) -> int:
        """Return the seconds whose quota a client may use at once, which are Kafka's."""
        settings = self._settings()
        if kind == CONTROLLER_MUTATION_RATE:
            seconds = settings.controller_quota_window_size_seconds
            return settings.controller_quota_window_num * seconds
        return max(1, settings.quota_window_num - 1) * settings.quota_window_size_seconds


def _with_short_names(found: Found | None) -> Found | None:
    """Return a quota whose sharers are known by digests, where their names are long."""
    if found is None:
        return None
    user, client_id = found.sharers
    return Found(found.limit, (_short(user), _short(client_id)))


def _short(name: str | None) -> str | None:
    if name is None or len(name) <= NAME_REMEMBERED_MAX:
        return name
    return blake2b(name.encode(errors="surrogatepass"), digest_size=32).hexdigest()


def _in_units(kind: str, limit: float) -> float:
    """Return a limit in what is counted in a second: a percentage is one of seconds."""
    return limit / 100 if kind == REQUEST_PERCENTAGE else limit
