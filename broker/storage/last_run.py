"""The file `last-run` in the data directory: facts that a broker stores for its next start.

It has the boot id of the system. If it differs at the next start, the machine was restarted, and
recovery allows for more torn writes (`recovery.py`). The boot id is on disk before the first append
of the run. If one of the two is unknown, recovery assumes a restart. That is the safe side: the
broker never takes an ordinary power failure for damage, and it keeps the bytes that it cuts off.

It also has the partitions that were found damaged. A later start reads their whole logs and judges
them as after a kill. Otherwise a clean shutdown, or a restart of the machine, would make the damage
look like the work of a crash.

And it says whether the broker answered before records were on disk (`log.flush=os`). If it did, and
the machine went down, the logs may lack what was acknowledged. That stays noted until the broker
has left the in-sync sets (`cluster/power_loss.py`).

The content is msgpack behind a CRC-32C, as in `checkpoint`.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from odradek.broker.environment.env import Disk
from odradek.broker.storage import small_file
from odradek.late import dataclass

LAST_RUN: Final = "last-run"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The contents of `last-run`. `damaged` has the directory names of partitions."""

    boot_id: str | None = None
    damaged: frozenset[str] = frozenset()
    is_unflushed: bool = True
    """True if records were acknowledged before they were on disk; also if nothing is known."""
    lacks_records: bool = False
    """True if logs may lack acknowledged records, and brokers may not know it yet."""
    uses_journal: bool | None = None
    """True if the logs count only as their checkpoints and the journal have them. None: unknown."""
    journal_life: int = 0
    """The last life of the journal, 0 if there was none."""
    unrestored: Mapping[str, int] = field(default_factory=dict)
    """The life of the journal, whose files are kept, that has records of a log which could not be
    opened since; by the name of its directory."""


async def read_last_run(disk: Disk, directory: str) -> LastRun:
    """Read the file; return an empty LastRun if it is missing or damaged. Raises OSError."""
    data = await small_file.read_bytes(disk, f"{directory}/{LAST_RUN}")
    content = None if data is None else small_file.decode(data)
    if content is None:
        return LastRun()
    return LastRun(
        boot_id=content["boot_id"],
        damaged=frozenset(content["damaged"]),
        is_unflushed=content.get("unflushed", True),
        lacks_records=content.get("lacks", False),
        uses_journal=content.get("uses_journal", False),
        journal_life=content.get("journal_life", 0),
        unrestored=content.get("unrestored", {}),
    )


async def write_last_run(disk: Disk, directory: str, run: LastRun) -> None:
    """Write and flush the file. Raises OSError."""
    content = small_file.encode(
        {
            "boot_id": run.boot_id,
            "damaged": sorted(run.damaged),
            "unflushed": run.is_unflushed,
            "lacks": run.lacks_records,
            "uses_journal": bool(run.uses_journal),
            "journal_life": run.journal_life,
            "unrestored": dict(run.unrestored),
        }
    )
    path = f"{directory}/{LAST_RUN}"
    await small_file.write_beside(disk, path, content)
    await small_file.move_into_place(disk, path)
