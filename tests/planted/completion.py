"""What follows from a decision, or from none: markers, time-outs, leadership, pending offsets."""

from typing import Final

from tests.planted import reach
from tests.planted.bug import Planted

KNOWN: Final = "tests/broker/txn/test_known_bugs.py::test_"
KNOWN_MARKERS: Final = "tests/broker/txn/test_known_bugs_of_markers.py::test_"
OVER_TIME: Final = "tests/broker/txn/test_expiry.py::test_"
TELLING: Final = "tests/broker/txn/test_markers.py::test_"
SEQUENCES: Final = "tests/broker/storage/test_producers.py::test_"
OFFSETS: Final = "tests/broker/group/test_offsets.py::test_"
WRITING: Final = "tests/broker/coordination/test_runtime.py::test_"
CRASHED: Final = "tests/broker/txn/test_crashed_completions.py::test_"

COMPLETION_BUGS: Final = (
    Planted(
        bug="KAFKA-19999",
        where="Producers.check_marker",
        old="is_repeat = not entry.has_open_transaction",
        new="raise _stale_marker(entry, producer_epoch)",
        tests=(f"{SEQUENCES}a_repeated_marker_is_harmless_and_not_written_again",),
    ),
    Planted(
        bug="KAFKA-9749, KAFKA-5610",
        where="markers._enter",
        old="if code in NOTHING_OWED:",
        new="if code in NOTHING_OWED or code not in STOP:",
        tests=(f"{TELLING}no_error_code_loses_a_marker_or_leaves_it_stuck",),
    ),
    Planted(
        bug="KAFKA-5202",
        where="Markers._route",
        old="leader is None and await self._sender.is_gone(partition)",
        new="False",
        tests=(f"{TELLING}a_topic_that_was_deleted_is_owed_nothing",),
    ),
    Planted(
        bug="KAFKA-16352",
        where="markers._take",
        old="if producer_ids.isdisjoint(parcel.markers):",
        new="if True:",
        tests=(f"{TELLING}one_request_has_one_marker_of_a_producer",),
    ),
    Planted(
        bug="KAFKA-10080",
        where="TransactionTenure.replay",
        old="self._on_decided(entries)",
        new="self._on_decided(entries)\nself._on_decided(entries)",
        tests=(f"{KNOWN_MARKERS}completions_of_two_tenures_do_not_take_each_others_markers",),
    ),
    Planted(
        bug="KAFKA-9235, KAFKA-9307, KAFKA-5280",
        where="Tenure.wait_committed",
        old="self.check()\nif waiting.cancelled_caught:",
        new="if waiting.cancelled_caught and not self.is_over:",
        tests=(f"{KNOWN}an_operation_begun_before_the_partition_left_changes_nothing_after",),
        seed=12,
        fixed=reach.ALONE,
    ),
    Planted(
        bug="KAFKA-9235",
        where="wait_applied",
        old="last.leader.wait_committed(last.next_offset)",
        new="context.core.partitions.leader(*last.where.by_name).wait_committed(last.next_offset)",
        tests=(
            "tests/broker/api/test_markers_of_an_ended_lead.py::test_"
            "a_marker_of_a_lead_that_ended_is_not_acknowledged_by_the_next_lead",
        ),
    ),
    Planted(
        bug="a deletion takes the offsets of a topic that was made anew",
        where="Offsets.partitions_of_topic",
        old="partition.topic == topic and stored.topic_id in ids",
        new="partition.topic == topic",
        tests=(
            "tests/broker/group/test_topic_ids.py::test_"
            "a_deletion_leaves_the_offsets_of_a_topic_that_was_made_anew",
        ),
    ),
    Planted(
        bug="an offset is written under the topic of the one before it",
        where="_offset_contents",
        old="if topic != topic_here or stored[1:] != common:",
        new="if stored[1:] != common:",
        tests=("tests/broker/group/test_store.py::test_many_offsets_are_written_as_each_of_them",),
    ),
    Planted(
        bug="KAFKA-15468",
        where="Tenures.load",
        old="if previous is not None and previous.coordinator_epoch > tenure.coordinator_epoch:",
        new="if False:",
        tests=(f"{KNOWN}loads_one_after_the_other_end_with_the_newest",),
    ),
    Planted(
        bug="KAFKA-14880",
        where="TransactionTenure.release",
        old="self.drop(entry.transactional_id)",
        tests=(f"{OVER_TIME}a_first_init_that_failed_leaves_nothing_that_would_have_to_expire",),
    ),
    Planted(
        bug="a change takes effect before it is committed",
        where="Runtime.append",
        old="self._timeline.add(change, appended.base_offset, next_offset)",
        new="whole(self.replay(change, appended.base_offset))",
        tests=(
            f"{WRITING}a_change_is_seen_when_it_is_committed_and_not_before",
            f"{KNOWN}a_failed_fence_spends_no_epoch_however_often_it_is_tried",
        ),
    ),
    Planted(
        bug="a commit brings changes into effect that stand behind it",
        where="Timeline.replayed_below",
        old="self._changes[0].next_offset <= next_offset",
        new="True",
        tests=(f"{WRITING}changes_are_replayed_in_log_order_by_whoever_wakes_first",),
    ),
    Planted(
        bug="a decision of a tenure that has ended is written under the next one",
        where="Runtime.append",
        old="self.check()",
        tests=(
            f"{WRITING}an_operation_of_a_tenure_that_has_ended_writes_nothing_under_the_next_one",
        ),
    ),
    Planted(
        bug="a change that another task has committed is reported as failed",
        where="Runtime._wait_in_log",
        old="if self.is_over or next_offset > self._committed_below:",
        new="if True:",
        tests=(f"{WRITING}who_gives_up_in_the_moment_in_which_it_is_committed_gets_its_answer",),
    ),
    Planted(
        bug="a long replay stops all other tasks",
        where="Runtime.wait_committed",
        old="await turns.do(work)",
        new="whole(work)",
        tests=(f"{WRITING}a_large_change_lets_other_tasks_run_and_stays_ahead_of_the_next_one",),
    ),
    Planted(
        bug="KAFKA-13099",
        where="expiry._batches",
        old="yield batch\nbatch, key_bytes = [], 0",
        tests=(f"{OVER_TIME}ten_thousand_ids_expire_in_batches_that_fit",),
    ),
    Planted(
        bug="KAFKA-17507",
        where="wait_applied",
        old="if last.where.topic == CONSUMER_OFFSETS_TOPIC:",
        new="if False:",
        tests=("tests/broker/group/test_wire_offsets.py::test_offsets_in_a_transaction",),
    ),
    Planted(
        bug="KAFKA-7296",
        where="Offsets.end_transaction",
        old="for pending in self._take_pending(producer_id, is_decided):",
        new=(
            "taken = self._take_pending(producer_id, is_decided) if committed else []\n"
            "for pending in taken:"
        ),
        tests=(f"{OFFSETS}an_offset_in_a_transaction_that_aborts_was_never_there",),
    ),
    Planted(
        bug="Redpanda #18324",
        where="TransactionDeadlines.follow",
        old="self._watch_timeout(entry, left_ms)",
        tests=(f"{OVER_TIME}a_transaction_in_which_nothing_is_written_ends_in_time_too",),
    ),
    Planted(
        bug="Redpanda #14624",
        where="TransactionDeadlines.follow",
        old="elif before.state is not State.ONGOING:",
        new="elif before.state is not State.ONGOING and not is_read:",
        tests=(f"{OVER_TIME}a_transaction_found_in_the_log_has_what_is_left_of_its_time",),
    ),
    Planted(
        bug="Redpanda #18198",
        where="Deadlines.watch",
        old="if due < self._planned.get(thing, inf):",
        new="if due < inf:",
        tests=(f"{OVER_TIME}memory_does_not_grow_with_transactions",),
    ),
    Planted(
        bug="KAFKA-15784",
        where="GroupTenure.replay",
        old="self.offsets.add_pending(producer_id, group_id, offsets, base_offset)",
        new=(
            "async def late(pending: OffsetsPending = change) -> None:\n"
            "    await self.partition.wait_committed(base_offset + 1)\n"
            "    self.offsets.add_pending(producer_id, group_id, pending.offsets, base_offset)\n"
            "\n"
            "trio.lowlevel.spawn_system_task(late)"
        ),
        tests=(f"{OFFSETS}a_committed_offset_is_there_when_its_marker_is_acknowledged",),
    ),
    Planted(
        bug="a transaction is complete although the log refused its record",
        where="Ledger.complete",
        old="tenure.append(batch_of(records), change, at_once=True, flush_later=True)",
        new=(
            "for entry in change:\n"
            "    tenure.apply(entry, change[entry])\n"
            "tenure.append(batch_of(records), change, at_once=True, flush_later=True)"
        ),
        tests=(f"{CRASHED}a_completion_that_the_log_refuses_does_not_count",),
    ),
    Planted(
        bug="a completion that nothing follows never gets to the disk",
        where="Background.on_appended",
        old="if kept not in self._unsaved:",
        new="if kept not in self._unsaved and not flush_later:",
        tests=(f"{CRASHED}a_completion_that_nothing_follows_is_on_disk_soon",),
    ),
    Planted(
        bug="the record after a completion counts when it is appended as well",
        where="Ledger._commit",
        old="await tenure.wait_committed(next_offset)",
        new="tenure.note_committed(next_offset)",
        tests=(f"{CRASHED}markers_that_are_sent_again_after_a_crash_end_no_later_transaction",),
    ),
)
