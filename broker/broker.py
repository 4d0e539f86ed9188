"""One broker: its parts, and the order in which they start and stop.

Start: metadata store -> image -> logs (recovered) -> registration -> lead of every partition ->
ports of clients. Coordinators load their state partitions while clients are already served; a
request whose state is not loaded yet is answered with COORDINATOR_LOAD_IN_PROGRESS, and the client
retries.

Stop, in the reverse order: no new client is served, requests under way are answered, coordinators
end, logs are flushed and marked as closed cleanly.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from odradek.broker.api import HANDLERS, PEER_HANDLERS
from odradek.broker.api.context import Core, Handler
from odradek.broker.cluster.acl_keys import EVERY_RESOURCE
from odradek.broker.cluster.acls import ClusterAcls
from odradek.broker.cluster.backup_point import BackupPoints
from odradek.broker.cluster.broker_configs import BrokerConfigs
from odradek.broker.cluster.image import BrokerImage, ClusterImage, Endpoint
from odradek.broker.cluster.made_logs import MadeLogs
from odradek.broker.cluster.metadata import ClusterMetadata, find_cluster_id
from odradek.broker.cluster.node_identity import claim_directory
from odradek.broker.cluster.topic_logs import LocalTopicLogs
from odradek.broker.cluster.topic_writer import TopicWriter
from odradek.broker.cluster.topics import ClusterTopics
from odradek.broker.config.addresses import Listener, printed
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.live import LiveConfig
from odradek.broker.environment.env import Env
from odradek.broker.membership.local_coordinators import LocalCoordinators, local_coordinators
from odradek.broker.membership.membership import Membership
from odradek.broker.membership.peers import Peers
from odradek.broker.partitions.early import may_follow_now
from odradek.broker.partitions.fetch_sessions import FetchSessions
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.partitions.upkeep.log_cleaner import CleanerConfig
from odradek.broker.partitions.upkeep.scrubber import ScrubConfig
from odradek.broker.replication.replica_sessions import ReplicaSessions
from odradek.broker.security.access import Authorizer
from odradek.broker.security.principal import parse_principals
from odradek.broker.server.server import Server
from odradek.broker.storage.config import FlushPolicy
from odradek.broker.txn.admission import Admission
from odradek.broker.txn.presence import Presence
from odradek.late import dataclass
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.tls.listener_tls import ListenerTls

LOGGER: Final = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 10_000
PEER_CONNECTIONS_MAX: Final = 1_000


Port = tuple[str, int, Callable[[], None]]
"""The host and port of a listener, and the function that opens it."""


class CannotServe(Exception):
    """The directory or the address cannot be used: one sentence for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The facts that a broker reports when it serves."""

    listeners: tuple[Listener, ...]
    """With the addresses that are listened on, and those that are advertised."""
    partition_count: int
    recovered: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The addresses of a broker."""

    listeners: tuple[Listener, ...]
    """At the host of the first, other brokers are served."""
    peer_port: int | None = None
    """The port on which other brokers are served; None without any."""
    tls: "Mapping[str, ListenerTls]" = field(default_factory=dict)
    """The TLS of the listeners that have it, by name."""


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
    made: Callable[[Core], None] = lambda _core: None,
) -> None:
    """Run a broker until `stop` is set. `loaded` is called when the coordinators know everything.

    `made` is called with the broker's parts before it serves: a simulation looks into them.
    Raises `CannotServe`, possibly in a group, if the directory or the address cannot be used.
    """
    began = trio.current_time()
    directory_id = await _claim(env, config, directory, address)
    metadata = await _metadata(env, config, address, directory)
    settings = _settings(config, metadata, address)
    partitions = _partitions(env, config, directory, metadata)
    logs = await _logs(env, metadata, partitions, settings)
    coordinators = local_coordinators(env, settings, metadata, partitions)
    writer = TopicWriter(env.meta, config.node_id)
    cluster = ClusterTopics(
        metadata=metadata, writer=writer, settings=settings, rng=env.rng, logs=logs
    )
    points = await _backup_points(env, directory, partitions)
    partition_count = await _open_logs(writer, logs, metadata.image, directory)
    membership = Membership(env, config, metadata, partitions, directory_id=directory_id)
    peers, others = _peers(env, config, address, metadata, coordinators)
    core = _core(
        env, metadata, settings, points, cluster, partitions, coordinators, membership, others
    )
    made(core)
    server, peer_server = _servers(env, config, core, connections_max)

    async def begin(nursery: trio.Nursery) -> None:
        await nursery.start(partitions.run)
        await nursery.start(peers.run, core)
        await nursery.start(core.transactions.run, peers)
        await nursery.start(core.groups.run)
        bound = await _bind_all(nursery, server, peer_server, address, config)
        await nursery.start(membership.run, bound.here, logs, coordinators)
        for open_port in bound.client_ports:
            open_port()
        started(
            Started(
                listeners=bound.listeners,
                partition_count=partition_count,
                recovered=partitions.recovery_summary,
                seconds=trio.current_time() - began,
            )
        )
        await coordinators.wait_loaded()
        loaded()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(begin, nursery)  # which may wait for others: `stop` is heard at once
            await stop.wait()
            await membership.leave()
            await server.drain()
            await logs.note_made_now()
            await membership.end()
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await partitions.close()


async def _metadata(
    env: Env, config: BrokerConfig, address: Address, directory: str
) -> ClusterMetadata:
    metadata = ClusterMetadata(env.meta)
    await metadata.load()
    if address.peer_port is None:
        _check_node_id(config.node_id, metadata.image, directory)
    return metadata


async def _backup_points(env: Env, directory: str, partitions: Partitions) -> BackupPoints:
    points = BackupPoints(env.disk, directory, partitions)
    await points.clear()  # a backup that was killed has left it
    return points


def _settings(config: BrokerConfig, metadata: ClusterMetadata, address: Address) -> LiveConfig:
    settings = LiveConfig(config)
    settings.take(metadata.image.broker_configs)
    _follow_certificates(settings, address)
    settings.log_overruled()
    return settings


def _peers(
    env: Env,
    config: BrokerConfig,
    address: Address,
    metadata: ClusterMetadata,
    coordinators: LocalCoordinators,
) -> tuple[Peers, Peers | None]:
    """Return all brokers, this one included, and the same again if there may be others."""
    peers = Peers(
        node_id=config.node_id,
        image=lambda: metadata.image,
        coordinator_partition_for=coordinators.transactions.partition_for,
        network=env.net,
        store=env.meta,
    )
    return peers, None if address.peer_port is None else peers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """The ports that a broker has, and the broker as it registers.

    The port for brokers is open: they connect as soon as they see the registration. `client_ports`
    open those for clients. Before it is registered and leads what it is elected for, a broker could
    give answers that are wrong and final.
    """

    listeners: tuple[Listener, ...]
    here: BrokerImage
    client_ports: Sequence[Callable[[], None]]


async def _bind_all(
    nursery: trio.Nursery,
    server: Server,
    peer_server: Server,
    address: Address,
    config: BrokerConfig,
) -> _Bound:
    nursery.start_soon(server.watch)
    listening, client_ports = [], []
    for listener in address.listeners:
        host, port, open_port = await nursery.start(
            _listen,
            server,
            listener.host,
            listener.port,
            listener.name,
            address.tls.get(listener.name),
        )
        client_ports.append(open_port)
        listening.append(
            replace(
                listener,
                host=host,
                port=port,
                advertised_host=listener.advertised_host or host,
                advertised_port=listener.advertised_port or port,
            )
        )
    first = listening[0]
    peer_port = 0
    if address.peer_port is not None:
        nursery.start_soon(peer_server.watch)
        _, peer_port, open_port = await nursery.start(
            _listen, peer_server, address.listeners[0].host, address.peer_port, None, None
        )
        open_port()
    here = BrokerImage(
        node_id=config.node_id,
        host=first.advertised_host,
        port=first.advertised_port,
        peer_host=first.advertised_host if address.peer_port is not None else "",
        peer_port=peer_port,
        has_transaction_groups=True,
        knows_acls=True,
        rack=config.broker_rack or None,
        listeners=tuple(
            Endpoint(name=each.name, host=each.advertised_host, port=each.advertised_port)
            for each in listening
        ),
    )
    return _Bound(listeners=tuple(listening), here=here, client_ports=client_ports)


def _partitions(
    env: Env, config: BrokerConfig, directory: str, metadata: ClusterMetadata
) -> Partitions:
    return Partitions(
        disk=env.disk,
        directory=directory,
        clock=env.clock,
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        producer_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        cleaner=_cleaner_config(config),
        scrub=ScrubConfig(
            interval_ms=config.log_scrub_interval_ms,
            bytes_per_second=config.log_scrub_max_bytes_per_second,
        ),
        offload=env.offload,
        flush=FlushPolicy(config.log_flush),
        exists_elsewhere=lambda where: metadata.image.has_partition(*where),
    )


async def _logs(
    env: Env, metadata: ClusterMetadata, partitions: Partitions, settings: LiveConfig
) -> LocalTopicLogs:
    image = metadata.image
    made_logs = await MadeLogs.load(env.meta, settings.now.node_id, image)
    return LocalTopicLogs(partitions, settings, made_logs=made_logs, cluster_id=image.cluster_id)


def _check_node_id(node_id: int, image: ClusterImage, directory: str) -> None:
    """Raise `CannotServe` if all logs of a broker without others are those of another node id."""
    owners = {
        replica
        for topic in image.topics.values()
        for partition in topic.partitions
        for replica in partition.replicas
    }
    if owners and node_id not in owners:
        theirs = ", ".join(map(str, sorted(owners)))
        raise CannotServe(
            f"The data directory {directory} is that of node.id {theirs}, and this broker has "
            f"node.id {node_id}: give it --set node.id={min(owners)}."
        )


async def _claim(env: Env, config: BrokerConfig, directory: str, address: Address) -> str:
    """Return the id of the data directory; a broker without others needs none."""
    cluster_id = await find_cluster_id(env.meta, env.rng)
    if address.peer_port is None:
        return ""
    return await claim_directory(
        env.disk, directory, cluster_id=cluster_id, node_id=config.node_id, rng=env.rng
    )


async def _open_logs(
    writer: TopicWriter, logs: LocalTopicLogs, image: ClusterImage, directory: str
) -> int:
    """Open the logs of all replicas here. Return their number. Raises `CannotServe`."""
    try:
        await writer.finish_deletions(logs)
        return await logs.open_all(image)
    except (OSError, KafkaError) as error:
        raise CannotServe(f"The data directory {directory} cannot be used: {error}") from error


async def _listen(
    server: Server,
    host: str,
    port: int,
    listener: str | None,
    tls: "ListenerTls | None",
    task_status: trio.TaskStatus[Port] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one listener. Started with the host and port that it has, and what opens it."""

    def started(host: str, port: int, open_port: Callable[[], None]) -> None:
        def open_or_explain() -> None:
            try:
                open_port()
            except OSError as error:
                raise _not_listened_on(host, port, error) from None

        task_status.started((host, port, open_or_explain))

    try:
        await server.serve(host, port, started=started, listener=listener, tls=tls)
    except* OSError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise _not_listened_on(host, port, error) from None


def _not_listened_on(host: str, port: int, error: BaseException) -> CannotServe:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CannotServe(
        f"{printed(host, port)} cannot be listened on: {reason}; choose another --listen."
    )


def _follow_certificates(settings: LiveConfig, address: Address) -> None:
    """Pass changed certificates on to the listeners, which check them before they are kept."""
    for tls in address.tls.values():
        settings.check_with(tls.check)
        settings.call_with_each(tls.follow)
        settings.renew_with(tls.renew)


def _follow_settings(core: Core, server: Server) -> None:
    """Pass changed settings on to the parts that keep values. The logs have theirs by `Roles`."""

    def follow(config: BrokerConfig) -> None:
        server.configure(config)
        core.transactions.configure(
            allows_two_phase=config.transaction_two_phase_commit_enable,
            aborts_on_disconnect=config.transaction_abort_on_disconnect,
        )
        core.admission.configure(verifies=config.transaction_partition_verification_enable)
        core.partitions.cleaner.configure(_cleaner_config(config))

    core.settings.call_with_each(follow)


def _cleaner_config(config: BrokerConfig) -> CleanerConfig:
    return CleanerConfig(
        backoff_ms=config.log_cleaner_backoff_ms,
        map_bytes=config.log_cleaner_dedupe_buffer_size,
    )


def _core(
    env: Env,
    metadata: ClusterMetadata,
    settings: LiveConfig,
    backup_points: BackupPoints,
    cluster: ClusterTopics,
    partitions: Partitions,
    coordinators: LocalCoordinators,
    membership: Membership,
    others: Peers | None,
) -> Core:
    return Core(
        settings=settings,
        clock=env.clock,
        cluster=cluster,
        broker_configs=BrokerConfigs(env.meta, metadata, settings),
        partitions=partitions,
        transactions=coordinators.transactions,
        admission=Admission(
            coordinators.transactions,
            verifies=settings.now.transaction_partition_verification_enable,
            others=others,
            may_follow=partial(may_follow_now, partitions),
        ),
        groups=coordinators.groups,
        in_sync=membership.in_sync,
        elections=membership.elections,
        moves=membership.moves,
        known_brokers=membership.known_brokers,
        replica_sessions=ReplicaSessions(),
        fetch_sessions=FetchSessions(
            env.rng, settings.now.max_incremental_fetch_session_cache_slots
        ),
        backup_points=backup_points,
        acls=ClusterAcls(env.meta, metadata),
        authorizer=_authorizer(settings.now, metadata, membership, others),
        reached=env.reached,
    )


def _authorizer(
    config: BrokerConfig, metadata: ClusterMetadata, membership: Membership, others: Peers | None
) -> Authorizer:
    """Return what decides for all connections. A broker that is alone has the only entries."""
    is_on = bool(config.authorizer_class_name)
    entry_count = metadata.image.acls.entry_count
    if entry_count > len(EVERY_RESOURCE) and not is_on:  # those of a rebuild hinder nobody
        LOGGER.warning(
            "%d ACL entries have no effect on this broker: authorizer.class.name is not set",
            entry_count,
        )
    return Authorizer(
        is_on=is_on,
        super_users=parse_principals(config.super_users),
        allows_unknown=config.allow_everyone_if_no_acl_found,
        table=lambda: metadata.newest_image.acls,
        is_current=lambda: (
            others is None or not (membership.session.has_lapsed or metadata.is_behind)
        ),
    )


def _servers(
    env: Env, config: BrokerConfig, core: Core, connections_max: int
) -> tuple[Server, Server]:
    """Return the servers of clients and of other brokers."""
    clients = _server(env, config, core, HANDLERS, connections_max, core.transactions.presence)
    brokers = _server(env, config, core, PEER_HANDLERS, PEER_CONNECTIONS_MAX, serves_brokers=True)
    _follow_settings(core, clients)
    return clients, brokers


def _server(
    env: Env,
    config: BrokerConfig,
    core: Core,
    handlers: Mapping[int, Handler],
    connections_max: int,
    presence: Presence | None = None,
    *,
    serves_brokers: bool = False,
) -> Server:
    return Server(
        network=env.net,
        core=core,
        handlers=handlers,
        config=config,
        connections_max=connections_max,
        presence=presence,
        offload=env.offload,
        scan=env.scan,
        serves_brokers=serves_brokers,
    )
