"""Users, ACL entries and quotas, taken out of the metadata store and put back: for after a loss.

They are in no log, so metadata that are made anew lack them. A document has them, with the hashes
of passwords, as JSON:

    {"odradek": "security", "version": 1, "cluster": ID, "keys": {KEY: VALUE, ...}}

A value is that of the store, where bytes are {"base64": ...}. An import replaces what is there. Of
a rebuilt store it takes away the entries that close it last, so that no moment is open.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from odradek.broker.cluster.acl_keys import ACLS, closing_puts, resource_of_key
from odradek.broker.cluster.store import CLUSTER, pack, read_id, unpack
from odradek.broker.environment.env import Compare, MetaStore, Unreadable, Versioned

SECTIONS: Final = (ACLS, "/users/", "/quotas/", "/secrets/")
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


def read_document(text: str) -> dict[str, bytes]:
    """Return the keys and values of a document. Raises `CannotImport`."""
    try:
        document = json.loads(text)
        if document["odradek"] != KIND or document["version"] != VERSION:
            raise CannotImport(
                f"It is a document of version {document['version']}, and this command reads "
                f"version {VERSION}."
            )
        found = {key: pack(_from_json(value)) for key, value in document["keys"].items()}
        for key in found:
            if not key.startswith(SECTIONS):
                raise CannotImport(f"It has the key {key[:300]!r}, which is no part of security.")
            if key.startswith(ACLS):
                resource_of_key(key)
    except (ValueError, KeyError, TypeError, AttributeError, Unreadable) as error:
        raise CannotImport(f"It is no document of odradek security export ({error}).") from None
    return found


async def import_security(
    store: MetaStore, wanted: Mapping[str, bytes], *, replaces: bool = False
) -> int:
    """Make the store have exactly these keys. Return the number of keys that have changed.

    Without `replaces` it is refused if the store has others. Raises `CannotImport`, KafkaError.
    """
    stored = await _stored(store)
    closing = closing_puts()
    others = [
        key for key, it in stored.items() if it.value not in (wanted.get(key), closing.get(key))
    ]
    if others and not replaces:
        raise CannotImport(
            f"The metadata store has {len(others)} users, entries or quotas that the document has "
            f"not, or has otherwise, such as {others[0][:300]}. --replace removes them."
        )
    puts = {key: wanted.get(key) for key in (*wanted, *stored)}
    changed = [key for key, value in puts.items() if _value(stored.get(key)) != value]
    # What closes a resource stays until all else is there.
    changed.sort(key=lambda key: (key in closing, key))
    for start in range(0, len(changed), AT_ONCE):
        keys = changed[start : start + AT_ONCE]
        await _write(store, stored, {key: puts[key] for key in keys})
    return len(changed)


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
