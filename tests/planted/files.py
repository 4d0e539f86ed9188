"""Files of a data directory that are damaged, exchanged or older, and records without times."""

from typing import Final

from tests.planted.bug import Planted

EXCHANGED: Final = "tests/broker/storage/test_exchanged_files.py::test_"
WRONG: Final = "tests/broker/cluster/test_wrong_files.py::test_"
STATE: Final = "tests/broker/test_exchanged_state.py::test_"
TIMES: Final = "tests/broker/storage/test_without_times.py::test_"

IMPORT: Final = "tests/broker/inspect/importing/test_import.py::test_"

FILE_BUGS: Final = (
    Planted(
        bug="a broker starts on half of an import",
        where="claim_format",
        old="_check_origin(directory, origin)",
        tests=(
            f"{IMPORT}an_import_that_was_interrupted_can_be_repeated",
            "tests/broker/test_backup.py::test_a_broker_does_not_start_on_half_of_a_backup",
        ),
    ),
    Planted(
        bug="a whole backup is taken for half of one by the next",
        where="new_directory.begin",
        old="earlier is None or earlier.is_complete",
        new="earlier is None",
        tests=("tests/broker/test_backup.py::test_a_second_backup_does_not_replace_a_whole_one",),
    ),
    Planted(
        bug="a second backup takes the files away that the first one copies",
        where="BackupPoints.make",
        old="if self._is_locked():",
        new="if False:",
        tests=(
            "tests/broker/test_backup.py::"
            "test_a_backup_that_is_copied_is_not_taken_away_by_another_or_by_a_restart",
        ),
    ),
    Planted(
        bug="a backup has the old file of a segment that is compacted while links are made",
        where="_Links.add",
        old="known is not segment",
        new="known is None",
        tests=(
            "tests/broker/test_backup.py::"
            "test_what_changes_while_links_are_made_in_turns_is_in_the_point",
        ),
    ),
    Planted(
        bug="the last offsets that Kafka's compaction has taken out of a segment end a log",
        where="Transfer._close_gaps",
        old="file.append(empty_batch(ends.next_offset, following, ends.leader_epoch))",
        tests=(f"{IMPORT}clients_read_what_they_read_from_kafka",),
    ),
    Planted(
        bug="one log that makes no sense keeps the broker from starting",
        where="LocalTopicLogs._open.open_some",
        old="except Exception as error:",
        new="except OSError as error:",
        tests=(f"{WRONG}a_file_that_makes_no_sense_takes_its_partition_offline_and_no_other",),
    ),
    Planted(
        bug="a header is read out of fewer bytes than it has",
        where="batches_of",
        old="read_header(data).size_bytes if len(data) >= HEADER_BYTES else 0",
        new="len(data) and read_header(data).size_bytes",
        tests=(f"{EXCHANGED}a_checkpoint_that_ends_inside_a_batch_is_damage_and_no_traceback",),
    ),
    Planted(
        bug="the checkpoint of another partition is believed",
        where="Recovery._read_checkpoint",
        old="checkpoint.is_of(self._where, self._topic_id)",
        new="checkpoint.is_of(None, checkpoint.topic_id)",
        tests=(f"{EXCHANGED}the_checkpoint_of_another_log_is_not_believed",),
    ),
    Planted(
        bug="deleted records are back when the checkpoint is damaged",
        where="Recovery._read_log_start",
        old="max(state.log_start_offset, WRONG if found is None else found)",
        new="state.log_start_offset",
        tests=(
            f"{EXCHANGED}a_flipped_bit_in_the_checkpoint_does_not_bring_deleted_records_back",
            f"{EXCHANGED}an_older_checkpoint_does_not_bring_deleted_records_back",
        ),
    ),
    Planted(
        bug="the second place of a log start outlives a cut",
        where="LogSaver.to_save",
        old="None if is_cut else log_start_to_keep(state)",
        new="log_start_to_keep(state) or self._log_start_on_disk",
        tests=(
            f"{EXCHANGED}a_deletion_survives_a_crash_at_any_operation_and_then_a_damaged_checkpoint",
        ),
    ),
    Planted(
        bug="exchanged logs of one size are served as each other",
        where="Recovery._check_nothing_is_lost",
        old="await check_ends(self._disk, self._directory, checkpoint)",
        tests=(f"{EXCHANGED}logs_of_one_size_that_were_exchanged_are_not_served_as_each_other",),
    ),
    Planted(
        bug="a coordinator takes up the transactions of another partition",
        where="Ledger._read",
        old="await self._tenures.check_places(tenure, transactions)",
        tests=(f"{STATE}ids_that_another_partition_keeps_take_theirs_offline[transactions]",),
    ),
    Planted(
        bug="a coordinator takes up the groups of another partition",
        where="GroupTenure.read",
        old="reader.group_ids()",
        new="[]",
        tests=(f"{STATE}ids_that_another_partition_keeps_take_theirs_offline[groups]",),
    ),
    Planted(
        bug="records without a timestamp stay for ever",
        where="_expired_by_time",
        old="if now_ms - segment.newest_ms() <= config.retention_ms:",
        new="if not 0 <= segment.largest_timestamp < now_ms - config.retention_ms:",
        tests=(f"{TIMES}retention_removes_records_without_a_timestamp_and_what_is_behind_them",),
    ),
    Planted(
        bug="compaction makes records without a timestamp young",
        where="Writer.finish",
        old="self._disk.set_modified_ms(cleaned_path(new), modified_ms)",
        tests=(f"{TIMES}compaction_does_not_make_records_without_a_timestamp_younger",),
    ),
)
