"""Consumer groups: what would give a partition two owners, or none for ever."""

from typing import Final

from tests.planted.bug import Planted
from tests.planted.reach import CLOCKS, MEMBERS, MEMBERS_CUT_OFF, SHARERS

RECONCILE: Final = "broker/group/consumer/reconcile.py"
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
        file=RECONCILE,
        old="    if leaving and _owns_any(owned, leaving):\n",
        new="    if False:\n",
        tests=(MODEL, f"{SCENARIO}a_partition_moves_after_its_owner_has_revoked_it"),
        seed=1,
        fixed=MEMBERS,
    ),
    Planted(
        bug="a partition is given to a member while another one owns it",
        file=RECONCILE,
        old="if owner_of(topic_id, index) in (None, member.member_id):",
        new="if True:",
        tests=(MODEL, f"{SCENARIO}a_partition_moves_after_its_owner_has_revoked_it"),
        seed=1,
        fixed=MEMBERS,
    ),
    Planted(
        bug="a heartbeat is answered before its records are durable",
        file="broker/group/consumers.py",
        old="        await tenure.durable(live.written)\n        return beaten\n",
        new="        return beaten\n",
        tests=(MODEL, f"{BESIDE}a_heartbeat_that_was_not_answered_has_happened_or_not"),
        seed=14,
        fixed=MEMBERS_CUT_OFF,
    ),
    Planted(
        bug="a member with the epoch before is believed whatever it says that it owns",
        file="broker/group/consumer/heartbeat.py",
        old="        and is_part_of(asked.owned, member.assigned)\n",
        new="",
        tests=(f"{SCENARIO}the_epoch_before_is_accepted_if_the_answer_was_lost",),
    ),
    Planted(
        bug="an older epoch stores offsets of partitions that the member got later",
        file="broker/group/consumer/commits.py",
        old="if since is None or epoch < since:",
        new="if since is None:",
        tests=(f"{BESIDE}an_older_epoch_may_store_what_the_member_has_owned_since_then",),
    ),
    Planted(
        bug="a member stores offsets with any older epoch",
        file="broker/group/consumer/commits.py",
        old="if since is None or epoch < since:",
        new="if False:",
        tests=(f"{BESIDE}an_older_epoch_may_store_what_the_member_has_owned_since_then",),
        seed=3,
        fixed=MEMBERS,
    ),
    Planted(
        bug="a member that was removed stores offsets",
        file="broker/group/consumer/commits.py",
        old="    member = group.member(claim.member_id)\n    is_classic",
        new="    if claim.member_id not in group.members:\n        return\n"
        "    member = group.member(claim.member_id)\n    is_classic",
        tests=(f"{BESIDE}a_member_stores_offsets_with_its_epoch",),
        seed=2,
        fixed=MEMBERS,
    ),
    Planted(
        bug="the epoch of a group begins anew with its next coordinator",
        file="broker/group/consumer/records.py",
        old="            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash\n",
        new="            self.metadata_hash = value.metadata_hash\n",
        tests=(f"{BESIDE}members_go_on_after_a_restart",),
        seed=1,
        fixed=MEMBERS,
    ),
    Planted(
        bug="the next coordinator does not know what members must revoke",
        file="broker/group/consumer/records.py",
        old="revoking=_read(value.partitions_pending_revocation, value.member_epoch)",
        new="revoking=NO_EPOCHS",
        tests=(f"{BESIDE}a_restart_in_the_middle_of_a_revocation_goes_on_with_it",),
    ),
    Planted(
        bug="the next coordinator waits for dead members of a consumer group for ever",
        file="broker/group/live_consumer.py",
        old="            self._expect_heartbeat(member.member_id)\n"
        "            self._deadlines.expect_revocation(None",
        new="            self._deadlines.expect_revocation(None",
        tests=(f"{BESIDE}members_that_do_not_come_back_after_a_restart_are_missed",),
        seed=2,
        fixed=MEMBERS,
    ),
    Planted(
        bug="what a member leaves behind is given to nobody",
        file="broker/group/consumer/heartbeat.py",
        old="epoch=left.epoch + 1, metadata_hash=found",
        new="metadata_hash=found",
        tests=(f"{SCENARIO}the_partitions_of_a_member_that_leaves_move",),
        seed=1,
        fixed=MEMBERS,
    ),
    Planted(
        bug="a stored offset is acknowledged before it is durable",
        file="broker/group/coordinator.py",
        old="            await tenure.flushed(tenure.append_offsets(group_id, offsets))\n",
        new="            tenure.durable_below(tenure.append_offsets(group_id, offsets))\n",
        tests=(
            "tests/broker/group/test_offsets.py::"
            "test_an_offset_is_seen_by_nobody_before_it_is_on_disk",
        ),
    ),
    Planted(
        bug="a clock that is set back stops the assignment of a consumer group",
        file="broker/group/consumer/members.py",
        old="not 0 <= now_ms - self.assigned_ms < interval_ms",
        new="now_ms - self.assigned_ms >= interval_ms",
        tests=(f"{SCENARIO}a_clock_that_is_set_back_does_not_delay_the_next_targets",),
        seed=3,
        fixed=CLOCKS,
    ),
    Planted(
        bug="a revocation may take any time",
        file="broker/group/member_deadlines.py",
        old="self._start(self._revocations, member_id, member.rebalance_timeout_ms, reason)\n",
        new="pass\n",
        tests=(f"{SCENARIO}a_member_that_does_not_revoke_in_time_is_removed",),
    ),
    Planted(
        bug="a member of the new protocol is written as Kafka reads a classic one",
        file="protocol/state_topics.py",
        old="        ClassicMemberMetadata, default=ClassicMemberMetadata, nullable=0, tag=0\n",
        new="        ClassicMemberMetadata, default=None, nullable=0, tag=0\n",
        tests=(
            "tests/broker/group/test_consumer_records.py::"
            "test_a_member_of_the_new_protocol_says_so_as_kafka_does",
        ),
    ),
    Planted(
        bug="half of a change of a consumer group may survive a crash",
        file="broker/group/tenure.py",
        old="            appended = self.partition.append_records(records)\n        except",
        new="            for record in records:\n"
        "                appended = self.partition.append_records([record])\n        except",
        tests=(f"{BESIDE}all_records_of_a_change_are_one_batch",),
    ),
    Planted(
        bug="a converted group begins with epoch 1",
        file="broker/group/consumer/migration.py",
        old="        epoch=group.generation_id,\n        metadata_hash",
        new="        epoch=1,\n        metadata_hash",
        tests=(f"{WAY_BACK}a_group_goes_to_and_fro_with_rising_epochs",),
    ),
    Planted(
        bug="a classic member that has to give up partitions is not asked to join again",
        file="broker/group/live_consumer.py",
        old="                has_news = True\n",
        new="                has_news = False\n",
        tests=(
            f"{MIGRATION}a_member_that_reads_a_topic_no_more_joins_again_to_say_that_it_has_"
            "revoked_it",
        ),
    ),
    Planted(
        bug="a member without its session in a converted group stays for ever",
        file="broker/group/live_consumer.py",
        old="if classic is None else classic.session_timeout_ms\n",
        new="if classic is None else 10 * classic.session_timeout_ms\n",
        tests=(f"{MIGRATION}a_classic_member_that_is_silent_for_its_own_session_is_removed",),
    ),
    Planted(
        bug="the rebalance of a group that became classic is lost with its coordinator",
        file="broker/group/tenure.py",
        old="if group.group_id in replay.downgraded:",
        new="if False:",
        tests=(f"{WAY_BACK}the_rebalance_of_the_way_back_is_not_lost_with_the_coordinator",),
    ),
    Planted(
        bug="a group that is not settled becomes classic without a rebalance",
        file="broker/group/consumer/heartbeat.py",
        old="member=member, shows_assignment=True), not is_settled\n",
        new="member=member, shows_assignment=True), False\n",
        tests=(f"{WAY_BACK}a_static_member_that_takes_an_unsettled_group_back_begins_a_rebalance",),
    ),
    Planted(
        bug="a converted group does not know what its classic members own",
        file="broker/group/live_consumer.py",
        old="            self._owners.replace(None, member)\n"
        "            self._expect_heartbeat(member.member_id)\n",
        new="            self._expect_heartbeat(member.member_id)\n",
        tests=(MIXED,),
    ),
    Planted(
        bug="a group that became classic begins with generation 0",
        file="broker/group/live_consumer.py",
        old="shapes, epoch = self._around.shapes(), self.group.epoch\n",
        new="shapes, epoch = self._around.shapes(), 0\n",
        tests=(MIXED, f"{WAY_BACK}a_group_goes_to_and_fro_with_rising_epochs"),
    ),
    Planted(
        bug="the settings of one group count for all groups",
        file="broker/local_coordinators.py",
        old="        own = self._image().group_configs.get(group_id)\n",
        new="        own = next(iter(self._image().group_configs.values()), None)\n",
        tests=(f"{GROUP_CONFIGS}a_setting_of_a_group_counts_at_once_for_that_group_only",),
    ),
    Planted(
        bug="the next coordinator waits for a dead member of a classic group for ever",
        file="broker/group/rebalance.py",
        old="        self.written = written\n        for",
        new="        self.written = written\n        return\n        for",
        tests=(UNDER_WAY, f"{RECOVERY}members_that_do_not_come_back_after_a_restart_are_missed"),
    ),
    Planted(
        bug="of members that join at the same time each causes a rebalance",
        file="broker/group/rebalance.py",
        old="            self._all_joined_timer.start(0, self._end_join_phase_if_all_joined)\n",
        new="            self._end_join_phase()\n",
        tests=(
            "tests/broker/group/test_rebalance.py::"
            "test_members_that_ask_in_one_turn_are_in_one_generation",
        ),
    ),
    Planted(
        bug="a member that does not join again holds up the rebalance of the others for ever",
        file="broker/group/rebalance.py",
        old="        self._join_timer.start(timeout_ms, self._end_join_phase)\n",
        new="",
        tests=(UNDER_WAY,),
    ),
    Planted(
        bug="a member that died while it joined for the first time keeps its first session",
        file="broker/group/rebalance.py",
        old="                reply.settle(self.joined(member_id))\n            self.expect",
        new="                reply.settle(self.joined(member_id))\n                self.expect",
        tests=(f"{SETTLING}a_group_settles_within_two_sessions_of_a_death",),
    ),
    Planted(
        bug="an owner begins at an offset that an open transaction may still change",
        file="broker/group/offset_answers.py",
        old="    if require_stable and offsets.is_unstable(group_id, partition):\n",
        new="    if False:\n",
        tests=(f"{OFFSETS}an_offset_in_a_transaction_is_seen_after_the_commit",),
        seed=1,
        fixed=SHARERS,
    ),
    Planted(
        bug="offsets in a transaction are taken from a member that owns the partitions no more",
        file="broker/group/coordinator.py",
        old="        if consumer is not None:\n            check_commit(",
        new="        if in_transaction:\n            pass\n"
        "        elif consumer is not None:\n            check_commit(",
        tests=(
            f"{BESIDE}epochs_fence_offsets_in_transactions",
            "tests/broker/group/test_wire_offsets.py::test_who_may_store_offsets_in_a_transaction",
        ),
        seed=9,
        fixed=SHARERS,
    ),
)
