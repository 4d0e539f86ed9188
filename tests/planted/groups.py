"""Transaction groups: what would tear a decision, or lose or repeat it."""

from typing import Final

from tests.planted.bug import Planted

ENDING: Final = "tests/broker/txn/test_transaction_group.py::test_"
FAILING: Final = "tests/broker/txn/test_group_failures.py::test_"
TOGETHER: Final = "tests/broker/api/test_markers_together.py::test_"
SEQUENCES: Final = "tests/broker/storage/test_producers.py::test_"
LIVE: Final = "tests/client/producing/test_transaction_group_live.py::test_"


GROUP_BUGS: Final = (
    Planted(
        bug="the sink's decision is made without its driver",
        where="BatchCommit.decide",
        old="group.commit([leader, *members])",
        new="group.commit(list(members))",
        tests=(
            "tests/spark/test_last_epochs.py::"
            "test_a_zombie_decides_nothing_across_the_drivers_change_of_producer_id",
            "tests/spark/test_task_writer.py::test_a_driver_that_was_fenced_decides_nothing",
        ),
    ),
    Planted(
        bug="the sink does not look for newer decisions than its own batch's",
        where="BatchCommit.is_decided",
        old="if newest.batch_id > batch_id:",
        new="if False:",
        tests=("tests/spark/test_commit.py::test_a_driver_behind_the_decision_must_stop",),
    ),
    Planted(
        bug="an attempt that was not chosen is open while readers see the batch",
        where="BatchCommit._commit_once",
        old="self.abort_losers(group, members)",
        tests=(
            "tests/spark/test_task_writer.py::test_an_open_attempt_between_two_chosen_ones_"
            "does_not_show_readers_a_part_of_the_batch",
        ),
    ),
    Planted(
        bug="a refused row is named by its place in the batch, not in the task",
        where="Rows.encode",
        old="self._first_row + rows[start:end]",
        new="rows[start:end]",
        tests=("tests/spark/test_rows.py::test_rows_are_numbered_over_all_parts_of_a_task",),
    ),
    Planted(
        bug="members are forgotten as late as other producers",
        where="Producers.expire",
        old="members_before_ms if is_member(producer_id) else before_ms",
        new="before_ms",
        tests=(f"{SEQUENCES}members_of_groups_expire_sooner_but_not_while_something_is_open",),
    ),
    Planted(
        bug="a rebuilt broker counts producer ids on from those of members",
        where="Surveyed.see_producer",
        old="number_of(producer_id)",
        new="producer_id",
        tests=(
            "tests/broker/inspect/test_rebuild_plan.py::"
            "test_producer_ids_start_above_the_numbers_of_members",
        ),
    ),
    Planted(
        bug="a member's new producer id does not say that it is a member's",
        where="Ledger.producer_id",
        old="member_id(number) if is_member else number",
        new="number",
        tests=(f"{ENDING}producer_ids_of_members_say_so",),
    ),
    Planted(
        bug="members are forgotten soon although nothing verifies their batches",
        where="topic_logs.member_producer_expiration_ms",
        old="if not broker.transaction_partition_verification_enable:",
        new="if False:",
        tests=(
            "tests/broker/cluster/test_topic_logs.py::test_members_of_groups_have_their_own_"
            "expiration_if_batches_are_verified",
        ),
    ),
    Planted(
        bug="the members of a large group do not fit into their field",
        where="TAGGED_FIELD_MAX_BYTES",
        old="16 * 1024 * 1024",
        new="128 * 1024",
        tests=(f"{LIVE}a_client_knows_the_bounds_and_sends_nothing_beyond_them",),
    ),
    Planted(
        bug="a client does not look at the bounds of a group",
        where="TransactionGroup._end.attempt",
        old="if connection.group_bounds is not None:",
        new="if False:",
        tests=(f"{LIVE}a_client_knows_the_bounds_and_sends_nothing_beyond_them",),
    ),
    Planted(
        bug="half of a group is decided",
        where="Ledger.write",
        old="next_offset = tenure.append(batch_of(records), change)",
        new=(
            "for each in records[:-1]:\n"
            "    tenure.append(batch_of([each]))\n"
            "next_offset = tenure.append(batch_of(records[-1:]), change)"
        ),
        tests=(f"{ENDING}all_members_end_by_one_batch",),
    ),
    Planted(
        bug="a decision of unknown outcome is superseded",
        where="Ledger._on_doubt",
        old="self._tenures.unload(index)\nself._on_uncertain(index)",
        new="tenure.forget(change)",
        tests=(f"{FAILING}after_an_append_of_unknown_outcome_the_log_is_read_anew",),
    ),
    Planted(
        bug="a repeat is refused after the members have moved on",
        where="GroupEnds._is_repeat",
        old="transaction.state in ended",
        new="transaction.state in ended[:1]",
        tests=(f"{ENDING}a_repeat_says_who_has_moved_on",),
    ),
    Planted(
        bug="another decision is taken for a repeat",
        where="GroupEnds._is_repeat",
        old="if transaction.decision_id != end.decision_id:",
        new="if False:",
        tests=(f"{ENDING}another_decision_is_refused",),
    ),
    Planted(
        bug="a member moves between its check and the decision",
        where="GroupEnds._following",
        old="entry.pending is not None",
        new="False",
        tests=(f"{FAILING}ends_of_overlapping_groups_do_not_wait_for_each_other_for_ever",),
    ),
    Planted(
        bug="a client that goes away leaves members reserved",
        where="GroupEnds._attempt",
        old="if entry.pending is following:\n    tenure.release(entry)",
        tests=(f"{ENDING}a_client_that_goes_away_leaves_nobody_reserved",),
    ),
    Planted(
        bug="a member of another group is decided",
        where="GroupEnds._check_names",
        old="if self._ledger.group_of(name) != group:",
        new="if False:",
        tests=(f"{ENDING}who_is_no_fit_member_is_named",),
    ),
    Planted(
        bug="the markers of a group are written with others between",
        where="markers._write",
        old="await runs_of(flat, turns) if context.is_from_broker else [[write] for write in flat]",
        new="[[write] for write in flat]",
        tests=(f"{TOGETHER}nothing_comes_between_them_and_no_reader_sees_some_of_them",),
    ),
    Planted(
        bug="a follower has some markers of a group and not the others",
        where="read_for_follower",
        old="if missing:",
        new="if False:",
        tests=(f"{TOGETHER}a_follower_gets_all_of_them_or_none",),
    ),
    Planted(
        bug="a marker of a group counts before the others",
        where="Producers.high_watermark_is",
        old="min([high_watermark, *(first for first, _ in self._runs)])",
        new="high_watermark",
        tests=(
            f"{SEQUENCES}markers_that_count_together_hold_readers_back_until_the_last_of_them_counts",
        ),
    ),
    Planted(
        bug="members of a group have a clock each",
        where="Entry.timeout_at",
        old="if self.clock is None or self._timeout_at == inf:",
        new="if True:",
        tests=(f"{FAILING}members_share_a_clock",),
    ),
    Planted(
        bug="a member whose abort was refused once never times out",
        where="_time_out",
        old="ledger.deadlines.timeouts.watch(entry)",
        tests=(
            f"{FAILING}a_member_that_is_heard_while_another_cannot_be_aborted_delays_its_end_and_no_more",
        ),
    ),
    Planted(
        bug="an idle member of a group is not heard",
        where="TransactionalSession._keep_open",
        old="await self.requests.add_partitions(self.identity, [anchor])",
        tests=(f"{LIVE}an_idle_member_keeps_its_whole_group_open",),
    ),
)
