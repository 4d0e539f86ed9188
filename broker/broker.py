"""One broker: its parts, and the order in which they start and stop.

Start: metadata store -> image -> logs (recovered) -> registration -> lead of every partition ->
ports of clients. Coordinators load their state partitions while clients are already served; a
request whose state is not loaded yet is answered with COORDINATOR_LOAD_IN_PROGRESS, and the client
retries.

Stop, in the reverse order: no new client is served, requests under way are answered, coordinators
end, logs are flushed and marked as closed cleanly.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from odradek.broker.api import HANDLERS, PEER_HANDLERS
from odradek.broker.api.context import Core, Handler
from odradek.broker.cluster.acl_keys import EVERY_RESOURCE, is_closed
from odradek.broker.cluster.acls import ClusterAcls
from odradek.broker.cluster.backup_point import BackupPoints
from odradek.broker.cluster.broker_configs import BrokerConfigs
from odradek.broker.cluster.client_quotas import ClientQuotas
from odradek.broker.cluster.image import ClusterImage
from odradek.broker.cluster.made_logs import MadeLogs
from odradek.broker.cluster.metadata import ClusterMetadata, find_cluster_id
from odradek.broker.cluster.node_identity import claim_directory
from odradek.broker.cluster.peer_network import PeerNetwork
from odradek.broker.cluster.topic_logs import LocalTopicLogs
from odradek.broker.cluster.topic_writer import TopicWriter
from odradek.broker.cluster.topics import ClusterTopics
from odradek.broker.cluster.users import ClusterUsers
from odradek.broker.config.addresses import Listener
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
from odradek.broker.server.ports import Address, CannotServe, bind_all, own_principal
from odradek.broker.server.server import IsTrusted, Server
from odradek.broker.storage.config import FlushPolicy
from odradek.broker.storage.reserve import DISK_FULL
from odradek.broker.txn.admission import Admission
from odradek.broker.txn.presence import Presence
from odradek.broker.txn.tenure import OnChanged
from odradek.late import dataclass
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.cluster.peer_login import PeerLogin
    from odradek.broker.metrics.probes import Probes

__all__ = ["Address", "CannotServe", "Started", "serve"]

LOGGER: Final = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 10_000
PEER_CONNECTIONS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The facts that a broker reports when it serves."""

    listeners: tuple[Listener, ...]
    """With the addresses that are listened on, and those that are advertised."""
    partition_count: int
    recovered: str
    seconds: float


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
    transaction_changed: OnChanged | None = None,
) -> None:
    """Run a broker until `stop` is set. `loaded` is called when the coordinators know everything.

    `made` is called with the broker's parts, `transaction_changed` with what has changed here.
    Raises `CannotServe`, possibly in a group, if the directory or the address cannot be used.
    """
    began = trio.current_time()
    probes = _probes(env, config)
    env = env if probes is None else probes.env
    directory_id = await _claim(env, config, directory, address)
    metadata = await _metadata(env, config, address, directory)
    settings = _settings(config, metadata, address)
    partitions = _partitions(env, config, directory, metadata, probes)
    logs = await _logs(env, metadata, partitions, settings)
    coordinators = local_coordinators(env, settings, metadata, partitions, transaction_changed)
    writer = TopicWriter(env.meta, config.node_id)
    cluster = _cluster_topics(env, metadata, writer, settings, logs)
    points = await _backup_points(env, directory, partitions)
    partition_count = await _open_logs(writer, logs, metadata.image, directory)
    membership = Membership(env, config, metadata, partitions, directory_id=directory_id)
    authorizer = _authorizer(settings.now, metadata, membership, address)
    peers, others, network = _peers(env, config, address, metadata, coordinators, authorizer)
    core = _core(
        *(env, metadata, settings, points, cluster, partitions, coordinators, membership, others),
        authorizer=authorizer,
    )
    made(core)
    server, peer_server = _servers(env, config, core, connections_max, address)

    async def begin(nursery: trio.Nursery) -> None:
        await _observe(nursery, probes, core, metadata, membership, server, peer_server, address)
        await nursery.start(partitions.run)
        await nursery.start(peers.run, core)
        await nursery.start(core.transactions.run, peers)
        await nursery.start(core.groups.run)
        bound = await bind_all(nursery, env, config, address, core, server, peer_server)
        await nursery.start(membership.run, bound.here, logs, coordinators, network)
        nursery.start_soon(cluster.finish_deletions)
        bound.open_client_ports()
        started(_started(bound.listeners, partition_count, partitions, began))
        await coordinators.wait_loaded()
        loaded()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(begin, nursery)  # which may wait for others: `stop` is heard at once
            await stop.wait()
            await _stop(membership, server, logs)
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await partitions.close()


def _started(
    listeners: tuple[Listener, ...], partition_count: int, partitions: Partitions, began: float
) -> Started:
    return Started(
        listeners=listeners,
        partition_count=partition_count,
        recovered=partitions.recovery_summary,
        seconds=trio.current_time() - began,
    )


async def _stop(membership: Membership, server: Server, logs: LocalTopicLogs) -> None:
    """Serve no client any more, and leave the cluster."""
    await membership.leave()
    await server.drain()
    await logs.note_made_now()
    await membership.end()


def _probes(env: Env, config: BrokerConfig) -> "Probes | None":
    """Return what is measured for the page of metrics, whose modules no other start imports."""
    if not config.metrics_listen:
        return None
    from odradek.broker.metrics.probes import Probes

    return Probes(env)


async def _observe(
    nursery: trio.Nursery,
    probes: "Probes | None",
    core: Core,
    metadata: ClusterMetadata,
    membership: Membership,
    server: Server,
    peer_server: Server,
    address: Address,
) -> None:
    """Serve metrics, if there is a listener of them. Raises `CannotServe`, `ConfigError`."""
    if probes is None:
        return
    from odradek.broker.metrics.inside import Inside
    from odradek.broker.metrics.loop_lag import LoopLag
    from odradek.broker.metrics.observing import observe

    inside = Inside(
        core=core,
        metadata=metadata,
        membership=membership,
        server=server,
        peer_server=peer_server,
        tls=address.tls,
        loop_lag=LoopLag(),
        probes=probes,
    )
    await nursery.start(observe, probes.env, core.config.metrics_listen, inside)


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
    _follow_files(settings, address)
    settings.log_overruled()
    return settings


def _peers(
    env: Env,
    config: BrokerConfig,
    address: Address,
    metadata: ClusterMetadata,
    coordinators: LocalCoordinators,
    authorizer: Authorizer,
) -> tuple[Peers, Peers | None, PeerNetwork]:
    """Return all brokers, with this one; the same again if there may be others; the way there."""
    network = PeerNetwork(
        env.net,
        listeners=address.listeners,
        tls=address.tls,
        logins=_logins(env, address),
        is_broker=authorizer.is_broker,
    )
    peers = Peers(
        node_id=config.node_id,
        image=lambda: metadata.image,
        coordinator_partition_for=coordinators.transactions.partition_for,
        network=network,
        store=env.meta,
    )
    return peers, None if address.peer_port is None else peers, network


def _logins(env: Env, address: Address) -> "dict[str, PeerLogin]":
    """Return what this broker logs in with at the listeners of others, by name."""
    given = {name: each.login for name, each in address.sasl.items() if each.login is not None}
    if address.peer_port is None or not given:
        return {}
    from odradek.broker.cluster.peer_login import PeerLogin

    return {name: PeerLogin(name, login, rng=env.rng) for name, login in given.items()}


def _cluster_topics(
    env: Env,
    metadata: ClusterMetadata,
    writer: TopicWriter,
    settings: LiveConfig,
    logs: LocalTopicLogs,
) -> ClusterTopics:
    return ClusterTopics(
        metadata=metadata, writer=writer, settings=settings, rng=env.rng, logs=logs
    )


def _partitions(
    env: Env,
    config: BrokerConfig,
    directory: str,
    metadata: ClusterMetadata,
    probes: "Probes | None",
) -> Partitions:
    return Partitions(
        disk=env.disk,
        directory=directory,
        clock=env.clock,
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        producer_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        cleaner=CleanerConfig.of(config),
        scrub=ScrubConfig(
            interval_ms=config.log_scrub_interval_ms,
            bytes_per_second=config.log_scrub_max_bytes_per_second,
        ),
        offload=env.offload,
        flush=FlushPolicy(config.log_flush),
        exists_elsewhere=lambda where: metadata.image.has_partition(*where),
        fsyncs=None if probes is None else probes.fsyncs,
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
        is_full = isinstance(error, OSError) and error.errno in DISK_FULL
        advice = ". Free some room for the start: a few MiB are enough" if is_full else ""
        reason = f"The data directory {directory} cannot be used: {error}{advice}"
        raise CannotServe(reason) from error


def _follow_files(settings: LiveConfig, address: Address) -> None:
    """Pass changed certificates and users on to the listeners, which check them before."""
    for tls in address.tls.values():
        settings.check_with(tls.check)
        settings.call_with_each(tls.follow)
        settings.renew_with(tls.renew)
    for sasl in address.sasl.values():
        settings.check_with(sasl.users_file.check)
        settings.call_with_each(sasl.users_file.follow)
        settings.renew_with(sasl.users_file.renew)


def _follow_settings(core: Core, server: Server) -> None:
    """Pass changed settings on to the parts that keep values. The logs have theirs by `Roles`."""

    def follow(config: BrokerConfig) -> None:
        server.configure(config)
        core.transactions.configure(
            allows_two_phase=config.transaction_two_phase_commit_enable,
            aborts_on_disconnect=config.transaction_abort_on_disconnect,
        )
        core.admission.configure(verifies=config.transaction_partition_verification_enable)
        core.partitions.cleaner.configure(CleanerConfig.of(config))

    core.settings.call_with_each(follow)


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
    *,
    authorizer: Authorizer,
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
        quotas=ClientQuotas(env.meta, metadata, settings),
        users=ClusterUsers(env.meta, metadata, env.rng),
        authorizer=authorizer,
        reached=env.reached,
    )


def _authorizer(
    config: BrokerConfig, metadata: ClusterMetadata, membership: Membership, address: Address
) -> Authorizer:
    """Return what decides for all connections. A broker that is alone has the only entries."""
    is_on = bool(config.authorizer_class_name)
    acls = metadata.image.acls
    entry_count = acls.entry_count
    if entry_count > len(EVERY_RESOURCE) and not is_on:  # those of a rebuild hinder nobody
        LOGGER.warning(
            "%d ACL entries have no effect on this broker: authorizer.class.name is not set",
            entry_count,
        )
    if is_on and is_closed(acls):
        LOGGER.warning(
            "everything is denied to everybody but super users, as the metadata were rebuilt: stop "
            "the broker and put its entries back (odradek security import), or let a super user "
            "add them and remove those that deny all (docs/acls.md)"
        )
    return Authorizer(
        is_on=is_on,
        super_users=parse_principals(config.super_users),
        allows_unknown=config.allow_everyone_if_no_acl_found,
        table=lambda: metadata.newest_image.acls,
        is_current=lambda: (
            address.peer_port is None or not (membership.session.has_lapsed or metadata.is_behind)
        ),
    )


def _servers(
    env: Env, config: BrokerConfig, core: Core, connections_max: int, address: Address
) -> tuple[Server, Server]:
    """Return the servers of clients and of other brokers."""
    clients = _server(env, config, core, HANDLERS, connections_max, core.transactions.presence)
    own = own_principal(address)
    brokers = _server(
        *(env, config, core, PEER_HANDLERS, PEER_CONNECTIONS_MAX),
        is_broker=lambda principal, host: core.authorizer.is_broker(principal, host, own()),
    )
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
    is_broker: IsTrusted | None = None,
) -> Server:
    return Server(
        network=env.net,
        core=core,
        handlers=handlers,
        config=config,
        connections_max=connections_max,
        presence=presence,
        offload=env.offload,
        plain_steps=env.plain_steps,
        is_broker=is_broker,
    )
