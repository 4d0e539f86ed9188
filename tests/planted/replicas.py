"""The log of a follower: what it takes from the leader, and how it is cut."""

from typing import Final

from tests.planted.bug import Planted

LOG: Final = "broker/storage/log.py"

FOLLOWS: Final = "tests/broker/storage/test_received.py::test_"
CUT: Final = "tests/broker/storage/test_truncation.py::test_"
CUT_MEANWHILE: Final = "tests/broker/partitions/test_truncation.py::test_"
REPLICAS: Final = "tests/broker/replication/test_replicas.py::test_"
SAVED: Final = "tests/broker/storage/test_saving.py::test_"

REPLICA_BUGS: Final = (
    Planted(
        bug="KAFKA-4384",
        where="received_batches",
        old="if not crc_is_good(batch, header):",
        new="if not crc_is_good(batch, header) and not batch:",
        tests=(f"{FOLLOWS}a_wrong_batch_is_refused_with_all_that_follow_it",),
    ),
    Planted(
        bug="a follower takes a batch of a fallen leader epoch",
        where="check_follows",
        old="if epoch < latest_epoch:",
        new="if epoch < latest_epoch - 1:",
        tests=(f"{FOLLOWS}a_wrong_batch_is_refused_with_all_that_follow_it",),
    ),
    Planted(
        bug="KAFKA-10706",
        where="Log.append_replicated",
        old="self.epochs.truncate_end(self.log_end_offset)",
        tests=(f"{FOLLOWS}an_epoch_in_which_nothing_was_written_gives_way_to_an_older_one",),
    ),
    Planted(
        bug="a follower's gaps are taken for lost batches after a kill",
        where="Log._note_gap",
        old='self._disk.open(f"{self.directory}/{GAPS}").close()',
        tests=(f"{FOLLOWS}a_gap_is_known_after_a_restart",),
    ),
    Planted(
        bug="KAFKA-12153",
        where="Truncation.state_before",
        old="state.producers.before(segment.next_offset, producers)",
        new="state.producers",
        tests=(f"{CUT}a_cut_inside_an_open_transaction_leaves_it_as_it_was_there",),
    ),
    Planted(
        bug="a producer of a snapshot is taken for unchanged by a cut",
        where="snapshot_at",
        old="entry.last_marker_offset = offset - 1",
        tests=(
            "tests/broker/storage/test_follower_lives.py::"
            "test_a_follower_has_what_it_flushed_and_nothing_that_was_cut",
        ),
    ),
    Planted(
        bug="a follower appends to a cut log before the cut is over",
        where="Log.cut_to",
        old="self.saver.save(self.saver.to_save(self._appended_bytes, follows_cut=True))",
        new="trio.lowlevel.checkpoint()",
        tests=(f"{CUT}a_crash_at_every_operation_leaves_the_old_log_or_the_truncated_one",),
    ),
    Planted(
        bug="a power failure brings back the checkpoint of a cut",
        where="Recovery.run",
        old="checkpoint.is_cut or checkpoint.follows_cut",
        new="checkpoint.is_cut",
        tests=(f"{CUT}a_log_starts_anew_at_the_leaders_start_or_stays_as_it_was",),
    ),
    Planted(
        bug="files change to what only the page cache describes",
        where="Recovery.run",
        old="if checkpoint.replaced or checkpoint.is_cut:",
        new="if checkpoint.replaced and not checkpoint.replaced:",
        tests=(
            "tests/broker/storage/test_compaction_crashes.py::"
            "test_crashes_while_a_replacement_is_finished",
        ),
    ),
    Planted(
        bug="files are removed because of what only the page cache describes",
        where="remove_leftovers",
        old="if any(name.endswith(LOG) for name in strays):",
        new="if any(name.endswith(LOG) for name in ()):",
        tests=(
            "tests/broker/storage/test_recovery.py::"
            "test_a_name_in_the_page_cache_is_on_disk_before_recovery_removes_what_it_replaces",
        ),
    ),
    Planted(
        bug="deleted records are there again after an election",
        where="Follower._take",
        old="await self._follow_start(data)",
        tests=(f"{REPLICAS}what_the_leader_has_deleted_is_deleted_at_its_followers",),
    ),
    Planted(
        bug="an fsync that runs during a cut notes more than the log has",
        where="Maintenance._alone",
        old="async with self.flusher.pause():",
        new="if True:",
        tests=(
            f"{CUT_MEANWHILE}a_cut_waits_for_the_fsync_that_runs_and_no_other_begins_meanwhile",
        ),
    ),
    Planted(
        bug="compaction drops a value because of one that was cut off",
        where="Maintenance._replace",
        old="log.cut_count != cut_count",
        new="False",
        tests=(f"{CUT_MEANWHILE}a_pass_of_compaction_gives_up_when_the_log_is_cut",),
    ),
    Planted(
        bug="a marker above the high watermark is forgotten by a restart",
        where="LogSaver.to_save",
        old="ended=state.producers.ended",
        tests=(f"{SAVED}a_marker_above_the_high_watermark_still_counts_after_a_restart",),
    ),
)
