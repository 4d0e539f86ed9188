"""The plan of an import of Kafka's directories, which is shown before anything is written.

- A contradiction refuses the import (`CannotCopy`): partitions whose directories are not there,
  replicas on other nodes, old segments that are in remote storage.
- What Odradek does not have is listed, and left out if the person agrees.
- Topics keep their ids, settings and numbers of partitions. So do the two state topics: groups and
  transactional ids hash to the same partitions as before.
- Producer ids go on where Kafka's end, and leader epochs above Kafka's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

from odradek.broker.cluster.acl_keys import acl_key, pack_entries
from odradek.broker.cluster.image import PartitionImage, TopicImage
from odradek.broker.cluster.quota_keys import pack_values, quota_key
from odradek.broker.cluster.store import (
    CLUSTER,
    broker_configs_key,
    group_configs_key,
    made_logs_key,
    pack,
    topic_puts,
)
from odradek.broker.cluster.two_copies import encode_record
from odradek.broker.cluster.user_keys import pack_credentials, user_key
from odradek.broker.config.broker import BrokerConfig, broker_settings
from odradek.broker.config.consumer_group_settings import check_group_configs
from odradek.broker.config.live import DYNAMIC
from odradek.broker.config.settings import ConfigError
from odradek.broker.config.topic import check_topic_configs
from odradek.broker.inspect.importing import kafka_metadata as kafka
from odradek.broker.inspect.importing.kafka_directory import KafkaDirectory, KafkaLog
from odradek.broker.inspect.importing.kafka_metadata import KafkaMetadata, KafkaTopic
from odradek.broker.inspect.importing.state import StateFound
from odradek.broker.inspect.refusal import CannotCopy
from odradek.broker.inspect.transfer import TopicSource
from odradek.broker.quotas.entities import (
    IP,
    OF_ADDRESSES,
    OF_CLIENTS,
    Entity,
    Values,
    is_address,
)
from odradek.broker.security.acls import (
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)
from odradek.broker.security.scram_users import MECHANISM_OF, ScramCredential, ScramMechanism
from odradek.broker.txn.producer_ids import PRODUCER_IDS_KEY
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass
from odradek.protocol.errors import KafkaError
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC

UNSERVED_TOPICS: Final = {
    "__share_group_state": "the state of share groups",
    "__remote_log_metadata": "the state of tiered storage",
}
TIERED: Final = "remote.storage.enable"
SHOWN: Final = 10


@dataclass(slots=True, kw_only=True)
class ImportPlan:
    cluster_id: str
    node_id: int
    topics: list[TopicSource] = field(default_factory=list)
    broker_configs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    group_configs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    acls: dict[ResourcePattern, list[AclEntry]] = field(default_factory=dict)
    quotas: dict[Entity, Values] = field(default_factory=dict)
    users: dict[str, dict[ScramMechanism, ScramCredential]] = field(default_factory=dict)
    next_producer_id: int = 0
    left_out: list[str] = field(default_factory=list)
    """What is not taken over, each a line for a person, who has to agree."""
    notes: list[str] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(topic.size_bytes for topic in self.topics)

    def record(self) -> bytes:
        """Return the bytes of the metadata store."""
        puts: dict[str, bytes | None] = {
            CLUSTER: pack({"id": self.cluster_id}),
            PRODUCER_IDS_KEY: b"%d" % self.next_producer_id,
            made_logs_key(self.node_id): pack({}),
        }
        for planned in self.topics:
            topic = planned.topic
            puts |= topic_puts(topic)
            made = {"partitions": list(range(len(topic.partitions)))}
            puts[made_logs_key(self.node_id, topic.topic_id)] = pack(made)
        for broker, configs in self.broker_configs.items():
            puts[broker_configs_key(broker)] = pack(dict(configs))
        for group, configs in self.group_configs.items():
            puts[group_configs_key(group)] = pack(dict(configs))
        for resource, entries in self.acls.items():
            puts[acl_key(resource)] = pack_entries(entries)
        for entity, values in self.quotas.items():
            puts[quota_key(entity)] = pack_values(values)
        for name, credentials in self.users.items():
            puts[user_key(name)] = pack_credentials(credentials)
        return encode_record([1, puts])


def plan_import(
    directories: Sequence[KafkaDirectory], metadata: KafkaMetadata, state: StateFound
) -> ImportPlan:
    """Decide what an import makes. Raises `CannotCopy`."""
    first = directories[0]
    plan = ImportPlan(cluster_id=first.cluster_id, node_id=first.node_id)
    problems = [*_of_one_node(directories, metadata)]
    logs = _logs(directories, problems)
    used: set[str] = set()
    for kafka_topic in sorted(metadata.topics.values(), key=lambda topic: topic.name):
        if kafka_topic.name in UNSERVED_TOPICS:
            what = UNSERVED_TOPICS[kafka_topic.name]
            plan.left_out.append(f"the topic {kafka_topic.name}: {what}")
            used |= {log.path for where, log in logs.items() if where.topic == kafka_topic.name}
            continue
        planned = _topic(kafka_topic, plan, metadata, logs, problems, state)
        if planned is not None:
            plan.topics.append(planned)
            used |= {logs[source.where].path for source in planned.logs}
    if problems:
        raise CannotCopy(problems)
    _take_settings(plan, metadata)
    _take_acls(plan, metadata)
    _take_quotas(plan, metadata)
    _take_users(plan, metadata)
    _leave_out(plan, metadata, state)
    strangers = [log.path for log in logs.values() if log.path not in used]
    strangers += [other for directory in directories for other in directory.others]
    if strangers:
        plan.notes.append(f"Directories of no topic, which stay where they are: {_list(strangers)}")
    plan.next_producer_id = metadata.next_producer_id
    return plan


def _of_one_node(directories: Sequence[KafkaDirectory], metadata: KafkaMetadata) -> Iterator[str]:
    """Yield why directories are not all of those of a Kafka of one node."""
    first = directories[0]
    for other in directories[1:]:
        if (other.cluster_id, other.node_id) != (first.cluster_id, first.node_id):
            yield (
                f"{first.path} is of node {first.node_id} of the cluster {first.cluster_id}, and "
                f"{other.path} of node {other.node_id} of {other.cluster_id}."
            )
    brokers = sorted(metadata.brokers)
    if brokers not in ([], [first.node_id]):
        yield (
            f"The cluster has the brokers {', '.join(map(str, brokers))}, and only a Kafka of one "
            "node can be imported. Move all partitions to one broker (kafka-reassign-partitions), "
            "unregister the others (kafka-cluster unregister), or copy the topics live with "
            "MirrorMaker 2: see docs/migrating.md."
        )
    log_dirs = len(metadata.brokers.get(first.node_id, ()))
    if log_dirs > len(directories):
        yield (
            f"Kafka has {log_dirs} log directories (log.dirs), and {len(directories)} are given: "
            "give all of them."
        )


def _logs(
    directories: Sequence[KafkaDirectory], problems: list[str]
) -> dict[TopicPartition, KafkaLog]:
    logs: dict[TopicPartition, KafkaLog] = {}
    for directory in directories:
        for where, log in directory.logs.items():
            if where in logs:
                problems.append(f"{where} is there twice: {logs[where].path} and {log.path}.")
            logs[where] = log
    return logs


def _topic(
    topic: KafkaTopic,
    plan: ImportPlan,
    metadata: KafkaMetadata,
    logs: Mapping[TopicPartition, KafkaLog],
    problems: list[str],
    state: StateFound,
) -> TopicSource | None:
    """Return a topic as it will be; None if that is not possible."""
    configs = metadata.configs.get((kafka.TOPIC, topic.name), {})
    found = len(problems)
    if configs.get(TIERED) == "true":
        problems.append(
            f"Topic {topic.name} keeps old segments in remote storage, which cannot be read here. "
            f"Take them back or give them up in Kafka ({TIERED}=false), or delete the topic."
        )
    count = len(topic.partitions)
    if sorted(topic.partitions) != list(range(count)):
        problems.append(f"Topic {topic.name} has the partitions {sorted(topic.partitions)}.")
        return None
    elsewhere = {node for each in topic.partitions.values() for node in each.replicas}
    if elsewhere != {plan.node_id}:
        problems.append(
            f"Topic {topic.name} has replicas on the nodes {_list(map(str, sorted(elsewhere)))}; "
            f"this is node {plan.node_id}."
        )
    missing = [index for index in range(count) if not _is_there(topic, index, logs)]
    if missing:
        problems.append(
            f"Topic {topic.name} has {count} partitions, and there is no directory for: "
            f"{_list(map(str, missing))}. If Kafka has several log.dirs, give all of them."
        )
    if problems[found:]:
        return None
    here = (plan.node_id,)
    return TopicSource(
        topic=TopicImage(
            name=topic.name,
            topic_id=topic.topic_id,
            configs=_usable(topic.name, configs, plan),
            partitions=tuple(
                PartitionImage(
                    leader=plan.node_id,
                    leader_epoch=topic.partitions[index].leader_epoch + 1,
                    replicas=here,
                    isr=here,
                )
                for index in range(count)
            ),
            is_by_tag=topic.name == TRANSACTION_STATE_TOPIC and not state.tagged,
        ),
        logs=[logs[TopicPartition(topic.name, index)].source() for index in range(count)],
    )


def _is_there(topic: KafkaTopic, index: int, logs: Mapping[TopicPartition, KafkaLog]) -> bool:
    log = logs.get(TopicPartition(topic.name, index))
    # Kafka makes the directory before its first segment, in which there is nothing then.
    return log is not None and bool(log.bases) and log.topic_id in (None, topic.topic_id)


def _usable(topic: str, configs: Mapping[str, str], plan: ImportPlan) -> Mapping[str, str]:
    """Return the settings of a topic that this broker has. Note the others."""
    usable: dict[str, str] = {}
    for name, text in sorted(configs.items()):
        try:
            usable = check_topic_configs([*usable.items(), (name, text)])
        except KafkaError as error:
            plan.left_out.append(f"the setting {name}={text} of topic {topic}: {error.message}")
    return usable


def _take_settings(plan: ImportPlan, metadata: KafkaMetadata) -> None:
    """Take over the settings of brokers and groups that this broker has. Note the others."""
    for (kind, name), configs in sorted(metadata.configs.items()):
        if kind == kafka.BROKER:
            taken = dict(_live_settings(name, configs, plan))
            if taken:
                plan.broker_configs[name] = taken
        elif kind == kafka.GROUP and configs:
            try:
                plan.group_configs[name] = check_group_configs(configs, BrokerConfig())
            except ConfigError as error:
                plan.left_out.append(f"the settings of group {name}: {error}")
        elif kind == kafka.CLIENT_METRICS and configs:
            plan.left_out.append(f"the subscription {name} of clients' metrics")


def _live_settings(
    broker: str, configs: Mapping[str, str], plan: ImportPlan
) -> Iterator[tuple[str, str]]:
    whose = f"of broker {broker}" if broker else "of all brokers"
    for name, text in sorted(configs.items()):
        if name not in DYNAMIC:
            plan.left_out.append(f"the setting {name} {whose}: it does not change while it runs")
            continue
        try:
            broker_settings()[name].parse(name, text)
            yield name, text
        except ConfigError as error:
            plan.left_out.append(f"the setting {name}={text} {whose}: {error}")


def _take_acls(plan: ImportPlan, metadata: KafkaMetadata) -> None:
    """Take over the entries of access control.

    Raises `CannotCopy` for one that is not known: it may deny what others allow.
    """
    for record in metadata.acls.values():
        try:
            resource = ResourcePattern(
                ResourceKind(record.resource_type),
                PatternType(record.pattern_type),
                record.resource_name,
            )
            entry = AclEntry(
                record.principal,
                record.host,
                AclOperation(record.operation),
                Permission(record.permission_type),
            )
        except ValueError as error:
            raise CannotCopy([f"An ACL entry of Kafka cannot be read: {error}."]) from None
        plan.acls.setdefault(resource, []).append(entry)
    if plan.acls:
        plan.notes.append(
            f"ACL entries: {len(metadata.acls)}. They count where authorizer.class.name is set; "
            "without it every client may do everything."
        )


def _take_quotas(plan: ImportPlan, metadata: KafkaMetadata) -> None:
    """Take over the quotas that are known. The quota of a host's name is left out."""
    for entity, values in metadata.quotas.items():
        address = dict(entity).get(IP)
        if address is not None and not is_address(address):
            plan.left_out.append(f"the quotas of {address}, which is no address")
            continue
        bounds = OF_ADDRESSES if IP in dict(entity) else OF_CLIENTS
        known = {
            kind: value
            for kind, value in values.items()
            if kind in bounds and not bounds[kind].is_too_small(value)
        }
        plan.left_out += [f"the quota {kind}" for kind in values if kind not in known]
        if known:
            plan.quotas[entity] = known
    if plan.quotas:
        plan.notes.append(f"Quotas: of {len(plan.quotas)} users, client ids and addresses.")


def _take_users(plan: ImportPlan, metadata: KafkaMetadata) -> None:
    """Take over the credentials of SCRAM: passwords stay as they are."""
    known = {mechanism.value: mechanism for mechanism in MECHANISM_OF.values()}
    for (name, number), record in sorted(metadata.users.items()):
        if number not in known or not name:
            plan.left_out.append(f"the user {name} with the SCRAM mechanism {number}")
            continue
        plan.users.setdefault(name, {})[known[number]] = ScramCredential(
            salt=bytes(record.salt),
            stored_key=bytes(record.stored_key),
            server_key=bytes(record.server_key),
            iterations=record.iterations,
        )
    if plan.users:
        plan.notes.append(f"Users (SCRAM), with their passwords: {_list(sorted(plan.users))}.")


def _leave_out(plan: ImportPlan, metadata: KafkaMetadata, state: StateFound) -> None:
    """Note what Odradek has nothing like."""
    if metadata.tokens:
        plan.left_out.append(f"delegation tokens: {len(metadata.tokens)}")
    if state.share_groups:
        plan.left_out.append(f"share groups: {_list(sorted(state.share_groups))}")
    if state.streams_groups:
        plan.left_out.append(f"streams groups (KIP-1071): {_list(sorted(state.streams_groups))}")
    if state.tagged:
        plan.notes.append(
            f"Transactional ids with a tag in braces ({_list(sorted(state.tagged))}) are where "
            "Kafka has put them, so this broker will not have transaction groups."
        )


def _list(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - SHOWN} more" if every[SHOWN:] else ""
    return ", ".join(every[:SHOWN]) + more
