"""The sink's commit: everything that the tasks of a batch wrote becomes visible at once, once.

Spark runs a batch again whenever it is not sure that it was committed: after a crash anywhere in
`commit`, and even after a clean stop of the query. The records of the two runs cannot be compared,
because rows may belong to other tasks in the second run. So what makes a batch visible also writes
the decision, the number of the batch (`decisions.py`).

There are two modes. In *group* mode a task writes to the brokers itself, in a transaction that no
other attempt uses, and leaves it open (`task_writer.py`). In *relay* mode its message has the
encoded records, and the driver writes them. Group mode needs a broker with transaction groups.
Small outputs are relayed in either mode. A commit has these steps:

1. acquire: InitProducerId of the transactional id `{<prefix>.<scope>}.driver`. A scope is a query
   or an application, and the target (`scope.py`). Any other commit of this scope, whether on a
   driver that was given up or in a process that outlived its driver, is fenced from here on, and an
   open transaction that it left is aborted.
2. claim: write the decision, in a transaction of this id.
3. read: look for earlier decisions before that record. If there is one for this batch, Spark is
   replaying it, and it is skipped, with a line in the log. If there is one for a newer batch, this
   driver is out of date and must stop. Reading after writing matters: a leader or coordinator that
   was deposed may still answer a question, but it cannot store a record.
4. write: the relayed records of all tasks, in the same transaction.
5. abort the attempts of this run that Spark has not chosen, and wait for their markers. A partition
   shows readers nothing behind the first record of an open transaction. If that record lay between
   those of two chosen attempts, readers would see a part of the batch until step 7.
6. decide: one EndTxn commits this transaction, and as members of its transaction group those of
   all tasks that Spark has chosen. Without such tasks it is an ordinary commit.
7. clean: abort what is left of this batch and of earlier ones: attempts that were not chosen, and
   runs that were given up. They have no part in any decision from here on.

If a task's transaction has ended before step 6 (it timed out, say), nothing of the batch becomes
visible. The query fails, and runs the batch again when it is started again.

A batch write without an application's id and version cannot be recognised when it runs again. It is
all or nothing, and leaves no decision that anybody reads.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Final

from odradek.client.blocking import Admin, Producer, Transaction, TransactionGroup
from odradek.client.config import ProducerOptions
from odradek.client.errors import Aborted, Fenced, OdradekError
from odradek.client.producing.detached import DetachedTransaction
from odradek.client.spark.decisions import Decision, Decisions, decision_value
from odradek.client.spark.errors import CommitRefused
from odradek.client.spark.members import (
    abort_each,
    attempts_of,
    attempts_of_group,
    group_name,
    group_of,
    open_members,
    transactional_id,
    wait_until_ended,
)
from odradek.client.spark.messages import TaskMessage
from odradek.client.spark.options import NO_GROUPS, WriteOptions
from odradek.client.spark.refused_rows import Sent
from odradek.client.spark.scope import Scope, find_scope
from odradek.client.types import OffsetAndMetadata
from odradek.protocol.errors import ErrorCode

LOGGER: Final = logging.getLogger("odradek.spark")
DRIVER: Final = "driver"
FENCING: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


class StaleDriver(RuntimeError):
    """A newer batch was committed than this one. The message states what to do."""


class BatchCommit:
    """The commits of one query or application to the target of its options.

    `query_id` is the query in whose foreachBatch an application writes.

    Each commit opens its connections, with one client of each kind. To keep them longer, a process
    that Spark may end at any time would need module state, by query, and would have to drop it when
    a producer is fenced.
    """

    def __init__(self, options: WriteOptions, write_id: str, query_id: str | None = None) -> None:
        self._options = options
        self._write_id = write_id
        self._query_id = query_id
        self._connected: Admin | None = None

    @contextmanager
    def _admin(self) -> Iterator[Admin]:
        """Use one administrator, and its connections, in the block and in those inside it."""
        if self._connected is not None:
            yield self._connected
            return
        with Admin(self._options.bootstrap, **self._options.client) as self._connected:
            try:
                yield self._connected
            finally:
                self._connected = None

    @cached_property
    def scope(self) -> Scope:
        """The scope of the decisions, with the id of the topic when it was first looked up."""
        with self._admin() as admin:
            return find_scope(admin, self._options, self._write_id, self._query_id)

    @cached_property
    def decisions(self) -> Decisions:
        options = self._options
        return Decisions(options.bootstrap, options.client, prefix=options.prefix, scope=self.scope)

    @property
    def group_name(self) -> str:
        return group_name(self._options.prefix, self.scope)

    @property
    def transactional_id(self) -> str:
        return transactional_id(self.group_name, DRIVER)

    def commit(self, batch_id: int | None, messages: Sequence[TaskMessage]) -> bool:
        """Make the results of all tasks visible, unless batch `batch_id` was committed before.

        Return True if they were. Raises `StaleDriver`, `CommitRefused` and the client's errors.
        After an error either nothing is visible, or the batch is committed, and the next commit of
        the same batch finds that.
        """
        members = [each.transaction for each in messages if each.transaction is not None]
        with (
            self._admin(),
            TransactionGroup(
                self._options.bootstrap, self.group_name, **self._options.client
            ) as group,
            self.decisions.connected(),
        ):
            has_groups = self._options.mode != "relay" and group.is_served()
            if not has_groups and self._options.mode == "group":
                raise CommitRefused(NO_GROUPS)
            if not has_groups and members:
                raise CommitRefused(
                    f"Tasks of {self._write_id} have written in transactions, and the broker has "
                    "no transaction groups any more: nothing of them is visible. Start it again."
                )
            try:
                with self.acquire() as producer:
                    is_new = self._commit_once(producer, group, batch_id, messages, members)
            except (Fenced, Aborted) as error:
                if isinstance(error, Aborted) and error.code not in FENCING:
                    raise
                raise CommitRefused(
                    f"{self._of_batch(batch_id)} is not committed by this driver, for another one "
                    f"has taken over: {error}. If two queries use one checkpoint, or two jobs one "
                    "txnAppId, stop one of them."
                ) from error
            if has_groups:
                self.clean(group, batch_id)
        return is_new

    def _commit_once(
        self,
        producer: Producer,
        group: TransactionGroup,
        batch_id: int | None,
        messages: Sequence[TaskMessage],
        members: Sequence[DetachedTransaction],
    ) -> bool:
        is_recorded = batch_id is not None or bool(members)
        hint = self.decisions.hint(is_driver=True) if is_recorded else None
        if hint is not None and hint.offset < 0:
            self.decisions.ensure_topic()
            if batch_id is not None:
                self.fence_earlier_version()
        with producer.transaction() as transaction:
            if hint is not None:
                offset = self.claim(transaction, batch_id, messages)
                if batch_id is not None and self.is_decided(batch_id, hint, offset):
                    transaction.abort()
                    return False
            if any(each.is_late for each in messages):
                raise CommitRefused(
                    f"A task found batch {batch_id} of {self._write_id} committed, and the "
                    f"decisions in {self.decisions.place} do not have it: the offset of group "
                    f"{self.decisions.group_id} was changed by hand. Delete that group and start "
                    "the query again."
                )
            self.write(transaction, messages)
            self.check_target(members)
            if hint is not None:
                self.point_to(transaction, batch_id, offset)
            leader = transaction.detach() if members else None
        if leader is not None:
            # invariant spark 2: A partition shows all of a batch or nothing: attempts that were not
            # chosen are aborted before the decision.
            # plant an attempt that was not chosen is open while readers see the batch
            self.abort_losers(group, members)
            self.decide(group, batch_id, leader, members)
        return True

    def acquire(self) -> Producer:
        """Fence every other commit of this scope, by entering a producer with its id."""
        return self._producer(self.transactional_id)

    def fence_earlier_version(self) -> None:
        """Fence a driver of an earlier version, whose id did not name the target."""
        earlier = group_name(self._options.prefix, Scope(write_id=self._write_id))
        with self._producer(transactional_id(earlier, DRIVER)):
            pass

    def _producer(self, transactional_id: str) -> Producer:
        options = self._options
        producer: ProducerOptions = {
            **options.client,
            **options.producer,
            "transactional_id": transactional_id,
        }
        return Producer(options.bootstrap, **producer)

    def claim(
        self, transaction: Transaction, batch_id: int | None, messages: Sequence[TaskMessage]
    ) -> int:
        """Write the decision's record in the transaction, and return its offset."""
        records = sum(message.record_count for message in messages)
        members = sum(message.transaction is not None for message in messages)
        delivery = transaction.send(
            self.decisions.place.topic,
            decision_value(batch_id, records, members),
            key=self.scope.name.encode(),
            partition=self.decisions.place.partition,
        )
        return delivery.result().offset

    def is_decided(self, batch_id: int, hint: Decision, offset: int) -> bool:
        """Return True if the batch was committed. Raises `StaleDriver` if a newer batch was."""
        # invariant spark 1: A batch is decided once, and never after a newer one: the decisions are
        # read behind the claim, and the driver's transaction leads the group.
        # tests/spark/test_commit_model.py
        # plant the sink's decision is made without its driver
        # plant the sink does not look for newer decisions than its own batch's
        newest = self.decisions.newest(hint, offset)
        if newest.batch_id < batch_id:
            return False
        what = f"Batch {batch_id} of {self._write_id}"
        remark = self._remark(newest)
        if newest.batch_id > batch_id:
            why = (
                "a write with a higher txnVersion came before. Give this one a number above that."
                if self._options.application is not None and self._query_id is None
                else "another driver runs this query, or its checkpoint was set back. Stop this "
                "one, or begin with a new checkpoint."
            )
            raise StaleDriver(
                f"{what} is out of date, for batch {newest.batch_id} has been committed to "
                f"{newest.scope.target}: {why}{remark}"
            )
        LOGGER.warning(
            "%s is not written to %s, for it is taken for a repetition: the decision at offset "
            "%d of %s has this batch of %s, written to %s.%s",
            what,
            self.scope.target,
            newest.offset,
            self.decisions.place,
            self._write_id,
            newest.scope.target,
            remark,
        )
        return True

    def _remark(self, newest: Decision) -> str:
        """Return what could not be compared when a decision was found to count, in a sentence."""
        other_id = "If it is another write, give it another txnAppId."
        if newest.scope.topic is None:
            return (
                " That decision is of an earlier version, which did not note the target, so it "
                f"counts for every one. {other_id}"
            )
        if self._options.application is not None and None in (
            self._query_id,
            newest.scope.query_id,
        ):
            whose = "This write" if self._query_id is None else "The write of that decision"
            return (
                f" {whose} has no query id (it ran outside foreachBatch), so it cannot be told "
                f"from a retry. {other_id}"
            )
        return ""

    def write(self, transaction: Transaction, messages: Sequence[TaskMessage]) -> None:
        """Write the relayed records in the transaction. Raises `WrongRow` if one is refused."""
        sent = Sent()
        try:
            for task, message in enumerate(messages):
                for batch in message.batches:
                    delivery = transaction.send_batch(batch.topic, batch.partition, batch.data)
                    sent.add(delivery, task, batch)
            transaction.flush()
        except OdradekError as error:
            wrong = sent.explain()
            if wrong is not None:
                raise wrong from error
            raise

    def check_target(self, members: Sequence[DetachedTransaction]) -> None:
        """Raise `CommitRefused` unless all records were written to the topic of the scope.

        A topic's id never comes back. So if it is the same before the first record and after the
        last one, the topic was not made anew in between.
        """
        with self._admin() as admin:
            now = find_scope(admin, self._options, self._write_id, self._query_id)
        # invariant spark 3
        if now == self.scope and all(
            group_of(each.transactional_id) == self.group_name for each in members
        ):
            return
        raise CommitRefused(
            f"The topic {self._options.topic} was deleted or made anew while {self._write_id} "
            "wrote to it, so nothing of this batch is visible. Start it again."
        )

    def point_to(self, transaction: Transaction, batch_id: int | None, offset: int) -> None:
        """Store in the transaction where the decision is, as the group's offset."""
        metadata = json.dumps({"version": 1, "offset": offset})
        offsets = {self.decisions.place: OffsetAndMetadata(batch_id or 0, metadata)}
        transaction.send_offsets(offsets, self.decisions.group_id)

    def abort_losers(self, group: TransactionGroup, members: Sequence[DetachedTransaction]) -> None:
        """Abort the open transactions of this run's attempts at the batch that were not chosen.

        Those of earlier runs are left for `clean`: a driver that is fenced must not abort what its
        successor's tasks write. They lie before all records of this run, unless a task has outlived
        its driver. If it fails, or the markers do not come soon, the batch is committed anyway.
        """
        try:
            chosen = {each.transactional_id for each in members}
            with self._admin() as admin:
                found = open_members(admin, attempts_of(members[0].transactional_id))
                losers = [each for each in found if each.transactional_id not in chosen]
                abort_each(group, losers)
                wait_until_ended(admin, losers)
        except OdradekError as error:
            LOGGER.warning("attempts of %s may be open still: %s", self._write_id, error)

    def decide(
        self,
        group: TransactionGroup,
        batch_id: int | None,
        leader: DetachedTransaction,
        members: Sequence[DetachedTransaction],
    ) -> None:
        """Commit the transactions of the driver and of all chosen tasks together."""
        # invariant spark 1
        try:
            group.commit([leader, *members])
        except Aborted as error:
            abort_each(group, [leader, *members])
            remedy = (
                "If a task's transaction has timed out, raise kafka.transaction.timeout.ms (and "
                "the broker's transaction.max.timeout.ms). If two queries use one checkpoint, or "
                "two jobs one txnAppId, stop one of them."
            )
            raise CommitRefused(
                f"{self._of_batch(batch_id)} was not committed, and nothing of it is visible: "
                f"{error}. Start it again. {remedy}"
            ) from error

    def _of_batch(self, batch_id: int | None) -> str:
        return self._write_id if batch_id is None else f"Batch {batch_id} of {self._write_id}"

    def clean(self, group: TransactionGroup, batch_id: int | None) -> None:
        """Abort the transactions that this batch and earlier ones have left open.

        Nothing is lost if that fails: they time out.
        """
        try:
            with self._admin() as admin:
                found = open_members(admin, attempts_of_group(self.group_name), up_to=batch_id)
            abort_each(group, found)
        except OdradekError as error:
            LOGGER.warning(
                "open transactions of %s are left to time out: %s", self._write_id, error
            )
