"""An archive of the disks of a simulated world, and of its metadata store.

`NODE/PATH` is a file of a broker's data directory, byte for byte as a real one. `store.json` has
the keys of a cluster's metadata store, and `facts.json` what the maker notes for the tests.
"""

import io
import json
import tarfile
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, Final

from odradek.broker.storage.reserve import RESERVE
from tests.fakes.disk import FakeDisk
from tests.simulation.machine import DIRECTORY
from tests.simulation.world import World

STORE: Final = "store.json"
FACTS: Final = "facts.json"
LEFT_OUT: Final = (RESERVE, ".lock")

Facts = dict[str, Any]


def pack(world: World, facts: Facts, path: Path) -> None:
    """Write the archive of a world in which no broker runs."""
    members = {FACTS: json.dumps(facts).encode()}
    if not world.is_alone:
        members[STORE] = json.dumps(_stored(world)).encode()
    for node_id, machine in world.machines.items():
        for name, content in _files(machine.disk, DIRECTORY).items():
            members[f"{node_id}{name.removeprefix(DIRECTORY)}"] = content
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def unpack(world: World, path: Path) -> Facts:
    """Give a world whose brokers have not been started the disks of an archive."""
    facts: Facts = {}
    for name, content in members_of(path).items():
        if name == FACTS:
            facts = json.loads(content)
        elif name == STORE:
            _restore(world, json.loads(content))
        else:
            node_id, _, file = name.partition("/")
            _write(world.machines[int(node_id)].disk, f"{DIRECTORY}/{file}", content)
    for machine in world.machines.values():
        machine.disk.make_durable()
    return facts


def members_of(path: Path) -> dict[str, bytes]:
    """Return the files in an archive by their names."""
    found: dict[str, bytes] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None, member
            found[member.name] = file.read()
    return found


def _files(disk: FakeDisk, directory: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in disk.listdir(directory):
        path = f"{directory}/{name}"
        if name in LEFT_OUT:
            continue
        try:
            found[path] = disk.bytes_of(path)
        except IsADirectoryError:
            found |= _files(disk, path)
    return found


def _write(disk: FakeDisk, path: str, content: bytes) -> None:
    disk.mkdir(path.rpartition("/")[0])
    file = disk.open(path)
    file.append(content)
    file.close()


def _stored(world: World) -> dict[str, Any]:
    keys = world.store.keys
    values = {
        key: [b64encode(found.value).decode(), found.create_revision, found.mod_revision]
        for key, found in keys.values.items()
    }
    return {"revision": keys.revision, "values": values}


def _restore(world: World, stored: dict[str, Any]) -> None:
    values: dict[str, tuple[str, int, int]] = stored["values"]
    world.store.keys.restore(
        stored["revision"],
        {key: b64decode(value) for key, (value, _, _) in values.items()},
        {key: (create, mod) for key, (_, create, mod) in values.items()},
    )
