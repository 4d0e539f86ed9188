"""A broker's copy of the metadata store, kept up to date by a watch.

The image that others read changes in one place: here, when the watch brings a change and the broker
has taken its roles in it (`apply`). Each write of a broker comes back this way, so whoever wrote
waits until the image has the revision of the write (`reached`).

A watch may be silent although the store goes on (a half-open connection, a member of the store
that is cut off). Whoever learns a later revision by another way says so (`heard_of`); if the watch
does not bring it soon, it is replaced by another.
"""

import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Final

import trio

from odradek.broker.cluster.acl_keys import ACLS, AclsBuilder
from odradek.broker.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.broker.cluster.quota_keys import QUOTAS, QuotasBuilder
from odradek.broker.cluster.store import (
    BROKER_CONFIGS,
    BROKERS,
    CLUSTER,
    CONTROLLER,
    GROUP_CONFIGS,
    KNOWN_BROKERS,
    PARTITIONS,
    TOPICS,
    check_metadata_format,
    is_adopting,
    pack,
    partition_of_key,
    read_broker,
    read_configs,
    read_id,
    read_partition,
    read_topic,
)
from odradek.broker.cluster.user_keys import SECRETS, USERS, UsersBuilder
from odradek.broker.config.settings import ConfigError
from odradek.broker.environment.env import (
    Compacted,
    Compare,
    MetaStore,
    OutcomeUnknown,
    StoreUnreachable,
    Unreadable,
    Versioned,
)
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)
SILENCE_SECONDS: Final = 2.0
"""A watch that has not brought a revision so long after it was heard of is replaced."""
LOOKS: Final = 4
"""How often a watch is looked at within that time."""
RETRY_SECONDS: Final = 0.2
BEHIND_SECONDS: Final = 2.0
"""An image that lacks a known revision for longer is too old to decide what clients may do. It is
not less, because taking the roles of a large change takes a second."""

BASE64_URL: Final = str.maketrans("+/", "-_")

Apply = Callable[[ClusterImage, ClusterImage], Awaitable[None]]
"""Takes this broker's roles in a new image. Called with the old one and the new one."""


class ImageBuilder:
    """The values of the metadata store, as images are made of them."""

    def __init__(self) -> None:
        self._cluster_id = ""
        self._controller: tuple[int, int] | None = None
        self._brokers: dict[str, BrokerImage] = {}
        self._known_brokers: dict[str, BrokerImage] = {}
        self._topics: dict[str, Versioned] = {}
        self._partitions: dict[str, dict[int, PartitionImage]] = {}
        self._touched: dict[str, None] = {}
        self._broker_configs: dict[str, Mapping[str, str]] = {}
        self._group_configs: dict[str, Mapping[str, str]] = {}
        self._acls = AclsBuilder()
        self._quotas = QuotasBuilder()
        self._users = UsersBuilder()
        self._unreadable: dict[str, dict[str, None]] = {}
        """The keys of a topic whose values cannot be read."""

    def put(self, key: str, stored: Versioned | None) -> None:
        """Take over one key; None deletes it. What cannot be read changes nothing."""
        try:
            self._put(key, stored)
        except Unreadable as error:
            LOGGER.warning("a change of the metadata store has no effect: %s", error.message)

    def _put(self, key: str, stored: Versioned | None) -> None:
        if key.startswith(PARTITIONS):
            name, index = partition_of_key(key)
            self._touched[name] = None
            if stored is None:
                self._partitions.get(name, {}).pop(index, None)
            else:
                self._unreadable.setdefault(name, {})[key] = None
                self._partitions.setdefault(name, {})[index] = read_partition(key, stored)
            self._unreadable.get(name, {}).pop(key, None)
        elif key.startswith(TOPICS):
            name = key.removeprefix(TOPICS)
            if stored is None:
                self._topics.pop(name, None)
            else:
                self._topics[name] = stored
            self._touched[name] = None
        elif key.startswith(BROKERS):
            if stored is None:
                self._brokers.pop(key, None)
            else:
                self._brokers[key] = read_broker(key, stored)
        elif key.startswith(KNOWN_BROKERS):
            if stored is None:
                self._known_brokers.pop(key, None)
            else:
                self._known_brokers[key] = read_broker(key, stored)
        elif key.startswith(BROKER_CONFIGS):
            broker = key.removeprefix(BROKER_CONFIGS)
            if stored is None:
                self._broker_configs.pop(broker, None)
            else:
                self._broker_configs[broker] = read_configs(key, stored)
        elif key.startswith(GROUP_CONFIGS):
            group_id = key.removeprefix(GROUP_CONFIGS)
            if stored is None:
                self._group_configs.pop(group_id, None)
            else:
                self._group_configs[group_id] = read_configs(key, stored)
        elif key.startswith(ACLS):
            self._acls.put(key, stored)
        elif key.startswith(QUOTAS):
            self._quotas.put(key, stored)
        elif key.startswith((USERS, SECRETS)):
            self._users.put(key, stored)
        elif key == CONTROLLER:
            self._controller = (
                None if stored is None else (read_id(key, stored), stored.create_revision)
            )
        elif key == CLUSTER and stored is not None:
            cluster_id = read_id(key, stored)
            if self._cluster_id not in ("", cluster_id):
                raise Unreadable(key, f"it was {self._cluster_id}")
            self._cluster_id = cluster_id

    def image(
        self, before: ClusterImage | None, revision: int, *, is_anew: bool = False
    ) -> ClusterImage:
        """Return the image of all values. What has not changed is taken from the one before.

        So is a topic with a value that cannot be read. `is_anew`: every key was put, so what was
        not is gone.
        """
        shown: Mapping[str, TopicImage] = {} if before is None else before.topics
        changed: dict[str, TopicImage | None] = {}
        for name in dict.fromkeys((*shown, *self._touched)) if is_anew else self._touched:
            try:
                topic = self._topic(name)
            except Unreadable as error:
                LOGGER.warning("topic %s stays as it was: %s", name, error.message)
                continue
            if topic is None and not self._partitions.get(name):  # nothing is left of it
                self._partitions.pop(name, None)
                self._unreadable.pop(name, None)
            if shown.get(name) != topic:
                changed[name] = topic
        self._touched.clear()
        controller_id, controller_epoch = self._controller or (-1, 0)
        brokers = sorted(self._brokers.values(), key=lambda broker: broker.node_id)
        known = sorted(self._known_brokers.values(), key=lambda broker: broker.node_id)
        here = {broker.node_id for broker in brokers}
        image = replace(
            before or ClusterImage(cluster_id=""),
            cluster_id=self._cluster_id,
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            brokers=tuple(brokers),
            away=tuple(broker for broker in known if broker.node_id not in here),
            revision=revision,
            broker_configs=dict(self._broker_configs),
            group_configs=dict(self._group_configs),
            acls=self._acls.table,
            quotas=self._quotas.table,
            users=self._users.users,
            cluster_secret=self._users.secret,
        )
        return image.with_changes(changed)

    def _topic(self, name: str) -> TopicImage | None:
        """Return a topic; None if there is none. Raises `Unreadable`."""
        for key in self._unreadable.get(name, ()):
            raise Unreadable(key, "see above")
        stored = self._topics.get(name)
        if stored is None:
            return None
        return read_topic(name, stored, self._partitions.get(name, {}))


async def find_cluster_id(store: MetaStore, rng: random.Random) -> str:
    """Return the cluster's id. A new store gets one.

    Waits while the store is away. Raises KafkaError if its disk fails, and ConfigError if the
    metadata are of a newer format, or those of a broker are being moved into the store
    (`adoption.py`).
    """
    while True:
        try:
            found, _ = await store.range(CLUSTER)
            if CLUSTER in found:
                check_metadata_format(found[CLUSTER])
                if is_adopting(CLUSTER, found[CLUSTER]):
                    raise ConfigError(
                        "etcd has a part of the metadata of a broker that is being taken into a "
                        "cluster: wait for `odradek cluster adopt`, or run it again if it was "
                        "interrupted."
                    )
                cluster_id: str = read_id(CLUSTER, found[CLUSTER])
                return cluster_id
            new = pack({"id": new_cluster_id(rng)})
            await store.txn([Compare(key=CLUSTER, mod_revision=0)], {CLUSTER: new})
        except (StoreUnreachable, OutcomeUnknown) as error:
            LOGGER.warning("the metadata store does not answer: %s", error)
            await trio.sleep(RETRY_SECONDS)


def new_cluster_id(rng: random.Random) -> str:
    """Return 22 random characters of base64, the form that Kafka's tools expect."""
    import base64

    data = rng.getrandbits(128).to_bytes(16, "big")
    return base64.b64encode(data).decode().rstrip("=").translate(BASE64_URL)


class ClusterMetadata:
    """The image of the cluster, and the watch that changes it."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._builder = ImageBuilder()
        self.image = ClusterImage(cluster_id="")
        self.next_image: ClusterImage | None = None
        """The image whose roles are being taken; None most of the time."""
        self._heard_of = 0
        self._revision_now = 0
        self._heard_at = inf
        """The time at which the store was found to have the revision `_heard_of`."""
        self._lacked = 0
        """The oldest known revision that the image lacks; 0 if it lacks none."""
        self._lacked_since = inf
        """The time at which the store was found to have that one; -inf if that cannot be told."""
        self._has_gone_back = False
        self._moved = trio.Event()
        self._watch = trio.CancelScope()
        self._is_over = False
        self._shields: set[trio.CancelScope] = set()

    @property
    def newest_image(self) -> ClusterImage:
        """The image, or the next one while this broker takes its roles in it."""
        return self.next_image or self.image

    @property
    def is_behind(self) -> bool:
        """Return True if the image has lacked one known revision for a while.

        It may lack some revision at any time, because others write without a pause.
        """
        return trio.current_time() - self._lacked_since > BEHIND_SECONDS

    def note_lapse(self) -> None:
        """Note that this broker could not hear of changes: an image that lacks some is behind."""
        if self.newest_image.revision < self._heard_of:
            self._lacked, self._lacked_since = self._heard_of, -inf

    async def load(self) -> None:
        """Read the whole store. Waits while it is away."""
        while True:
            try:
                self.image = await self._listed()
                return
            except StoreUnreachable as error:
                LOGGER.warning("the metadata store does not answer: %s", error)
                await trio.sleep(RETRY_SECONDS)

    async def _listed(self) -> ClusterImage:
        values, revision = await self._store.range("/")
        builder = ImageBuilder()
        for key, stored in values.items():
            builder.put(key, stored)
        image = builder.image(self.image, revision, is_anew=True)
        if self.image.cluster_id and image.cluster_id != self.image.cluster_id:
            # An empty store would have every log removed.
            raise StoreUnreachable(
                f"The metadata store is of the cluster {image.cluster_id or 'that has no id'}, and "
                f"this broker of {self.image.cluster_id}: correct its address, or restore it."
            )
        if revision < self.image.revision:
            _check_epochs(self.image, image)
        self._builder = builder
        return image

    async def run(self, apply: Apply) -> None:
        """Follow the store until cancelled. What waits for a revision then fails."""
        try:
            await self._run(apply)
        finally:
            self._is_over = True
            self._moved.set()
            for shield in self._shields:
                shield.shield = False

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Shield the block from a client that disconnects, but not from the end of this broker.

        The store may be away for ever: a write whose answer was lost would wait for it.
        """
        with trio.CancelScope(shield=not self._is_over) as shield:
            self._shields.add(shield)
            try:
                yield
            finally:
                self._shields.discard(shield)

    async def _run(self, apply: Apply) -> None:
        while True:
            try:
                with trio.CancelScope() as self._watch:
                    await self._follow(apply)
                if self._has_gone_back:
                    self._has_gone_back = False
                    await self.read_anew(apply)
            except Compacted:
                LOGGER.info("the watch of the metadata store is too old: everything is read anew")
                await self.read_anew(apply)
            except KafkaError as error:
                LOGGER.warning("the metadata store cannot be watched: %s", error)
                await trio.sleep(RETRY_SECONDS)

    async def _follow(self, apply: Apply) -> None:
        async with self._store.watch("/", self.image.revision + 1) as changes:
            async for change in changes:
                await self._take(apply, change.values, change.revision)

    async def read_anew(self, apply: Apply) -> None:
        """Read the whole store and take the roles that follow. A failure is logged."""
        try:
            listed = await self._listed()
        except KafkaError as error:
            LOGGER.warning("the metadata store cannot be read: %s", error)
            await trio.sleep(RETRY_SECONDS)
            return
        await self._publish(apply, listed)

    async def _take(
        self, apply: Apply, changed: Mapping[str, Versioned | None], revision: int
    ) -> None:
        if revision <= self.image.revision:
            return
        for key, stored in changed.items():
            self._builder.put(key, stored)
        await self._publish(apply, self._builder.image(self.image, revision))

    async def _publish(self, apply: Apply, image: ClusterImage) -> None:
        assert self.image.cluster_id in ("", image.cluster_id), (self.image.cluster_id, image)
        # Shielded: half of the roles of an image would be taken otherwise, and the watch that
        # follows would begin after it.
        self.next_image = image
        if image.revision >= self._heard_of:
            self._lacked, self._lacked_since = 0, inf
        elif image.revision >= self._lacked:
            self._lacked, self._lacked_since = self._heard_of, self._heard_at
        with trio.CancelScope(shield=True):
            await apply(self.image, image)
        self.image, self.next_image = image, None
        self._wake()

    async def wait_reached(self, revision: int) -> ClusterImage:
        """Wait until the image shows `revision`, and return it.

        Raises KafkaError(BROKER_NOT_AVAILABLE) if this broker stops meanwhile, `OutcomeUnknown` if
        the store turns out not to have that revision.
        """
        self.note_revision(revision)
        while self.image.revision < revision:
            if self._is_over:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "This broker stops.")
            if self._heard_of < revision:
                raise OutcomeUnknown(f"The metadata store has not reached revision {revision}.")
            await self._moved.wait()
        return self.image

    async def next_step(self) -> ClusterImage:
        """Wait until the image changes, and return the next one."""
        await self._moved.wait()
        return self.image

    async def wait_changed(self, after: ClusterImage) -> ClusterImage:
        """Wait until there is another image than `after`, and return it."""
        while self.image is after:
            await self._moved.wait()
        return self.image

    def note_revision(self, revision: int) -> None:
        """Note that the store has reached a revision."""
        if revision > self._heard_of:
            self._heard_of, self._heard_at = revision, trio.current_time()
        if not self._lacked and self.newest_image.revision < self._heard_of:
            self._lacked, self._lacked_since = self._heard_of, trio.current_time()

    def is_at(self, revision: int) -> None:
        """Note the revision that the store has now, as far as one of its members knows."""
        self._revision_now = revision
        self.note_revision(revision)

    async def replace_silent_watches(self) -> None:
        """Replace a watch that does not bring what the store is known to have. Never returns.

        If the store does not have it either, an answer was wrong: then what is shown is read anew.
        """
        while True:
            expected, shown = self._heard_of, self.image.revision
            self._revision_now = shown
            await self._await_progress()
            if self.image.revision < expected:
                LOGGER.warning(
                    "the watch of the metadata store is silent at revision %d, and %d is known: "
                    "it is replaced",
                    self.image.revision,
                    expected,
                )
                self._watch.cancel()
                await self._check_known(expected)
            elif self._revision_now < shown:
                await self._check_known(shown)

    async def _await_progress(self) -> None:
        """Wait for `SILENCE_SECONDS`, and ask for progress if the watch lacks a revision.

        Writes of other programs need that. It happens within a second after one was heard of, so
        that the image is not behind because of it.
        """
        asked = 0
        for _ in range(LOOKS):
            heard_of = self._heard_of
            await trio.sleep(SILENCE_SECONDS / LOOKS)
            if self.newest_image.revision < heard_of and asked < heard_of:
                asked = heard_of
                await self._store.show_progress()

    async def _check_known(self, known: int) -> None:
        """Take the store's revision if it is older than what is known of the store."""
        try:
            _, revision = await self._store.range(CLUSTER)
        except KafkaError:
            return
        if revision >= known:
            return
        LOGGER.warning(
            "the metadata store is at revision %d, although it has answered %d: "
            "everything is read anew",
            revision,
            known,
        )
        self._heard_of = revision
        self._lacked = min(self._lacked, revision)
        self._has_gone_back = True
        self._watch.cancel()
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()


def _check_epochs(before: ClusterImage, after: ClusterImage) -> None:
    """Raise `StoreUnreachable` if a partition had a later leader epoch before."""
    for topic in after.topics.values():
        for index, partition in enumerate(topic.partitions):
            earlier = before.partition(topic.name, index)
            if earlier is not None and earlier.leader_epoch > partition.leader_epoch:
                raise StoreUnreachable(
                    f"The metadata store has an older state of {topic.name}-{index} than this "
                    "broker. If it was restored from a backup, start all brokers again."
                )
