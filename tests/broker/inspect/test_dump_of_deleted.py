"""`odradek log dump` while the files are being deleted: the rest is still shown."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from odradek.broker.inspect.dump import _facts_of
from odradek.broker.inspect.dump_words import line_of
from odradek.broker.inspect.found_transactions import History
from odradek.broker.inspect.log_files import content_of, has_bytes, segments_in
from tests.broker.inspect.test_found_transactions import a_batch, a_marker, a_state, history_of

Facts = dict[str, object]


def write(data_dir: Path, partition: str, base: int, *batches: bytearray) -> Path:
    directory = data_dir / partition
    directory.mkdir(exist_ok=True)
    path = directory / f"{base:020}.log"
    path.write_bytes(b"".join(batches))
    return path


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Two topics; one has a transaction that ends in its second segment."""
    write(tmp_path, "flights-0", 0, a_batch(0, "a", producer_id=5))
    write(tmp_path, "flights-0", 1, a_marker(1, producer_id=5))
    write(tmp_path, "flights-0", 2, a_batch(2, "b", producer_id=6))
    write(tmp_path, "hotels-0", 0, a_batch(0, "c", producer_id=7))
    history_of(tmp_path, a_state(4))
    return tmp_path


def until(facts: Iterator[Facts], kind: str) -> Facts:
    return next(fact for fact in facts if fact["type"] == kind)


def names(facts: list[Facts], kind: str = "file") -> list[str]:
    found = (Path(str(fact["path"])) for fact in facts if fact["type"] == kind)
    return [path.parent.name if path.suffix == ".log" else path.name for path in found]


def transactions(facts: list[Facts]) -> list[tuple[object, object]]:
    return [
        (fact["producer_id"], fact["outcome"]) for fact in facts if fact["type"] == "transaction"
    ]


def test_a_deleted_segment_is_told_and_the_dump_goes_on(data_dir: Path) -> None:
    facts = _facts_of(str(data_dir), records=False)
    until(facts, "batch")
    gone = data_dir / "flights-0" / f"{1:020}.log"
    gone.unlink()
    rest = list(facts)
    told = [fact for fact in rest if fact["type"] == "gone"]
    assert told == [{"type": "gone", "path": str(gone)}]
    assert line_of(told[0]) == f"\n{gone}\nis gone: it was deleted after this dump had begun"
    assert names(rest) == ["flights-0", "hotels-0", "__transaction_state-0"]


def test_what_was_open_in_front_of_a_deleted_segment_is_unknown(data_dir: Path) -> None:
    """It was told as one that hangs: its marker was in the segment that is gone."""
    facts = _facts_of(str(data_dir / "flights-0"), records=False)
    until(facts, "batch")
    (data_dir / "flights-0" / f"{1:020}.log").unlink()
    rest = list(facts)
    assert transactions(rest) == [(5, "unknown"), (6, "open")]
    assert (rest[-1]["last_stable_offset"], rest[-1]["pinned_by"]) == (2, 6)


def test_a_deleted_topic_is_told_once_and_the_others_are_shown(data_dir: Path) -> None:
    facts = _facts_of(str(data_dir), records=False)
    until(facts, "batch")
    shutil.rmtree(data_dir / "flights-0")
    rest = list(facts)
    assert names(rest, "gone") == ["flights-0"]
    assert names(rest) == ["hotels-0", "__transaction_state-0"]
    assert transactions(rest)[0] == (5, "unknown")


def test_a_topic_that_was_deleted_before_its_turn_is_left_out(data_dir: Path) -> None:
    facts = _facts_of(str(data_dir), records=False)
    until(facts, "batch")
    shutil.rmtree(data_dir / "hotels-0")
    rest = list(facts)
    assert names(rest, "gone") == []
    assert names(rest) == ["flights-0", "flights-0", "__transaction_state-0"]


def test_directories_that_go_while_they_are_listed_are_left_out(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every directory but one is gone as soon as the data directory was listed."""

    def listed(directory: str) -> list[str]:
        for name in ("flights-0", "__transaction_state-0"):
            shutil.rmtree(data_dir / name, ignore_errors=True)
        return segments_in(directory)

    for module in ("log_files", "found_transactions"):
        monkeypatch.setattr(f"odradek.broker.inspect.{module}.segments_in", listed)
    assert names(list(_facts_of(str(data_dir), records=False))) == ["hotels-0"]


def test_a_history_that_is_deleted_while_it_is_read_says_less(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def content(path: str) -> memoryview | None:
        shutil.rmtree(data_dir / "__transaction_state-0")
        return content_of(path)

    monkeypatch.setattr("odradek.broker.inspect.found_transactions.content_of", content)
    (found,) = list(_facts_of(str(data_dir / "hotels-0"), records=False))[-2:-1]
    assert (found["outcome"], found["state"], found["hangs"]) == ("open", None, False)
    assert not (data_dir / "__transaction_state-0").exists()
    History.read(str(data_dir))  # without it, too


def test_a_file_that_was_named_and_is_gone_is_an_error(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = data_dir / "hotels-0" / f"{0:020}.log"
    monkeypatch.setattr("odradek.broker.inspect.dump.os.path.exists", lambda _: True)
    path.unlink()
    with pytest.raises(click.ClickException, match="There is no file or directory"):
        list(_facts_of(str(path), records=False))


def test_what_is_gone_has_no_segments_and_no_bytes(data_dir: Path) -> None:
    nowhere = str(data_dir / "nowhere")
    assert (segments_in(nowhere), content_of(nowhere), has_bytes(nowhere)) == ([], None, False)
    assert content_of(f"{data_dir}/hotels-0/{0:020}.log/x") is None
