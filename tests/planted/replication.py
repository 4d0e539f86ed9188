"""Bugs of replication and elections: what counts, who may lead, and where a log is cut."""

from typing import Final

from tests.planted import reach
from tests.planted.bug import Planted

ADMITTED: Final = "tests/broker/txn/test_admission.py::test_"
ELECTED: Final = "tests/broker/cluster/test_election.py::test_"
IN_SYNC: Final = "tests/broker/replication/test_in_sync.py::test_"
LEADING: Final = "tests/broker/partitions/test_in_sync_view.py::test_"
LOADED: Final = "tests/broker/coordination/test_loading.py::test_"
REPLICAS: Final = "tests/broker/replication/test_replicas.py::test_"
THREE: Final = "tests/simulation/test_three_brokers.py::test_"
LOST: Final = "tests/simulation/test_lost_answers.py::test_"
DAMAGED: Final = "tests/simulation/test_damaged_replicas.py::test_"
POWER: Final = "tests/broker/partitions/test_power_loss.py::test_"
SESSIONS: Final = "tests/broker/replication/test_replica_sessions.py::test_"

TELLING: Final = "tests/broker/txn/test_markers.py::test_"

REPLICATION_BUGS: Final = (
    Planted(
        bug="a record is acknowledged before it is replicated",
        where="InSyncView.high_watermark",
        old="max(before, lowest)",
        new="max(before, own)",
        tests=(
            f"{LEADING}a_record_counts_when_every_in_sync_replica_has_it",
            f"{REPLICAS}a_record_is_acknowledged_when_the_in_sync_replicas_have_it_on_disk",
        ),
        seed=1,
        fixed=reach.ELECTIONS,
    ),
    Planted(
        bug="a follower reports a record whose fsync has only begun",
        where="Flusher.start",
        old="target = log.log_end_offset",
        new="target = log.log_end_offset\nlog.unflushed.reach(target)",
        tests=(
            "tests/broker/partitions/test_group_commit.py::"
            "test_a_failed_fsync_calls_those_that_wait_and_no_fsync_follows",
        ),
        seed=1,
        fixed=reach.STALLS,
    ),
    Planted(
        bug="KAFKA-15583",
        where="InSyncView.high_watermark",
        old="if not self.has_enough(min_insync_replicas):",
        new="if False:",
        tests=(f"{LEADING}the_high_watermark_stands_still_with_too_few_in_sync",),
    ),
    Planted(
        bug="an eligible replica stays while the high watermark passes it",
        where="InSyncView.high_watermark",
        old="if self.elr:",
        new="if False:",
        tests=(f"{LEADING}a_smaller_min_isr_counts_once_no_replica_out_of_sync_is_eligible",),
    ),
    Planted(
        bug="eligible replicas stay although a smaller min isr is reached",
        where="InSync._wanted",
        old="view.isr if view.elr and is_enough_now else None",
        new="None",
        tests=(
            "tests/broker/replication/test_in_sync.py::"
            "test_eligible_replicas_are_forgotten_when_a_smaller_min_isr_is_reached",
        ),
    ),
    Planted(
        bug="KAFKA-13091",
        where="InSyncView.high_watermark",
        old="*self.isr, *(self.proposed or ())",
        new="self.isr if self.proposed is None else self.proposed",
        tests=(f"{LEADING}a_follower_that_may_be_in_the_set_already_counts",),
    ),
    Planted(
        bug="KAFKA-7128",
        where="InSyncView.joining",
        old="max(high_watermark, self.start_offset, self.followed_offset)",
        new="high_watermark",
        tests=(f"{LEADING}a_follower_joins_with_all_that_there_was_when_the_epoch_began",),
        seed=1,
        fixed=reach.ELECTIONS,
    ),
    Planted(
        bug="KAFKA-10527",
        where="election._leads",
        old="leader is not None and leader.epoch < partition.epoch",
        new="leader is not None",
        tests=(f"{ELECTED}a_leader_that_has_restarted_leads_in_an_epoch_of_its_own",),
        seed=2,
        fixed=reach.KILLS,
    ),
    Planted(
        bug="KIP-966",
        where="election.elect",
        old="[node for node in staying if node in partition.elr]",
        new="[]",
        tests=(f"{ELECTED}an_eligible_replica_leads_when_the_in_sync_set_is_gone",),
    ),
    Planted(
        bug="a broker that lost power with log.flush=os stays in the in-sync sets",
        where="Membership._leave_sets",
        old="if not notes.lacks_records and not notes.missing:",
        new="if notes is not None:",
        tests=(f"{THREE}when_all_lost_power_the_last_leader_leads_again",),
        seed=1,
        fixed=reach.POWER,
    ),
    Planted(
        bug="a leader that has restarted takes another broker's leaving for its election",
        where="election.without",
        old="changed if _leads(partition, brokers) else _without_leader(changed)",
        new="changed",
        tests=(f"{ELECTED}a_leader_that_has_restarted_does_not_lead_in_its_old_epoch_after_that",),
    ),
    Planted(
        bug="a second crash makes a broker forget that it may lack records",
        where="RunNotes.begin",
        old="last.lacks_records",
        new="False",
        tests=(f"{POWER}after_a_power_failure_a_log_may_lack_records_until_the_others_know",),
    ),
    Planted(
        bug="a damaged replica is taken back for what it reported before",
        where="InSyncView.note_changed",
        old="if node not in isr and node in self.followers:",
        new="if node is None:",
        tests=(f"{DAMAGED}a_damaged_follower_is_fetched_anew",),
        seed=3,
        fixed=reach.MUCH_BIT_ROT,
    ),
    Planted(
        bug="a damaged replica goes on reporting what it had",
        where="FollowerSession.request",
        old="if follower.partition.log.failure is not None:",
        new="if follower.partition is None:",
        tests=(f"{DAMAGED}a_damaged_follower_is_fetched_anew",),
        seed=4,
        fixed=reach.ROT_AND_ELECTIONS,
    ),
    Planted(
        bug="a damaged replica begins anew that the leader has just taken back",
        where="DamagedReplicas._replace",
        old="await self._is_as_shown(where, partition)",
        new="True",
        tests=(
            "tests/broker/replication/test_damaged.py::"
            "test_a_replica_that_the_leader_has_taken_back_does_not_begin_anew",
        ),
        seed=5,
        fixed=reach.ROT_AND_ELECTIONS,
    ),
    Planted(
        bug="bit rot elected",
        where="DamagedReplicas._replace",
        old="if self._node_id in (partition.leader, *partition.isr, *partition.elr):",
        new="if self._node_id == partition.leader:",
        tests=(f"{DAMAGED}a_damaged_follower_is_fetched_anew",),
        seed=1,
        fixed=reach.BIT_ROT,
    ),
    Planted(
        bug="bit rot that looks like a torn write is elected",
        where="Rules.is_damage",
        old="is_fetched_anew and not is_last",
        new="is_fetched_anew and not is_last and was_durable",
        tests=(
            f"{DAMAGED}a_replica_with_bit_rot_does_not_lead_after_a_power_failure",
            f"{POWER}bad_bytes_before_the_last_segment_are_damage_if_another_replica_is_whole",
        ),
        seed=3,
        fixed=reach.ROT_AND_POWER,
    ),
    Planted(
        bug="a replica that begins anew writes to the files that were set aside",
        where="Partitions.open",
        old="self._files.close_in(directory)",
        tests=(f"{DAMAGED}a_replica_that_begins_anew_has_files_of_its_own",),
    ),
    Planted(
        bug="a replica leads with the empty log that it made in place of a lost one",
        where="LocalTopicLogs._is_here",
        old="if node_id not in sets:",
        new="if True:",
        tests=(f"{DAMAGED}a_replica_whose_directory_is_gone_does_not_lead_with_an_empty_log",),
        seed=3,
        fixed=reach.LOST_LOGS,
    ),
    Planted(
        bug="a log whose beginning a power failure took is a whole replica",
        where="Rules.may_lack_beginning",
        old="self.lacks_records and self.others is not Others.NONE",
        new="False",
        tests=(f"{POWER}a_replica_whose_first_segment_is_gone_is_damaged",),
    ),
    Planted(
        bug="the last good replica of a partition is thrown away because it is damaged",
        where="DamagedReplicas._replace",
        old="not self._has_whole_replica(partition)",
        new="False",
        tests=(f"{DAMAGED}a_damaged_replica_without_others_in_sync_is_left_as_it_is",),
    ),
    Planted(
        bug="KAFKA-14144",
        where="InSync._write",
        old="is_written, revision = await guarded_write(self._store, compares, puts)",
        new=(
            "try:\n"
            "    is_written, revision = await self._store.txn(compares, puts)\n"
            "except KafkaError:\n"
            "    for change in changes:\n"
            "        change.leader.view.proposed = None\n"
            "    raise"
        ),
        tests=(f"{LOST}a_follower_counts_whose_way_into_the_set_had_a_lost_answer",),
        seed=5,
        fixed=reach.OVERLOOKED,
    ),
    Planted(
        bug="a leader that is cut off keeps its clients waiting",
        where="Membership._resign_when_cut_off",
        old="if not self.session.has_lapsed:",
        new="if self.session is not None:",
        tests=(f"{THREE}a_leader_that_is_cut_off_from_all_but_its_clients_resigns",),
    ),
    Planted(
        bug="leaders resign when the metadata store is away",
        where="InSyncView.is_followed",
        old="self.followers[node].contact.at > since",
        new="self.followers[node].contact.at > since + 1e9",
        tests=(f"{THREE}records_go_on_while_the_metadata_store_is_away",),
    ),
    Planted(
        bug="a leader that has resigned never leads again",
        where="Membership._resign_when_cut_off",
        old="await roles.lead_again()",
        tests=(f"{THREE}a_leader_that_resigned_and_was_not_replaced_leads_again",),
    ),
    Planted(
        bug="a client asks a broker that is cut off for ever who leads",
        where="Cluster.refresh",
        old="if self.metadata.is_doubted:",
        new="if self._asked is self:",
        tests=(f"{THREE}a_leader_that_is_cut_off_from_all_but_its_clients_resigns",),
    ),
    Planted(
        bug="a follower reports batches of its earlier role that are not on its disk",
        where="FollowerSession.request",
        old="if follower.paused_until > now or not follower.is_on_disk:",
        new="if follower.paused_until > now:",
        tests=(f"{SESSIONS}a_fetch_lists_only_what_is_on_disk_whatever_the_role_was_before",),
    ),
    Planted(
        bug="a broker takes the registration of its earlier run for its own",
        where="Roles.apply",
        old="here.epoch if here is not None and self._is_own(here) else NOT_REGISTERED",
        new="NOT_REGISTERED if here is None else here.epoch",
        tests=(
            "tests/broker/cluster/test_topic_logs.py::"
            "test_a_broker_that_has_restarted_leads_nothing_before_it_has_registered",
        ),
    ),
    Planted(
        bug="a client asks the one broker that has no leader again and again",
        where="Metadata.learn",
        old=(
            "any(partition.leader_id < 0 for topic in answer.topics for partition in "
            "topic.partitions)"
        ),
        new=(
            "[] == list(partition.leader_id < 0 for topic in answer.topics for partition "
            "in topic.partitions)"
        ),
        tests=(f"{THREE}a_leader_that_is_cut_off_from_all_but_its_clients_resigns",),
    ),
    Planted(
        bug="a batch that a marker of the last transaction overtook ends the next one",
        where="Admission._admit_elsewhere",
        old="codes.get(partition, NONE) is NONE",
        new="codes.get(partition, NONE) is None",
        tests=(
            f"{ADMITTED}a_verdict_that_markers_overtake_until_time_is_over_can_be_asked_for_again",
        ),
    ),
    Planted(
        bug="KIP-101",
        where="Follower._cut",
        old="max(target, partition.log_start_offset)",
        new="max(partition.high_watermark, partition.log_start_offset)",
        tests=(f"{REPLICAS}logs_that_parted_below_the_leaders_end_keep_what_they_share",),
        seed=4,
        fixed=reach.ELECTIONS,
    ),
    Planted(
        bug="KIP-279",
        where="Follower._cut",
        old="min(own_end, end_offset) if own_epoch == epoch else own_end",
        new="min(partition.log_end_offset, end_offset)",
        tests=(f"{REPLICAS}logs_that_parted_in_several_epochs_come_together",),
        seed=1,
        fixed=reach.ELECTED_BACK,
    ),
    Planted(
        bug="KIP-320",
        where="replica_fetch._look_up",
        old="check_leader_epoch(leader, wanted.current_leader_epoch)",
        tests=(f"{REPLICAS}a_fetch_of_another_epoch_counts_as_nothing",),
        seed=2,
        fixed=reach.LATE_IMAGES,
    ),
    Planted(
        bug="a position that a follower reported in an older epoch counts",
        where="Partition.begin_lead",
        old="self._end_lead()",
        new=(
            "if self.leading is not None:\n    view.followers = self.leading.view.followers\n"
            "self._end_lead()"
        ),
        tests=(f"{REPLICAS}a_position_of_an_earlier_epoch_does_not_move_the_high_watermark",),
        seed=5,
        fixed=reach.ELECTIONS,
    ),
    Planted(
        bug="KAFKA-15221",
        where="_check_broker",
        old="if broker is None or broker.epoch != epoch:",
        new="if broker is None:",
        tests=(f"{REPLICAS}a_fetch_that_its_broker_sent_before_it_restarted_counts_as_nothing",),
        seed=4,
        fixed=reach.RESTARTS,
    ),
    Planted(
        bug="KAFKA-14704",
        where="replica_fetch._take",
        old="if place.answer is None:",
        new="if True:",
        tests=(f"{REPLICAS}an_answer_that_shows_where_logs_part_counts_as_nothing",),
    ),
    Planted(
        bug="a partition is dropped from a session because its batch did not fit",
        where="replica_fetch._read_all",
        old="session.ready[place] = None",
        tests=(f"{SESSIONS}what_does_not_fit_comes_in_the_next_answer",),
    ),
    Planted(
        bug="a follower does not learn the high watermark of a partition that became idle",
        where="replica_fetch._poll",
        old="await _add_marks(session, answers)",
        tests=(f"{SESSIONS}a_mark_that_moves_is_answered_when_the_wait_is_over",),
    ),
    Planted(
        bug="a follower of an idle partition lags since the last look when a record is appended",
        where="InSync.note_news",
        old="leader.view.note_news()",
        tests=(f"{IN_SYNC}a_record_after_a_long_pause_does_not_make_a_follower_lag",),
    ),
    Planted(
        bug="a lead is not looked at again after a look that found nothing",
        where="InSync._look",
        old="self._lags.watch(leader)",
        tests=(f"{IN_SYNC}a_follower_that_is_not_heard_of_leaves_an_idle_partition",),
    ),
    Planted(
        bug="a broker that is gone stays in the sets of idle partitions until it lags",
        where="InSync.run",
        old="for leader in self._watches:\n    self.note_news(leader)",
        tests=(f"{IN_SYNC}a_broker_that_goes_leaves_the_sets_of_all_partitions_at_once",),
    ),
    Planted(
        bug="an idle partition loses its followers",
        where="Progress.note_contact",
        old="self.caught_up_at = max(self.caught_up_at, self.contact.at)",
        tests=(
            f"{LEADING}a_follower_that_has_everything_is_in_sync_while_its_session_goes_on",
            f"{SESSIONS}an_idle_partition_keeps_its_followers",
        ),
    ),
    Planted(
        bug="a follower that has stopped to fetch a partition counts as in sync",
        where="FollowerPlace.leave",
        old="progress.contact = Contact(contact.at)",
        tests=(f"{SESSIONS}a_follower_that_forgets_a_partition_is_not_in_sync_for_ever",),
    ),
    Planted(
        bug="KAFKA-13207",
        where="Follower.take",
        old="self._is_over",
        new="False",
        tests=(f"{REPLICAS}an_answer_that_comes_after_the_role_has_changed_is_dropped",),
    ),
    Planted(
        bug="a replica that begins anew has a high watermark below its log",
        where="Maintenance._start_anew.raise_mark",
        old="self._marks.move(max(self._marks.high_watermark, offset))",
        tests=(f"{REPLICAS}a_follower_below_the_leaders_log_begins_anew",),
    ),
    Planted(
        bug="KAFKA-20961",
        where="Follower._find_place",
        old="if log.log_end_offset < data.log_start_offset:",
        new="if log.log_end_offset < 0:",
        tests=(f"{REPLICAS}a_follower_below_the_leaders_log_begins_anew",),
        seed=1,
        fixed=reach.IDLE,
    ),
    Planted(
        bug="a batch of an earlier lead counts in a later one",
        where="Leader.check",
        old="if self.is_over:",
        new="if False:",
        tests=(f"{REPLICAS}a_batch_of_an_earlier_lead_does_not_count_in_a_later_one",),
    ),
    Planted(
        bug="a deposed coordinator hands out offsets",
        where="Leader.prove_lead",
        old="if view.is_alone:",
        new="if view.followers is not None:",
        tests=(f"{REPLICAS}a_leader_that_is_cut_off_cannot_prove_that_it_leads",),
    ),
    Planted(
        bug="a deposed coordinator takes a commit for the repeated one of the transaction before",
        where="Steps.perform",
        old="await entry.tenure.prove()",
        tests=(
            "tests/broker/txn/test_known_bugs.py::"
            "test_a_deposed_coordinator_does_not_say_that_a_commit_is_done",
        ),
    ),
    Planted(
        bug="KAFKA-20734",
        where="Markers._route",
        old="await self._sender.is_gone(partition)",
        new="True",
        tests=(f"{TELLING}an_image_that_lags_lets_no_marker_off",),
    ),
    Planted(
        bug="the verification of a deposed coordinator counts",
        where="_overruled_codes",
        old="leaders[partition].coordinator_epoch(producer.producer_id) > coordinator_epoch",
        new=(
            "leaders[partition].coordinator_epoch(producer.producer_id) > coordinator_epoch + 2**31"
        ),
        tests=(
            f"{ADMITTED}what_a_deposed_coordinator_confirms_is_worthless",
            f"{ADMITTED}a_leader_that_was_the_coordinator_confirms_nothing_either",
        ),
        seed=1,
        fixed=reach.DEPOSED,
    ),
    Planted(
        bug="a coordinator acts on a decision that is not replicated",
        where="Tenures.load",
        old="await tenure.partition.wait_committed()",
        tests=(f"{LOADED}nothing_is_read_before_the_followers_have_it",),
        seed=1,
        fixed=reach.ELECTIONS,
    ),
    Planted(
        bug="a client that begins with a frozen broker waits for it before it tries the next",
        where="Connections._to_first",
        old="with trio.move_on_after(ANOTHER_TIMEOUT_S):",
        new="if True:",
        tests=(
            "tests/simulation/test_frozen_brokers.py::test_"
            "a_client_that_begins_with_a_frozen_broker_goes_on_to_the_next_address",
        ),
    ),
)
