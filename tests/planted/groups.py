"""Transaction groups: what would tear a decision, or lose or repeat it."""

from typing import Final

from tests.planted.bug import Planted

GROUPS: Final = "broker/txn/groups.py"
LEDGER: Final = "broker/txn/ledger.py"

ENDING: Final = "tests/broker/txn/test_groups.py::test_"
FAILING: Final = "tests/broker/txn/test_group_failures.py::test_"
TOGETHER: Final = "tests/broker/api/test_markers_together.py::test_"
SEQUENCES: Final = "tests/broker/storage/test_producers.py::test_"
LIVE: Final = "tests/client/producing/test_transaction_group_live.py::test_"

SPARK_COMMIT: Final = "client/spark/commit.py"

GROUP_BUGS: Final = (
    Planted(
        bug="the sink's decision is made without its driver",
        file=SPARK_COMMIT,
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
        file=SPARK_COMMIT,
        old="        if newest.batch_id > batch_id:\n",
        new="        if False:\n",
        tests=("tests/spark/test_commit.py::test_a_driver_behind_the_decision_must_stop",),
    ),
    Planted(
        bug="an attempt that was not chosen is open while readers see the batch",
        file=SPARK_COMMIT,
        old="            self.abort_losers(group, members)\n",
        new="",
        tests=(
            "tests/spark/test_task_writer.py::test_an_open_attempt_between_two_chosen_ones_"
            "does_not_show_readers_a_part_of_the_batch",
        ),
    ),
    Planted(
        bug="a refused row is named by its place in the batch, not in the task",
        file="client/spark/task_encoder.py",
        old="rows=self._first_row + rows[start:end],",
        new="rows=rows[start:end],",
        tests=("tests/spark/test_rows.py::test_rows_are_numbered_over_all_parts_of_a_task",),
    ),
    Planted(
        bug="members are forgotten as late as other producers",
        file="broker/storage/producers.py",
        old="limit_ms = members_before_ms if is_member(producer_id) else before_ms",
        new="limit_ms = before_ms",
        tests=(f"{SEQUENCES}members_of_groups_expire_sooner_but_not_while_something_is_open",),
    ),
    Planted(
        bug="a rebuilt broker counts producer ids on from those of members",
        file="broker/inspect/survey.py",
        old="number_of(producer_id))",
        new="producer_id)",
        tests=(
            "tests/broker/inspect/test_rebuild.py::"
            "test_producer_ids_start_above_the_numbers_of_members",
        ),
    ),
    Planted(
        bug="a member's new producer id does not say that it is a member's",
        file=LEDGER,
        old="return member_id(number) if is_member else number",
        new="return number",
        tests=(f"{ENDING}producer_ids_of_members_say_so",),
    ),
    Planted(
        bug="members are forgotten soon although nothing verifies their batches",
        file="broker/cluster/topic_logs.py",
        old="    if not broker.transaction_partition_verification_enable:\n",
        new="    if False:\n",
        tests=(
            "tests/broker/cluster/test_topic_logs.py::test_members_of_groups_have_their_own_"
            "expiration_if_batches_are_verified",
        ),
    ),
    Planted(
        bug="the members of a large group do not fit into their field",
        file="protocol/streams.py",
        old="TAGGED_FIELD_MAX_BYTES: Final = 16 * 1024 * 1024",
        new="TAGGED_FIELD_MAX_BYTES: Final = 128 * 1024",
        tests=(f"{LIVE}a_client_knows_the_bounds_and_sends_nothing_beyond_them",),
    ),
    Planted(
        bug="a client does not look at the bounds of a group",
        file="client/producing/transaction_group.py",
        old="            if connection.group_bounds is not None:\n",
        new="            if False:\n",
        tests=(f"{LIVE}a_client_knows_the_bounds_and_sends_nothing_beyond_them",),
    ),
    Planted(
        bug="half of a group is decided",
        file=LEDGER,
        old="appended = tenure.partition.append_records(records)\n        except KafkaError as",
        new="appended = [tenure.partition.append_records([each]) for each in records][-1]\n"
        "        except KafkaError as",
        tests=(f"{ENDING}all_members_end_by_one_batch",),
    ),
    Planted(
        bug="a decision of unknown outcome is superseded",
        file=LEDGER,
        old="                self._tenures.unload(index)\n                self._on_",
        new="                pass  # self._",
        tests=(f"{FAILING}after_an_append_of_unknown_outcome_the_log_is_read_anew",),
    ),
    Planted(
        bug="a repeat is refused after the members have moved on",
        file=GROUPS,
        old="        return transaction.state in ended\n",
        new="        return transaction.state in ended[:1]\n",
        tests=(f"{ENDING}a_repeat_says_who_has_moved_on",),
    ),
    Planted(
        bug="another decision is taken for a repeat",
        file=GROUPS,
        old="        if transaction.decision_id != end.decision_id:\n",
        new="        if False:\n",
        tests=(f"{ENDING}another_decision_is_refused",),
    ),
    Planted(
        bug="a member moves between its check and the decision",
        file=GROUPS,
        old="        is_pending = entry.pending is not None\n",
        new="        is_pending = False\n",
        tests=(f"{FAILING}ends_of_overlapping_groups_do_not_wait_for_each_other_for_ever",),
    ),
    Planted(
        bug="a client that goes away leaves members reserved",
        file=GROUPS,
        old="                if entry.pending is following:\n                    release(entry)\n",
        new="                pass\n",
        tests=(f"{ENDING}a_client_that_goes_away_leaves_nobody_reserved",),
    ),
    Planted(
        bug="a member of another group is decided",
        file=GROUPS,
        old="            if self._ledger.group_of(name) != group:\n",
        new="            if False:\n",
        tests=(f"{ENDING}who_is_no_fit_member_is_named",),
    ),
    Planted(
        bug="the markers of a group are written with others between",
        file="broker/api/markers.py",
        old="await _runs(flat, turns) if context.is_from_broker else [[write] for write in flat]",
        new="[[write] for write in flat]",
        tests=(f"{TOGETHER}nothing_comes_between_them_and_no_reader_sees_some_of_them",),
    ),
    Planted(
        bug="a follower has some markers of a group and not the others",
        file="broker/partitions/reads.py",
        old="    if missing:\n",
        new="    if False:\n",
        tests=(f"{TOGETHER}a_follower_gets_all_of_them_or_none",),
    ),
    Planted(
        bug="a marker of a group counts before the others",
        file="broker/storage/producers.py",
        old="min([high_watermark, *(first for first, _ in self._runs)])",
        new="high_watermark",
        tests=(
            f"{SEQUENCES}markers_that_count_together_hold_readers_back_until_the_last_of_them_counts",
        ),
    ),
    Planted(
        bug="members of a group have a clock each",
        file="broker/txn/tenure.py",
        old="        if self.clock is None or self._timeout_at == inf:\n",
        new="        if True:\n",
        tests=(f"{FAILING}members_share_a_clock",),
    ),
    Planted(
        bug="a member whose abort was refused once never times out",
        file="broker/txn/expiry.py",
        old="        ledger.timeouts.watch(entry)\n",
        new="        pass\n",
        tests=(
            f"{FAILING}a_member_that_is_heard_while_another_cannot_be_aborted_delays_its_end_and_no_more",
        ),
    ),
    Planted(
        bug="an idle member of a group is not heard",
        file="client/producing/transactional_session.py",
        old="                await self.requests.add_partitions(self.identity, [anchor])\n",
        new="                pass\n",
        tests=(f"{LIVE}an_idle_member_keeps_its_whole_group_open",),
    ),
)
