"""Administration without an event loop."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from odradek.client.admin import NO_CONFIGS, OffsetSpec
from odradek.client.admin import Admin as AsyncAdmin
from odradek.client.blocking.loop import Hosted
from odradek.client.config import ClientConfig, ClientOptions, Isolation, parse_bootstrap
from odradek.client.descriptions import (
    HangingTransaction,
    PartitionProducers,
    Pin,
    ProducerIdAndEpoch,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.errors import OdradekError
from odradek.client.txn_admin import MAX_TIMEOUT_MS
from odradek.client.types import (
    ClusterDescription,
    ConfigEntry,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)


class Admin:
    """`odradek.client.Admin` with plain `with` and without `await`."""

    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[ClientOptions]) -> None:
        ClientConfig(**options)  # a wrong option is told here, not at the first use
        parse_bootstrap(bootstrap)
        self._hosted = Hosted(lambda: AsyncAdmin(bootstrap, **options))

    def __enter__(self) -> Self:
        self._hosted.enter()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._hosted.close(exc_type, exc, traceback)

    def close(self) -> None:
        self._hosted.close()

    @property
    def _async(self) -> AsyncAdmin:
        return self._hosted.resource

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] = NO_CONFIGS,
        if_not_exists: bool = False,
    ) -> None:
        self._hosted.loop.call(
            partial(
                self._async.create_topic,
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                if_not_exists=if_not_exists,
            )
        )

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        self._hosted.loop.call(
            partial(self._async.create_topics, topics, validate_only=validate_only)
        )

    def delete_topics(self, *names: str) -> None:
        self._hosted.loop.call(self._async.delete_topics, *names)

    def create_partitions(self, topic: str, total_count: int) -> None:
        self._hosted.loop.call(self._async.create_partitions, topic, total_count)

    def list_topics(self, *, internal: bool = False) -> list[str]:
        return self._hosted.loop.call(partial(self._async.list_topics, internal=internal))

    def describe_topics(self, *names: str) -> list[TopicDescription]:
        return self._hosted.loop.call(self._async.describe_topics, *names)

    def list_offsets(
        self,
        spec: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: Isolation = "read_committed",
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return self._hosted.loop.call(
            partial(self._async.list_offsets, spec, isolation_level=isolation_level)
        )

    def committed(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._hosted.loop.call(
            partial(self._async.committed, group_id, partitions, require_stable=require_stable)
        )

    def describe_topic_configs(self, *names: str) -> dict[str, dict[str, ConfigEntry]]:
        return self._hosted.loop.call(self._async.describe_topic_configs, *names)

    def describe_broker_configs(self, *node_ids: int) -> dict[int, dict[str, ConfigEntry]]:
        return self._hosted.loop.call(self._async.describe_broker_configs, *node_ids)

    def describe_cluster(self) -> ClusterDescription:
        return self._hosted.loop.call(self._async.describe_cluster)

    # Transactions

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        older_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        return self._hosted.loop.call(
            partial(
                self._async.list_transactions,
                states=states,
                producer_ids=producer_ids,
                older_than_ms=older_than_ms,
                pattern=pattern,
            )
        )

    def describe_transactions(
        self, *transactional_ids: str
    ) -> dict[str, TransactionDescription | OdradekError]:
        return self._hosted.loop.call(self._async.describe_transactions, *transactional_ids)

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        return self._hosted.loop.call(self._async.describe_transaction, transactional_id)

    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionProducers | OdradekError]:
        return self._hosted.loop.call(self._async.describe_producers, partitions)

    def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = 0,
    ) -> None:
        self._hosted.loop.call(
            partial(
                self._async.abort_transaction,
                partition,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
            )
        )

    def fence_producers(
        self, *transactional_ids: str
    ) -> dict[str, ProducerIdAndEpoch | OdradekError]:
        return self._hosted.loop.call(self._async.fence_producers, *transactional_ids)

    def force_terminate_transaction(self, transactional_id: str) -> ProducerIdAndEpoch:
        return self._hosted.loop.call(self._async.force_terminate_transaction, transactional_id)

    def who_pins(
        self, topic: str, partition: int | None = None
    ) -> dict[TopicPartition, Pin | None]:
        return self._hosted.loop.call(self._async.who_pins, topic, partition)

    def find_hanging(
        self, *topics: str, max_timeout_ms: int = MAX_TIMEOUT_MS
    ) -> list[HangingTransaction]:
        return self._hosted.loop.call(
            partial(self._async.find_hanging, *topics, max_timeout_ms=max_timeout_ms)
        )
