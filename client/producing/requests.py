"""A transactional producer's requests to the coordinators, each retried until it is answered.

`transactional_session.py` and `ending.py` decide when a request is sent. This module builds it, in
the version that belongs to the generation of the transaction protocol, retries it while the answer
is retriable, and raises `Refusal` with the code of any other error.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from odradek.client.cluster.cluster import COORDINATOR_MOVED, GROUP, TRANSACTION, Cluster
from odradek.client.cluster.connection import (
    GROUPS_FEATURE,
    TRANSACTION_FEATURE,
    BrokerConnection,
)
from odradek.client.cluster.offsets import made_anew, outdated_in
from odradek.client.config import ProducerConfig
from odradek.client.errors import (
    FENCED,
    Aborted,
    Disconnected,
    Fenced,
    OdradekError,
    Refused,
    Retriable,
    TimedOut,
    code_of,
    transactional_error_for,
)
from odradek.client.producing.batches import NO_PRODUCER, ProducerIdentity
from odradek.client.producing.last_producer import LastProducer, is_free
from odradek.client.producing.prepared import PreparedTransaction
from odradek.client.types import (
    GroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
    by_topic_and_id,
    numbers_by_topic,
)
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
    TransactionState,
)
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    INIT_PRODUCER_ID_2PC,
    TXN_OFFSET_COMMIT,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.errors import RETRIABLE, ErrorCode
from odradek.protocol.produce_batches import NAMES_UNTIL
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.text import printable

T = TypeVar("T")

TV1_PRODUCE: Final = 11
TV1_ADD_PARTITIONS: Final = 3
TV1_TXN_OFFSET_COMMIT: Final = 4
TV1_END_TXN: Final = 4
TV2_PRODUCE: Final = 12
TV2_TXN_OFFSET_COMMIT: Final = 5
TV2_END_TXN: Final = 5
TWO_PHASES: Final = 6
"""The first InitProducerId version with two-phase commit (KIP-939)."""
EXPECTS_EPOCH: Final = 3
"""The first InitProducerId version that carries the producer's own id and epoch (KIP-360)."""

NOT_OPEN: Final = frozenset(
    {*FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""The answers to EndTxn of a producer that has no open transaction under its identity."""


class Refusal(Exception):
    """A coordinator's refusal that is not retriable."""

    def __init__(self, code: ErrorCode, error: OdradekError) -> None:
        super().__init__(str(error))
        self.code = code
        self.error = error


class TransactionRequests:
    """The requests of one transactional producer."""

    def __init__(
        self, cluster: Cluster, config: ProducerConfig, check_not_ended: Callable[[], None]
    ) -> None:
        """Make the requests of the transactional id in `config`.

        `check_not_ended` is called before each attempt to add to the transaction. It raises if
        nothing may be added any more.
        """
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        self.transaction_version = 1
        """1 or 2: the generation that the broker has finalised. Known after `init_producer_id`."""
        self.has_groups = False
        """The broker has transaction groups. Known after `init_producer_id`."""
        self._cluster = cluster
        self._check_not_ended = check_not_ended
        self._timeout_ms = config.transaction_timeout_ms
        self._two_phase_commit = config.two_phase_commit

    @property
    def produce_at_most(self) -> int:
        return TV1_PRODUCE if self.transaction_version < 2 else NAMES_UNTIL

    async def init_producer_id(self, expected: ProducerIdentity) -> ProducerIdentity:
        """Send InitProducerId. Return the identity to go on with.

        With NO_PRODUCER it takes the transactional id over. With the producer's own identity it
        raises the epoch (KIP-360). Raises `Refusal`, `TimedOut`.
        """
        answer = await self._init_producer_id(expected, keep_prepared=False)
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def claim_producer_id(self) -> tuple[ProducerIdentity, PreparedTransaction | None]:
        """Take the transactional id over, and keep a prepared transaction open (KIP-939).

        Return the identity, and the prepared transaction if there is one. Raises `Refusal`,
        `Refused` if the broker has no two-phase commit, `TimedOut`.
        """
        answer = await self._init_producer_id(NO_PRODUCER, keep_prepared=True)
        identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        if answer.ongoing_txn_producer_id < 0:
            return identity, None
        found = PreparedTransaction(
            answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
        )
        return identity, found

    async def _init_producer_id(
        self, expected: ProducerIdentity, *, keep_prepared: bool
    ) -> InitProducerIdResponse:
        doing = f"starting transactional id {self.transactional_id!r}"
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.epoch,
            enable2_pc=self._two_phase_commit,
            keep_prepared_txn=keep_prepared,
        )
        needs_two_phases = self._two_phase_commit or keep_prepared
        api = INIT_PRODUCER_ID_2PC if needs_two_phases else INIT_PRODUCER_ID

        async def attempt() -> InitProducerIdResponse:
            connection = await self._coordinator()
            version = connection.version_of(api)
            if needs_two_phases and version < TWO_PHASES:
                raise Refused(
                    f"{doing}: the broker does not serve two-phase commit; set its "
                    f"transaction.two.phase.commit.enable, or leave out two_phase_commit and "
                    f"keep_prepared",
                    code=ErrorCode.UNSUPPORTED_VERSION,
                )
            # An older version cannot name the instance that asks. It would take the id over, even
            # from a successor of this producer.
            if expected is not NO_PRODUCER and version < EXPECTS_EPOCH:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
                raise Refusal(code, transactional_error_for(code, doing))
            self._choose_version(connection)
            answer = await connection.request(api, version, request)
            self._check(answer.error_code, doing)
            return answer

        return await self._repeat(doing, attempt)

    def _choose_version(self, connection: BrokerConnection) -> None:
        """Choose TV2 if the cluster has finalised it and the coordinator serves its versions."""
        has_feature = connection.features.get(TRANSACTION_FEATURE, 0) >= 2
        served = connection.versions
        has_versions = all(
            api.key in served and served[api.key].max_version >= version
            for api, version in (
                (PRODUCE, TV2_PRODUCE),
                (TXN_OFFSET_COMMIT, TV2_TXN_OFFSET_COMMIT),
                (END_TXN, TV2_END_TXN),
            )
        )
        self.transaction_version = 2 if has_feature and has_versions else 1
        has_groups = connection.features.get(GROUPS_FEATURE, 0) >= 1
        self.has_groups = has_groups and self.transaction_version >= 2

    async def add_partitions(
        self, producer: ProducerIdentity, wanted: Iterable[TopicPartition]
    ) -> None:
        """Send AddPartitionsToTxn, which TV1 needs. Raises `Refusal`, `TimedOut`."""
        numbers = numbers_by_topic(wanted)
        doing = f"adding partitions of {', '.join(numbers)} to the transaction"
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=topic, partitions=tuple(partitions))
                for topic, partitions in numbers.items()
            ),
        )

        async def attempt() -> None:
            connection = await self._coordinator()
            # The transaction may have ended while the coordinator was looked for. With TV1 the next
            # one has the same epoch, so the broker would add these partitions to that one.
            self._check_not_ended()
            version = connection.version_of(ADD_PARTITIONS_TO_TXN, TV1_ADD_PARTITIONS)
            answer = await connection.request(ADD_PARTITIONS_TO_TXN, version, request)
            for topic in answer.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    # If one partition is refused, the broker adds none of them (KAFKA-5322). Only
                    # the refused one has the cause.
                    if result.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        self._check(result.partition_error_code, doing)

        await self._repeat(doing, attempt)

    async def add_group(self, producer: ProducerIdentity, group_id: str) -> None:
        """Send AddOffsetsToTxn, which TV1 needs. Raises `Refusal`, `TimedOut`."""
        doing = f"adding offsets of the group {group_id!r} to the transaction"
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group_id,
        )

        async def attempt() -> None:
            connection = await self._coordinator()
            self._check_not_ended()
            version = connection.version_of(ADD_OFFSETS_TO_TXN)
            answer = await connection.request(ADD_OFFSETS_TO_TXN, version, request)
            self._check(answer.error_code, doing)

        await self._repeat(doing, attempt)

    async def commit_offsets(
        self,
        producer: ProducerIdentity,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
    ) -> None:
        """Send TxnOffsetCommit to the group's coordinator. Raises `Refusal`, `TimedOut`."""
        doing = f"storing offsets of the group {group.group_id!r} with the transaction"
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=tuple(
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id,
                    partitions=tuple(
                        TxnOffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=stored.offset,
                            committed_leader_epoch=stored.leader_epoch,
                            committed_metadata=stored.metadata,
                        )
                        for number, stored in partitions
                    ),
                )
                for (topic, topic_id), partitions in by_topic_and_id(offsets).items()
            ),
        )
        of_known_topics = [
            name.topic for name, stored in offsets.items() if stored.topic_id != ZERO_UUID
        ]
        at_most = TV1_TXN_OFFSET_COMMIT if self.transaction_version < 2 else TV2_TXN_OFFSET_COMMIT

        async def attempt() -> None:
            self._check_not_ended()
            # Kafka ignores the ids in the request, so the look is taken before it. A broker with
            # transaction groups is ours, and compares them when it stores the offsets.
            if of_known_topics and not self.has_groups:
                await self._cluster.refresh(of_known_topics)
            self._check_not_made_anew(offsets, doing)
            answer = await self._cluster.ask_coordinator(
                GROUP, group.group_id, TXN_OFFSET_COMMIT, request, at_most=at_most
            )
            for topic in answer.topics:
                for result in topic.partitions:
                    if result.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                        await self._cluster.refresh(of_known_topics)
                        self._check_not_made_anew(offsets, doing)
                    if result.error_code in COORDINATOR_MOVED:
                        self._cluster.forget_coordinator(GROUP, group.group_id)
                    self._check(result.error_code, doing)

        await self._cluster.retrying(doing, attempt)

    def _check_not_made_anew(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], doing: str
    ) -> None:
        """Raise `Refusal` if offsets belong to a topic that was deleted and made anew."""
        outdated = outdated_in(self._cluster, offsets)
        if outdated:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            text = f"{doing}: {made_anew(outdated)}; abort the transaction and do its work again"
            raise Refusal(code, Aborted(text, code=code))

    async def end_txn(self, producer: ProducerIdentity, *, committed: bool) -> ProducerIdentity:
        """Send EndTxn. Return the identity to go on with, which TV2 gives a new epoch.

        Raises `Refusal`, `TimedOut`.
        """
        word = "committing" if committed else "aborting"
        doing = f"{word} the transaction of {self.transactional_id!r}"
        at_most = TV1_END_TXN if self.transaction_version < 2 else TV2_END_TXN
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=committed,
        )

        async def attempt() -> ProducerIdentity:
            connection = await self._coordinator()
            version = connection.version_of(END_TXN, at_most)
            answer = await connection.request(END_TXN, version, request)
            self._check(answer.error_code, doing)
            # Up to version 4 the answer has no identity, and the epoch stays (TV1).
            if answer.producer_id < 0:
                return producer
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return await self._repeat(doing, attempt)

    async def identity_after_time_out(self, producer: ProducerIdentity) -> ProducerIdentity:
        """Return the next identity if a time-out has raised the epoch.

        The request is an abort under the producer's own epoch, as in the Java client.
        InitProducerId cannot be used: it looks at the producer id only, and would abort the open
        transaction of a successor. TV1 has no harmless request. Raises `Fenced` with TV1, or if a
        successor has raised the epoch; `Refusal`, `TimedOut`.
        """
        if self.transaction_version < 2:
            raise await self.taken_over()
        try:
            return await self.end_txn(producer, committed=False)
        except Refusal as refusal:
            if refusal.code in FENCED:
                raise await self.taken_over() from None
            raise

    async def recovered_identity(self, producer: ProducerIdentity) -> ProducerIdentity:
        """Return the identity after INVALID_TXN_STATE: the epoch is ours (TV1) or timed out (TV2).

        Raises the errors of `identity_after_time_out`.
        """
        if self.transaction_version < 2:
            return await self.init_producer_id(producer)
        return await self.identity_after_time_out(producer)

    async def regain(self, last: LastProducer) -> ProducerIdentity:
        """Return an identity to go on with after `last`, which failed, unless a successor has it.

        First comes the abort of `identity_after_time_out`, which changes nothing of a successor.
        If the epoch is not ours any more, DescribeTransactions says who has raised it, and
        InitProducerId names the epoch that was described, so that it is refused if a successor is
        faster (KIP-360). Raises `Fenced` if a successor has the id; `Refusal`, `TimedOut`.
        """
        doing = f"going on with the transactional id {self.transactional_id!r}"

        async def choose() -> None:
            self._choose_version(await self._coordinator())

        await self._repeat(doing, choose)
        try:
            identity = await self.end_txn(last.identity, committed=False)
            if self.transaction_version < 2:
                # The epoch stays, and the lost batches have left gaps in the sequences.
                identity = await self.init_producer_id(identity)
            return identity
        except Refusal as refusal:
            if refusal.code not in NOT_OPEN:
                raise
            code = refusal.code
        try:
            found = await self._repeat(doing, self._described)
        except (Refused, Refusal):  # the broker lacks the request, or the program the right to it
            is_ours, now = code not in FENCED, last.identity
        else:
            is_ours, now = is_free(found, last, code)
        # invariant client 5: A pool goes on after a failed producer by the same evidence, and takes
        # no id back from a successor.
        # plant a pool takes an id back from the instance that has fenced it
        # plant a time-out of the successor's transaction is taken for one of the producer's own
        if is_ours:
            try:
                return await self.init_producer_id(now)
            except Refusal as refusal:
                if refusal.code not in FENCED:
                    raise
        raise await self.taken_over()

    async def taken_over(self) -> Fenced:
        """Return the error for a producer that its coordinator has fenced, with the cause.

        Only Odradek returns the cause, in DescribeTransactions. The producer has failed already, so
        an error of that request is ignored.
        """
        try:
            why = await self._why_fenced()
        except OdradekError:
            why = None
        if why is None:
            why = (
                "there is a newer producer with the same transactionalId which fences the current "
                "one: another producer, or an administrator, has taken over "
                f"{self.transactional_id!r}"
            )
            if self.transaction_version < 2:  # both cases have the same error code
                why += f", or a transaction was open for longer than {self._timeout_ms} ms"
        return Fenced(f"{why}; this one must stop", code=ErrorCode.PRODUCER_FENCED)

    async def _why_fenced(self) -> str | None:
        found = await self._described()
        if found is None or not found.explanation:
            return None
        return printable(found.explanation.rstrip("."))

    async def _described(self) -> TransactionState | None:
        """Return what the coordinator knows of the id; None if it does not know it."""
        request = DescribeTransactionsRequest(transactional_ids=(self.transactional_id,))
        connection = await self._coordinator()
        version = connection.version_of(DESCRIBE_TRANSACTIONS)
        answer = await connection.request(DESCRIBE_TRANSACTIONS, version, request)
        (found,) = answer.transaction_states
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        self._check(found.error_code, f"describing {self.transactional_id!r}")
        return found

    async def _coordinator(self) -> BrokerConnection:
        node_id = await self._cluster.coordinator(TRANSACTION, self.transactional_id)
        return await self._cluster.connection(node_id, "coordinator")

    def _check(self, number: int, doing: str) -> None:
        """Raise `Retriable` or `Refusal` for a coordinator's code."""
        if number == ErrorCode.NONE:
            return
        code = code_of(number)
        error = transactional_error_for(code, doing)
        if code in COORDINATOR_MOVED:
            self._cluster.forget_coordinator(TRANSACTION, self.transactional_id)
        if code in RETRIABLE:
            raise Retriable(str(error), code=code)
        raise Refusal(code, error)

    async def _repeat(self, doing: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry `attempt`. After a lost connection, look for the coordinator again."""

        async def guarded() -> T:
            try:
                return await attempt()
            except (Disconnected, TimedOut):
                self._cluster.forget_coordinator(TRANSACTION, self.transactional_id)
                raise

        return await self._cluster.retrying(doing, guarded)
