"""Bugs of this project's own: no other project reports them. Most were once unseen by tests."""

from typing import Final

from tests.planted.bug import Planted

EVENTS: Final = "broker/txn/events.py"
FINISH: Final = "broker/txn/finish.py"
LEDGER: Final = "broker/txn/ledger.py"
LOADING: Final = "broker/txn/loading.py"
MOVES: Final = "broker/txn/moves.py"
PRESENCE: Final = "broker/txn/presence.py"
STEPS: Final = "broker/txn/steps.py"
BATCHES: Final = "broker/storage/compaction/batches.py"
ENDING: Final = "client/producing/ending.py"
ONE_COMMIT: Final = "client/postgres/commit.py"
STATE_TABLE: Final = "client/postgres/table.py"
CLEANER: Final = "broker/storage/compaction/cleaner.py"

POSTGRES: Final = "tests/client/postgres/test_"
CLIENT: Final = "tests/client/producing/test_two_phases_live.py::test_"
COMPACTION: Final = "tests/broker/storage/test_compaction.py::test_"
FINISHING: Final = "tests/broker/txn/test_finish.py::test_"
IN_PARTS: Final = "tests/broker/storage/test_compaction_of_transactions.py::test_"
LAST_EPOCH: Final = "tests/broker/txn/test_last_epoch.py::test_"
LOADED: Final = "tests/broker/txn/test_loading.py::test_"
PRESENT: Final = "tests/broker/txn/test_presence.py::test_"
REQUESTS: Final = "tests/broker/txn/test_requests.py::test_"
STEP: Final = "tests/broker/txn/test_step.py::test_"
TWO_PHASES: Final = "tests/broker/txn/test_two_phases.py::test_"

OUR_BUGS: Final = (
    Planted(
        bug="a producer that is gone is held by the connection of the instance before",
        file=PRESENCE,
        old="if known is None or begins:",
        new="if known is None:",
        tests=(
            f"{PRESENT}an_instance_that_is_gone_is_not_held_by_the_connection_of_the_one_before",
        ),
    ),
    Planted(
        bug="a producer with two-phase commit is aborted because its connection is closed",
        file=EVENTS,
        old=" and not transaction.never_times_out",
        new="",
        tests=(f"{PRESENT}a_prepared_producer_may_be_away",),
    ),
    Planted(
        bug="a completion goes on after its tenure has ended",
        file=FINISH,
        old="        with entries[0].tenure.bound():\n",
        new="        if True:\n",
        tests=(f"{FINISHING}whoever_does_not_coordinate_any_more_sends_nothing_more",),
    ),
    Planted(
        bug="a coordinator that was deposed outbids its successor",
        file=FINISH,
        old="            await retry_until_written(lambda: self._ledger.confirm(entry))\n",
        new="",
        tests=(f"{FINISHING}a_deposed_coordinator_does_not_outbid_its_successor",),
    ),
    Planted(
        bug="a marker that was written with a higher epoch is still owed",
        file=FINISH,
        old="            debt.owed.discard(partition)\n",
        new="",
        tests=(f"{FINISHING}what_is_owed_meanwhile_is_what_has_no_marker_yet",),
    ),
    Planted(
        bug="markers that are written stay listed as owed",
        file=FINISH,
        old="                    entry.debt = None\n",
        new="                    pass\n",
        tests=(f"{FINISHING}nothing_is_kept_of_what_was_owed_once_it_is_paid",),
    ),
    Planted(
        bug="each retry of a request begins a new time limit",
        file=STEPS,
        old="            request = request_for(entry.transaction)\n",
        new="            request = request_for(entry.transaction)\n"
        "            give_up_at = trio.current_time() + limit_ms / 1000\n",
        tests=(f"{REQUESTS}waiting_for_one_thing_after_another_takes_no_longer_than_for_one",),
    ),
    Planted(
        bug="the instance before a kept transaction is answered as if it retried",
        file=MOVES,
        old="last_producer_epoch=transaction.current.producer_epoch,",
        new="last_producer_epoch=transaction.producer_epoch,",
        tests=(f"{TWO_PHASES}the_instance_before_gets_no_epoch_from_the_end_of_the_new_one",),
    ),
    Planted(
        bug="a new instance lets its predecessor repeat InitProducerId",
        file=MOVES,
        old="after = _with_next_epoch(transaction, request, NO_PRODUCER_EPOCH)",
        new="after = _with_next_epoch(transaction, request, transaction.producer_epoch)",
        tests=(f"{STEP}a_new_instance_gets_the_next_epoch_and_its_predecessor_no_retry",),
    ),
    Planted(
        bug="a transaction claimed for two-phase commit keeps its deadline",
        file=LEDGER,
        old="        elif after.never_times_out:\n            entry.time_out_at(inf)\n",
        new="",
        tests=(f"{TWO_PHASES}claiming_a_timed_transaction_in_two_phases_lifts_its_time_out",),
    ),
    Planted(
        bug="a producer id whose epochs are used up keeps its owner",
        file=LEDGER,
        old="owners.pop(before.producer_id, None)\n            owners[after",
        new="owners[after",
        tests=(f"{LAST_EPOCH}a_producer_id_that_is_worn_out_has_no_owner_any_more",),
    ),
    Planted(
        bug="a transaction elsewhere is taken for the one that hangs here",
        file="broker/api/producers.py",
        old="view is not None and partition.by_id.is_in(view.partitions)",
        new="view is not None",
        tests=(
            "tests/broker/api/test_producers.py::"
            "test_a_transaction_that_no_coordinator_knows_never_times_out",
        ),
    ),
    Planted(
        bug="a client id on two hosts is read from the log as one client",
        file=LOADING,
        old="known = self._clients.get((client_id, host))\n",
        new="known = {key[0]: client for key, client in self._clients.items()}.get(client_id)\n",
        tests=(f"{LOADED}what_ids_do_not_have_in_common_is_each_ones_own",),
    ),
    Planted(
        bug="an empty value is taken for a tombstone",
        file=LOADING,
        old="            if value is not None and (transactional_id",
        new="            if value and (transactional_id",
        tests=(f"{LOADED}an_empty_value_is_no_tombstone",),
    ),
    Planted(
        bug="aborts are looked for only in what is compacted",
        file=CLEANER,
        old="for segment in list(self.log.segments):",
        new="for segment in self.plan.segments:",
        tests=(
            f"{IN_PARTS}what_was_aborted_behind_the_compacted_part_does_not_replace_what_was_not",
        ),
    ),
    Planted(
        bug="an aborted value replaces an older one",
        file=CLEANER,
        old="                        or transactions.is_aborted(header)\n",
        new="",
        tests=(f"{IN_PARTS}an_aborted_value_is_no_newer_one",),
    ),
    Planted(
        bug="compaction removes the marker of a batch that has lost its records",
        file=CLEANER,
        old="            transactions.see(header)\n",
        new="            if header.record_count:\n                transactions.see(header)\n",
        tests=(f"{IN_PARTS}a_batch_without_records_still_needs_its_marker",),
    ),
    Planted(
        bug="the key for which there was no room is never read",
        file=CLEANER,
        old="return int(full_at)",
        new="return int(full_at) + 1",
        tests=(f"{COMPACTION}a_small_map_takes_several_passes",),
    ),
    Planted(
        bug="what was deleted during a pass is replaced by what it has read",
        file="broker/partitions/maintenance.py",
        old=" or any(segment.is_deleted for segment in old):",
        new=":",
        tests=(
            "tests/broker/storage/test_compaction_meanwhile.py::"
            "test_records_that_are_deleted_meanwhile_stay_deleted",
        ),
    ),
    Planted(
        bug="a batch keeps the time of a record that has gone",
        file=BATCHES,
        old="max_timestamp = latest",
        new="max_timestamp = header.max_timestamp or latest",
        tests=(f"{COMPACTION}the_largest_time_of_a_batch_is_that_of_a_record_in_it",),
    ),
    Planted(
        bug="a deletion gets a new horizon with each pass and never goes",
        file=BATCHES,
        old="if has_tombstones and horizon_ms is None:",
        new="if has_tombstones:",
        tests=(f"{COMPACTION}a_deletion_stays_for_delete_retention_ms",),
    ),
    Planted(
        bug="an open transaction is completed although it was not prepared",
        file=ENDING,
        old="    if session.state is not SessionState.PREPARED:",
        new="    if False:",
        tests=(f"{CLIENT}what_is_open_and_not_prepared_is_not_completed",),
    ),
    Planted(
        bug="a claim without two-phase commit is sent in a version without that field",
        file="client/producing/requests.py",
        old="needs_two_phases = self._two_phase_commit or keep_prepared",
        new="needs_two_phases = self._two_phase_commit",
        tests=(f"{CLIENT}who_only_claims_need_not_commit_in_two_phases",),
    ),
    Planted(
        bug="an empty transaction that was prepared is committed",
        file=ENDING,
        old="committed = self._committed and transaction.is_started",
        new="committed = self._committed",
        tests=(f"{CLIENT}an_empty_prepared_transaction_is_not_taken_for_the_next_one",),
    ),
    Planted(
        bug="a leader that is not ready refuses the first batch and takes the second for the first",
        file="client/producing/batches.py",
        old="is_known = self.known_as == self.identity.producer_id",
        new="is_known = True",
        tests=(
            "tests/client/producing/test_producer.py::test_batches_behind_a_lost_one_keep_their_order",
        ),
    ),
    Planted(
        bug="a new instance does not raise its number in PostgreSQL",
        file=STATE_TABLE,
        old="known.instance + 1",
        new="known.instance",
        tests=(
            f"{POSTGRES}one_commit.py::"
            "test_an_instance_that_was_prepared_cannot_commit_after_a_newer_one_has_begun",
        ),
    ),
    Planted(
        bug="the row is read without a lock while a COMMIT may be under way",
        file=STATE_TABLE,
        old=" WHERE transactional_id = %s FOR UPDATE",
        new=" WHERE transactional_id = %s",
        tests=(f"{POSTGRES}troubles.py::test_a_commit_that_arrives_late_is_waited_for",),
    ),
    Planted(
        bug="a COMMIT that a crash of PostgreSQL may forget decides about the records",
        file=STATE_TABLE,
        old="        if row[0]:\n",
        new="        if False:\n",
        tests=(f"{POSTGRES}connections.py::test_a_commit_that_a_crash_may_forget_is_refused",),
    ),
    Planted(
        bug="an instance number that a crash of PostgreSQL may forget is taken for raised",
        file=STATE_TABLE,
        old="WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END",
        new="WHEN 'off' THEN NULL END",
        tests=(
            f"{POSTGRES}connections.py::"
            "test_a_database_without_synchronous_commit_keeps_its_instance_numbers",
        ),
    ),
    Planted(
        bug="a COMMIT whose answer was lost counts as not sent",
        file=ONE_COMMIT,
        old="        self._is_asked = True\n",
        new="",
        tests=(f"{POSTGRES}troubles.py::test_a_commit_whose_answer_is_lost_is_found_in_the_table",),
    ),
    Planted(
        bug="the identity of an earlier commit counts for a COMMIT that never arrived",
        file=ONE_COMMIT,
        old="return await trio.to_thread.run_sync(ask) == prepared",
        new="return await trio.to_thread.run_sync(ask) is not None",
        tests=(f"{POSTGRES}troubles.py::test_a_commit_that_never_arrived_is_found_missing",),
    ),
    Planted(
        bug="what was committed at a broker that has lost its data commits what it has now",
        file="client/postgres/blocking.py",
        old="            self._table.clear(instance)\n",
        new="",
        tests=(
            f"{POSTGRES}troubles.py::"
            "test_a_broker_that_was_emptied_gives_no_identity_that_was_committed",
        ),
    ),
    Planted(
        bug="a changed setting of a topic is noted in its directories at the next start only",
        file="broker/cluster/topic_logs.py",
        old="self._partitions.identities.keep(partition.log, self._identity(topic, index))",
        new="pass",
        tests=(
            "tests/broker/inspect/test_rebuild.py::"
            "test_settings_that_were_changed_while_the_broker_ran_are_rebuilt",
        ),
    ),
)
