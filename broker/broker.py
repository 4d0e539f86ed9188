"""One broker: its parts, and the order in which they start and stop.

Start: metadata store -> image -> logs (recovered) -> lead of every partition -> coordinators ->
listener. Coordinators load their state partitions while clients are already served; a request whose
state is not loaded yet is answered with COORDINATOR_LOAD_IN_PROGRESS, and the client retries.

Stop, in the reverse order: no new client is served, requests under way are answered, coordinators
end, logs are flushed and marked as closed cleanly.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from odradek.broker.api import HANDLERS
from odradek.broker.api.context import Core
from odradek.broker.cluster.controller import Controller, load_image
from odradek.broker.cluster.image import BrokerImage, ClusterImage
from odradek.broker.cluster.topic_logs import LocalTopicLogs
from odradek.broker.config.broker import MINUTE_MS, BrokerConfig
from odradek.broker.env import Env
from odradek.broker.group.coordinator import GroupCoordinator
from odradek.broker.group.limits import GroupConfig
from odradek.broker.partitions.log_cleaner import CleanerConfig
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.partitions.scrubber import ScrubConfig
from odradek.broker.peers import InProcessPeer
from odradek.broker.server.server import Server
from odradek.broker.txn.admission import Admission
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.coordinator import TransactionCoordinator
from odradek.broker.txn.producer_ids import ProducerIds
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    TRANSACTION_STATE_TOPIC,
)

LOGGER: Final = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 10_000


class CannotServe(Exception):
    """The directory or the address cannot be used: one sentence for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The facts that a broker reports when it serves."""

    host: str
    port: int
    advertised: str
    partition_count: int
    recovered: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address to listen on, and the one to advertise to clients if it is another."""

    host: str
    port: int
    advertised_host: str | None = None
    advertised_port: int | None = None


class StateTopic:
    """The partitions of one state topic, as its coordinator sees them."""

    def __init__(self, partitions: Partitions, topic: str) -> None:
        self._partitions = partitions
        self._topic = topic

    def get(self, index: int) -> Partition:
        try:
            return self._partitions.get(self._topic, index)
        except KafkaError as error:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"{self._topic}-{index} is not led by this broker."
            ) from error


@dataclass(frozen=True, slots=True)
class LocalCoordinators:
    """The `Coordinators` of the controller: those of this broker."""

    transactions: TransactionCoordinator
    groups: GroupCoordinator

    async def load(self, topic: str, index: int) -> None:
        if topic == TRANSACTION_STATE_TOPIC:
            await self.transactions.load(index)
        else:
            await self.groups.load(index)


async def serve(
    env: Env,
    config: BrokerConfig,
    *,
    directory: str,
    address: Address,
    started: Callable[[Started], None],
    stop: trio.Event,
    connections_max: int = CONNECTIONS_MAX,
    loaded: Callable[[], None] = lambda: None,
) -> None:
    """Run a broker until `stop` is set. `loaded` is called when the coordinators know everything.

    Raises `CannotServe`, possibly in a group, if the directory or the address cannot be used.
    """
    began = trio.current_time()
    here = BrokerImage(node_id=config.node_id, host="", port=0)
    image = await load_image(env.meta, here=here, rng=env.rng)
    partitions = _partitions(env, config, directory)
    logs = LocalTopicLogs(partitions, config, cluster_id=image.cluster_id)
    coordinators = _coordinators(env, config, image, partitions)
    cluster = Controller(
        meta=env.meta,
        config=config,
        rng=env.rng,
        logs=logs,
        coordinators=coordinators,
        image=image,
    )
    partition_count = await _lead(cluster, logs, directory)
    core = _core(env, config, cluster, partitions, coordinators)
    server = Server(
        network=env.net,
        core=core,
        handlers=HANDLERS,
        config=config,
        connections_max=connections_max,
        presence=core.transactions.presence,
        offload=env.offload,
    )

    def listening(host: str, port: int) -> None:
        cluster.advertise(address.advertised_host or host, address.advertised_port or port)
        started(
            Started(
                host=host,
                port=port,
                advertised=f"{cluster.this_broker.host}:{cluster.this_broker.port}",
                partition_count=partition_count,
                recovered=partitions.recovered,
                seconds=trio.current_time() - began,
            )
        )

    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(partitions.run)
            await nursery.start(core.transactions.run, InProcessPeer(core))
            await nursery.start(core.groups.run)
            nursery.start_soon(_load_coordinators, coordinators, cluster.image, loaded)
            nursery.start_soon(_listen, server, address, listening)
            await stop.wait()
            await server.drain()
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await partitions.close()


def _partitions(env: Env, config: BrokerConfig, directory: str) -> Partitions:
    return Partitions(
        disk=env.disk,
        directory=directory,
        clock=env.clock,
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        producer_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        cleaner=CleanerConfig(
            backoff_ms=config.log_cleaner_backoff_ms,
            map_bytes=config.log_cleaner_dedupe_buffer_size,
        ),
        scrub=ScrubConfig(
            interval_ms=config.log_scrub_interval_ms,
            bytes_per_second=config.log_scrub_max_bytes_per_second,
        ),
        offload=env.offload,
    )


async def _lead(cluster: Controller, logs: LocalTopicLogs, directory: str) -> int:
    """Become the leader of every partition. Return their number. Raises `CannotServe`."""
    try:
        await cluster.finish_deletions()
        await cluster.elect()
        return await logs.open_all(cluster.image)
    except (OSError, KafkaError) as error:
        raise CannotServe(f"The data directory {directory} cannot be used: {error}") from error


async def _listen(server: Server, address: Address, listening: Callable[[str, int], None]) -> None:
    try:
        await server.serve(address.host, address.port, started=listening)
    except* OSError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CannotServe(
            f"{address.host}:{address.port} cannot be listened on: {reason}; "
            "choose another --listen."
        ) from None


def _coordinators(
    env: Env, config: BrokerConfig, image: ClusterImage, partitions: Partitions
) -> LocalCoordinators:
    return LocalCoordinators(
        TransactionCoordinator(
            state_partitions=StateTopic(partitions, TRANSACTION_STATE_TOPIC),
            producer_ids=ProducerIds(env.meta),
            clock=env.clock,
            reached=env.reached,
            config=_transaction_config(config, image),
        ),
        GroupCoordinator(
            state_partitions=StateTopic(partitions, CONSUMER_OFFSETS_TOPIC),
            clock=env.clock,
            rng=env.rng,
            config=_group_config(config, image),
        ),
    )


def _core(
    env: Env,
    config: BrokerConfig,
    cluster: Controller,
    partitions: Partitions,
    coordinators: LocalCoordinators,
) -> Core:
    return Core(
        config=config,
        clock=env.clock,
        cluster=cluster,
        partitions=partitions,
        transactions=coordinators.transactions,
        admission=Admission(
            coordinators.transactions, verifies=config.transaction_partition_verification_enable
        ),
        groups=coordinators.groups,
        reached=env.reached,
    )


async def _load_coordinators(
    coordinators: LocalCoordinators, image: ClusterImage, loaded: Callable[[], None]
) -> None:
    """Start to load all coordinators at once. Their requests get COORDINATOR_LOAD_IN_PROGRESS."""
    async with trio.open_nursery() as nursery:
        for name in sorted(INTERNAL_TOPICS):
            topic = image.topics.get(name)
            for index in range(len(topic.partitions) if topic else 0):
                nursery.start_soon(_load_at_start, coordinators, name, index)
    loaded()


async def _load_at_start(coordinators: LocalCoordinators, topic: str, index: int) -> None:
    try:
        await coordinators.load(topic, index)
    except KafkaError as error:
        LOGGER.error(
            "what %s-%d keeps is not coordinated, as it cannot be read: %s", topic, index, error
        )


def _partition_count(image: ClusterImage, topic: str, configured: int) -> int:
    """Return the partition count of a state topic. It never changes, as ids are hashed over it."""
    found = image.topics.get(topic)
    return configured if found is None else len(found.partitions)


def _transaction_config(config: BrokerConfig, image: ClusterImage) -> TransactionConfig:
    return TransactionConfig(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        transaction_state_log_num_partitions=_partition_count(
            image, TRANSACTION_STATE_TOPIC, config.transaction_state_log_num_partitions
        ),
        transaction_concurrent_wait_ms=config.transaction_concurrent_wait_ms,
        transaction_two_phase_commit_enable=config.transaction_two_phase_commit_enable,
        transaction_abort_on_disconnect=config.transaction_abort_on_disconnect,
    )


def _group_config(config: BrokerConfig, image: ClusterImage) -> GroupConfig:
    return GroupConfig(
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offsets_topic_num_partitions=_partition_count(
            image, CONSUMER_OFFSETS_TOPIC, config.offsets_topic_num_partitions
        ),
    )
