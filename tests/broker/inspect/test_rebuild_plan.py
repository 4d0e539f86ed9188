"""What `odradek storage rebuild` decides from what the directories say."""

from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

import msgpack
import pytest

from odradek.broker.cluster.two_copies import decode_body, readable
from odradek.broker.inspect.rebuild import (
    EPOCH_GAP,
    NO_COMPACTION,
    NO_RETENTION,
    PRODUCER_ID_GAP,
    CannotRebuild,
    Salvaged,
    Wishes,
    plan_rebuild,
)
from odradek.broker.inspect.survey import EPOCH_MAX, Surveyed, survey_all
from odradek.broker.storage.identity import Identity
from odradek.broker.values.member_ids import member_id
from odradek.broker.values.topic_partition import TopicPartition as Where

COPIES: Final = ("cluster.meta", "cluster.meta.copy")


def found(
    name: str = "t",
    index: int = 0,
    *,
    whose: Identity | None = None,
    topic_id: int | None = 1,
    has_segment: bool = True,
) -> Surveyed:
    made = Surveyed(Where(name, index), has_segment=has_segment)
    made.identity = whose
    made.topic_id = None if topic_id is None else UUID(int=topic_id)
    return made


def says(name: str = "t", index: int = 0, **fields: Any) -> Identity:
    values: dict[str, Any] = {
        "topic_id": UUID(int=1),
        "partition_count": 1,
        "configs": {},
        "cluster_id": "c",
    }
    return Identity(where=Where(name, index), **{**values, **fields})


@pytest.mark.parametrize(
    ("directories", "sentence"),
    [
        ([found(index=0), found(index=1, topic_id=2)], "different ids"),
        ([found("t"), found("u")], "the same topic id"),
        ([found(whose=says("u"))], "belongs to u-0"),
        ([found(whose=says()), found("u", whose=says("u", cluster_id="d"), topic_id=2)], "cluster"),
        ([found(index=2)], "no directory for: 0, 1"),
        ([found(has_segment=False)], "t-0 has no segment of its log"),
        ([found(whose=says(partition_count=3))], "no directory for: 1, 2"),
        ([found(index=2**31 - 1)], "t-2147483647 is that of no partition: a topic has 10000 at"),
        ([found(index=10**20)], "t-100000000000000000000 is that of no partition"),
    ],
)
def test_directories_that_contradict_each_other_are_refused(
    directories: list[Surveyed], sentence: str
) -> None:
    with pytest.raises(CannotRebuild, match=sentence):
        plan_rebuild(directories, Salvaged(), Wishes(), Random(1))


def test_numbers_start_above_everything_that_is_found() -> None:
    first, other = found(), found("u", topic_id=2)
    first.see_producer(77, 12)
    other.see_producer(5, 40)
    other.see_epoch(EPOCH_MAX + 1)  # a flipped bit
    made = plan_rebuild(
        [first, other], Salvaged(next_producer_id=50, max_epoch=3), Wishes(), Random(1)
    )
    assert made.next_producer_id == 78 + PRODUCER_ID_GAP
    assert made.leader_epoch == 40 + EPOCH_GAP
    made = plan_rebuild([first], Salvaged(next_producer_id=500, max_epoch=60), Wishes(), Random(1))
    assert made.next_producer_id == 500 + PRODUCER_ID_GAP
    assert made.leader_epoch == 60 + EPOCH_GAP


def test_producer_ids_start_above_the_numbers_of_members() -> None:
    other = found()
    other.see_producer(member_id(90), 12)
    other.see_producer(2**62, 12)  # no broker has made it
    made = plan_rebuild([other], Salvaged(), Wishes(), Random(1))
    assert made.next_producer_id == 91 + PRODUCER_ID_GAP


def test_a_topic_without_known_settings_keeps_everything() -> None:
    plain, compacted = found(), found("u", topic_id=2)
    compacted.is_compacted = True
    made = plan_rebuild([plain, compacted], Salvaged(), Wishes(), Random(1))
    assert [dict(rebuilt.topic.configs) for rebuilt in made.topics] == [NO_RETENTION, NO_COMPACTION]
    assert not any(rebuilt.are_configs_known for rebuilt in made.topics)


def test_a_topic_whose_deletion_was_noted_is_not_revived() -> None:
    salvaged = Salvaged(deletions={UUID(int=1): "t"})
    made = plan_rebuild([found(), found("u", topic_id=2)], salvaged, Wishes(), Random(1))
    assert [rebuilt.topic.name for rebuilt in made.topics] == ["u"]
    record = made.record()
    (body,) = readable(record, record, COPIES).bodies
    _, puts, _ = decode_body(body)
    assert msgpack.unpackb(puts[f"/deletions/{UUID(int=1).hex}"]) == {"name": "t"}


def test_foreign_directories_are_no_partitions(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "backup-2024").mkdir()
    (tmp_path / "t-0.set-aside").mkdir()
    (tmp_path / "t-0.set-aside" / f"{0:020}.log").write_bytes(b"")
    (tmp_path / "file-0").write_bytes(b"")
    assert survey_all(str(tmp_path)) == ([], ["backup-2024", "lost+found", "t-0.set-aside"])
