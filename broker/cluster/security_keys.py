"""Users, ACL entries and quotas, taken out of the metadata store and put back: for after a loss.

They are in no log, so metadata that are made anew lack them. A document has them, with the hashes
of passwords, as JSON:

    {"odradek": "security", "version": 1, "cluster": ID, "keys": {KEY: VALUE, ...}}

A value is that of the store, where bytes are {"base64": ...}. An import replaces what is there. It
writes before it deletes, and of a rebuilt store it takes away the entries that close it last, so
that no moment is open. Nothing is written before everything is checked: each key and value is read
as a broker reads it, the cluster is that of the document, and every broker knows the kinds of keys.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from odradek.broker.cluster.acl_keys import (
    ACLS,
    acl_key,
    closing_puts,
    read_entries,
    resource_of_key,
)
from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.quota_keys import QUOTAS, entity_of_key, quota_key, read_values
from odradek.broker.cluster.store import (
    BROKERS,
    CLUSTER,
    KNOWN_BROKERS,
    pack,
    read_broker,
    read_id,
    unpack,
)
from odradek.broker.cluster.user_keys import (
    CLUSTER_SECRET,
    SECRETS,
    USERS,
    read_credentials,
    read_secret,
    user_key,
    user_of_key,
)
from odradek.broker.environment.env import Compare, MetaStore, Unreadable, Versioned
from odradek.late import dataclass

SECTIONS: Final = (ACLS, USERS, QUOTAS, SECRETS)
KNOWLEDGE: Final[tuple[tuple[str, str, Callable[[BrokerImage], bool]], ...]] = (
    (ACLS, "ACL entries", lambda broker: broker.knows_acls),
    (USERS, "users", lambda broker: broker.knows_users),
    (QUOTAS, "quotas", lambda broker: broker.knows_quotas),
)
"""What a broker of an earlier version may not know: the keys, the words, and the question."""
KIND: Final = "security"
VERSION: Final = 1
AT_ONCE: Final = 50
"""The keys of one write."""
BASE64: Final = "base64"


class CannotChange(Exception):
    """The metadata store is not as it must be: a sentence for a person."""


class CannotImport(CannotChange):
    """The document, or the store, is not as an import needs it."""


async def export_security(store: MetaStore) -> tuple[str, int]:
    """Return the document, and the number of its keys. Raises `CannotImport`, KafkaError."""
    stored = await _stored(store)
    cluster, _ = await store.range(CLUSTER)
    if CLUSTER not in cluster:
        raise CannotImport("There is no cluster in this metadata store.")
    document = {
        "odradek": KIND,
        "version": VERSION,
        "cluster": read_id(CLUSTER, cluster[CLUSTER]),
        "keys": {key: _to_json(key, value) for key, value in stored.items()},
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n", len(stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityDocument:
    """An export: the values of `keys` are those of the store."""

    cluster: str
    keys: Mapping[str, bytes]


def read_document(text: str) -> SecurityDocument:
    """Return the content of a document. Raises `CannotImport`."""
    try:
        document = json.loads(text)
        if document["odradek"] != KIND or document["version"] != VERSION:
            raise CannotImport(
                f"It is a document of version {document['version']}, and this command reads "
                f"version {VERSION}."
            )
        found = {key: pack(_from_json(value)) for key, value in document["keys"].items()}
        cluster = str(document["cluster"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CannotImport(f"It is no document of odradek security export ({error}).") from None
    for key, value in found.items():
        if not key.startswith(SECTIONS):
            raise CannotImport(f"It has the key {key[:300]!r}, which is no part of security.")
        try:
            is_good = _is_good(key, Versioned(value=value, create_revision=0, mod_revision=0))
        except Unreadable:
            is_good = False
        if not is_good:
            raise CannotImport(
                "It is no document of odradek security export, or it is damaged: no broker writes "
                f"the key {key[:300]!r}, or its value."
            )
    return SecurityDocument(cluster=cluster, keys=found)


def _is_good(key: str, stored: Versioned) -> bool:
    """Return False for a key that brokers write otherwise. Raises `Unreadable`."""
    if key.startswith(ACLS):
        read_entries(key, stored)
        return acl_key(resource_of_key(key)) == key
    if key.startswith(USERS):
        read_credentials(key, stored)
        return user_key(user_of_key(key)) == key
    if key.startswith(QUOTAS):
        read_values(key, stored)
        return quota_key(entity_of_key(key)) == key
    if key == CLUSTER_SECRET:
        read_secret(stored)
    return True


async def import_security(
    store: MetaStore,
    document: SecurityDocument,
    *,
    replaces: bool = False,
    takes_other_cluster: bool = False,
) -> int:
    """Make the store have exactly these keys. Return the number of keys that have changed.

    Without `replaces` it is refused if the store has others, and without `takes_other_cluster` if
    it is that of another cluster. Raises `CannotImport`, KafkaError.
    """
    wanted = document.keys
    await _check_cluster(store, document.cluster, takes_other=takes_other_cluster)
    await _check_all_know(store, wanted)
    stored = await _stored(store)
    closing = closing_puts()
    others = [
        key
        for key, it in stored.items()
        # A broker that has started since a rebuild has made a secret, which nobody misses.
        if key != CLUSTER_SECRET and it.value not in (wanted.get(key), closing.get(key))
    ]
    if others and not replaces:
        raise CannotImport(
            f"The metadata store has {len(others)} users, entries or quotas that the document has "
            f"not, or has otherwise, such as {others[0][:300]}. --replace removes them."
        )
    gone = [key for key in stored if key != CLUSTER_SECRET]
    puts = {key: wanted.get(key) for key in (*wanted, *gone)}
    changed = [key for key, value in puts.items() if _value(stored.get(key)) != value]
    # What closes a resource stays until all else is there. What is deleted may deny, too.
    closed = {key for key in changed if key in closing and _value(stored.get(key)) == closing[key]}
    changed.sort(key=lambda key: (key in closed, puts[key] is None, key))
    for start in range(0, len(changed), AT_ONCE):
        keys = changed[start : start + AT_ONCE]
        await _write(store, stored, {key: puts[key] for key in keys})
    return len(changed)


async def _check_cluster(store: MetaStore, cluster: str, *, takes_other: bool) -> None:
    """Raise `CannotImport` unless the store is that of the cluster of a document."""
    found, _ = await store.range(CLUSTER)
    if CLUSTER not in found:
        raise CannotImport(
            "There is no cluster in this metadata store: start a broker on it first."
        )
    own = read_id(CLUSTER, found[CLUSTER])
    if own != cluster and not takes_other:
        raise CannotImport(
            f"The document is of the cluster {cluster[:100]}, and the metadata store is of {own}. "
            "--other-cluster takes it all the same."
        )


async def _check_all_know(store: MetaStore, wanted: Iterable[str]) -> None:
    """Raise `CannotImport` while a broker of the cluster would not know what is wanted.

    An entry that only some brokers know would be taken for a lock that others leave open.
    """
    brokers: dict[int, BrokerImage] = {}
    for section in (KNOWN_BROKERS, BROKERS):  # a broker that is away may come again as it was
        of_section, _ = await store.range(section)
        for key, stored in of_section.items():
            broker = read_broker(key, stored)
            brokers[broker.node_id] = broker
    keys = list(wanted)
    for section, what, knows in KNOWLEDGE:
        unaware = [each for each, broker in sorted(brokers.items()) if not knows(broker)]
        if unaware and any(key.startswith(section) for key in keys):
            raise CannotImport(
                f"The brokers {', '.join(map(str, unaware[:10]))} are of a version that does not "
                f"know {what}. Upgrade them, or have those that are gone for good forgotten."
            )


async def _write(
    store: MetaStore, stored: Mapping[str, Versioned], puts: Mapping[str, bytes | None]
) -> None:
    compares = [
        Compare(key=key, mod_revision=stored[key].mod_revision if key in stored else 0)
        for key in puts
    ]
    is_done, _ = await store.txn(compares, puts)
    if not is_done:
        raise CannotImport("Users, entries or quotas have changed meanwhile: run it again.")


async def _stored(store: MetaStore) -> dict[str, Versioned]:
    found: dict[str, Versioned] = {}
    for section in SECTIONS:
        of_section, _ = await store.range(section)
        found |= of_section
    return found


def _value(stored: Versioned | None) -> bytes | None:
    return None if stored is None else stored.value


def _to_json(key: str, stored: Versioned) -> Any:
    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return {BASE64: base64.b64encode(value).decode()}
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}
        return [plain(each) for each in value] if isinstance(value, list) else value

    try:
        return plain(unpack(stored.value))
    except ValueError as error:
        raise Unreadable(key, error) from None


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {BASE64}:
            return base64.b64decode(value[BASE64], validate=True)
        return {name: _from_json(each) for name, each in value.items()}
    return [_from_json(each) for each in value] if isinstance(value, list) else value
