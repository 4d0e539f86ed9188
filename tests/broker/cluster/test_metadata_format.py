"""The format of a cluster's metadata: a version that does not know it does not touch them."""

import random
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.cluster.metadata import find_cluster_id
from odradek.broker.cluster.store import CLUSTER, METADATA_FORMAT, pack
from odradek.broker.cluster.store_embedded import EmbeddedStore
from odradek.broker.config.settings import ConfigError
from odradek.broker.environment.env import Unreadable
from odradek.broker.storage.disk import SystemDisk
from tests.fakes.meta_store import FakeMetaStore

NEWER = pack({"id": "c", "format": METADATA_FORMAT + 1})
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
    assert await found_id(pack({"id": "c"})) == "c"


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
    for words in (
        ("security", "export", str(tmp_path / "other.json")),
        ("security", "import", str(document)),
    ):
        ran = CliRunner().invoke(main, [*words, "--data-dir", str(tmp_path)])
        assert (ran.exit_code, SENTENCE in ran.output) == (1, True), ran.output
    after = {path.name: path.read_bytes() for path in tmp_path.glob("cluster.meta*")}
    assert before == after
