"""Consumer groups: what would give a partition two owners, or none for ever."""

from typing import Final

from tests.planted.bug import Planted
from tests.planted.reach import CLOCKS, MEMBERS, MEMBERS_CUT_OFF, SHARERS

MODEL: Final = (
    "tests/broker/group/test_consumer_model.py::"
    "test_a_partition_never_has_two_owners_and_has_one_in_the_end"
)
SCENARIO: Final = "tests/broker/group/test_consumer_groups.py::test_"
GROUP_CONFIGS: Final = "tests/broker/api/test_group_configs.py::test_"
MIXED: Final = (
    "tests/broker/group/test_migration_model.py::"
    "test_a_partition_of_a_mixed_group_never_has_two_owners_and_has_one_in_the_end"
)
MIGRATION: Final = "tests/broker/group/test_migration.py::test_"
WAY_BACK: Final = "tests/broker/group/test_migration_back.py::test_"
RECOVERY: Final = "tests/broker/group/test_recovery.py::test_"
UNDER_WAY: Final = (
    f"{RECOVERY}a_rebalance_that_was_under_way_ends_without_those_who_do_not_join_again"
)
OFFSETS: Final = "tests/broker/group/test_offsets.py::test_"
SETTLING: Final = "tests/broker/group/test_settling.py::test_"
BESIDE: Final = "tests/broker/group/test_consumer_interplay.py::test_"

CONSUMER_GROUP_BUGS: Final = (
    Planted(
        bug="a partition moves before its owner has revoked it",
        where="reconcile._next",
        old="if leaving and _owns_any(owned, leaving):",
        new="if False:",
        tests=(MODEL, f"{SCENARIO}a_partition_moves_after_its_owner_has_revoked_it"),
        seed=2,
        fixed=MEMBERS,
    ),
    Planted(
        bug="a partition is given to a member while another one owns it",
        where="reconcile._next",
        old="if owner_of(topic_id, index) in (None, member.member_id):",
        new="if True:",
        tests=(MODEL, f"{SCENARIO}a_partition_moves_after_its_owner_has_revoked_it"),
        seed=1,
        fixed=MEMBERS,
    ),
    Planted(
        bug="a heartbeat is answered before its records are durable",
        where="ConsumerGroups.heartbeat",
        old="await live.wait_written()",
        tests=(MODEL, f"{BESIDE}a_heartbeat_that_was_not_answered_has_happened_or_not"),
        seed=19,
        fixed=MEMBERS_CUT_OFF,
    ),
    Planted(
        bug="a member with the epoch before is believed whatever it says that it owns",
        where="heartbeat._check_epoch",
        old="is_part_of(asked.owned, member.assigned)",
        new="True",
        tests=(f"{SCENARIO}the_epoch_before_is_accepted_if_the_answer_was_lost",),
    ),
    Planted(
        bug="an older epoch stores offsets of partitions that the member got later",
        where="epoch_checks.check_commit",
        old="if since is None or epoch < since:",
        new="if since is None:",
        tests=(f"{BESIDE}an_older_epoch_may_store_what_the_member_has_owned_since_then",),
    ),
    Planted(
        bug="a member stores offsets with any older epoch",
        where="epoch_checks.check_commit",
        old="if since is None or epoch < since:",
        new="if False:",
        tests=(f"{BESIDE}an_older_epoch_may_store_what_the_member_has_owned_since_then",),
        seed=2,
        fixed=MEMBERS,
    ),
    Planted(
        bug="a member that was removed stores offsets",
        where="epoch_checks.check_commit",
        old="member = group.member(claim.member_id)",
        new=(
            "if claim.member_id not in group.members:\n"
            "    return\n"
            "member = group.member(claim.member_id)"
        ),
        tests=(f"{BESIDE}a_member_stores_offsets_with_its_epoch",),
    ),
    Planted(
        bug="the epoch of a group begins anew with its next coordinator",
        where="GroupBeingRead._apply_group",
        old="self.epoch, self.metadata_hash = value.epoch, value.metadata_hash",
        new="self.metadata_hash = value.metadata_hash",
        tests=(f"{BESIDE}members_go_on_after_a_restart",),
        seed=1,
        fixed=MEMBERS,
    ),
    Planted(
        bug="the next coordinator does not know what members must revoke",
        where="GroupBeingRead._apply_current",
        old="_read(value.partitions_pending_revocation, value.member_epoch)",
        new="NO_EPOCHS",
        tests=(f"{BESIDE}a_restart_in_the_middle_of_a_revocation_goes_on_with_it",),
    ),
    Planted(
        bug="the next coordinator waits for dead members of a consumer group for ever",
        where="LiveConsumerGroup.take",
        old="self._expect_heartbeat(member_id)",
        tests=(f"{BESIDE}members_that_do_not_come_back_after_a_restart_are_missed",),
        seed=2,
        fixed=MEMBERS,
    ),
    Planted(
        bug="what a member leaves behind is given to nobody",
        where="heartbeat.remove",
        old="epoch=left.epoch + 1",
        tests=(f"{SCENARIO}the_partitions_of_a_member_that_leaves_move",),
        seed=1,
        fixed=MEMBERS,
    ),
    Planted(
        bug="a stored offset is acknowledged before it is durable",
        where="GroupCoordinator._store_offsets",
        old="await tenure.wait_committed(tenure.append_offsets(group_id, offsets, producer))",
        new="tenure.note_committed(tenure.append_offsets(group_id, offsets, producer))",
        tests=(
            "tests/broker/group/test_offsets.py::"
            "test_an_offset_is_seen_by_nobody_before_it_is_on_disk",
        ),
    ),
    Planted(
        bug="a clock that is set back stops the assignment of a consumer group",
        where="ConsumerGroup.is_assignment_due",
        old="not 0 <= now_ms - self.assigned_ms < interval_ms",
        new="now_ms - self.assigned_ms >= interval_ms",
        tests=(f"{SCENARIO}a_clock_that_is_set_back_does_not_delay_the_next_targets",),
        seed=19,
        fixed=CLOCKS,
    ),
    Planted(
        bug="members that are late are removed in one piece",
        where="LiveConsumerGroup._fence",
        old="await Turns().do(self.remove(member_ids, reason, RebalanceCause.TIMEOUT))",
        new="whole(self.remove(member_ids, reason))",
        tests=(
            "tests/broker/group/test_large_migration.py::test_a_member_whose_time_ends_in_a_group_"
            "of_thousands_of_topics_holds_nobody_up",
        ),
    ),
    Planted(
        bug="a revocation may take any time",
        where="MemberDeadlines.expect_revocation",
        old="self._start(self._revocations, member_id, member.rebalance_timeout_ms, reason)",
        tests=(f"{SCENARIO}a_member_that_does_not_revoke_in_time_is_removed",),
    ),
    Planted(
        bug="a member of the new protocol is written as Kafka reads a classic one",
        where="ConsumerGroupMemberMetadataValue.classic_member_metadata",
        old="default=ClassicMemberMetadata",
        new="default=None",
        tests=(
            "tests/broker/group/test_consumer_records.py::"
            "test_a_member_of_the_new_protocol_says_so_as_kafka_does",
        ),
    ),
    Planted(
        bug="half of a change of a consumer group may survive a crash",
        where="GroupLog.append_at_once",
        old="return self.append(batch_of(records), change, at_once=True)",
        new=(
            "for record in records[:-1]:\n"
            "    self.append(batch_of([record]))\n"
            "return self.append(batch_of(records[-1:]), change, at_once=True)"
        ),
        tests=(f"{BESIDE}all_records_of_a_change_are_one_batch",),
    ),
    Planted(
        bug="a converted group begins with epoch 1",
        where="from_classic",
        old="epoch=group.generation_id",
        new="epoch=1",
        tests=(f"{WAY_BACK}a_group_goes_to_and_fro_with_rising_epochs",),
    ),
    Planted(
        bug="a classic member that has to give up partitions is not asked to join again",
        where="LiveConsumerGroup.heartbeat",
        old="member.progress is MemberProgress.UNREVOKED_PARTITIONS",
        new="False",
        tests=(
            f"{MIGRATION}a_member_that_reads_a_topic_no_more_joins_again_to_say_that_it_has_"
            "revoked_it",
        ),
    ),
    Planted(
        bug="a member without its session in a converted group stays for ever",
        where="LiveConsumerGroup._expect_heartbeat",
        old=(
            "self._settings.session_timeout_ms if classic is None else classic.session_timeout_ms"
        ),
        new=(
            "self._settings.session_timeout_ms if classic is None else 10 * "
            "classic.session_timeout_ms"
        ),
        tests=(f"{MIGRATION}a_classic_member_that_is_silent_for_its_own_session_is_removed",),
    ),
    Planted(
        bug="the rebalance of a group that became classic is lost with its coordinator",
        where="GroupReader.groups_found",
        old="group_id in self._downgraded",
        new="False",
        tests=(f"{WAY_BACK}the_rebalance_of_the_way_back_is_not_lost_with_the_coordinator",),
    ),
    Planted(
        bug="a group that is not settled becomes classic without a rebalance",
        where="beat_before_downgrade",
        old="not is_settled",
        new="False",
        tests=(f"{WAY_BACK}a_static_member_that_takes_an_unsettled_group_back_begins_a_rebalance",),
    ),
    Planted(
        bug="a converted group does not know what its classic members own",
        where="LiveConsumerGroup.take",
        old="self._owners.replace(None, member)",
        new="self._owners.replace(None, member if before.members else None)",
        tests=(MIXED,),
    ),
    Planted(
        bug="a group that became classic begins with generation 0",
        where="LiveConsumerGroup._become_classic",
        old="self._around.shapes(), self.group.epoch",
        new="self._around.shapes(), 0",
        tests=(MIXED, f"{WAY_BACK}a_group_goes_to_and_fro_with_rising_epochs"),
    ),
    Planted(
        bug="the settings of one group count for all groups",
        where="GroupSettings.of_group",
        old="self._image().group_configs.get(group_id)",
        new="next(iter(self._image().group_configs.values()), None)",
        tests=(f"{GROUP_CONFIGS}a_setting_of_a_group_counts_at_once_for_that_group_only",),
    ),
    Planted(
        bug="the next coordinator waits for a dead member of a classic group for ever",
        where="Rebalance.resume",
        old="self.end_offset = end_offset",
        new="self.end_offset = end_offset\nreturn",
        tests=(UNDER_WAY, f"{RECOVERY}members_that_do_not_come_back_after_a_restart_are_missed"),
    ),
    Planted(
        bug="of members that join at the same time each causes a rebalance",
        where="Rebalance._end_join_phase_soon",
        old="self._all_joined_timer.start(0, self._end_join_phase_if_all_joined)",
        new="self._end_join_phase()",
        tests=(
            "tests/broker/group/test_rebalance.py::"
            "test_members_that_ask_in_one_turn_are_in_one_generation",
        ),
    ),
    Planted(
        bug="a member that does not join again holds up the rebalance of the others for ever",
        where="Rebalance._wait_for_joins",
        old="self._join_timer.start(timeout_ms, self._end_join_phase)",
        tests=(UNDER_WAY,),
    ),
    Planted(
        bug="a member that died while it joined for the first time keeps its first session",
        where="Rebalance._answer_joins",
        old=(
            "if member_id in self._joins:\n"
            "    self._joins.answer(member_id, join_answer(group, member_id))\n"
            "self.expect_heartbeat(member_id, member.session_timeout_ms)"
        ),
        new=(
            "if member_id in self._joins:\n"
            "    self._joins.answer(member_id, join_answer(group, member_id))\n"
            "    self.expect_heartbeat(member_id, member.session_timeout_ms)"
        ),
        tests=(f"{SETTLING}a_group_settles_within_two_sessions_of_a_death",),
    ),
    Planted(
        bug="an owner begins at an offset that an open transaction may still change",
        where="fetched_offset",
        old="if require_stable and offsets.is_unstable(group_id, partition):",
        new="if False:",
        tests=(f"{OFFSETS}an_offset_in_a_transaction_is_seen_after_the_commit",),
        seed=3,
        fixed=SHARERS,
    ),
    Planted(
        bug="offsets in a transaction are taken from a member that owns the partitions no more",
        where="GroupCoordinator._check_commit",
        old="if live is not None:",
        new="if in_transaction:\n    pass\nelif live is not None:",
        tests=(
            f"{BESIDE}epochs_fence_offsets_in_transactions",
            "tests/broker/group/test_wire_offsets.py::test_who_may_store_offsets_in_a_transaction",
        ),
        seed=9,
        fixed=SHARERS,
    ),
)
