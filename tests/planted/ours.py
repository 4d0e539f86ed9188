"""Bugs of this project's own: no other project reports them. Most were once unseen by tests."""

from typing import Final

from tests.planted.bug import Planted

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
        where="Presence._note_served",
        old="if known is None or begins:",
        new="if known is None:",
        tests=(
            f"{PRESENT}an_instance_that_is_gone_is_not_held_by_the_connection_of_the_one_before",
        ),
    ),
    Planted(
        bug="a producer that was seen before the setting was turned off is aborted",
        where="Presence.turn",
        old=(
            "for known in self._producers.values():\n"
            "    for seat in known.seats:\n"
            "        seat._seen.clear()\n"
            "self._producers.clear()"
        ),
        new="for known in self._producers.values():\n    for seat in known.seats:\n        pass",
        tests=(f"{PRESENT}no_producer_is_watched_after_the_setting_was_turned_off",),
    ),
    Planted(
        bug="a producer with two-phase commit is aborted because its connection is closed",
        where="disconnect_event",
        old="not transaction.never_times_out",
        new="True",
        tests=(f"{PRESENT}a_prepared_producer_may_be_away",),
    ),
    Planted(
        bug="a completion goes on after its tenure has ended",
        where="Finisher.finish",
        old="with entries[0].tenure.bound():",
        new="if True:",
        tests=(f"{FINISHING}whoever_does_not_coordinate_any_more_sends_nothing_more",),
    ),
    Planted(
        bug="a coordinator that was deposed outbids its successor",
        where="Finisher._outbid_all",
        old="await retry_until_written(lambda: self._ledger.confirm(entry))",
        tests=(f"{FINISHING}a_deposed_coordinator_does_not_outbid_its_successor",),
    ),
    Planted(
        bug="a marker that was written with a higher epoch is still owed",
        where="Finisher._outbid",
        old="debt.owed.discard(partition)",
        tests=(f"{FINISHING}what_is_owed_meanwhile_is_what_has_no_marker_yet",),
    ),
    Planted(
        bug="markers that are written stay listed as owed",
        where="Finisher.finish",
        old="entry.debt = None",
        tests=(f"{FINISHING}nothing_is_kept_of_what_was_owed_once_it_is_paid",),
    ),
    Planted(
        bug="each retry of a request begins a new time limit",
        where="Steps.perform",
        old="version = request.transaction_version",
        new=(
            "give_up_at = trio.current_time() + limit_ms / 1000\n"
            "version = request.transaction_version"
        ),
        tests=(f"{REQUESTS}waiting_for_one_thing_after_another_takes_no_longer_than_for_one",),
    ),
    Planted(
        bug="the instance before a kept transaction is answered as if it retried",
        where="_decided_with_next_epoch.change",
        old="last_producer_epoch=transaction.current.producer_epoch",
        new="last_producer_epoch=transaction.producer_epoch",
        tests=(f"{TWO_PHASES}the_instance_before_gets_no_epoch_from_the_end_of_the_new_one",),
    ),
    Planted(
        bug="a new instance lets its predecessor repeat InitProducerId",
        where="_to_new_instance",
        old="_with_next_epoch(transaction, request, NO_PRODUCER_EPOCH)",
        new="_with_next_epoch(transaction, request, transaction.producer_epoch)",
        tests=(f"{STEP}a_new_instance_gets_the_next_epoch_and_its_predecessor_no_retry",),
    ),
    Planted(
        bug="a transaction claimed for two-phase commit keeps its deadline",
        where="TransactionDeadlines.follow",
        old="elif after.never_times_out:\n    entry.time_out_at(inf)",
        tests=(f"{TWO_PHASES}claiming_a_timed_transaction_in_two_phases_lifts_its_time_out",),
    ),
    Planted(
        bug="a producer id whose epochs are used up keeps its owner",
        where="TransactionTenure.apply",
        old=(
            "self.owners.pop(before.producer_id, None)\n"
            "self.owners[after.producer_id] = entry.transactional_id"
        ),
        new="self.owners[after.producer_id] = entry.transactional_id",
        tests=(f"{LAST_EPOCH}a_producer_id_that_is_worn_out_has_no_owner_any_more",),
    ),
    Planted(
        bug="a transaction elsewhere is taken for the one that hangs here",
        where="producers._producer",
        old="leader.by_id.is_in(view.partitions)",
        new="True",
        tests=(
            "tests/broker/api/test_producers.py::"
            "test_a_transaction_that_no_coordinator_knows_never_times_out",
        ),
    ),
    Planted(
        bug="a client id on two hosts is read from the log as one client",
        where="Decoder._client_of",
        old="self._clients.get((client_id, host))",
        new="{key[0]: client for key, client in self._clients.items()}.get(client_id)",
        tests=(f"{LOADED}what_ids_do_not_have_in_common_is_each_ones_own",),
    ),
    Planted(
        bug="an empty value is taken for a tombstone",
        where="loading.load",
        old="value is not None",
        new="value",
        tests=(f"{LOADED}an_empty_value_is_no_tombstone",),
    ),
    Planted(
        bug="aborts are looked for only in what is compacted",
        where="Cleaner._aborted",
        old="list(self.log.segments)",
        new="self.plan.segments",
        tests=(
            f"{IN_PARTS}what_was_aborted_behind_the_compacted_part_does_not_replace_what_was_not",
        ),
    ),
    Planted(
        bug="an aborted value replaces an older one",
        where="Cleaner._read_keys",
        old="transactions.is_aborted(header)",
        new="False",
        tests=(f"{IN_PARTS}an_aborted_value_is_no_newer_one",),
    ),
    Planted(
        bug="compaction removes the marker of a batch that has lost its records",
        where="Cleaner._kept",
        old="transactions.see(header)",
        new="if header.record_count:\n    transactions.see(header)",
        tests=(f"{IN_PARTS}a_batch_without_records_still_needs_its_marker",),
    ),
    Planted(
        bug="the key for which there was no room is never read",
        where="Cleaner._read_keys",
        old="return int(full_at)",
        new="return int(full_at) + 1",
        tests=(f"{COMPACTION}a_small_map_takes_several_passes",),
    ),
    Planted(
        bug="what was deleted during a pass is replaced by what it has read",
        where="Maintenance._replace",
        old="any(segment.is_deleted for segment in old)",
        new="False",
        tests=(
            "tests/broker/storage/test_compaction_meanwhile.py::"
            "test_records_that_are_deleted_meanwhile_stay_deleted",
        ),
    ),
    Planted(
        bug="a batch keeps the time of a record that has gone",
        where="_rebuilt",
        old="max_timestamp = latest",
        new="max_timestamp = header.max_timestamp or latest",
        tests=(f"{COMPACTION}the_largest_time_of_a_batch_is_that_of_a_record_in_it",),
    ),
    Planted(
        bug="a deletion gets a new horizon with each pass and never goes",
        where="what_stays",
        old="if has_tombstones and horizon_ms is None:",
        new="if has_tombstones:",
        tests=(f"{COMPACTION}a_deletion_stays_for_delete_retention_ms",),
    ),
    Planted(
        bug="an open transaction is completed although it was not prepared",
        where="ending.complete",
        old="if session.state is not SessionState.PREPARED:",
        new="if False:",
        tests=(f"{CLIENT}what_is_open_and_not_prepared_is_not_completed",),
    ),
    Planted(
        bug="a claim without two-phase commit is sent in a version without that field",
        where="TransactionRequests._init_producer_id",
        old="self._two_phase_commit or keep_prepared",
        new="self._two_phase_commit",
        tests=(f"{CLIENT}who_only_claims_need_not_commit_in_two_phases",),
    ),
    Planted(
        bug="an empty transaction that was prepared is committed",
        where="Ending._end",
        old="self._committed and transaction.is_started",
        new="self._committed",
        tests=(f"{CLIENT}an_empty_prepared_transaction_is_not_taken_for_the_next_one",),
    ),
    Planted(
        bug="a leader that is not ready refuses the first batch and takes the second for the first",
        where="PartitionQueue._may_send_more",
        old="self.known_as == self.identity.producer_id",
        new="True",
        tests=(
            "tests/client/producing/test_producer_retries.py::test_batches_behind_a_lost_one_keep_their_order",
        ),
    ),
    Planted(
        bug="a new instance does not raise its number in PostgreSQL",
        where="RAISE",
        old=(
            '"""\n'
            "    INSERT INTO {} AS known VALUES (%s, (random() * 1e15)::bigint, NULL)\n"
            "    ON CONFLICT (transactional_id) DO UPDATE SET instance = known.instance + 1\n"
            '    RETURNING instance"""'
        ),
        new=(
            '"""\n'
            "    INSERT INTO {} AS known VALUES (%s, (random() * 1e15)::bigint, NULL)\n"
            "    ON CONFLICT (transactional_id) DO UPDATE SET instance = known.instance\n"
            '    RETURNING instance"""'
        ),
        tests=(
            f"{POSTGRES}one_commit.py::"
            "test_an_instance_that_was_prepared_cannot_commit_after_a_newer_one_has_begun",
        ),
    ),
    Planted(
        bug="the row is read without a lock while a COMMIT may be under way",
        where="READ",
        old=(
            'READ: Final = "SELECT instance, prepared FROM {} WHERE transactional_id = %s '
            'FOR UPDATE"'
        ),
        new='READ: Final = "SELECT instance, prepared FROM {} WHERE transactional_id = %s"',
        tests=(f"{POSTGRES}troubles.py::test_a_commit_that_arrives_late_is_waited_for",),
    ),
    Planted(
        bug="a COMMIT that a crash of PostgreSQL may forget decides about the records",
        where="StateTable.store",
        old="if row[0]:",
        new="if False:",
        tests=(f"{POSTGRES}connections.py::test_a_commit_that_a_crash_may_forget_is_refused",),
    ),
    Planted(
        bug="an instance number that a crash of PostgreSQL may forget is taken for raised",
        where="SETTINGS",
        old=(
            '"""\n'
            "    SELECT set_config('lock_timeout', %s, false), "
            "set_config('client_encoding', 'UTF8', false),\n"
            "        CASE current_setting('synchronous_commit')\n"
            "        WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END\"\"\""
        ),
        new=(
            '"""\n'
            "    SELECT set_config('lock_timeout', %s, false), "
            "set_config('client_encoding', 'UTF8', false),\n"
            "        CASE current_setting('synchronous_commit')\n"
            '        WHEN \'off\' THEN NULL END"""'
        ),
        tests=(
            f"{POSTGRES}connections.py::"
            "test_a_database_without_synchronous_commit_keeps_its_instance_numbers",
        ),
    ),
    Planted(
        bug="a COMMIT whose answer was lost counts as not sent",
        where="OneCommit._decide",
        old="self._is_asked = True",
        tests=(f"{POSTGRES}troubles.py::test_a_commit_whose_answer_is_lost_is_found_in_the_table",),
    ),
    Planted(
        bug="the identity of an earlier commit counts for a COMMIT that never arrived",
        where="OneCommit._was_committed",
        old="await trio.to_thread.run_sync(ask) == prepared",
        new="await trio.to_thread.run_sync(ask) is not None",
        tests=(f"{POSTGRES}troubles.py::test_a_commit_that_never_arrived_is_found_missing",),
    ),
    Planted(
        bug="what was committed at a broker that has lost its data commits what it has now",
        where="PostgresProducer.__enter__",
        old="self._table.clear(instance)",
        tests=(
            f"{POSTGRES}troubles.py::"
            "test_a_broker_that_was_emptied_gives_no_identity_that_was_committed",
        ),
    ),
    Planted(
        bug="a changed setting of a topic is noted in its directories at the next start only",
        where="LocalTopicLogs.configure",
        old="self._partitions.identities.keep(partition.log, self._identity(topic, index))",
        tests=(
            "tests/broker/inspect/test_rebuild.py::"
            "test_settings_that_were_changed_while_the_broker_ran_are_rebuilt",
        ),
    ),
    Planted(
        bug="the memory of a large answer goes back to the system with each answer",
        where="keep_freed_memory",
        old="set_option(M_TRIM_THRESHOLD, KEPT_BYTES)",
        tests=(
            "tests/broker/test_large_answers.py::test_"
            "the_memory_of_a_large_answer_is_used_for_the_next_and_given_back_when_all_is_quiet",
        ),
    ),
)
