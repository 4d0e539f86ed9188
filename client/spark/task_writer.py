"""The work of a task: write its rows in a transaction of its own, or give them to the driver.

Rows are encoded first. Up to `inline.max.bytes` they are returned in the message. With more than
that, and if the broker has transaction groups, the attempt opens a transaction under an id that
nobody else uses, writes everything to the leaders of the partitions, and leaves it open
(`Transaction.detach`). The driver ends it with those of all other tasks. Without transaction groups
everything is returned in the message, up to `relay.max.task.bytes`.

An attempt that fails aborts its transaction. One that is killed leaves it open; it is aborted when
a later commit cleans up, or when its time is over.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any, Final

from odradek.client.blocking import Admin, OdradekError, Producer, Transaction, TransactionGroup
from odradek.client.config import ClientOptions, ProducerOptions
from odradek.client.spark.decisions import Decisions
from odradek.client.spark.errors import CommitRefused
from odradek.client.spark.members import Attempt, group_name, transactional_id
from odradek.client.spark.messages import TaskMessage, TopicBatch
from odradek.client.spark.options import (
    FIRST_CONNECT_MS,
    MEMBER_TIMEOUT_MS,
    NO_GROUPS,
    WriteOptions,
)
from odradek.client.spark.refused_rows import Sent
from odradek.client.spark.scope import Scope, find_scope
from odradek.client.spark.task_encoder import encode_rows

WHOLE_INLINE: Final = 32
"""The tasks that may return `inline.max.bytes`. Later ones may return less, so that the messages of
any number of tasks fit into the driver: 10,000 tasks return 6.7 times as much as these 32."""

FIRST_PARTITIONS: Final = 1 << 31
"""A topic has fewer partitions. The version of an application may have 63 bits."""


class TaskTooLarge(RuntimeError):
    """A task has more to write than may be relayed. The message states what to do."""


class TaskWriter:
    """The write of one attempt of a task."""

    def __init__(self, options: WriteOptions, attempt: Attempt, *, begins: bool) -> None:
        """Make a writer. If it `begins` a query or batch write, a wrong host is reported early."""
        self._options = options
        self._attempt = attempt
        self._client: ClientOptions = {**options.client}
        if begins:
            self._client["first_connect_ms"] = FIRST_CONNECT_MS
        self._sent = Sent()

    @cached_property
    def scope(self) -> Scope:
        """The scope of the write, with the id of the topic before the first record is written.

        The driver looks the id up again before it decides.
        """
        options, attempt = self._options, self._attempt
        with Admin(options.bootstrap, **self._client) as admin:
            return find_scope(admin, options, attempt.write_id, attempt.query_id)

    @property
    def group_name(self) -> str:
        return group_name(self._options.prefix, self.scope)

    @cached_property
    def _decisions(self) -> Decisions:
        options = self._options
        return Decisions(options.bootstrap, options.client, prefix=options.prefix, scope=self.scope)

    def write(self, batches: Iterator[Any]) -> TaskMessage:
        """Write rows (`pa.RecordBatch`es), and return the message for the driver.

        Raises `TaskTooLarge`, `WrongRow`, `CommitRefused` and the client's errors.
        """
        options, attempt = self._options, self._attempt
        inline_max = min(
            options.inline_max_bytes,
            options.inline_max_bytes * WHOLE_INLINE // (attempt.partition + 1),
        )
        has_groups: bool | None = False if options.mode == "relay" else None
        kept: list[TopicBatch] = []
        size_bytes = 0
        with Producer(options.bootstrap, **self._client) as producer:
            encoded = encode_rows(
                batches,
                options,
                count_partitions=producer.partitions_for,
                # Rows without keys begin with another partition in every task and micro-batch.
                first_partition=(attempt.partition + (attempt.batch_id or 0)) % FIRST_PARTITIONS,
                task=attempt.partition,
            )
            for batch in encoded:
                kept.append(batch)
                size_bytes += len(batch.data)
                if size_bytes > inline_max and has_groups is None:
                    has_groups = self._has_groups()
                if size_bytes > inline_max and has_groups:
                    if self._is_decided():
                        for _ in batches:  # Spark replays a batch; its rows are not needed
                            pass
                        return self._message(is_late=True)
                    return self._write_in_transaction(chain(kept, encoded))
                if size_bytes > options.task_max_bytes:
                    raise TaskTooLarge(
                        f"This task has more than {options.task_max_bytes} bytes of encoded "
                        "records (relay.max.task.bytes), which the driver is to write in one "
                        "transaction: make more and smaller tasks with repartition(), read less "
                        "at a time with maxOffsetsPerTrigger, or raise the option together with "
                        "spark.driver.memory. A broker with transaction groups has no such limit."
                    )
        return self._message(batches=tuple(replace(batch, rows=None) for batch in kept))

    def _has_groups(self) -> bool:
        with TransactionGroup(self._options.bootstrap, self.group_name, **self._client) as group:
            is_served = group.is_served()
            members_max = group.bounds().members if is_served else 0
        if not is_served and self._options.mode == "group":
            raise CommitRefused(NO_GROUPS)
        if is_served and self._attempt.partition + 2 > members_max:  # and the driver is one
            raise CommitRefused(
                f"This is task {self._attempt.partition} of a write, and the broker commits at "
                f"most {members_max - 1} tasks together: make fewer and larger ones with "
                "coalesce()."
            )
        return is_served

    def _is_decided(self) -> bool:
        """Return True if the batch is known to be decided. False may be out of date."""
        return self._decisions.hint(is_driver=False).batch_id >= (self._attempt.batch_id or 0)

    def _write_in_transaction(self, batches: Iterable[TopicBatch]) -> TaskMessage:
        options = self._options
        producer: ProducerOptions = {
            **options.client,
            "transaction_timeout_ms": MEMBER_TIMEOUT_MS,
            **options.producer,
            "transactional_id": transactional_id(self.group_name, self._attempt.new_member()),
        }
        records = 0
        with (
            Producer(options.bootstrap, **producer) as member,
            member.transaction() as transaction,
        ):
            try:
                for batch in batches:
                    self.send(transaction, batch)
                    records += batch.record_count
                transaction.flush()
            except OdradekError as error:
                wrong = self._sent.explain()
                if wrong is not None:
                    raise wrong from error
                raise
            if self._is_decided():
                # Another attempt was chosen, and the batch is committed: nobody ends this one.
                transaction.abort()
                return self._message(is_late=True)
            return self._message(transaction=transaction.detach(), records_written=records)

    def send(self, transaction: Transaction, batch: TopicBatch) -> None:
        """Send a batch in the attempt's transaction."""
        delivery = transaction.send_batch(batch.topic, batch.partition, batch.data)
        self._sent.add(delivery, self._attempt.partition, batch)

    def _message(self, **more: Any) -> TaskMessage:
        attempt = self._attempt
        return TaskMessage(
            write_id=attempt.write_id, batch_id=attempt.batch_id, query_id=attempt.query_id, **more
        )
