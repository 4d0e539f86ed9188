"""Bugs of a cluster's elections, topics and administration, and of clients that meet them."""

from typing import Final

from tests.planted import reach
from tests.planted.bug import Planted

ADMITTED: Final = "tests/broker/txn/test_admission.py::test_"
ELECTED: Final = "tests/broker/cluster/test_election.py::test_"
MAKING: Final = "tests/broker/cluster/test_topics.py::test_"
THREE: Final = "tests/simulation/test_three_brokers.py::test_"
BY_HAND: Final = "tests/simulation/test_elections_on_request.py::test_"
DAMAGED: Final = "tests/simulation/test_damaged_replicas.py::test_"
REQUESTED: Final = "tests/broker/cluster/test_requested.py::test_"

LEFT_REPLICAS: Final = "tests/broker/cluster/test_left_replicas.py::test_"

FORMATS: Final = "tests/broker/cluster/test_metadata_format.py::test_"

CLUSTER_BUGS: Final = (
    Planted(
        bug="a broker starts on metadata of a newer format",
        where="check_metadata_format",
        old="if found > METADATA_FORMAT:",
        new="if found < 0:",
        tests=(f"{FORMATS}metadata_of_a_newer_format_keep_a_broker_from_its_start",),
    ),
    Planted(
        bug="after an unclean election a replica with other records stays eligible",
        where="unclean",
        old="elr=()",
        tests=(f"{ELECTED}an_unclean_election_leaves_no_other_replica_in_sync_or_eligible",),
    ),
    Planted(
        bug="what an interrupted creation has left keeps a replica offline",
        where="LocalTopicLogs._open_one",
        old="if not (is_start and await directories.remove_empty(where)):",
        new="if True:",
        tests=(
            f"{LEFT_REPLICAS}what_is_left_of_a_creation_makes_way_for_the_topic_that_another_broker_"
            "created",
        ),
        seed=1,
        fixed=reach.TWICE_CREATED,
    ),
    Planted(
        bug="a replica that others rely on begins anew after an interrupted creation",
        where="LocalTopicLogs._open_one",
        old="if not await self._is_here(topic, index):",
        new="if False:",
        tests=(f"{LEFT_REPLICAS}a_replica_that_others_rely_on_does_not_begin_anew_in_its_place",),
    ),
    Planted(
        bug="an unclean election although a whole replica is there",
        where="requested._planned",
        old="if clean is not None:",
        new="if False:",
        tests=(f"{REQUESTED}an_election_is_clean_if_the_image_has_a_whole_replica",),
    ),
    Planted(
        bug="a broker that has just gone is elected on request",
        where="write_of_partitions",
        old="if broker.node_id in leaders:",
        new="if broker.node_id in leaders and False:",
        tests=(f"{REQUESTED}an_election_rests_on_the_partition_and_on_the_broker_that_it_elects",),
    ),
    Planted(
        bug="an answer names a leader that is not among its brokers",
        where="metadata_answer.partition_answer",
        old="NO_LEADER if leader is None else leader.node_id",
        new="partition.leader",
        tests=(f"{THREE}an_answer_names_no_leader_that_is_not_among_its_brokers",),
    ),
    Planted(
        bug="a topic is made again whose logs another broker's creation has made here",
        where="ClusterTopics._write",
        old="if self._logs.has_any(topic.name, indexes):",
        new="if topic.name in self.image.topics:",
        tests=(f"{MAKING}a_topic_that_another_broker_was_quicker_to_make_is_found",),
    ),
    Planted(
        bug="a topic that another broker was quicker to make is not found",
        where="ClusterTopics._write",
        old="if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:",
        new="if False:",
        tests=(f"{MAKING}a_topic_that_another_broker_was_quicker_to_make_is_found",),
    ),
    Planted(
        bug="a client waits for a frozen broker that the cluster has given up",
        where="Cluster._watch_silent",
        old="if known and address not in known:",
        new="if False:",
        tests=(f"{THREE}a_client_leaves_a_frozen_broker_as_soon_as_the_cluster_has_done_so",),
    ),
    Planted(
        bug="logs that a full disk had no room for are never made",
        where="Roles._make_logs",
        old="self._spawn(self._apply_topic_again, topic.name)",
        tests=(
            f"{THREE}a_broker_whose_disk_was_full_when_a_topic_was_created_makes_its_logs_later",
        ),
    ),
    Planted(
        bug="a client pauses before it goes to the leader that a refusal names",
        where="Sender._on_refused",
        old="if has_moved:",
        new="if False:",
        tests=(f"{BY_HAND}a_client_goes_at_once_to_the_leader_that_a_refusal_names",),
    ),
    Planted(
        bug="an administrator cannot end a hanging transaction in a cluster",
        where="_check_sender",
        old="marker.coordinator_epoch <= known",
        new="marker.coordinator_epoch < FIRST_EPOCH",
        tests=(f"{THREE}an_administrator_ends_a_transaction_in_a_partition",),
    ),
    Planted(
        bug="the marker of a client fences the coordinator",
        where="_check_sender",
        old="marker.coordinator_epoch <= known",
        new="True",
        tests=(f"{THREE}a_client_cannot_send_the_markers_of_a_coordinator",),
    ),
    Planted(
        bug="a broker takes the node id of a live one",
        where="Session._is_of_this_directory",
        old='bool(read_fields(key, found).get("directory") == self._directory_id)',
        new="True",
        tests=(
            "tests/broker/cluster/test_session.py::test_"
            "the_node_id_of_a_live_broker_is_refused_and_stays_its_own",
        ),
    ),
    Planted(
        bug="KAFKA-7164",
        where="ReplicaFetchers.follow",
        old="found[1].leader_epoch == partition.leader_epoch",
        new="True",
        tests=(f"{BY_HAND}followers_of_a_leader_that_is_elected_again_follow_in_its_new_epoch",),
        seed=3,
        fixed=reach.ELECTIONS,
    ),
    Planted(
        bug="a directory that a power failure took is waited for although no replica has it",
        where="LocalTopicLogs._is_here",
        old="not was_made",
        new="False",
        tests=(f"{DAMAGED}a_topic_whose_directories_a_power_failure_took_everywhere_is_led_again",),
    ),
    Planted(
        bug="a broker that stops waits for the metadata store for ever",
        where="ClusterMetadata.run",
        old="shield.shield = False",
        tests=(
            "tests/simulation/test_ends.py::test_"
            "a_broker_stops_although_the_store_went_away_while_it_created_a_topic",
        ),
    ),
    Planted(
        bug="a topic is refused for good for a broker that the image does not show yet",
        where="ClusterTopics._decided",
        old="if error.code not in BY_IMAGE:",
        new="if True:",
        tests=(
            "tests/broker/cluster/test_topics.py::test_"
            "a_topic_is_not_refused_for_a_broker_that_the_image_does_not_show_yet",
        ),
    ),
    Planted(
        bug="a move is refused for good for a broker that the image does not show yet",
        where="RequestedMoves.move",
        old="if refused and not is_fresh:",
        new="if False:",
        tests=(
            "tests/broker/cluster/test_reassignment.py::"
            "test_a_move_is_not_refused_by_an_image_that_is_older_than_the_request",
        ),
    ),
    Planted(
        bug="a client asks a dead broker until its time is over",
        where="Cluster.ask",
        old="if node_id is not None:",
        new="if False:",
        tests=(
            "tests/simulation/test_dead_brokers.py::test_an_administrator_goes_to_the_broker_that_"
            "has_taken_the_place_of_a_dead_one",
        ),
    ),
    Planted(
        bug="every transaction over brokers pauses after the marker of the last one",
        where="Admission._admit_elsewhere",
        old="RETRY_SECONDS if is_busy or was_overtaken else 0",
        new="RETRY_SECONDS",
        tests=(f"{ADMITTED}a_marker_that_comes_meanwhile_has_the_coordinator_asked_again",),
    ),
    Planted(
        bug="an unclean election before a broker with a whole replica is heard of",
        where="RequestedElections.elect",
        old="if is_unclean:",
        new="if False:",
        tests=(
            f"{BY_HAND}an_unclean_election_is_clean_if_a_whole_replica_has_only_just_come_back",
        ),
    ),
    Planted(
        bug="a replica in which a reader finds damage goes on leading",
        where="LogReader._read_error",
        old="self.note_damage(str(error))",
        tests=(
            f"{DAMAGED}a_leader_in_which_a_consumer_finds_damage_hands_over_and_is_fetched_anew",
        ),
    ),
    Planted(
        bug="a replica that cannot be compacted because it is damaged stays as it is",
        where="LogCleaner._clean",
        old="log.reader.note_damage(str(error))",
        tests=(
            "tests/broker/storage/test_compaction_damage.py::test_"
            "a_damaged_batch_is_not_copied_and_the_log_is_left_alone",
        ),
    ),
)
