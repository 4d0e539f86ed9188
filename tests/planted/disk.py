"""Bugs of what is lost from a data directory, or is not what this version writes."""

from typing import Final

from tests.planted.bug import Planted

FORMATS: Final = "tests/broker/test_data_format.py::test_"

LOST: Final = "tests/simulation/test_lost_logs.py::test_"
LOGS: Final = "broker/cluster/topic_logs.py"

DISK_BUGS: Final = (
    Planted(
        bug="an only log that is lost is made anew without a word",
        file=LOGS,
        old="            if was_made and not self._partitions.directories.is_given_up(where):\n",
        new="            if False:\n",
        tests=(
            f"{LOST}an_only_log_that_is_lost_is_offline_and_not_made_anew_empty",
            f"{LOST}the_only_replica_in_a_cluster_is_not_made_anew_either",
        ),
    ),
    Planted(
        bug="a directory that has lost its segments counts as a log",
        file="broker/storage/lost.py",
        old="    if offsets_in(names, LOG):\n",
        new="    if True:\n",
        tests=(f"{LOST}an_only_log_that_is_lost_is_offline_and_not_made_anew_empty",),
    ),
    Planted(
        bug="a replica that led last leads again without its log",
        file=LOGS,
        old="        sets = (*partition.isr, *partition.elr) or (partition.last_leader,)\n",
        new="        sets = (*partition.isr, *partition.elr)\n",
        tests=(
            "tests/broker/cluster/test_topic_logs.py::"
            "test_a_replica_that_led_last_does_not_lead_with_a_log_that_is_lost",
        ),
    ),
    Planted(
        bug="a power failure explains that a log is lost which was on disk",
        file=LOGS,
        old="        elif self._partitions.lacks_records and not was_made:\n",
        new="        elif self._partitions.lacks_records:\n",
        tests=(f"{LOST}a_power_failure_does_not_explain_that_a_log_is_lost_which_was_on_disk",),
    ),
    Planted(
        bug="a log is noted as made before its name is on disk",
        file="broker/partitions/directories.py",
        old="                await self._disk.fsync_dir(directory)\n"
        "                there.append(directory)\n"
        "        if there:\n"
        "            await self.sync()\n",
        new="                there.append(directory)\n",
        tests=(
            "tests/broker/cluster/test_topic_logs.py::"
            "test_a_power_cut_at_any_operation_leaves_topics_as_they_were_answered",
        ),
    ),
    Planted(
        bug="a replica that moved away and came back is taken for lost",
        file=LOGS,
        old="        self._made_logs.gone(topic.topic_id, indexes)\n",
        new="",
        tests=(f"{LOST}a_log_that_was_deleted_or_moved_away_may_be_made_again",),
    ),
    Planted(
        bug="a lost log begins anew in a rebuild without being told",
        file="broker/inspect/rebuild.py",
        old="        if not (partition.has_segment or wishes.make_missing):\n",
        new="        if False:\n",
        tests=(
            "tests/broker/inspect/test_rebuild.py::"
            "test_directories_that_contradict_each_other_are_refused",
        ),
    ),
    Planted(
        bug="a data directory of a newer format is opened",
        file="broker/storage/data_format.py",
        old="    if number > FORMAT:\n",
        new="    if number < 0:\n",
        tests=(f"{FORMATS}a_directory_of_a_newer_format_is_refused_and_nothing_in_it_changes",),
    ),
)
