"""What `odradek cluster adopt` prints."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.cluster.adoption import Adopted
from odradek.broker.commands import adopt as adopt_command


def test_the_broker_is_to_be_started_with_the_settings_with_which_it_was_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `etcd.key.prefix` the printed command began another cluster in the same etcd."""

    def adopted(*_: Any) -> Adopted:
        return Adopted(cluster_id="id", node_id=7, topics=1, partitions=1, was_done=False)

    monkeypatch.setattr(adopt_command, "_adopt", adopted)
    properties = tmp_path / "my server.properties"
    properties.write_text("node.id=7\nprocess.roles=broker\n")
    words = ["cluster", "adopt", "--data-dir", str(tmp_path), "--config", str(properties)]
    words += ["--etcd", "http://etcd:2379", "--set", "etcd.key.prefix=/ours"]
    words += ["--set", "etcd.user=me", "--set", "etcd.password=secret"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.output.splitlines() if "odradek serve" in line]
    assert shlex.split(line) == [
        *("odradek", "serve", "--data-dir", str(tmp_path), "--config", str(properties)),
        "--ignore-unknown",
        *("--set", "etcd.key.prefix=/ours", "--set", "etcd.user=me"),
        *("--set", "etcd.endpoints=http://etcd:2379"),
        *("--set", "inter.broker.listener.port=9093"),
    ]
