"""Administration: what would delete too much, bring back what was deleted, or refuse wrongly."""

from typing import Final

from tests.planted.bug import Planted

DELETE_RECORDS: Final = "tests/broker/api/test_delete_records.py::test_"
OFFSET_DELETE: Final = "tests/broker/group/test_offset_delete.py::test_"
API: Final = "tests/broker/api"
REASSIGNMENT: Final = "tests/broker/cluster/test_reassignment.py::test_"
MOVES: Final = "tests/simulation/test_moves.py::test_"
KNOWN: Final = "tests/broker/cluster/test_known_brokers.py::test_"
DELETION: Final = "tests/broker/replication/test_deletion.py::test_"

ADMINISTRATION_BUGS: Final = (
    Planted(
        bug="DeleteRecords deletes what is not on every in-sync replica",
        where="deletion.delete_records",
        old="if not 0 <= target <= high_watermark:",
        new="if target < 0:",
        tests=(f"{DELETE_RECORDS}an_offset_that_is_not_there_is_refused",),
    ),
    Planted(
        bug="a topic that is given by name and by id is deleted, and then unknown",
        where="named_and_by_id",
        old="(topic.name, ZERO_UUID) in keys",
        new="topic.name in keys",
        tests=(
            f"{API}/test_delete_topics_by_id.py::test_"
            "a_topic_that_is_given_by_name_and_by_id_is_not_deleted",
        ),
    ),
    Planted(
        bug="deleted records are there again after a kill",
        where="Maintenance.delete_before",
        old="if offset > self.log.saver.saved_log_start_offset:",
        new="if offset > self.log.log_end_offset:",
        tests=(f"{DELETE_RECORDS}what_was_deleted_stays_deleted_over_kills_and_restarts",),
    ),
    Planted(
        bug="DeleteRecords is answered before the followers have deleted",
        where="deleted_everywhere",
        old="if lowest >= offset:",
        new="if True:",
        tests=(f"{DELETION}a_deletion_ends_when_the_follower_has_it_and_hurries_the_follower",),
    ),
    Planted(
        bug="a follower hears of a deletion half a second later",
        where="FollowerPlace.is_urgent",
        old="self._awaits",
        new="False",
        tests=(f"{DELETION}a_deletion_ends_when_the_follower_has_it_and_hurries_the_follower",),
    ),
    Planted(
        bug="OffsetDelete deletes offsets that a member of the group goes on from",
        where="group_deletion.delete_offsets",
        old="if read is None or partition.topic in read:",
        new="if read is None:",
        tests=(f"{OFFSET_DELETE}offsets_of_a_topic_that_a_member_reads_stay",),
    ),
    Planted(
        bug="an offset that was deleted comes back with the commit of its transaction",
        where="group_deletion.delete_offsets",
        old="if is_pending or offsets.find(group_id, partition) is not None:",
        new="if offsets.find(group_id, partition) is not None:",
        tests=(f"{OFFSET_DELETE}an_offset_in_an_open_transaction_does_not_come_back",),
    ),
    Planted(
        bug="a page of topics leaves out the rest of a topic",
        where="describe_topic_partitions",
        old="if end < len(topic.partitions):",
        new="if False:",
        tests=(
            f"{API}/test_describe_topic_partitions.py::test_pages_go_through_the_topics_in_the_order_of_names",
        ),
    ),
    Planted(
        bug="UpdateFeatures says that it has changed what it has not",
        where="update_features",
        old="_check(update, finalized, image.controller_id)",
        tests=(f"{API}/test_update_features.py::test_other_levels_are_refused",),
    ),
    Planted(
        bug="a replica that a move was adding when it was given up must be in sync",
        where="begun",
        old=(
            "(node for node in replicas if node not in partition.replicas or node in "
            "partition.adding)"
        ),
        new=(
            "(node for node in target if node not in partition.replicas or node in "
            "partition.adding)"
        ),
        tests=(
            f"{REASSIGNMENT}what_a_move_was_adding_when_it_was_given_up_is_not_needed_to_be_in_sync",
            f"{REASSIGNMENT}a_cancelled_move_does_not_keep_what_the_move_before_it_was_adding",
        ),
    ),
    Planted(
        bug="a move ends before the new replica is in sync",
        where="reassignment.complete",
        old="not set(partition.arriving) <= set(isr)",
        new="False",
        tests=(f"{REASSIGNMENT}a_move_is_complete_when_the_new_replicas_are_in_sync",),
    ),
    Planted(
        bug="a move is forgotten with the broker that began it",
        where="store.read_partition",
        old='adding=_nodes(fields.get("adding", []))',
        tests=(f"{REASSIGNMENT}a_move_is_kept_in_the_store",),
    ),
    Planted(
        bug="a replica that has moved away keeps its log",
        where="Roles._apply_topic",
        old="await self._remove_replica(topic, index)",
        tests=(f"{MOVES}a_partition_moves_while_it_is_written_to",),
    ),
    Planted(
        bug="a leader does not hear of the replicas that a move adds",
        where="Roles._apply_partition",
        old="leader.view.moves(image.replicas, image.adding, trio.current_time())",
        tests=(f"{MOVES}a_partition_moves_while_it_is_written_to",),
    ),
    Planted(
        bug="a log begins beyond its end as it was cut while a deletion waited",
        where="deletion.delete_records",
        old="check=leader.check",
        tests=(f"{DELETION}a_deletion_whose_log_was_cut_meanwhile_is_refused",),
    ),
    Planted(
        bug="a broker that is away and has a replica is forgotten",
        where="KnownBrokers._check",
        old="node_id in partition.replicas",
        new="node_id == partition.leader",
        tests=(f"{KNOWN}a_broker_that_has_a_replica_is_not_forgotten",),
    ),
    Planted(
        bug="a broker that comes back while it is forgotten is not known",
        where="KnownBrokers.forget",
        old="[same, is_away]",
        new="[same]",
        tests=(f"{KNOWN}a_broker_that_comes_back_at_that_moment_is_not_forgotten",),
    ),
    Planted(
        bug="what stays of a registration ends with its lease",
        where="KeysInMemory.apply",
        old="key in leased",
        new="True",
        tests=(f"{KNOWN}a_broker_that_is_away_is_known_until_it_is_forgotten",),
    ),
    Planted(
        bug="all leads of a broker that dies go to the same other one",
        where="drawn_start",
        old="broker_count * max(1, broker_count - 1)",
        new="broker_count",
        tests=(
            "tests/broker/cluster/test_placement.py::test_"
            "the_leads_of_a_broker_that_dies_go_to_all_others",
        ),
    ),
    Planted(
        bug="all replicas of a partition are in one rack",
        where="_spread",
        old="racks.get(broker.rack, 0)",
        new="0",
        tests=(
            "tests/broker/cluster/test_placement.py::test_"
            "no_two_replicas_are_in_one_rack_where_the_racks_are_enough",
        ),
    ),
)
