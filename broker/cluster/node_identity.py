"""The identity of a broker's data directory in a cluster: the file `node.meta`.

It says to which cluster and to which node id the directory belongs, and has an id of its own. With
it a broker takes the place of its own earlier run at once, and never that of another broker with
the same node id. A directory of another cluster, of another node, or of a broker that was alone is
refused: its logs would be taken for replicas.

The content is msgpack behind a CRC-32C, as in `checkpoint`.
"""

import random
from typing import Final

from odradek.broker.cluster.store_embedded import NAMES
from odradek.broker.environment.env import Disk
from odradek.broker.storage import small_file
from odradek.late import dataclass

NODE: Final = "node.meta"


class WrongDirectory(Exception):
    """The data directory belongs to another broker: one sentence for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """The content of `node.meta`."""

    cluster_id: str
    node_id: int
    directory_id: str


async def claim_directory(
    disk: Disk, directory: str, *, cluster_id: str, node_id: int, rng: random.Random
) -> str:
    """Return the id of a data directory. A new one is given to this broker.

    Raises `WrongDirectory`, OSError.
    """
    disk.mkdir(directory)
    found = await read_identity(disk, directory)
    if found is None:
        for name in NAMES:
            if disk.exists(f"{directory}/{name}"):
                raise WrongDirectory(
                    f"{directory} is that of a broker without a cluster: it has {name}. Take it "
                    "into the cluster with `odradek cluster adopt`, start this one with an empty "
                    "directory, or leave out etcd.endpoints."
                )
        found = new_identity(cluster_id, node_id, rng)
        await write_identity(disk, directory, found)
        return found.directory_id
    if found.cluster_id != cluster_id:
        raise WrongDirectory(
            f"{directory} belongs to the cluster {found.cluster_id}, and etcd has the cluster "
            f"{cluster_id}. Check etcd.endpoints and etcd.key.prefix, or use another directory."
        )
    if found.node_id != node_id:
        raise WrongDirectory(
            f"{directory} belongs to node.id {found.node_id}, not {node_id}. Give the broker "
            "that node.id, or another directory."
        )
    return found.directory_id


def new_identity(cluster_id: str, node_id: int, rng: random.Random) -> NodeIdentity:
    """Return the identity of a directory that has none."""
    directory_id = f"{rng.getrandbits(128):032x}"
    return NodeIdentity(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)


def check_alone(disk: Disk, directory: str) -> None:
    """Check the directory of a broker that is alone. Raises `WrongDirectory`."""
    if disk.exists(f"{directory}/{NODE}"):
        if any(disk.exists(f"{directory}/{name}") for name in NAMES):
            raise WrongDirectory(
                f"{directory} is being taken into a cluster: run `odradek cluster adopt` again, or "
                "set etcd.endpoints if that has ended."
            )
        raise WrongDirectory(
            f"{directory} is that of a broker of a cluster: it has {NODE}. Set etcd.endpoints, or "
            "use another directory."
        )


async def read_identity(disk: Disk, directory: str) -> NodeIdentity | None:
    """Return the identity of a data directory; None if it has none.

    Raises `WrongDirectory` if it is damaged, OSError.
    """
    path = f"{directory}/{NODE}"
    data = await small_file.read_bytes(disk, path)
    if data is None:
        return None
    content = small_file.decode(data)
    if content is None:
        raise WrongDirectory(f"{path} is damaged. Restore it, or use an empty directory.")
    return NodeIdentity(
        cluster_id=content["cluster_id"],
        node_id=content["node_id"],
        directory_id=content["directory_id"],
    )


async def write_identity(disk: Disk, directory: str, identity: NodeIdentity) -> None:
    """Write the identity of a data directory, durably. Raises OSError."""
    content = small_file.encode(
        {
            "cluster_id": identity.cluster_id,
            "node_id": identity.node_id,
            "directory_id": identity.directory_id,
        }
    )
    path = f"{directory}/{NODE}"
    await small_file.write_beside(disk, path, content)
    await small_file.move_into_place(disk, path)
