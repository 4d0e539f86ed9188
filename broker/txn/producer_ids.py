"""Unique producer ids, allocated from the metadata store in blocks.

`/ids/producer` holds the first id of the next block, in decimal. A broker moves it by compare-and-
swap, which is durable before the first id of the block is used. After a crash the rest of the block
is never used. So ids are unique over all brokers and all restarts.
"""

from collections.abc import Iterator
from typing import Final

import trio

from odradek.broker.environment.env import Compare, MetaStore, Unreadable
from odradek.protocol.errors import ErrorCode, KafkaError

PRODUCER_IDS_KEY: Final = "/ids/producer"
BLOCK_SIZE: Final = 1_000
DIGITS_MAX: Final = 18
"""The digits of an id that leaves room for a block below 2^63."""


class _Refill:
    """The allocation of one block. The tasks that wait for it share its failure."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.failure: KafkaError | None = None


class ProducerIds:
    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._block: Iterator[int] = iter(())
        self._refill: _Refill | None = None

    def next_nowait(self) -> int | None:
        """Return the next id, or None if the block is used up; the caller then awaits `refill`."""
        return next(self._block, None)

    async def next(self) -> int:
        """Return the next id. Raises as `refill`."""
        while (producer_id := self.next_nowait()) is None:
            await self.refill()
        return producer_id

    async def refill(self) -> None:
        """Allocate a new block, or wait until another task has tried to.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) if the store refuses.
        """
        refill = self._refill
        if refill is not None:
            await refill.ended.wait()
            if refill.failure is not None:
                raise _not_now(refill.failure) from refill.failure
            return
        refill = self._refill = _Refill()
        try:
            self._block = await self._claim_block()
        except KafkaError as error:
            refill.failure = error
            raise _not_now(error) from error
        finally:
            self._refill = None
            refill.ended.set()

    async def _claim_block(self) -> Iterator[int]:
        while True:
            found, _ = await self._meta.range(PRODUCER_IDS_KEY)
            stored = found.get(PRODUCER_IDS_KEY)
            first = _first_id(stored.value) if stored else 0
            claim = Compare(key=PRODUCER_IDS_KEY, mod_revision=stored.mod_revision if stored else 0)
            following = first + BLOCK_SIZE
            # Not a `guarded_write`: two brokers that claim the same block write the same value, so
            # the key does not show which of them has it. A block whose answer is lost is not used.
            succeeded, _ = await self._meta.txn([claim], {PRODUCER_IDS_KEY: b"%d" % following})
            if succeeded:
                return iter(range(first, following))


def _first_id(value: bytes) -> int:
    """Return the first id of the next block. Raises `Unreadable`."""
    if not value.isdigit() or len(value) > DIGITS_MAX:
        raise Unreadable(PRODUCER_IDS_KEY, "no number of an id")
    return int(value)


def _not_now(error: KafkaError) -> KafkaError:
    # Kafka's code for this case: every client retries it, and older clients do not retry others.
    message = f"no producer id can be allocated: {error}"
    return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
