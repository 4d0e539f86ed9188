"""The transactional ids of the sink in group mode, and the transactions that are open under them.

The writes of one scope (`scope.py`) are a transaction group `<prefix>.<scope>`. So the commit for
one target neither fences nor aborts what tasks write to another. The id of an attempt of a task is
`{<prefix>.<scope>}.<run>.<batch>.<partition>.<attempt>.<random>`, and nobody uses it again.
"""

import logging
import re
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Final

from odradek.client.administration.descriptions import OPEN_STATES
from odradek.client.blocking import Admin, OdradekError, TransactionGroup
from odradek.client.errors import Retriable
from odradek.client.producing.detached import DetachedTransaction
from odradek.client.spark.scope import Scope
from odradek.late import dataclass
from odradek.protocol.state_topics import tag_of

LOGGER: Final = logging.getLogger("odradek.spark")
RUN_CHARACTERS: Final = 8
ONGOING: Final = "Ongoing"
MARKERS_S: Final = 5.0
"""How long a commit waits for the markers of attempts that it has aborted."""
PAUSE_S: Final = 0.01
ABORTS_S: Final = 60.0
"""How long transactions are aborted one after the other if brokers do not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt of a task of a write.

    `write_id` is the id of the streaming query or of the batch write, and `query_id` that of the
    query in whose foreachBatch it runs. `batch_id` is the number of the micro-batch, or the version
    of a batch write, or None for a batch write without version. `run` is the id of the query's run.
    """

    write_id: str
    batch_id: int | None
    run: str
    partition: int
    attempt: int
    query_id: str | None = None

    def new_member(self) -> str:
        """Return a new name for a member of the group."""
        run = re.sub("[^0-9a-zA-Z]", "", self.run)[:RUN_CHARACTERS] or "0"
        random = uuid.uuid4().hex[:RUN_CHARACTERS]
        return f"{run}.{self.batch_id or 0}.{self.partition}.{self.attempt}.{random}"


def group_name(prefix: str, scope: Scope) -> str:
    return f"{prefix}.{scope.name}"


def group_of(name: str) -> str:
    """Return the group of a transactional id that `transactional_id` has made."""
    group = tag_of(name)
    assert group is not None, name
    return group


def transactional_id(group: str, member: str) -> str:
    return f"{{{group}}}.{member}"


def batch_of_member(name: str) -> int | None:
    """Return the batch of an attempt's transactional id; None for another id, as the driver's."""
    parts = name.rpartition("}.")[2].split(".")
    return int(parts[1]) if len(parts) == 5 and parts[1].isdecimal() else None


def attempts_of_group(group: str) -> str:
    """Return a pattern of the transactional ids of a group."""
    return rf"\{{{re.escape(group)}\}}\..*"


def attempts_of(name: str) -> str:
    """Return a pattern of the transactional ids of all attempts in this one's run and batch."""
    group, _, attempt = name.rpartition("}.")
    run, batch, *_ = attempt.split(".")
    return rf"{re.escape(group)}\}}\.{re.escape(run)}\.{batch}\..*"


def open_members(admin: Admin, pattern: str, up_to: int | None = None) -> list[DetachedTransaction]:
    """Return the open transactions of attempts, of batch `up_to` and before; None is all."""
    names = []
    for each in admin.list_transactions(states=[ONGOING], pattern=pattern):
        batch = batch_of_member(each.transactional_id)
        if batch is not None and (up_to is None or batch <= up_to):
            names.append(each.transactional_id)
    described = admin.describe_transactions(*names) if names else {}
    return [
        DetachedTransaction(name, found.producer_id, found.producer_epoch)
        for name, found in described.items()
        if not isinstance(found, OdradekError) and found.state == ONGOING
    ]


def wait_until_ended(admin: Admin, members: Sequence[DetachedTransaction]) -> None:
    """Return when the markers of these transactions are written, or after a few seconds."""
    names = [each.transactional_id for each in members]
    give_up_at = time.monotonic() + MARKERS_S
    while names:
        described = admin.describe_transactions(*names)
        names = [
            name
            for name, found in described.items()
            if not isinstance(found, OdradekError) and found.state in OPEN_STATES
        ]
        if names:
            if time.monotonic() >= give_up_at:
                return
            time.sleep(PAUSE_S)  # between two looks: no request waits for a marker


def abort_each(group: TransactionGroup, members: Iterable[DetachedTransaction]) -> int:
    """Abort some transactions, each by itself, and return how many were.

    One that is decided stays decided: the broker refuses to abort it. If brokers do not answer for
    a while, the others are left: the time of a call for each of some hundred tasks is hours.
    """
    aborted = 0
    waiting = list(members)
    give_up_at = time.monotonic() + ABORTS_S
    for number, member in enumerate(waiting, 1):
        try:
            group.abort([member])
            aborted += 1
        except OdradekError as error:
            LOGGER.debug("%s was not aborted: %s", member.transactional_id, error)
            left = len(waiting) - number
            if left and isinstance(error, Retriable) and time.monotonic() >= give_up_at:
                LOGGER.warning("%d open transactions are left to time out: %s", left, error)
                break
    return aborted
