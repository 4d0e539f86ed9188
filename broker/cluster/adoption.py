"""A broker that was alone becomes the first member of a cluster: its metadata moves to etcd.

The data directory stays, and so do the ids of the cluster, the broker and the topics. In this
order, each step durable before the next:

1. `node.meta` in the directory. No broker starts alone on it from now on.
2. `/cluster` in etcd, with the id of the directory under "adopting". No broker starts with this
   etcd from now on, and no other directory can be adopted there.
3. All other keys, many at once, as long as `/cluster` is what step 2 wrote.
4. `/cluster` without "adopting": the cluster is there.
5. `cluster.meta` and its copy get names that no broker reads.

An adoption that was interrupted is done again from the start; what is there already is found there.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Final

import trio

from odradek.broker.cluster.node_identity import (
    NodeIdentity,
    new_identity,
    read_identity,
    write_identity,
)
from odradek.broker.cluster.store import (
    BROKERS,
    CLUSTER,
    CONTROLLER,
    KNOWN_BROKERS,
    PARTITIONS,
    TOPICS,
    check_metadata_format,
    fields_of,
    pack,
    read_fields,
    read_id,
    read_partition,
    topic_key,
)
from odradek.broker.cluster.store_embedded import NAMES, EmbeddedStore
from odradek.broker.environment.env import Compare, Disk, MetaStore, OutcomeUnknown, Versioned
from odradek.late import dataclass
from odradek.protocol.state_topics import INTERNAL_TOPICS

ADOPTED: Final = ".adopted"
AT_ONCE: Final = 100
"""The keys of one write."""
BYTES_AT_ONCE: Final = 512 * 1024
RETRY_SECONDS: Final = 0.5
SHOWN: Final = 3

Keys = Mapping[str, Versioned]


class CannotAdopt(Exception):
    """The directory or etcd is not as it must be, and stays as it is: a sentence for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """The contents with which a cluster has begun."""

    cluster_id: str
    node_id: int
    topics: int
    partitions: int
    was_done: bool
    """True if an earlier run had done it."""


async def adopt(
    disk: Disk,
    directory: str,
    store: MetaStore,
    *,
    node_id: int | None,
    state_min_isr: int,
    rng: random.Random,
) -> Adopted:
    """Move the metadata of the broker of a data directory into the store of a cluster.

    `node_id` is checked, if it is given. `state_min_isr` is what the state topics get as their
    `min.insync.replicas`; while they have fewer replicas, as many count. Raises `CannotAdopt`,
    `WrongDirectory`, `DamagedStore`, `Unreadable`, KafkaError and OSError; then run it again.
    Raises ConfigError if the metadata of one of the two are of a newer format.
    """
    identity = await read_identity(disk, directory)
    if not any(disk.exists(f"{directory}/{name}") for name in NAMES):
        return await _was_done(directory, store, identity)
    embedded = await EmbeddedStore.open(disk, directory)
    try:
        found, _ = await embedded.range("")
    finally:
        embedded.close()
    if CLUSTER not in found:
        raise CannotAdopt(f"{directory} has no cluster id: no broker has served it.")
    _check_format(found)
    cluster_id = read_id(CLUSTER, found[CLUSTER])
    if identity is None:
        identity = new_identity(cluster_id, _node_of(directory, found, node_id), rng)
        await _check_free(store, cluster_id)
        await write_identity(disk, directory, identity)
    if identity.cluster_id != cluster_id or node_id not in (None, identity.node_id):
        raise CannotAdopt(
            f"{directory} belongs to node.id {identity.node_id} of the cluster "
            f"{identity.cluster_id}."
        )
    adopted = _adopted(identity, found, was_done=False)
    revision = await _begin(store, identity)
    if revision is not None:
        await _copy(store, revision, _values(found, state_min_isr))
        await _write(store, revision, {CLUSTER: pack({"id": cluster_id})})
    for name in NAMES:
        if disk.exists(f"{directory}/{name}"):
            disk.rename(f"{directory}/{name}", f"{directory}/{name}{ADOPTED}")
    await disk.fsync_dir(directory)
    return adopted


async def _was_done(directory: str, store: MetaStore, identity: NodeIdentity | None) -> Adopted:
    if identity is None:
        raise CannotAdopt(f"{directory} has no {NAMES[0]}: no broker has used it.")
    found, _ = await store.range("")
    _check_format(found)
    if CLUSTER not in found or read_id(CLUSTER, found[CLUSTER]) != identity.cluster_id:
        raise CannotAdopt(
            f"{directory} belongs to a broker of the cluster {identity.cluster_id}, which is not "
            "in this etcd. Check --etcd and etcd.key.prefix."
        )
    return _adopted(identity, found, was_done=True)


def _check_format(found: Keys) -> None:
    if CLUSTER in found:
        check_metadata_format(found[CLUSTER])


def _adopted(identity: NodeIdentity, found: Keys, *, was_done: bool) -> Adopted:
    return Adopted(
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        topics=sum(key.startswith(TOPICS) for key in found),
        partitions=sum(key.startswith(PARTITIONS) for key in found),
        was_done=was_done,
    )


def _node_of(directory: str, found: Keys, wanted: int | None) -> int:
    """Return the broker that has all replicas. Raises `CannotAdopt` if there are others."""
    nodes = {
        node
        for key, stored in found.items()
        if key.startswith(PARTITIONS)
        for node in read_partition(key, stored).replicas
    }
    nodes = nodes or {1 if wanted is None else wanted}
    if len(nodes) > 1:
        shown = ", ".join(map(str, sorted(nodes)))
        raise CannotAdopt(f"{directory} has replicas of several brokers: {shown}.")
    (node_id,) = nodes
    if wanted not in (None, node_id):
        raise CannotAdopt(
            f"{directory} is that of the broker with node.id {node_id}, not {wanted}: it keeps its "
            "id in the cluster."
        )
    return node_id


async def _check_free(store: MetaStore, cluster_id: str) -> None:
    """Check that etcd has no cluster, nor what another has left. Raises `CannotAdopt`."""
    found, _ = await store.range("")
    _check_format(found)
    if CLUSTER in found:
        raise CannotAdopt(_other(read_id(CLUSTER, found[CLUSTER]), cluster_id))
    _check_nothing_left(found)


def _check_nothing_left(found: Keys) -> None:
    """Raise `CannotAdopt` if there are keys, in an etcd without a cluster."""
    if found:
        left = ", ".join(sorted(found)[:SHOWN])
        raise CannotAdopt(
            f"etcd has keys of a cluster whose id is gone ({left}). Delete them with etcdctl, or "
            "set another etcd.key.prefix."
        )


async def _begin(store: MetaStore, identity: NodeIdentity) -> int | None:
    """Mark the cluster as being made. Return the revision of the mark, None if it is made already.

    Raises `CannotAdopt` if etcd has another cluster, or what another has left, or if another
    directory is being adopted.
    """
    mark = pack({"id": identity.cluster_id, "adopting": identity.directory_id})
    while True:
        found, _ = await store.range("")
        _check_format(found)
        if CLUSTER in found:
            fields = read_fields(CLUSTER, found[CLUSTER])
            if fields["id"] != identity.cluster_id:
                raise CannotAdopt(_other(fields["id"], identity.cluster_id))
            if fields.get("adopting", identity.directory_id) != identity.directory_id:
                raise CannotAdopt(
                    "another copy of this directory is being adopted by the same etcd."
                )
            return found[CLUSTER].mod_revision if "adopting" in fields else None
        _check_nothing_left(found)
        try:
            await store.txn([Compare(key=CLUSTER, mod_revision=0)], {CLUSTER: mark})
        except OutcomeUnknown:
            await trio.sleep(RETRY_SECONDS)


def _other(there: str, ours: str) -> str:
    if there == ours:
        return (
            f"etcd has the cluster {there} already, from another copy of this directory. Start the "
            "broker on that copy."
        )
    return (
        f"etcd has another cluster, {there}; the broker's is {ours}. Two clusters cannot become "
        "one: set another etcd.key.prefix, or use another etcd. MirrorMaker 2 copies topics from "
        "cluster to cluster."
    )


def _values(found: Keys, state_min_isr: int) -> Iterator[tuple[str, bytes]]:
    """Yield the keys to write, and their values. What a running broker registers is left out."""
    state_topics = {topic_key(name) for name in INTERNAL_TOPICS}
    for key, stored in found.items():
        if key in (CLUSTER, CONTROLLER) or key.startswith((BROKERS, KNOWN_BROKERS)):
            continue
        if key in state_topics:
            fields = fields_of(stored)
            yield key, pack({**fields, "min_isr": max(state_min_isr, fields.get("min_isr", 1))})
        else:
            yield key, stored.value


async def _copy(store: MetaStore, revision: int, values: Iterator[tuple[str, bytes]]) -> None:
    some: dict[str, bytes] = {}
    size_bytes = 0
    for key, value in values:
        # etcd takes requests of 1.5 MB, and the ACL entries of a resource may be 256 KiB.
        if some and (len(some) >= AT_ONCE or size_bytes + len(value) > BYTES_AT_ONCE):
            await _write(store, revision, some)
            some, size_bytes = {}, 0
        some[key] = value
        size_bytes += len(value)
    if some:
        await _write(store, revision, some)


async def _write(store: MetaStore, revision: int, puts: Mapping[str, bytes]) -> None:
    """Write keys if the mark is still that of this adoption. Raises `CannotAdopt`."""
    while True:
        try:
            is_ours, _ = await store.txn([Compare(key=CLUSTER, mod_revision=revision)], puts)
        except OutcomeUnknown:
            await trio.sleep(RETRY_SECONDS)  # the same values once more change nothing
            continue
        if is_ours:
            return
        found, _ = await store.range(CLUSTER)
        if CLUSTER in found and found[CLUSTER].value == puts.get(CLUSTER):
            return  # the last write was made, and its answer was lost
        raise CannotAdopt("another program has changed the cluster's id in etcd meanwhile.")
