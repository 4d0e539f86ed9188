"""Bugs of what is lost from a data directory, or is not what this version writes."""

from typing import Final

from tests.planted import reach
from tests.planted.bug import Planted

FORMATS: Final = "tests/broker/test_data_format.py::test_"

LOST: Final = "tests/simulation/test_lost_logs.py::test_"

DISK_BUGS: Final = (
    Planted(
        bug="an only log that is lost is made anew without a word",
        where="LocalTopicLogs._is_here",
        old="if was_made and not self._partitions.directories.is_given_up(where):",
        new="if False:",
        tests=(
            f"{LOST}an_only_log_that_is_lost_is_offline_and_not_made_anew_empty",
            f"{LOST}the_only_replica_in_a_cluster_is_not_made_anew_either",
        ),
    ),
    Planted(
        bug="a start believes in a file that it has removed itself",
        where="ReservedDisk.remove",
        old="self._listings.on_changed(path)",
        tests=(
            "tests/broker/storage/test_listings.py::"
            "test_names_that_are_kept_are_those_of_the_disk_after_any_change",
        ),
    ),
    Planted(
        bug="a directory that has lost its segments counts as a log",
        where="lost.has_log",
        old="if offsets_in(names, LOG):",
        new="if True:",
        tests=(f"{LOST}an_only_log_that_is_lost_is_offline_and_not_made_anew_empty",),
    ),
    Planted(
        bug="a replica that led last leads again without its log",
        where="LocalTopicLogs._is_here",
        old="(*partition.isr, *partition.elr) or (partition.last_leader,)",
        new="(*partition.isr, *partition.elr)",
        tests=(
            "tests/broker/cluster/test_left_replicas.py::"
            "test_a_replica_that_led_last_does_not_lead_with_a_log_that_is_lost",
        ),
    ),
    Planted(
        bug="a power failure explains that a log is lost which was on disk",
        where="LocalTopicLogs._is_here",
        old="not was_made",
        new="True",
        tests=(f"{LOST}a_power_failure_does_not_explain_that_a_log_is_lost_which_was_on_disk",),
    ),
    Planted(
        bug="an only replica that was never noted waits for a person although no power was lost",
        where="LocalTopicLogs._is_here",
        old="not self._made_logs.is_first_run",
        new="False",
        tests=(
            "tests/broker/cluster/test_left_replicas.py::"
            "test_a_replica_that_no_crash_let_be_noted_is_made_if_no_other_is_whole",
        ),
        seed=35,
        fixed=reach.GROUPS,
    ),
    Planted(
        bug="records count before it is noted that their log was made",
        where="Leader.update_visible",
        old="if marks.may_move():",
        new="if True:",
        tests=(
            "tests/broker/cluster/test_topic_logs.py::"
            "test_nothing_is_acknowledged_before_it_is_noted_that_its_log_was_made",
        ),
    ),
    Planted(
        bug="a log is noted as made before its name is on disk",
        where="PartitionDirectories.flush_names",
        old=(
            "async def flush_one(directory: str) -> None:\n"
            "    with contextlib.suppress(OSError):  # its topic was deleted, say\n"
            "        await self._disk.fsync_dir(directory)\n"
            "        there.append(directory)\n"
            "\n"
            "async with trio.open_nursery() as nursery:\n"
            "    for directory in directories:\n"
            "        nursery.start_soon(flush_one, directory)\n"
            "if there:\n"
            "    await self.sync()"
        ),
        new=(
            "async def flush_one(directory: str) -> None:\n"
            "    with contextlib.suppress(OSError):  # its topic was deleted, say\n"
            "        there.append(directory)\n"
            "\n"
            "there += directories"
        ),
        tests=(
            "tests/broker/cluster/test_topic_logs.py::"
            "test_a_power_cut_at_any_operation_leaves_topics_as_they_were_answered",
        ),
    ),
    Planted(
        bug="a replica that moved away and came back is taken for lost",
        where="LocalTopicLogs.delete",
        old="self._made_logs.note_gone(topic.topic_id, indexes)",
        tests=(f"{LOST}a_log_that_was_deleted_or_moved_away_may_be_made_again",),
    ),
    Planted(
        bug="a lost log begins anew in a rebuild without being told",
        where="plan_rebuild",
        old="if not (partition.has_segment or wishes.make_missing):",
        new="if False:",
        tests=(
            "tests/broker/inspect/test_rebuild_plan.py::"
            "test_directories_that_contradict_each_other_are_refused",
        ),
    ),
    Planted(
        bug="a data directory of a newer format is opened",
        where="data_format._check",
        old="if number > FORMAT:",
        new="if number < 0:",
        tests=(f"{FORMATS}a_directory_of_a_newer_format_is_refused_and_nothing_in_it_changes",),
    ),
)
