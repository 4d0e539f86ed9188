"""The logs of a stopped broker that are lost: they were made, and are not in the data directory.

A broker that is alone has its notes of made logs in the same directory. A broker of a cluster has
them in etcd, so only those are found that its last start has missed.
"""

from odradek.broker.cluster.store import (
    MADE_LOGS,
    TOPICS,
    unpack,
)
from odradek.broker.cluster.store_embedded import COPY, FILE, DamagedStore, read_file
from odradek.broker.cluster.two_copies import decode_body, readable
from odradek.broker.environment.env import Disk
from odradek.broker.storage.last_run import read_last_run
from odradek.broker.storage.lost import has_log
from odradek.broker.values.topic_partition import TopicPartition, partition_of


async def lost_logs(disk: Disk, data_dir: str) -> list[str]:
    """Return the directories of the logs that are lost. Raises OSError."""
    noted = await _noted(disk, data_dir)
    last_run = await read_last_run(disk, data_dir)
    noted += [where for where in map(partition_of, last_run.damaged) if where is not None]
    directories = [f"{data_dir}/{where}" for where in sorted(set(noted))]
    return [each for each in directories if not await has_log(disk, each)]


async def _noted(disk: Disk, data_dir: str) -> list[TopicPartition]:
    """Return the logs that the metadata store in a data directory says were made."""
    values: dict[str, bytes] = {}
    first, second = [await read_file(disk, f"{data_dir}/{name}") or b"" for name in (FILE, COPY)]
    try:
        for body in readable(first, second, (FILE, COPY)).bodies:
            for key, value in decode_body(body)[1].items():
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = value
    except DamagedStore:
        return []  # which `odradek storage rebuild` mends
    names = {
        unpack(value)["id"].hex(): key.removeprefix(TOPICS)
        for key, value in values.items()
        if key.startswith(TOPICS)
    }
    return [
        TopicPartition(names[topic_id], partition)
        for key, value in values.items()
        if key.startswith(MADE_LOGS) and (topic_id := key.rpartition("/")[2]) in names
        for partition in unpack(value)["partitions"]
    ]
