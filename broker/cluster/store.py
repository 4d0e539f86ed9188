"""The keys of the metadata store, and their values in msgpack.

    /cluster            {"id": ...}, and "adopting" while a broker's metadata is being moved here;
                        a later version may add "format", see `check_metadata_format`
    /brokers/ID         {"listeners", "host", "port", "peer_host", "peer_port",
                         "peer_listener", "peer_protocol", "peer_principal", "directory",
                         "leaving", "lease", "groups", "rack"}
    /known/ID           the same for each broker that was registered, until it is forgotten
    /controller         {"id"}: the broker that elects leaders
    /topics/NAME        {"id": 16 bytes, "configs": {...}, "min_isr", "by_tag",
                         "unfinished"}
    /deletions/ID/NODE  {"name"}: a deleted topic that may still have directories on a broker
    /partitions/NAME/N  {"leader", "leader_epoch", "replicas", "isr", "elr", "last", "adding",
                         "removing"}
    /configs/brokers/ID {NAME: VALUE}: settings of a broker that were changed while it ran
    /configs/brokers/   the same for all brokers
    /logs/NODE/TOPIC_ID {"partitions": [...]}: the logs that a broker has made (`made_logs.py`)
    /acls/TYPE/PATTERN/NAME/  the entries of access control of a resource pattern (`acl_keys.py`)
    /quotas/TYPE/NAME/  {KIND: VALUE}: quotas of users, client ids, addresses (`quota_keys.py`)
    /users/NAME/        the SCRAM credentials of a user (`user_keys.py`)
    /secrets/cluster    the secret of which the salts of users that do not exist are made
    /ids/producer       the first producer id of the next block (written by `txn.producer_ids`)

The keys of brokers and of the controller are under the lease of the broker that wrote them: they
vanish when it does not keep it alive. The revision that created such a key is the epoch of the
broker, or of the controller.

One key per partition, so that a change of its in-sync set is one compare-and-set on one key. A
topic of more partitions than a transaction may write is written in several: its key has
"unfinished" meanwhile, and it is in no image.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar
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
from odradek.broker.cluster.new_topic import check_name
from odradek.broker.config.settings import ConfigError
from odradek.broker.config.topic import TOPIC_SETTINGS
from odradek.broker.environment.env import Compare, Unreadable, Versioned
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
T = TypeVar("T")

CLUSTER: Final = "/cluster"
TOPICS: Final = "/topics/"
DELETIONS: Final = "/deletions/"
PARTITIONS: Final = "/partitions/"
MADE_LOGS: Final = "/logs/"
BROKERS: Final = "/brokers/"
KNOWN_BROKERS: Final = "/known/"
CONTROLLER: Final = "/controller"
BROKER_CONFIGS: Final = "/configs/brokers/"
GROUP_CONFIGS: Final = "/configs/groups/"

METADATA_FORMAT: Final = 1
"""The newest form of keys and values that this version reads."""
OWN_GUARDS: Final = 2
"""The operations of a transaction that are left for conditions of its caller."""


def topic_key(name: str) -> str:
    return f"{TOPICS}{name}"


def partition_key(topic: str, index: int) -> str:
    return f"{PARTITIONS}{topic}/{index}"


def pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack(value: bytes) -> Any:
    return msgpack.unpackb(value, raw=False)


@contextmanager
def reading(key: str) -> Iterator[None]:
    """Read a value, which may be anything. Raises `Unreadable`."""
    try:
        yield
    except KeyError as error:
        raise Unreadable(key, f"it has no {error}") from None
    except (ValueError, TypeError, AttributeError, OverflowError, KafkaError) as error:
        raise Unreadable(key, error) from None


def fields_of(stored: Versioned) -> dict[str, Any]:
    """Return the fields of a value. Raises ValueError or TypeError for what is not msgpack."""
    found: dict[str, Any] = _typed(unpack(stored.value), dict)
    return found


def read_fields(key: str, stored: Versioned) -> dict[str, Any]:
    """Return the fields of a value, which are not read yet. Raises `Unreadable`."""
    with reading(key):
        return fields_of(stored)


def _typed(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"a {kind.__name__} is expected, not a {type(value).__name__}")
    return value


def _int32(value: Any) -> int:
    if not -1 <= _typed(value, int) < 2**31:
        raise ValueError(f"{value} is out of range")
    return _typed(value, int)


def _text(value: Any) -> str:
    return _typed(value, str)


def _nodes(value: Any) -> tuple[int, ...]:
    return tuple(map(_int32, _typed(value, list)))


def configs_of(value: Any) -> dict[str, str]:
    """Return settings with their values. Raises TypeError."""
    return {_text(name): _text(text) for name, text in _typed(value, dict).items()}


def pack_partition(partition: PartitionImage) -> bytes:
    assert partition.leader in (NO_LEADER, *partition.isr), partition
    assert set(partition.isr) <= set(partition.replicas), partition
    assert len(set(partition.replicas)) == len(partition.replicas), partition
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


def in_steps(
    changed: Mapping[TopicPartition, T],
    max_operations: int | None,
    rests_on: Callable[[T], Collection[int]],
) -> Iterator[dict[TopicPartition, T]]:
    """Yield parts of a change of partitions, each of which fits into a transaction.

    That has a condition for each partition, and one for each broker that `rests_on` returns.
    """
    step: dict[TopicPartition, T] = {}
    brokers: set[int] = set()
    for where, partition in changed.items():
        more = brokers.union(rests_on(partition))
        operations = len(step) + 1 + len(more) + OWN_GUARDS
        if step and max_operations is not None and operations > max_operations:
            yield step
            step, more = {}, set(rests_on(partition))
        step[where], brokers = partition, more
    if step:
        yield step


def leader_of(partition: PartitionImage) -> Collection[int]:
    """Return the broker on whose registration a write of a partition rests."""
    return (partition.leader,)


def write_of_partitions(
    image: ClusterImage, changed: Mapping[TopicPartition, PartitionImage]
) -> tuple[list[Compare], dict[str, bytes | None]]:
    """Return the conditions and the values of a write that changes partitions of an image.

    None of the partitions must have changed since, and none of their leaders have registered anew:
    it would find itself leading in its old epoch. That makes one condition for each partition, and
    one for each leader (`in_steps`).
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


def read_partition(key: str, stored: Versioned) -> PartitionImage:
    with reading(key):
        fields = fields_of(stored)
        return PartitionImage(
            leader=_int32(fields["leader"]),
            leader_epoch=_int32(fields["leader_epoch"]),
            replicas=_nodes(fields["replicas"]),
            isr=_nodes(fields["isr"]),
            elr=_nodes(fields.get("elr", [])),
            last_leader=_int32(fields.get("last", NO_LEADER)),
            # invariant administration 4
            adding=_nodes(fields.get("adding", [])),
            removing=_nodes(fields.get("removing", [])),
            epoch=stored.mod_revision,
        )


def broker_key(node_id: int) -> str:
    return f"{BROKERS}{node_id}"


def known_broker_key(node_id: int) -> str:
    return f"{KNOWN_BROKERS}{node_id}"


def pack_broker(broker: BrokerImage, directory_id: str) -> bytes:
    return pack(
        {
            "host": broker.host,
            "port": broker.port,
            "peer_host": broker.peer_host,
            "peer_port": broker.peer_port,
            "peer_listener": broker.peer_listener,
            "peer_protocol": broker.peer_protocol,
            **({"peer_principal": broker.peer_principal} if broker.peer_principal else {}),
            "directory": directory_id,
            "leaving": broker.is_leaving,
            "lease": broker.lease,
            "groups": broker.has_transaction_groups,
            "acls": broker.knows_acls,
            "quotas": broker.knows_quotas,
            "users": broker.knows_users,
            **({} if broker.rack is None else {"rack": broker.rack}),
            "listeners": [[each.name, each.host, each.port] for each in broker.listeners],
        }
    )


def read_broker(key: str, stored: Versioned) -> BrokerImage:
    with reading(key):
        fields = fields_of(stored)
        return BrokerImage(
            node_id=_int32(int(key.rpartition("/")[2])),
            host=_text(fields["host"]),
            port=_int32(fields["port"]),
            peer_host=_text(fields["peer_host"]),
            peer_port=_int32(fields["peer_port"]),
            peer_listener=_text(fields.get("peer_listener", "")),
            peer_protocol=_text(fields.get("peer_protocol", "PLAINTEXT")),
            peer_principal=_text(fields.get("peer_principal", "")),
            epoch=stored.create_revision,
            is_leaving=bool(fields["leaving"]),
            lease=_typed(fields.get("lease", 0), int),
            has_transaction_groups=bool(fields.get("groups", False)),
            knows_acls=bool(fields.get("acls", False)),
            knows_quotas=bool(fields.get("quotas", False)),
            knows_users=bool(fields.get("users", False)),
            rack=_text(fields["rack"]) if "rack" in fields else None,
            listeners=tuple(
                Endpoint(name=_text(name), host=_text(host), port=_int32(port))
                for name, host, port in _typed(fields.get("listeners", []), list)
            ),
        )


def read_id(key: str, stored: Versioned) -> Any:
    """Return the id in the value of `/cluster` or `/controller`. Raises `Unreadable`."""
    with reading(key):
        return _typed(fields_of(stored)["id"], str if key == CLUSTER else int)


def is_adopting(key: str, stored: Versioned) -> bool:
    """Return True if a broker's metadata is being moved here. Raises `Unreadable`."""
    return "adopting" in read_fields(key, stored)


def check_metadata_format(stored: Versioned) -> None:
    """Check the format of all keys, which the value of `/cluster` names if it is not the first.

    A later version will raise it when all brokers know what it writes, and an earlier one would
    misread that. Raises `ConfigError`, `Unreadable`.
    """
    # invariant administration 8: A broker does not start on a cluster's metadata of a newer format,
    # and no command reads or writes them.
    # plant a broker starts on metadata of a newer format
    with reading(CLUSTER):
        found = _int32(fields_of(stored).get("format", METADATA_FORMAT))
    if found > METADATA_FORMAT:
        raise ConfigError(
            f"The metadata of the cluster have format {found}, and this version of Odradek reads "
            f"formats up to {METADATA_FORMAT}: use the version that wrote them, or a newer one."
        )


def read_configs(key: str, stored: Versioned) -> dict[str, str]:
    """Return the changed settings of a broker or a group. Raises `Unreadable`."""
    with reading(key):
        return configs_of(fields_of(stored))


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


def made_logs_key(node_id: int, topic_id: UUID | None = None) -> str:
    """Return the key of the logs that a broker has made of a topic; without one, their prefix."""
    return f"{MADE_LOGS}{node_id}/{'' if topic_id is None else topic_id.hex}"


def read_deletions(found: Mapping[str, Versioned], node_id: int | None = None) -> dict[UUID, str]:
    """Return the ids and names of deleted topics in the range `/deletions/`.

    With `node_id` only those that this broker has to remove.
    """
    deletions = {}
    for key, stored in found.items():
        topic_id, _, node = key.removeprefix(DELETIONS).partition("/")
        if node_id is None or node in ("", str(node_id)):
            try:
                with reading(key):
                    name = _text(fields_of(stored)["name"])
                    check_name(name)
                    deletions[UUID(hex=topic_id)] = name
            except Unreadable as error:
                LOGGER.warning("a deletion is not completed: %s", error.message)
    return deletions


def read_topic(
    name: str, stored: Versioned, partitions: Mapping[int, PartitionImage]
) -> TopicImage | None:
    """Return a topic; None if it is not written completely, or being deleted.

    Raises `Unreadable`, also if it lacks partitions.
    """
    with reading(topic_key(name)):
        check_name(name)
        fields = fields_of(stored)
        if fields.get("unfinished"):
            return None
        configs = _usable(name, configs_of(fields["configs"]))
        min_isr = fields.get("min_isr")
        if not partitions or sorted(partitions) != list(range(len(partitions))):
            raise ValueError(f"of its partitions there are {sorted(partitions)[:10]}")
        return TopicImage(
            name=name,
            topic_id=UUID(bytes=_typed(fields["id"], bytes)),
            configs=configs,
            partitions=tuple(map(partitions.__getitem__, range(len(partitions)))),
            min_insync_replicas=None if min_isr is None else _int32(min_isr),
            is_by_tag=bool(fields.get("by_tag", False)),
        )


def _usable(name: str, configs: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings of a topic without those whose values this broker cannot use."""
    usable = {}
    for setting, text in configs.items():
        try:
            if setting in TOPIC_SETTINGS:  # a broker of a later version has more
                TOPIC_SETTINGS[setting].setting.parse(setting, text)
            usable[setting] = text
        except ConfigError as error:
            LOGGER.warning("a setting of topic %s has no effect: %s", name, error)
    return usable


def read_identity(stored: Versioned) -> tuple[UUID, bool]:
    """Return the id of a topic, and True unless it is being made or deleted just now."""
    fields = unpack(stored.value)
    return UUID(bytes=fields["id"]), not fields.get("unfinished")


def partition_of_key(key: str) -> tuple[str, int]:
    """Return topic and index of a key under `/partitions/`. Raises `Unreadable`."""
    name, _, index = key.removeprefix(PARTITIONS).rpartition("/")
    with reading(key):
        check_name(name)
        return name, _int32(int(index))


def read_topics(
    topics: Mapping[str, Versioned], partitions: Mapping[str, Versioned]
) -> list[TopicImage]:
    """Return the topics in the ranges `/topics/` and `/partitions/`."""
    found: dict[str, dict[int, PartitionImage]] = {}
    for key, stored in partitions.items():
        name, index = partition_of_key(key)
        found.setdefault(name, {})[index] = read_partition(key, stored)
    whole = []
    for key, stored in topics.items():
        name = key.removeprefix(TOPICS)
        topic = read_topic(name, stored, found.get(name, {}))
        if topic is not None:
            whole.append(topic)
    return whole
