"""The sink and the source of Spark: what would skip a batch or records, or write one twice."""

from typing import Final

from tests.planted.bug import Planted

COMMITS: Final = "tests/spark/test_commit.py::test_"
READS: Final = "tests/spark/test_topics_made_anew.py::test_"
EXTRAS: Final = "tests/test_extras.py::test_"

SINK_BUGS: Final = (
    Planted(
        bug="a decision of the sink counts for every topic",
        where="Scope.matches",
        old=(
            "((self.query_id, other.query_id), (self.topic, other.topic), (self.topic_id, "
            "other.topic_id))"
        ),
        new="((self.query_id, other.query_id),)",
        tests=(f"{COMMITS}a_batch_for_two_topics_is_not_lost_for_the_second_one",),
    ),
    Planted(
        bug="a decision of the sink counts for a topic that was made anew",
        where="Scope.matches",
        old="self.topic_id, other.topic_id",
        tests=(f"{COMMITS}a_topic_that_was_made_anew_is_written_again",),
    ),
    Planted(
        bug="a decision of the sink counts for every checkpoint of an application",
        where="Scope.matches",
        old="self.query_id, other.query_id",
        tests=(f"{COMMITS}a_new_checkpoint_of_the_same_application_is_not_taken_for_the_old_one",),
    ),
    Planted(
        bug="a decision without a target is not believed after the upgrade",
        where="Scope.parse",
        old="cls(write_id=name)",
        new='cls(write_id="")',
        tests=(
            f"{COMMITS}a_decision_of_an_earlier_version_counts_for_the_batch_after_the_upgrade",
        ),
    ),
    Planted(
        bug="a topic that is made anew while a batch is written gets a part of it",
        where="BatchCommit._commit_once",
        old="self.check_target(members)",
        tests=(
            f"{COMMITS}a_topic_that_is_made_anew_while_a_batch_is_written_does_not_get_half_of_it",
        ),
    ),
    Planted(
        bug="a stream reads a topic that was made anew from the old offset",
        where="StreamReader.latestOffset",
        old="anew = made_anew(ids_from_json(start), latest.ids)",
        new="anew: set[str] = set()",
        tests=(f"{READS}a_topic_that_was_made_anew_with_as_many_records_is_noticed",),
    ),
    Planted(
        bug="a stream begins a batch at the offset of a topic that is gone",
        where="StreamReader.partitions",
        old="begun_anew = made_anew(ids_from_json(before), planned)",
        new="begun_anew: set[str] = set()",
        tests=(f"{READS}a_topic_that_was_made_anew_is_not_read_from_the_old_offset",),
    ),
    Planted(
        bug="a task reads the offsets of a topic that is gone from the next one of its name",
        where="_is_of_another_topic",
        old="now is not None and now != wanted.topic_id",
        new="False",
        tests=(
            f"{READS}a_planned_batch_does_not_read_its_offsets_from_a_topic_that_was_made_anew",
            f"{READS}a_topic_that_is_made_anew_while_a_task_reads_it_fails_the_task",
        ),
    ),
    Planted(
        bug="the first command imports what an extra brings",
        where="spark.decisions",
        old="from odradek.client.spark.errors import CommitRefused",
        new="from odradek.client.spark.messages import CommitRefused",
        tests=(
            f"{EXTRAS}without_an_extra_every_command_shows_its_help_and_uses_of_the_extra_name_it",
        ),
    ),
)
