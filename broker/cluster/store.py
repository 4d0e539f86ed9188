"""The keys of the metadata store, and their values in msgpack.

    /cluster            {"id": ...}
    /topics/NAME        {"id": 16 bytes, "configs": {...}}
    /deletions/ID       {"name"}: a deleted topic that may still have directories
    /partitions/NAME/N  {"leader", "leader_epoch", "replicas", "isr"}
    /ids/producer       the first producer id of the next block (written by `txn.producer_ids`)

One key per partition, so that a change of its in-sync set is one compare-and-set on one key.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import msgpack

from odradek.broker.cluster.image import PartitionImage, TopicImage
from odradek.broker.env import Versioned

CLUSTER: Final = "/cluster"
TOPICS: Final = "/topics/"
DELETIONS: Final = "/deletions/"
PARTITIONS: Final = "/partitions/"


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
        }
    )


def topic_puts(topic: TopicImage) -> dict[str, bytes | None]:
    """Return the writes of a whole topic."""
    puts: dict[str, bytes | None] = {
        topic_key(topic.name): pack({"id": topic.topic_id.bytes, "configs": dict(topic.configs)})
    }
    for index, partition in enumerate(topic.partitions):
        puts[partition_key(topic.name, index)] = pack_partition(partition)
    return puts


def deletion_key(topic_id: UUID) -> str:
    return f"{DELETIONS}{topic_id.hex}"


def topic_deletes(topic: TopicImage) -> dict[str, bytes | None]:
    """Return the writes of a deletion: they remove the topic and note its id."""
    return {
        **dict.fromkeys(topic_puts(topic)),
        deletion_key(topic.topic_id): pack({"name": topic.name}),
    }


def read_deletions(found: Mapping[str, Versioned]) -> dict[UUID, str]:
    """Return the ids and names of deleted topics in the range `/deletions/`."""
    return {
        UUID(hex=key.removeprefix(DELETIONS)): unpack(versioned.value)["name"]
        for key, versioned in found.items()
    }


def read_topics(
    topics: Mapping[str, Versioned], partitions: Mapping[str, Versioned]
) -> list[TopicImage]:
    """Return the topics in the ranges `/topics/` and `/partitions/`."""
    found: dict[str, dict[int, PartitionImage]] = {}
    for key, versioned in partitions.items():
        name, _, index = key.removeprefix(PARTITIONS).rpartition("/")
        fields = unpack(versioned.value)
        found.setdefault(name, {})[int(index)] = PartitionImage(
            leader=fields["leader"],
            leader_epoch=fields["leader_epoch"],
            replicas=tuple(fields["replicas"]),
            isr=tuple(fields["isr"]),
        )
    return [
        _read_topic(key.removeprefix(TOPICS), unpack(versioned.value), found)
        for key, versioned in topics.items()
    ]


def _read_topic(
    name: str, fields: dict[str, Any], partitions: Mapping[str, dict[int, PartitionImage]]
) -> TopicImage:
    by_index = partitions[name]
    assert sorted(by_index) == list(range(len(by_index))), (name, sorted(by_index))
    return TopicImage(
        name=name,
        topic_id=UUID(bytes=fields["id"]),
        configs=fields["configs"],
        partitions=tuple(by_index[index] for index in range(len(by_index))),
    )
