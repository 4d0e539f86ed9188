"""A write to the metadata store that ends with a known outcome.

When the answer to a transaction is lost, the transaction was applied, or not, or it is still under
way and will be applied later. Reading alone cannot distinguish the last two. So the same
transaction is sent again. Either it is applied now, and the first can no longer be: its comparison
fails. Or its comparison fails, and the keys show whether the first was applied or another writer
was faster.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import trio

from odradek.broker.environment.env import (
    Compare,
    MetaStore,
    OutcomeUnknown,
    StoreUnreachable,
    Versioned,
)

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
ABSENT: Final = 0
"""The revision of a key that is not there."""


def unchanged_since(key: str, found: Mapping[str, Versioned]) -> Compare:
    """Return the comparison that a key is as it was found, or is still not there."""
    stored = found.get(key)
    return Compare(key=key, mod_revision=ABSENT if stored is None else stored.mod_revision)


async def guarded_write(
    meta: MetaStore,
    compares: Sequence[Compare],
    puts: Mapping[str, bytes | None],
    *,
    lease: int | None = None,
) -> tuple[bool, int]:
    """Apply a transaction, and find out the outcome if its answer is lost. Return as `txn` does.

    It waits as long as the store is away, if the first answer was lost. Raises `StoreUnreachable`
    if the first attempt was certainly not made, `LeaseExpired`, and KafkaError if the store
    refuses.

    The transaction must fail when it is applied twice: a key that it writes is compared. Its values
    must be ones that no other writer writes. False may also mean that it was applied and then
    overwritten: as after any False, the caller reads the keys again.
    """
    assert any(compare.key in puts for compare in compares), (compares, list(puts))
    try:
        return await meta.txn(compares, puts, lease=lease)
    except OutcomeUnknown:
        pass
    pause_s = FIRST_PAUSE_S
    while True:
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        try:
            applied, revision = await meta.txn(compares, puts, lease=lease)
            return (True, revision) if applied else await _read_outcome(meta, puts)
        except (OutcomeUnknown, StoreUnreachable):
            continue


async def _read_outcome(meta: MetaStore, puts: Mapping[str, bytes | None]) -> tuple[bool, int]:
    """Return True if the keys have the values of one transaction, and its revision."""
    written: list[Versioned] = []
    revision = 0
    for key, value in puts.items():
        found, revision = await meta.range(key)
        stored = found.get(key)
        if (stored.value if stored else None) != value:
            return False, revision
        if stored is not None:
            written.append(stored)
    revisions = {versioned.mod_revision for versioned in written}
    if len(revisions) > 1:
        return False, revision
    return True, max(revisions, default=revision)
