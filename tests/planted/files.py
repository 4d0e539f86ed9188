"""Files of a data directory that are damaged, exchanged or older, and records without times."""

from typing import Final

from tests.planted.bug import Planted

RECOVERY: Final = "broker/storage/recovery.py"
EXCHANGED: Final = "tests/broker/storage/test_exchanged_files.py::test_"
WRONG: Final = "tests/broker/cluster/test_wrong_files.py::test_"
STATE: Final = "tests/broker/test_exchanged_state.py::test_"
TIMES: Final = "tests/broker/storage/test_without_times.py::test_"

FILE_BUGS: Final = (
    Planted(
        bug="one log that makes no sense keeps the broker from starting",
        file="broker/cluster/topic_logs.py",
        old="                except Exception as error:\n",
        new="                except OSError as error:\n",
        tests=(f"{WRONG}a_file_that_makes_no_sense_takes_its_partition_offline_and_no_other",),
    ),
    Planted(
        bug="a header is read out of fewer bytes than it has",
        file="broker/storage/rebuild.py",
        old="read_header(data).size_bytes if len(data) >= HEADER_BYTES else 0",
        new="len(data) and read_header(data).size_bytes",
        tests=(f"{EXCHANGED}a_checkpoint_that_ends_inside_a_batch_is_damage_and_no_traceback",),
    ),
    Planted(
        bug="the checkpoint of another partition is believed",
        file=RECOVERY,
        old="if checkpoint is None or checkpoint.is_of(self._where, self._topic_id):",
        new="if checkpoint is None or checkpoint.is_of(None, checkpoint.topic_id):",
        tests=(f"{EXCHANGED}the_checkpoint_of_another_log_is_not_believed",),
    ),
    Planted(
        bug="deleted records are back when the checkpoint is damaged",
        file=RECOVERY,
        old="max(state.log_start_offset, WRONG if found is None else found)",
        new="state.log_start_offset",
        tests=(
            f"{EXCHANGED}a_flipped_bit_in_the_checkpoint_does_not_bring_deleted_records_back",
            f"{EXCHANGED}an_older_checkpoint_does_not_bring_deleted_records_back",
        ),
    ),
    Planted(
        bug="the second place of a log start outlives a cut",
        file="broker/storage/saving.py",
        old="log_start=None if is_cut else log_start_to_keep(state),",
        new="log_start=log_start_to_keep(state) or self._log_start_on_disk,",
        tests=(
            f"{EXCHANGED}a_deletion_survives_a_crash_at_any_operation_and_then_a_damaged_checkpoint",
        ),
    ),
    Planted(
        bug="exchanged logs of one size are served as each other",
        file=RECOVERY,
        old="        await check_ends(self._disk, self._directory, checkpoint)\n",
        new="",
        tests=(f"{EXCHANGED}logs_of_one_size_that_were_exchanged_are_not_served_as_each_other",),
    ),
    Planted(
        bug="a coordinator takes up the transactions of another partition",
        file="broker/txn/ledger.py",
        old="        await self._tenures.check_places(tenure, transactions)\n",
        new="",
        tests=(f"{STATE}ids_that_another_partition_keeps_take_theirs_offline[transactions]",),
    ),
    Planted(
        bug="a coordinator takes up the groups of another partition",
        file="broker/group/tenure.py",
        old="check_places([*replay.groups, *replay.consumers, *self.offsets.group_ids()])",
        new="check_places([])",
        tests=(f"{STATE}ids_that_another_partition_keeps_take_theirs_offline[groups]",),
    ),
    Planted(
        bug="records without a timestamp stay for ever",
        file="broker/storage/retention.py",
        old="if now_ms - segment.newest_ms() <= config.retention_ms:",
        new="if not 0 <= segment.largest_timestamp < now_ms - config.retention_ms:",
        tests=(f"{TIMES}retention_removes_records_without_a_timestamp_and_what_is_behind_them",),
    ),
    Planted(
        bug="compaction makes records without a timestamp young",
        file="broker/storage/compaction/cleaner.py",
        old="self._disk.set_modified_ms(cleaned_path(new), modified_ms)",
        new="pass",
        tests=(f"{TIMES}compaction_does_not_make_records_without_a_timestamp_younger",),
    ),
)
