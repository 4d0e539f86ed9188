"""The directories of logs, beside what else a file system has in a data directory."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.broker.inspect.log_command import log
from odradek.broker.inspect.log_files import logs_in
from odradek.broker.storage.disk import SystemDisk
from tests.broker.inspect.test_found_transactions import a_batch, write


def forbid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have the system refuse to list a directory, as to another user than root."""
    listdir = SystemDisk.listdir

    def refusing(disk: SystemDisk, path: str) -> list[str]:
        if path.endswith(f"/{name}"):
            raise PermissionError(13, "Permission denied", path)
        return listdir(disk, path)

    monkeypatch.setattr(SystemDisk, "listdir", refusing)


@pytest.mark.parametrize("command", ["dump", "repair"])
def test_the_lost_and_found_of_a_file_system_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A volume of its own has `lost+found`, which only root may list."""
    write(tmp_path, "flights-0", a_batch(0, "a", producer_id=5))
    (tmp_path / "lost+found").mkdir()
    forbid(monkeypatch, "lost+found")
    result = CliRunner().invoke(log, [command, str(tmp_path)])
    assert (result.exit_code, "lost+found" in result.output) == (0, False), result.output


@pytest.mark.parametrize("command", ["dump", "repair"])
def test_a_partition_that_may_not_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    write(tmp_path, "flights-0", a_batch(0, "a", producer_id=5))
    forbid(monkeypatch, "flights-0")
    result = CliRunner().invoke(log, [command, str(tmp_path)])
    assert result.exit_code == 1
    assert result.output == f"Error: {tmp_path}/flights-0: Permission denied.\n"


def test_only_directories_with_segments_are_logs(tmp_path: Path) -> None:
    path = write(tmp_path, "flights-0", a_batch(0, "a", producer_id=5))
    (tmp_path / "empty-0").mkdir()
    (tmp_path / "file-0").touch()
    assert logs_in(str(tmp_path)) == [path]
