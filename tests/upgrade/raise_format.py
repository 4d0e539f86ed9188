"""Raise the format of a cluster's metadata, as a later version will: `python -m ... ETCD FORMAT`.

It runs in the network of the cluster.
"""

import random
import sys

import trio

from odradek.broker.cluster.store import CLUSTER, pack, read_fields
from odradek.broker.cluster.store_etcd import EtcdStore
from odradek.broker.commands.stored_metadata import config_of


async def raise_format(etcd: str, number: int) -> None:
    config = config_of(etcd, None, ())
    async with EtcdStore.open(config, rng=random.Random()) as store:
        found, _ = await store.range(CLUSTER)
        fields = read_fields(CLUSTER, found[CLUSTER])
        await store.txn([], {CLUSTER: pack({**fields, "format": number})})


if __name__ == "__main__":
    trio.run(raise_format, sys.argv[1], int(sys.argv[2]))
