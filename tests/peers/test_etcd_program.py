"""Which etcd the tests and `scripts/etcd` run: the one that is named, found, or built."""

from pathlib import Path

import pytest

from tests.peers import etcd_server
from tests.peers.etcd_server import etcd_program
from tests.peers.jars import PeersMissing


def program(directory: Path, prints: str) -> Path:
    """A program that prints this when it is asked for its version."""
    path = directory / "etcd"
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ODRADEK_ETCD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(etcd_server, "LIBS", tmp_path / "libs")


@pytest.mark.parametrize("version", ["3.5.21", "3.6.16", "4.0.0"])
def test_the_one_on_the_path_is_taken_if_it_is_recent_enough(tmp_path: Path, version: str) -> None:
    found = program(tmp_path, f"etcd Version: {version}")
    assert etcd_program() == found


@pytest.mark.parametrize("prints", ["etcd Version: 3.4.23", "etcd Version: 3.5.9", "hello"])
def test_an_old_one_on_the_path_is_not_taken(tmp_path: Path, prints: str) -> None:
    program(tmp_path, prints)
    with pytest.raises(PeersMissing, match=r"Not found: etcd and go\. etcd 3\.5\.21 or later"):
        etcd_program()


def test_the_one_that_is_named_is_taken_even_if_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").mkdir()
    program(tmp_path, "etcd Version: 3.6.16")
    named = program(tmp_path / "old", "etcd Version: 3.4.23")
    monkeypatch.setenv("ODRADEK_ETCD", str(named))
    assert etcd_program() == named


@pytest.mark.parametrize("prints", [None, "hello"])
def test_what_is_named_and_is_no_etcd_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str | None
) -> None:
    (tmp_path / "named").mkdir()
    program(tmp_path, "etcd Version: 3.6.16")
    if prints is not None:
        program(tmp_path / "named", prints)
    monkeypatch.setenv("ODRADEK_ETCD", str(tmp_path / "named" / "etcd"))
    with pytest.raises(PeersMissing, match="is no etcd that runs here"):
        etcd_program()
