"""The keys of the metadata store, and their values in msgpack.

    /cluster            {"id": ...}
    /brokers/ID         {"listeners", "host", "port", "peer_host", "peer_port", "directory",
                         "leaving", "lease", "groups"}
    /controller         {"id"}: the broker that elects leaders
    /topics/NAME        {"id": 16 bytes, "configs": {...}, "min_isr", "by_tag",
                         "unfinished"}
    /deletions/ID/NODE  {"name"}: a deleted topic that may still have directories on a broker
    /partitions/NAME/N  {"leader", "leader_epoch", "replicas", "isr", "elr", "last", "adding",
                         "removing"}
    /configs/brokers/ID {NAME: VALUE}: settings of a broker that were changed while it ran
    /configs/brokers/   the same for all brokers
    /ids/producer       the first producer id of the next block (written by `txn.producer_ids`)

The keys of brokers and of the controller are under the lease of the broker that wrote them: they
vanish when it does not keep it alive. The revision that created such a key is the epoch of the
broker, or of the controller.

One key per partition, so that a change of its in-sync set is one compare-and-set on one key. A
topic of more partitions than a transaction may write is written in several: its key has
"unfinished" meanwhile, and it is in no image.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import msgpack

from odradek.broker.cluster.image import (
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from odradek.broker.env import Compare, Versioned
from odradek.broker.topic_partition import TopicPartition

CLUSTER: Final = "/cluster"
TOPICS: Final = "/topics/"
DELETIONS: Final = "/deletions/"
PARTITIONS: Final = "/partitions/"
BROKERS: Final = "/brokers/"
CONTROLLER: Final = "/controller"
BROKER_CONFIGS: Final = "/configs/brokers/"
GROUP_CONFIGS: Final = "/configs/groups/"

GUARDS: Final = 28
"""The operations of a transaction that are left for conditions on brokers."""


def topic_key(name: str) -> str:
    return f"{TOPICS}{name}"


def partition_key(topic: str, index: int) -> str:
    return f"{PARTITIONS}{topic}/{index}"


def pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack(value: bytes) -> Any:
    return msgpack.unpackb(value, raw=False)


def pack_partition(partition: PartitionImage) -> bytes:
    return pack(
        {
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            **({"elr": list(partition.elr)} if partition.elr else {}),
            **({} if partition.last_leader == NO_LEADER else {"last": partition.last_leader}),
            **({"adding": list(partition.adding)} if partition.adding else {}),
            **({"removing": list(partition.removing)} if partition.removing else {}),
        }
    )


def write_of_partitions(
    image: ClusterImage, changed: Mapping[TopicPartition, PartitionImage]
) -> tuple[list[Compare], dict[str, bytes | None]]:
    """Return the conditions and the values of a write that changes partitions of an image.

    None of the partitions must have changed since, and none of their leaders have registered anew:
    it would find itself leading in its old epoch. That makes one condition for each partition, and
    at most `GUARDS` for the brokers.
    """
    compares: list[Compare] = []
    puts: dict[str, bytes | None] = {}
    for where, partition in changed.items():
        key = partition_key(*where)
        compares.append(Compare(key=key, mod_revision=partition.epoch))
        puts[key] = pack_partition(partition)
    leaders = {partition.leader for partition in changed.values()}
    for broker in image.brokers:
        if broker.node_id in leaders:
            compares.append(Compare(key=broker_key(broker.node_id), create_revision=broker.epoch))
    return compares, puts


def read_partition(stored: Versioned) -> PartitionImage:
    fields = unpack(stored.value)
    return PartitionImage(
        leader=fields["leader"],
        leader_epoch=fields["leader_epoch"],
        replicas=tuple(fields["replicas"]),
        isr=tuple(fields["isr"]),
        elr=tuple(fields.get("elr", ())),
        last_leader=fields.get("last", NO_LEADER),
        adding=tuple(fields.get("adding", ())),
        removing=tuple(fields.get("removing", ())),
        epoch=stored.mod_revision,
    )


def broker_key(node_id: int) -> str:
    return f"{BROKERS}{node_id}"


def pack_broker(broker: BrokerImage, directory_id: str) -> bytes:
    return pack(
        {
            "host": broker.host,
            "port": broker.port,
            "peer_host": broker.peer_host,
            "peer_port": broker.peer_port,
            "directory": directory_id,
            "leaving": broker.is_leaving,
            "lease": broker.lease,
            "groups": broker.has_transaction_groups,
            "listeners": [[each.name, each.host, each.port] for each in broker.listeners],
        }
    )


def read_broker(key: str, stored: Versioned) -> BrokerImage:
    fields = unpack(stored.value)
    return BrokerImage(
        node_id=int(key.removeprefix(BROKERS)),
        host=fields["host"],
        port=fields["port"],
        peer_host=fields["peer_host"],
        peer_port=fields["peer_port"],
        epoch=stored.create_revision,
        is_leaving=fields["leaving"],
        lease=fields.get("lease", 0),
        has_transaction_groups=fields.get("groups", False),
        listeners=tuple(
            Endpoint(name=name, host=host, port=port)
            for name, host, port in fields.get("listeners", ())
        ),
    )


def broker_configs_key(broker: str) -> str:
    """Return the key of the changed settings of a broker; of all brokers for `""`."""
    return f"{BROKER_CONFIGS}{broker}"


def group_configs_key(group_id: str) -> str:
    """Return the key of the settings of a consumer group."""
    return f"{GROUP_CONFIGS}{group_id}"


def pack_topic(topic: TopicImage, *, is_finished: bool = True) -> bytes:
    return pack(
        {
            "id": topic.topic_id.bytes,
            "configs": dict(topic.configs),
            **({} if topic.min_insync_replicas is None else {"min_isr": topic.min_insync_replicas}),
            **({"by_tag": True} if topic.is_by_tag else {}),
            **({} if is_finished else {"unfinished": True}),
        }
    )


def topic_puts(topic: TopicImage) -> dict[str, bytes | None]:
    """Return the writes of a whole topic."""
    puts: dict[str, bytes | None] = {topic_key(topic.name): pack_topic(topic)}
    for index, partition in enumerate(topic.partitions):
        puts[partition_key(topic.name, index)] = pack_partition(partition)
    return puts


def deletion_key(topic_id: UUID, node_id: int | None = None) -> str:
    """Return the key of a note for one broker. Older versions wrote one without the broker's id."""
    return f"{DELETIONS}{topic_id.hex}" + ("" if node_id is None else f"/{node_id}")


def read_deletions(found: Mapping[str, Versioned], node_id: int | None = None) -> dict[UUID, str]:
    """Return the ids and names of deleted topics in the range `/deletions/`.

    With `node_id` only those that this broker has to remove.
    """
    deletions = {}
    for key, stored in found.items():
        topic_id, _, node = key.removeprefix(DELETIONS).partition("/")
        if node_id is None or node in ("", str(node_id)):
            deletions[UUID(hex=topic_id)] = unpack(stored.value)["name"]
    return deletions


def read_topic(
    name: str, stored: Versioned, partitions: Mapping[int, PartitionImage]
) -> TopicImage | None:
    """Return a topic; None if it is not written completely, or being deleted."""
    fields = unpack(stored.value)
    if fields.get("unfinished"):
        return None
    assert sorted(partitions) == list(range(len(partitions))), (name, sorted(partitions))
    return TopicImage(
        name=name,
        topic_id=UUID(bytes=fields["id"]),
        configs=fields["configs"],
        partitions=tuple(partitions[index] for index in range(len(partitions))),
        min_insync_replicas=fields.get("min_isr"),
        is_by_tag=fields.get("by_tag", False),
    )


def read_identity(stored: Versioned) -> tuple[UUID, bool]:
    """Return the id of a topic, and True unless it is being made or deleted just now."""
    fields = unpack(stored.value)
    return UUID(bytes=fields["id"]), not fields.get("unfinished")


def partition_of_key(key: str) -> tuple[str, int]:
    """Return topic and index of a key under `/partitions/`."""
    name, _, index = key.removeprefix(PARTITIONS).rpartition("/")
    return name, int(index)


def read_topics(
    topics: Mapping[str, Versioned], partitions: Mapping[str, Versioned]
) -> list[TopicImage]:
    """Return the topics in the ranges `/topics/` and `/partitions/`."""
    found: dict[str, dict[int, PartitionImage]] = {}
    for key, stored in partitions.items():
        name, index = partition_of_key(key)
        found.setdefault(name, {})[index] = read_partition(stored)
    whole = []
    for key, stored in topics.items():
        name = key.removeprefix(TOPICS)
        topic = read_topic(name, stored, found.get(name, {}))
        if topic is not None:
            whole.append(topic)
    return whole
