"""What remembers the offsets of a topic that was deleted, when another one has its name."""

from typing import Final

from tests.planted.bug import Planted

READING: Final = "tests/client/consuming/test_made_anew.py::test_"
LIVE: Final = "tests/client/consuming/test_made_anew_live.py::test_"
TRUNCATED: Final = "tests/client/consuming/test_truncation.py::test_"
GROUPS: Final = "tests/broker/group/test_topic_ids.py::test_"

POSITION_BUGS: Final = (
    Planted(
        bug="a consumer goes on at its offset in a topic that was made anew",
        where="Metadata.was_made_anew",
        old="ZERO_UUID not in (now, topic_id) and now != topic_id",
        new="False",
        tests=(
            f"{READING}what_was_fetched_of_the_old_topic_is_returned_before_the_new_one",
            f"{LIVE}without_a_reset_a_new_topic_is_an_error_until_the_program_seeks",
        ),
    ),
    Planted(
        bug="a consumer leaves what it has fetched of a topic that was deleted",
        where="Fetcher.begin_anew",
        old="partition.fetched",
        new="False",
        tests=(f"{READING}what_was_fetched_of_the_old_topic_is_returned_before_the_new_one",),
    ),
    Planted(
        bug="records of a deleted topic are taken for those of the one that has its name",
        where="Fetcher._take",
        old="partition.topic_id == topic_id",
        new="True",
        tests=(f"{READING}an_answer_of_the_old_topic_is_not_taken_for_one_of_the_new_topic",),
    ),
    Planted(
        bug="a consumer reads on in a log that was truncated",
        where="Validation._is_doubtful",
        old="if 0 <= partition.fetch_epoch < leader_epoch:",
        new="if False:",
        tests=(
            f"{TRUNCATED}reading_goes_on_where_the_log_of_the_new_leader_differs",
            "tests/simulation/test_elections_on_request.py::test_a_consumer_reads_what_an_unclean_"
            "election_has_put_at_offsets_that_it_has_read",
        ),
    ),
    Planted(
        bug="an offset is stored without the leader epoch that shows whether it was truncated",
        where="AssignedPartition._with_epoch",
        old="leader_epoch=leader_epoch",
        tests=(f"{TRUNCATED}a_consumer_that_starts_again_notices_what_was_truncated_meanwhile",),
    ),
    Planted(
        bug="a broker that is behind brings a deleted topic back to a client",
        where="Metadata._learn_topic",
        old="if self._topic_ids.is_former(topic.topic_id):",
        new="if False:",
        tests=(f"{READING}a_broker_that_is_behind_does_not_bring_a_deleted_topic_back",),
    ),
    Planted(
        bug="a member gives up by itself what it has of a deleted topic",
        where="Kip848Assignment._names_of",
        old="names = {topic_id: name for name, topic_id in self._topic_ids.items()}",
        new="names: dict[UUID, str] = {}",
        tests=(
            "tests/client/grouping/test_kip848_member.py::test_"
            "a_member_keeps_what_it_has_of_a_deleted_topic_until_the_coordinator_takes_it",
        ),
    ),
    Planted(
        bug="an offset of a deleted topic is stored for the one that has its name",
        where="Commits._store",
        old="outdated = outdated_in(self._cluster, offsets)",
        new="outdated: list[TopicPartition] = []",
        tests=(f"{READING}an_offset_that_comes_late_is_not_stored_for_the_new_topic",),
    ),
    Planted(
        bug="a number that a program stores late counts for the topic that is read next",
        where="AssignedPartition.read_id",
        old="self.topic_id if self.returned_id == ZERO_UUID else self.returned_id",
        new="self.topic_id",
        tests=(f"{READING}an_offset_that_comes_late_is_not_stored_for_the_new_topic",),
    ),
    Planted(
        bug="a group is reset to an offset that was looked up in a topic of the same name",
        where="GroupAdmin.reset_group",
        old="topic_id=topic_ids[place]",
        tests=(f"{READING}a_group_is_not_reset_to_an_offset_of_the_old_topic",),
    ),
    Planted(
        bug="a transaction stores an offset of a deleted topic for the one that has its name",
        where="txn_offset_commit",
        old="if is_another:",
        new="if False:",
        tests=(f"{LIVE}a_transaction_does_not_store_an_offset_of_the_old_topic_for_the_new_one",),
    ),
    Planted(
        bug="a commit that began before its topic was made anew replaces a newer offset",
        where="accepted_offsets",
        old="if topic is not None and stored.topic_id not in (ZERO_UUID, topic.topic_id):",
        new="if False:",
        tests=(f"{GROUPS}a_commit_that_began_before_the_topic_was_made_anew_replaces_no_offset",),
    ),
    Planted(
        bug="an offset of a deleted topic is returned until the next one of its name is there",
        where="_of_this_topic",
        old="if fetched.topic_id == ZERO_UUID or (topic and fetched.topic_id == topic.topic_id):",
        new=(
            "if fetched.topic_id == ZERO_UUID or not topic or (fetched.topic_id == topic.topic_id):"
        ),
        tests=(f"{GROUPS}an_offset_of_a_deleted_topic_is_not_seen_before_the_next_one_is_made",),
    ),
    Planted(
        bug="a session takes a partition for answered that has gone since it was read",
        where="SessionPlace.has_news",
        old="leader.check()",
        tests=(
            "tests/simulation/test_read_anew.py::test_"
            "a_partition_that_goes_while_its_answer_is_built_is_read_again_when_it_is_anew",
            "tests/broker/partitions/test_fetch_sessions.py::"
            "test_a_partition_that_goes_while_its_answer_is_built_is_still_answered",
        ),
    ),
)
