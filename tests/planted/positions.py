"""What remembers the offsets of a topic that was deleted, when another one has its name."""

from typing import Final

from tests.planted.bug import Planted

FETCHER: Final = "client/consuming/fetcher.py"
READING: Final = "tests/client/consuming/test_made_anew.py::test_"
LIVE: Final = "tests/client/consuming/test_made_anew_live.py::test_"
GROUPS: Final = "tests/broker/group/test_topic_ids.py::test_"

POSITION_BUGS: Final = (
    Planted(
        bug="a consumer goes on at its offset in a topic that was made anew",
        file="client/cluster/metadata.py",
        old="return ZERO_UUID not in (now, topic_id) and now != topic_id",
        new="return False",
        tests=(
            f"{READING}what_was_fetched_of_the_old_topic_is_returned_before_the_new_one",
            f"{LIVE}without_a_reset_a_new_topic_is_an_error_until_the_program_seeks",
        ),
    ),
    Planted(
        bug="a consumer leaves what it has fetched of a topic that was deleted",
        file=FETCHER,
        old="            if partition.fetched or not self._was_made_anew(partition):\n",
        new="            if not self._was_made_anew(partition):\n",
        tests=(f"{READING}what_was_fetched_of_the_old_topic_is_returned_before_the_new_one",),
    ),
    Planted(
        bug="records of a deleted topic are taken for those of the one that has its name",
        file=FETCHER,
        old="self.assigned.get(name) is partition and partition.topic_id == topic_id",
        new="self.assigned.get(name) is partition",
        tests=(f"{READING}an_answer_of_the_old_topic_is_not_taken_for_one_of_the_new_topic",),
    ),
    Planted(
        bug="a broker that is behind brings a deleted topic back to a client",
        file="client/cluster/metadata.py",
        old="        if self._topic_ids.is_former(topic.topic_id):\n",
        new="        if False:\n",
        tests=(f"{READING}a_broker_that_is_behind_does_not_bring_a_deleted_topic_back",),
    ),
    Planted(
        bug="a member gives up by itself what it has of a deleted topic",
        file="client/grouping/kip848_member.py",
        old="        names = {topic_id: name for name, topic_id in self._topic_ids.items()}\n",
        new="        names: dict[UUID, str] = {}\n",
        tests=(
            "tests/client/grouping/test_kip848_member.py::test_"
            "a_member_keeps_what_it_has_of_a_deleted_topic_until_the_coordinator_takes_it",
        ),
    ),
    Planted(
        bug="an offset of a deleted topic is stored for the one that has its name",
        file="client/grouping/commits.py",
        old="        outdated = outdated_in(self._cluster, offsets)\n",
        new="        outdated: list[TopicPartition] = []\n",
        tests=(f"{READING}an_offset_that_comes_late_is_not_stored_for_the_new_topic",),
    ),
    Planted(
        bug="a number that a program stores late counts for the topic that is read next",
        file="client/consuming/assigned.py",
        old="        return self.topic_id if self.returned_id == ZERO_UUID else self.returned_id\n",
        new="        return self.topic_id\n",
        tests=(f"{READING}an_offset_that_comes_late_is_not_stored_for_the_new_topic",),
    ),
    Planted(
        bug="a group is reset to an offset that was looked up in a topic of the same name",
        file="client/administration/groups.py",
        old="OffsetAndMetadata(offset, topic_id=topic_ids[place])",
        new="OffsetAndMetadata(offset)",
        tests=(f"{READING}a_group_is_not_reset_to_an_offset_of_the_old_topic",),
    ),
    Planted(
        bug="a transaction stores an offset of a deleted topic for the one that has its name",
        file="broker/api/txn_offsets.py",
        old="            if is_another:\n",
        new="            if False:\n",
        tests=(f"{LIVE}a_transaction_does_not_store_an_offset_of_the_old_topic_for_the_new_one",),
    ),
    Planted(
        bug="a commit that began before its topic was made anew replaces a newer offset",
        file="broker/group/offset_answers.py",
        old="if topic is not None and stored.topic_id not in (ZERO_UUID, topic.topic_id):",
        new="if False:",
        tests=(f"{GROUPS}a_commit_that_began_before_the_topic_was_made_anew_replaces_no_offset",),
    ),
    Planted(
        bug="an offset of a deleted topic is returned until the next one of its name is there",
        file="broker/api/group_offsets.py",
        old="(topic and fetched.topic_id == topic.topic_id)",
        new="not topic or (fetched.topic_id == topic.topic_id)",
        tests=(f"{GROUPS}an_offset_of_a_deleted_topic_is_not_seen_before_the_next_one_is_made",),
    ),
    Planted(
        bug="a session takes a partition for answered that has gone since it was read",
        file="broker/partitions/fetch_sessions.py",
        old="            partition.check_available()\n",
        new="            pass\n",
        tests=(
            "tests/simulation/test_read_anew.py::test_"
            "a_partition_that_goes_while_its_answer_is_built_is_read_again_when_it_is_anew",
            "tests/broker/partitions/test_fetch_sessions.py::"
            "test_a_partition_that_goes_while_its_answer_is_built_is_still_answered",
        ),
    ),
)
