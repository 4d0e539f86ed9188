"""Administration: what would delete too much, bring back what was deleted, or refuse wrongly."""

from typing import Final

from tests.planted.bug import Planted

DELETE_RECORDS: Final = "tests/broker/api/test_delete_records.py::test_"
OFFSET_DELETE: Final = "tests/broker/group/test_offset_delete.py::test_"
API: Final = "tests/broker/api"
REASSIGNMENT: Final = "tests/broker/cluster/test_reassignment.py::test_"
MOVES: Final = "tests/simulation/test_moves.py::test_"
DELETION: Final = "tests/broker/replication/test_deletion.py::test_"

ADMINISTRATION_BUGS: Final = (
    Planted(
        bug="DeleteRecords deletes what is not on every in-sync replica",
        file="broker/partitions/deletion.py",
        old="if not 0 <= target <= partition.high_watermark:",
        new="if target < 0:",
        tests=(f"{DELETE_RECORDS}an_offset_that_is_not_there_is_refused",),
    ),
    Planted(
        bug="a topic that is given by name and by id is deleted, and then unknown",
        file="broker/api/topics.py",
        old="(topic.name, ZERO_UUID) in keys",
        new="topic.name in keys",
        tests=(
            f"{API}/test_delete_topics_by_id.py::test_"
            "a_topic_that_is_given_by_name_and_by_id_is_not_deleted",
        ),
    ),
    Planted(
        bug="deleted records are there again after a kill",
        file="broker/partitions/maintenance.py",
        old="            if offset > self._log.saver.saved_log_start_offset:\n",
        new="            if offset > self._log.log_end_offset:\n",
        tests=(f"{DELETE_RECORDS}what_was_deleted_stays_deleted_over_kills_and_restarts",),
    ),
    Planted(
        bug="DeleteRecords is answered before the followers have deleted",
        file="broker/partitions/deletion.py",
        old="        if lowest >= offset:\n",
        new="        if True:\n",
        tests=(f"{DELETION}a_deletion_ends_when_the_follower_has_it_and_hurries_the_follower",),
    ),
    Planted(
        bug="a follower hears of a deletion half a second later",
        file="broker/replication/replica_sessions.py",
        old="self._is_unknown or self._awaits_start",
        new="self._is_unknown",
        tests=(f"{DELETION}a_deletion_ends_when_the_follower_has_it_and_hurries_the_follower",),
    ),
    Planted(
        bug="OffsetDelete deletes offsets that a member of the group goes on from",
        file="broker/group/deletion.py",
        old="        if read is None or partition.topic in read:\n",
        new="        if read is None:\n",
        tests=(f"{OFFSET_DELETE}offsets_of_a_topic_that_a_member_reads_stay",),
    ),
    Planted(
        bug="an offset that was deleted comes back with the commit of its transaction",
        file="broker/group/deletion.py",
        old="        if is_pending or offsets.stored(group_id, partition) is not None:\n",
        new="        if offsets.stored(group_id, partition) is not None:\n",
        tests=(f"{OFFSET_DELETE}an_offset_in_an_open_transaction_does_not_come_back",),
    ),
    Planted(
        bug="a page of topics leaves out the rest of a topic",
        file="broker/api/topic_partitions.py",
        old="        if end < len(topic.partitions):\n",
        new="        if False:\n",
        tests=(
            f"{API}/test_describe_topic_partitions.py::test_pages_go_through_the_topics_in_the_order_of_names",
        ),
    ),
    Planted(
        bug="UpdateFeatures says that it has changed what it has not",
        file="broker/api/features.py",
        old="            _check(update, finalized, image.controller_id)\n",
        new="            pass\n",
        tests=(f"{API}/test_update_features.py::test_other_levels_are_refused",),
    ),
    Planted(
        bug="a replica that a move was adding when it was given up must be in sync",
        file="broker/cluster/reassignment.py",
        old="        node for node in replicas if node not in partition.replicas or node in",
        new="        node for node in target if node not in partition.replicas or node in",
        tests=(
            f"{REASSIGNMENT}what_a_move_was_adding_when_it_was_given_up_is_not_needed_to_be_in_sync",
            f"{REASSIGNMENT}a_cancelled_move_does_not_keep_what_the_move_before_it_was_adding",
        ),
    ),
    Planted(
        bug="a move ends before the new replica is in sync",
        file="broker/cluster/reassignment.py",
        old="    if not is_enough or not set(partition.arriving) <= set(isr):\n",
        new="    if not is_enough:\n",
        tests=(f"{REASSIGNMENT}a_move_is_complete_when_the_new_replicas_are_in_sync",),
    ),
    Planted(
        bug="a move is forgotten with the broker that began it",
        file="broker/cluster/store.py",
        old='            adding=_nodes(fields.get("adding", [])),\n',
        new="",
        tests=(f"{REASSIGNMENT}a_move_is_kept_in_the_store",),
    ),
    Planted(
        bug="a replica that has moved away keeps its log",
        file="broker/roles.py",
        old="                await self._remove_replica(topic, index)\n",
        new="                pass\n",
        tests=(f"{MOVES}a_partition_moves_while_it_is_written_to",),
    ),
    Planted(
        bug="a leader does not hear of the replicas that a move adds",
        file="broker/roles.py",
        old="                lead.moves(image.replicas, image.adding, trio.current_time())\n",
        new="",
        tests=(f"{MOVES}a_partition_moves_while_it_is_written_to",),
    ),
    Planted(
        bug="a log begins beyond its end as it was cut while a deletion waited",
        file="broker/partitions/maintenance.py",
        old="        if leader_epoch is not None and not is_led:\n",
        new="        if False:\n",
        tests=(f"{DELETION}a_deletion_whose_log_was_cut_meanwhile_is_refused",),
    ),
)
