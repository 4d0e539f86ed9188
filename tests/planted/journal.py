"""The journal, and recovery from it."""

from typing import Final

from tests.planted.bug import Planted

JOURNAL: Final = "tests/broker/storage/test_journal.py::test_"
KEPT: Final = "tests/broker/storage/test_journal_kept.py::test_"
GIVEN_UP: Final = "tests/broker/storage/test_journal_given_up.py::test_"
DAMAGED: Final = "tests/broker/storage/test_journal_damaged.py::test_"
ADDED: Final = "tests/broker/txn/test_early_additions.py::test_"
EARLY: Final = "tests/broker/txn/test_early_markers.py::test_"

JOURNAL_BUGS: Final = (
    Planted(
        bug="a journal of an earlier life is replayed",
        where="gather",
        old="if file.life == life:",
        new="if True:",
        tests=(f"{JOURNAL}a_journal_of_an_earlier_life_is_not_replayed",),
    ),
    Planted(
        bug="the journal is replayed over a log that was cut",
        where="live_records",
        old="if record.sequence < sequence:",
        new="if False:",
        tests=(f"{JOURNAL}the_journal_is_not_replayed_over_a_log_that_was_cut",),
    ),
    Planted(
        bug="a log gets the records of the one that had its name",
        where="FoundJournal.of",
        old="self.records.get(key, ())",
        new="[each for of in self.records if of[1] == key[1] for each in self.records[of]]",
        tests=(f"{JOURNAL}the_records_of_a_deleted_log_do_not_get_into_the_one_that_has_its_name",),
    ),
    Planted(
        bug="a journal file is used anew before its logs are saved",
        where="BrokerJournal._switch",
        old="if not other.is_free:",
        new="if False:",
        tests=(f"{JOURNAL}a_file_is_used_anew_only_when_all_that_it_vouches_for_is_saved",),
    ),
    Planted(
        bug="a marker counts that the kernel wrote before its decision",
        where="Recovery._is_unvouched",
        old="self._vouched_end is not None and offset >= self._vouched_end",
        new="False",
        tests=(f"{JOURNAL}a_marker_that_the_kernel_wrote_before_its_decision_does_not_count",),
    ),
    Planted(
        bug="a log that is noted as damaged is opened without the journal",
        where="Recovery._restore",
        old="if records is not None:",
        new="if records is not None and not self._rules.read_all:",
        tests=(f"{DAMAGED}a_log_noted_as_damaged_ends_where_the_journal_does",),
    ),
    Planted(
        bug="a log of coordinators follows itself",
        where="may_follow_now",
        old="where.topic == TRANSACTION_STATE_TOPIC",
        new="False",
        tests=(f"{DAMAGED}a_log_of_coordinators_follows_none",),
    ),
    Planted(
        bug="without room for the journal records are lost",
        where="BrokerJournal._write",
        old="self._queue.extendleft(reversed(taken))",
        new="self._written += taken",
        tests=(f"{JOURNAL}without_room_for_the_journal_appends_wait_and_nothing_is_lost",),
    ),
    Planted(
        bug="an older version starts on a directory that has a journal",
        where="note_journal",
        old="number is None or number < JOURNAL_FORMAT",
        new="False",
        tests=(f"{GIVEN_UP}after_a_kill_a_version_without_a_journal_refuses_the_directory",),
    ),
    Planted(
        bug="an older version starts on a directory whose journal may still count",
        where="RunNotes._give_up_journal",
        old="await remove_journal(self._disk, self._directory)",
        new="await note_no_journal(self._disk, self._directory)\n"
        "await remove_journal(self._disk, self._directory)",
        tests=(f"{GIVEN_UP}a_crash_at_every_operation_of_a_stop_and_a_start",),
    ),
    Planted(
        bug="an older version starts on a directory with kept files of the journal",
        where="RunNotes._give_up_journal",
        old="not journal_names(self._disk, self._directory)",
        new="True",
        tests=(f"{GIVEN_UP}a_directory_with_a_kept_file_is_not_given_back",),
    ),
    Planted(
        bug="a new journal file vouches for what the full one has not flushed",
        where="BrokerJournal._write",
        old="not self._written",
        new="True",
        tests=(f"{JOURNAL}no_file_is_begun_while_the_full_one_is_not_flushed",),
    ),
    Planted(
        bug="without its checkpoint a log counts as far as the disk has it",
        where="check_readable",
        old="checkpoint is None",
        new="False",
        tests=(f"{KEPT}a_log_whose_checkpoint_cannot_be_read_is_offline_after_a_power_failure",),
    ),
    Planted(
        bug="a kept file of the journal is removed before its logs were opened",
        where="remove_kept",
        old="await _life_of(disk, path) not in needed",
        new="True",
        tests=(f"{KEPT}a_kept_file_is_removed_when_its_logs_were_opened",),
    ),
    Planted(
        bug="after a kill a decision is in the journal but not on disk",
        where="RunNotes.begin",
        old="await flush_journal(self._disk, self._directory)",
        new="pass",
        tests=(f"{KEPT}the_journal_of_a_killed_broker_is_on_disk_when_a_log_is_opened",),
    ),
    Planted(
        bug="a kill just after a failed flush hides that the disk lacks what the journal has",
        where="RunNotes.rules",
        old="self._is_rewritten and not counts",
        new="False",
        tests=(f"{JOURNAL}a_kill_just_after_a_failed_flush_loses_nothing",),
    ),
    Planted(
        bug="a marker comes into the journal before its decision",
        where="Maintenance.precedent",
        old="if not self.flusher.give_now():",
        new="if False:",
        tests=(f"{EARLY}a_decision_and_its_markers_share_one_write_and_one_flush_of_the_journal",),
    ),
    Planted(
        bug="a checkpoint vouches for a marker whose decision is not durable",
        where="LogSaver.save",
        old="if not precedent.is_durable():",
        new="if False:",
        tests=(f"{EARLY}a_marker_does_not_count_without_its_decision",),
    ),
    Planted(
        bug="a checkpoint vouches for records whose transaction no coordinator knows",
        where="may_follow_now",
        old="leader.log.saver.follow(precedent)",
        new="pass",
        tests=(f"{ADDED}records_do_not_count_without_their_addition",),
    ),
    Planted(
        bug="an id forgets a partition that has records of it",
        where="Ledger.write",
        old="entry.is_followed = True",
        new="entry.is_followed = False",
        tests=(f"{ADDED}an_addition_and_its_first_records_share_one_flush_of_the_journal",),
    ),
    Planted(
        bug="a marker without a checkpoint below it is written before its decision is durable",
        where="may_follow",
        old="leader.log.saver.has_checkpoint",
        new="True",
        tests=(f"{EARLY}markers_wait_for_their_decision_if",),
    ),
    Planted(
        bug="a batch gets into a transaction behind its marker",
        where="Entry.for_leaders",
        old="self.pending is not None and self.is_followed",
        new="False",
        tests=(f"{EARLY}a_batch_behind_an_early_marker_is_not_let_into_its_transaction",),
    ),
    Planted(
        bug="an id decides anew although its markers may count",
        where="Ledger._on_doubt",
        old="entry.is_followed",
        new="False",
        tests=(f"{EARLY}a_decision_of_unknown_outcome_with_early_markers_is_read_anew",),
    ),
    Planted(
        bug="a follower joins with a marker whose decision may be lost",
        where="joining",
        old="if leader.log.saver.has_precedents:",
        new="if False:",
        tests=(f"{EARLY}no_follower_joins_while_a_marker_waits_for_its_decision",),
    ),
    Planted(
        bug="after a kill a marker is on disk before its decision",
        where="LocalTopicLogs.open_all",
        old="(True, False)",
        new="(False, True)",
        tests=(
            "tests/broker/cluster/test_topic_logs.py::test_after_a_kill_decisions_are_on_disk_"
            "before_any_marker",
        ),
    ),
)
