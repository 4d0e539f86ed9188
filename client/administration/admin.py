"""Administration of topics and offsets.

The calls about settings are in `configs.py`, those about transactions in `transactions.py`, those
about groups in `groups.py`, those about records in `logs.py`, those about replicas in `moves.py`,
those about access control in `acls.py`, those about quotas in `quotas.py`, those about users in
`users.py`.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Final, Literal, Self, Unpack

from odradek.client.administration import elections
from odradek.client.administration.acls import AclAdmin
from odradek.client.administration.attempts import Attempts
from odradek.client.administration.configs import ConfigAdmin
from odradek.client.administration.groups import GroupAdmin
from odradek.client.administration.logs import LogAdmin
from odradek.client.administration.moves import MoveAdmin
from odradek.client.administration.quotas import QuotaAdmin
from odradek.client.administration.transactions import TransactionAdmin
from odradek.client.administration.users import UserAdmin
from odradek.client.cluster.bounded import bounded
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.cluster.offsets import fetch_committed, list_offsets
from odradek.client.cluster.served import Served
from odradek.client.config import ClientConfig, ClientOptions, Isolation, read_options
from odradek.client.errors import OdradekError, Refused, Retriable, code_of, error_for
from odradek.client.types import (
    DECISIONS_DEFAULT,
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    BrokerDescription,
    ClusterDescription,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from odradek.protocol.apis.known_brokers import UNREGISTER_BROKER, UnregisterBrokerRequest
from odradek.protocol.apis.metadata import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    MetadataResponseTopic,
)
from odradek.protocol.apis.topics import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.text import shortened

OffsetSpec = Literal["earliest", "latest", "max_timestamp"] | int

PLACES: Final[Mapping[str, int]] = {
    "earliest": EARLIEST,
    "latest": LATEST,
    "max_timestamp": MAX_TIMESTAMP,
}
NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


@ends_where_it_waits
class Admin(
    Served,
    AclAdmin,
    ConfigAdmin,
    GroupAdmin,
    LogAdmin,
    MoveAdmin,
    QuotaAdmin,
    TransactionAdmin,
    UserAdmin,
):
    """An administrator's client: it creates and describes topics, describes and ends transactions.

    async with Admin("127.0.0.1:9092") as admin:
        await admin.create_topic("flights", partitions=4)
    """

    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[ClientOptions]) -> None:
        """Make a client for the brokers at `bootstrap`; entering it connects.

        `bootstrap` is `"host:port"`, several of them separated by commas, or a sequence of them.
        Raises ValueError for a wrong option. The options and their defaults, times in milliseconds:

        - `client_id` ("odradek"): the name of this client in the logs of brokers.
        - `request_timeout_ms` (30_000): how long a request waits for its answer; then its
          connection is closed.
        - `retry_backoff_ms` (20): the wait before the first retry. It doubles with each retry.
        - `retry_backoff_max_ms` (1_000): the longest wait before a retry.
        - `metadata_max_age_ms` (300_000): the age at which the client asks again which broker
          leads a partition.
        - `max_block_ms` (60_000): how long a call may take before it raises `TimedOut`, unless it
          has a limit of its own.
        - `first_connect_ms` (10_000): how long a client tries to reach its first broker before a
          call raises `Disconnected`; None: as long as the call may take.
        - `security_protocol` ("PLAINTEXT"): or "SSL", which is TLS, "SASL_PLAINTEXT" or "SASL_SSL".
        - `ssl_ca_location` (None): a file with the authorities whose certificates count, as PEM or
          PKCS12, or the PEM text itself; None: those that the machine trusts.
        - `ssl_ca_password` (None): the password of that file, if it is PKCS12.
        - `ssl_certificate_location` (None): a file with the certificate that the broker is shown,
          as PEM or PKCS12, or the PEM text itself. It may have the key, too.
        - `ssl_key_location` (None): a file with the key as PEM, or the PEM text itself.
        - `ssl_key_password` (None): the password of the key, or of a file that is PKCS12.
        - `ssl_check_hostname` (True): refuse a certificate that is not for the broker's host.
        - `sasl_mechanism` (None): "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN" or "OAUTHBEARER".
        - `sasl_username` (None): the user of PLAIN and SCRAM.
        - `sasl_password` (None): the user's password, which only PLAIN sends.
        - `sasl_token` (None): the token of OAUTHBEARER, or a function that returns one as a str or
          as an `OAuthToken`, which has a lifetime. It is called in a thread, also when a session
          ends. A `Retriable` that it raises is retried, another error reaches the caller.
        - `sasl_oauthbearer_token_endpoint_url` (None): a token server instead of `sasl_token`. It
          is asked by https, with the grant client_credentials.
        - `sasl_oauthbearer_client_id` (None): the name of this program at the token server.
        - `sasl_oauthbearer_client_secret` (None): the secret that belongs to it.
        - `sasl_oauthbearer_scope` (None): the scope that it is asked for.
        - `sasl_oauthbearer_ca_location` (None): as `ssl_ca_location`, for the token server.
        - `sasl_oauthbearer_extensions`: pairs that a broker wants beside the token.
        - `connect`, `wall_ms`, `rng`: the network, the clock and the random numbers, for
          simulations.
        """
        self._config = read_options(ClientConfig, type(self).__name__, options)
        self._cluster = Cluster(bootstrap, self._config)
        self._address = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)

    def __repr__(self) -> str:
        return f"<Admin of {self._address}>"

    async def __aenter__(self) -> Self:
        await self._cluster.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._cluster.__aexit__(None, None, None)

    # Topics

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] = NO_CONFIGS,
        if_not_exists: bool = False,
    ) -> None:
        """Create a topic. With -1 the broker chooses the number.

        Raises `Refused` (a wrong name, a setting that does not exist, or, unless `if_not_exists`, a
        topic that exists already), `TimedOut`.
        """
        topic = NewTopic(name, partitions, replication_factor, tuple(configs.items()))
        try:
            await self.create_topics([topic])
        except Refused as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                raise

    @bounded("creating topics")
    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> None:
        """Create topics. With `validate_only`, only check that it is possible.

        Returns when each partition has a leader, so the topics can be used at once. Raises the
        error of the first topic that was refused, after trying all; `TimedOut`.
        """
        rest = {topic.name: topic for topic in topics}
        attempts = Attempts(self._cluster)

        async def attempt() -> None:
            request = CreateTopicsRequest(
                topics=tuple(_creatable(topic) for topic in rest.values()),
                timeout_ms=self._config.request_timeout_ms,
                validate_only=validate_only,
            )
            answer = await attempts.ask(await self._controller(), CREATE_TOPICS, request)
            for topic in answer.topics:
                if topic.error_code == ErrorCode.NONE:
                    rest.pop(topic.name, None)
            for topic in answer.topics:
                doing = f"creating the topic {shortened(topic.name)!r}"
                self._check(topic.error_code, doing, topic.error_message)
            _check_complete(rest, (), "creating topics")

        names = list(rest)
        if names:
            with attempts.remarking():
                await self._cluster.retrying("creating topics", attempt)
        if not validate_only:
            await self._wait_until_led(names)

    async def _wait_until_led(self, names: list[str]) -> None:
        """Wait until a broker returns a leader for each partition of the topics.

        The brokers learn of a new topic one after another, a moment after it was created.
        """

        async def attempt() -> None:
            await self._cluster.refresh(names)
            for name in names:
                topic = self._cluster.metadata.topics.get(name)
                if topic is None or any(leader.node_id < 0 for leader in topic.partitions.values()):
                    raise Retriable(f"the topic {name!r} was created and has no leaders yet")

        if names:
            await self._cluster.retrying("waiting for new topics", attempt)

    async def delete_topics(self, *names: str) -> None:
        """Delete topics and all their records. Raises the first error, after trying all."""
        rest = dict.fromkeys(names)
        attempts = Attempts(self._cluster)

        async def attempt() -> None:
            request = DeleteTopicsRequest(
                topics=tuple(DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in rest),
                topic_names=tuple(rest),
                timeout_ms=self._config.request_timeout_ms,
            )
            answer = await attempts.ask(await self._controller(), DELETE_TOPICS, request)
            for result in answer.responses:
                if result.error_code == ErrorCode.NONE and result.name is not None:
                    rest.pop(result.name, None)
            for result in answer.responses:
                doing = f"deleting the topic {shortened(result.name or '')!r}"
                if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise Refused(
                        f"{doing}: there is no such topic", code=code_of(result.error_code)
                    )
                self._check(result.error_code, doing, result.error_message)
            _check_complete(rest, (), "deleting topics")

        if names:
            with attempts.remarking():
                await self._cluster.retrying("deleting topics", attempt)

    async def create_partitions(self, topic: str, total_count: int) -> None:
        """Increase the number of partitions of a topic to `total_count`.

        Records with a key may then go to another partition than before. Raises `Refused`.
        """
        noun = "partition" if total_count == 1 else "partitions"
        doing = f"giving the topic {topic!r} {total_count} {noun}"
        request = CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name=topic, count=total_count, assignments=None),),
            timeout_ms=self._config.request_timeout_ms,
            validate_only=False,
        )

        attempts = Attempts(self._cluster)

        async def attempt() -> None:
            answer = await attempts.ask(await self._controller(), CREATE_PARTITIONS, request)
            for result in answer.results:
                if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise Refused(
                        f"{doing}: there is no such topic", code=code_of(result.error_code)
                    )
                self._check(result.error_code, doing, result.error_message)

            _check_complete((topic,), {result.name for result in answer.results}, doing)

        with attempts.remarking():
            await self._cluster.retrying(doing, attempt)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted; with `internal`, also those of the brokers."""
        found = await self._metadata(None)
        return sorted(
            topic.name
            for topic in found
            if topic.name
            and (internal or not (topic.is_internal or topic.name == DECISIONS_DEFAULT))
        )

    async def describe_topics(self, *names: str) -> list[TopicDescription]:
        """Return partitions, leaders and replicas, in the order of `names`. Raises `Refused`."""
        found = {topic.name: topic for topic in await self._metadata(names)} if names else {}
        for name in names:
            if name not in found or found[name].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise Refused(
                    f"there is no topic {name!r}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
        return [_description(name, found[name]) for name in names]

    async def _metadata(self, names: Sequence[str] | None) -> tuple[MetadataResponseTopic, ...]:
        async def attempt() -> tuple[MetadataResponseTopic, ...]:
            answer = await self._cluster.refresh(names)
            if answer is None:
                raise Retriable("another call has requested the metadata")
            for topic in answer.topics:
                if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._check(
                        topic.error_code,
                        f"describing the topic {shortened(topic.name or '')!r}",
                        None,
                    )
            return answer.topics

        return await self._cluster.retrying("reading the cluster's metadata", attempt)

    # Leaders

    @bounded("electing a leader")
    async def elect_leader(
        self, partition: TopicPartition, *, unclean: bool = False, candidate: int | None = None
    ) -> None:
        """Elect the first replica of a partition as its leader.

        With `unclean` elect a leader for a partition that has none, although acknowledged records
        may be lost: the replica on the node `candidate`, or the first one that is there. Brokers
        other than Odradek ignore `candidate`. Raises `Refused` if there is nothing to elect or no
        such replica is there (`error.code` says which), and `TimedOut`.
        """
        await elections.elect_leader(
            self._cluster, TopicPartition(*partition), is_unclean=unclean, candidate=candidate
        )

    @bounded("looking up where replicas end")
    async def log_ends(
        self, partition: TopicPartition
    ) -> dict[int, OffsetAndTimestamp | OdradekError]:
        """Return the end of each replica's log, or the error, by the id of its node.

        Replicas whose brokers are away are left out. An end has the leader epoch of the last
        record. Raises `Refused`, `TimedOut`.
        """
        wanted = TopicPartition(*partition)
        (topic,) = await self.describe_topics(wanted.topic)
        if not 0 <= wanted.partition < len(topic.partitions):
            raise Refused(
                f"there is no partition {wanted}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        replicas = topic.partitions[wanted.partition].replicas
        there = tuple(node for node in replicas if node in self._cluster.metadata.nodes)
        return await elections.log_ends(self._cluster, wanted, there)

    # Offsets

    async def list_offsets(
        self,
        spec: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: Isolation = "read_committed",
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return an offset for each partition: the earliest, the latest, or that of a timestamp.

        A timestamp is milliseconds since 1970. It returns the first record at or after it, with the
        offset -1 if all records are older. Raises `Refused`, `TimedOut`.
        """
        places = {
            TopicPartition(*partition): PLACES[place] if isinstance(place, str) else place
            for partition, place in spec.items()
        }
        return await list_offsets(self._cluster, places, isolation_level)

    async def committed(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the stored offsets of a group, for these partitions or for all.

        See `Consumer.committed`.
        """
        wanted = (
            None if partitions is None else [TopicPartition(*partition) for partition in partitions]
        )
        return await fetch_committed(self._cluster, group_id, wanted, require_stable=require_stable)

    # The cluster

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Return the id of the cluster, its controller and its brokers. Raises `TimedOut`.

        With `include_fenced` also brokers that are away, as far as the brokers return them
        (Kafka 4.0 and later), until `unregister_broker` takes them out.
        """

        async def attempt() -> ClusterDescription:
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=False, include_fenced_brokers=include_fenced
            )
            answer = await self._cluster.ask(None, DESCRIBE_CLUSTER, request)
            self._check(answer.error_code, "describing the cluster", answer.error_message)
            return ClusterDescription(
                answer.cluster_id,
                answer.controller_id,
                tuple(
                    BrokerDescription(
                        broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced
                    )
                    for broker in answer.brokers
                ),
            )

        return await self._cluster.retrying("describing the cluster", attempt)

    async def unregister_broker(self, node_id: int) -> None:
        """Forget a broker that is away and will not come back.

        Raises `Refused` if there is no such broker; Odradek refuses also one that is alive or has
        replicas. Raises `TimedOut`.
        """
        doing = f"forgetting broker {node_id}"
        request = UnregisterBrokerRequest(broker_id=node_id)

        async def attempt() -> None:
            answer = await self._cluster.ask(await self._controller(), UNREGISTER_BROKER, request)
            self._check(answer.error_code, doing, answer.error_message)

        await self._cluster.retrying(doing, attempt)

    async def _controller(self) -> int | None:
        """Return the node id of the controller, which changes topics; None if it is not known.

        Without a controller in the metadata, any broker forwards the request (KIP-590).
        """
        if self._cluster.metadata.controller_id not in self._cluster.metadata.nodes:
            await self._cluster.refresh()
        controller_id = self._cluster.metadata.controller_id
        return controller_id if controller_id in self._cluster.metadata.nodes else None

    def _check(self, number: int, doing: str, said: str | None) -> None:
        if number == ErrorCode.NOT_CONTROLLER:
            self._cluster.metadata.controller_id = -1
        if number != ErrorCode.NONE:
            raise error_for(code_of(number), doing, said)


def _check_complete(asked: Iterable[str], answered: Container[str], doing: str) -> None:
    """Raise `Retriable` if an answer leaves out a name that was asked for."""
    for name in asked:
        if name not in answered:
            raise Retriable(f"{doing}: the broker's answer leaves out {name!r}")


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=(),
        configs=tuple(
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs
        ),
    )


def _description(name: str, topic: MetadataResponseTopic) -> TopicDescription:
    return TopicDescription(
        name,
        topic.topic_id,
        topic.is_internal,
        tuple(
            PartitionDescription(
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch,
                partition.replica_nodes,
                partition.isr_nodes,
                partition.offline_replicas,
            )
            for partition in sorted(
                topic.partitions, key=lambda partition: partition.partition_index
            )
        ),
    )
