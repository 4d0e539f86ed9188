"""A metadata store in memory, with revisions like etcd's."""

from collections.abc import Callable, Sequence

import trio

from odradek.broker.env import Compare, Versioned


class FakeMetaStore:
    """A store that calls `before_txn` before each transaction, for a concurrent change."""

    def __init__(self) -> None:
        self.values: dict[str, Versioned] = {}
        self.revision = 0
        self.txn_count = 0
        self.before_txn: Callable[[], None] = lambda: None

    async def range(self, prefix: str) -> tuple[dict[str, Versioned], int]:
        await trio.lowlevel.checkpoint()
        found = {key: value for key, value in sorted(self.values.items()) if key.startswith(prefix)}
        return found, self.revision

    async def txn(
        self, compares: Sequence[Compare], puts: dict[str, bytes | None]
    ) -> tuple[bool, int]:
        await trio.lowlevel.checkpoint()
        self.before_txn()
        self.txn_count += 1
        if not all(self._holds(compare) for compare in compares):
            return False, self.revision
        self.put(puts)
        return True, self.revision

    def put(self, puts: dict[str, bytes | None]) -> None:
        self.revision += 1
        for key, value in puts.items():
            before = self.values.pop(key, None)
            if value is not None:
                created = before.create_revision if before else self.revision
                self.values[key] = Versioned(
                    value=value, create_revision=created, mod_revision=self.revision
                )

    def _holds(self, compare: Compare) -> bool:
        found = self.values.get(compare.key)
        modified, created = (found.mod_revision, found.create_revision) if found else (0, 0)
        return compare.mod_revision in (None, modified) and compare.create_revision in (
            None,
            created,
        )
