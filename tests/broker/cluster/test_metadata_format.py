"""The format of a cluster's metadata: a version that does not know it does not touch them."""

import random
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.cluster.adoption import adopt
from odradek.broker.cluster.metadata import find_cluster_id
from odradek.broker.cluster.node_identity import claim_directory
from odradek.broker.cluster.store import CLUSTER, METADATA_FORMAT, pack
from odradek.broker.cluster.store_embedded import EmbeddedStore
from odradek.broker.config.settings import ConfigError
from odradek.broker.environment.env import Unreadable
from odradek.broker.inspect.rebuild import Salvaged
from odradek.broker.storage.disk import SystemDisk
from tests.fakes.disk import FakeDisk
from tests.fakes.meta_store import FakeMetaStore

NEWER = pack({"id": "c", "format": METADATA_FORMAT + 1})
DIRECTORY = "/data"
OLDER = pack({"id": "c"})
SENTENCE = (
    f"have format {METADATA_FORMAT + 1}, and this version of Odradek reads formats up to "
    f"{METADATA_FORMAT}: use the version that wrote them, or a newer one"
)


async def found_id(cluster: bytes) -> str:
    store = FakeMetaStore()
    store.put({CLUSTER: cluster})
    return await find_cluster_id(store, random.Random(1))


async def test_metadata_of_a_newer_format_keep_a_broker_from_its_start() -> None:
    with pytest.raises(ConfigError, match=SENTENCE):
        await found_id(NEWER)
    assert await found_id(pack({"id": "c", "format": METADATA_FORMAT})) == "c"
    assert await found_id(OLDER) == "c"


async def test_a_format_that_is_no_number_is_not_taken_for_an_old_one() -> None:
    with pytest.raises(Unreadable, match=CLUSTER):
        await found_id(pack({"id": "c", "format": "newest"}))


def test_no_command_reads_or_writes_metadata_of_a_newer_format(tmp_path: Path) -> None:
    async def write(key: str, value: bytes) -> None:
        store = await EmbeddedStore.open(SystemDisk(), str(tmp_path))
        await store.txn([], {key: value})
        store.close()

    trio.run(write, CLUSTER, NEWER)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("cluster.meta*")}
    document = tmp_path / "security.json"
    document.write_text('{"odradek": "security", "version": 1, "cluster": "c", "keys": {}}')
    data_dir = ("--data-dir", str(tmp_path))
    for words in (
        ("security", "export", str(tmp_path / "other.json"), *data_dir),
        ("security", "import", str(document), *data_dir),
        ("storage", "settings", str(tmp_path), "--unset", "log.retention.ms"),
    ):
        ran = CliRunner().invoke(main, words)
        assert (ran.exit_code, SENTENCE in ran.output) == (1, True), ran.output
    after = {path.name: path.read_bytes() for path in tmp_path.glob("cluster.meta*")}
    assert before == after


@pytest.mark.parametrize(
    ("of_broker", "of_cluster"),
    [
        ({CLUSTER: NEWER}, {}),
        ({CLUSTER: OLDER}, {CLUSTER: NEWER}),
        ({}, {CLUSTER: NEWER}),
    ],
)
async def test_metadata_of_a_newer_format_are_not_adopted_and_nothing_is_adopted_into_them(
    of_broker: dict[str, bytes], of_cluster: dict[str, bytes]
) -> None:
    disk, store = FakeDisk(), FakeMetaStore()
    disk.mkdir(DIRECTORY)
    if of_broker:
        embedded = await EmbeddedStore.open(disk, DIRECTORY)
        await embedded.txn([], of_broker)
        embedded.close()
    else:  # it was adopted before
        await claim_directory(disk, DIRECTORY, cluster_id="c", node_id=1, rng=random.Random(1))
    store.put(of_cluster)
    with pytest.raises(ConfigError, match=SENTENCE):
        await adopt(disk, DIRECTORY, store, node_id=1, state_min_isr=1, rng=random.Random(1))
    found, _ = await store.range("")
    assert {key: stored.value for key, stored in found.items()} == of_cluster


def test_metadata_of_a_newer_format_are_not_rebuilt() -> None:
    with pytest.raises(ConfigError, match=SENTENCE):
        Salvaged.read({CLUSTER: NEWER})
