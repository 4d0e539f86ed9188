"""What readers see, the index of aborted transactions, compaction."""

from typing import Final

from tests.planted import reach
from tests.planted.bug import Planted

LOGS: Final = "tests/broker/storage/test_known_bugs.py::test_"
SESSIONS: Final = "tests/broker/api/test_fetch_sessions.py::test_"
READ: Final = "tests/broker/storage/test_reading.py::test_"
COMPACTION: Final = "tests/broker/storage/test_compaction.py::test_"
COMPACTED_TRANSACTIONS: Final = "tests/broker/storage/test_compaction_of_transactions.py::test_"
DISKS: Final = "tests/broker/partitions/test_failing_disks.py::test_"
READERS: Final = "tests/broker/partitions/test_readers.py::test_"
TOGETHER: Final = "tests/broker/api/test_known_bugs.py::test_"

RECOMPRESSED: Final = "tests/broker/storage/test_recompression.py::test_"
COMPRESSION: Final = "tests/simulation/test_compression.py::test_"
DAMAGE: Final = "tests/broker/storage/test_damage.py::test_"
TORN: Final = "tests/broker/storage/test_crashes.py::test_"

LOG_BUGS: Final = (
    Planted(
        bug="damage in an older segment removes the later ones",
        where="Rules.is_damage",
        old="self.same_boot and not is_torn",
        new="False",
        tests=(f"{DAMAGE}every_byte_that_is_flipped_after_a_kill_is_noticed",),
    ),
    Planted(
        bug="an ordinary power failure is taken for damage",
        where="RunNotes._is_all_here",
        old="boot_id == self._last_run.boot_id",
        new="True",
        tests=(f"{TORN}a_crash_at_every_operation_loses_and_invents_nothing",),
    ),
    Planted(
        bug="a reboot makes a torn write of known damage",
        where="RunNotes.rules",
        old="is_suspect = name in self._last_run.damaged",
        new="is_suspect = False",
        tests=(f"{DAMAGE}damage_is_not_forgotten_when_the_system_is_started_anew",),
    ),
    Planted(
        bug="KAFKA-10702",
        where="Producers.add_marker",
        old="return None",
        new="return EndedTransaction(producer_id, offset, offset, offset + 1)",
        tests=(f"{READERS}a_transaction_without_records_here_is_in_no_index",),
    ),
    Planted(
        bug="the aborted list must be sorted by first offset",
        where="LogReader.aborted",
        old='found.sort(key=attrgetter("first_offset"))',
        tests=(f"{READERS}aborted_transactions_are_sorted_by_their_first_offset",),
    ),
    Planted(
        bug="the marker counts once it is below the high watermark",
        where="Producers.add_marker",
        old="self._ended[offset] = first_offset",
        tests=(f"{READERS}a_marker_that_is_not_on_disk_yet_lets_nobody_read_on",),
        seed=1,
        fixed=reach.ELECTIONS,
    ),
    Planted(
        bug="KAFKA-9807",
        where="Marks.move",
        old="first_unstable < high_watermark",
        new="first_unstable < self.high_watermark",
        tests=(f"{READERS}no_moment_shows_a_transaction_that_begins_at_the_high_watermark",),
    ),
    Planted(
        bug="KAFKA-5376, KoP #1283",
        where="fetch_polling.poll",
        old="is_over = wait.cancelled_caught",
        new=(
            "import dataclasses\n"
            "\n"
            "request = dataclasses.replace(request, isolation_level=0)\n"
            "is_over = wait.cancelled_caught"
        ),
        tests=(
            f"{TOGETHER}a_reader_that_waits_across_the_end_of_a_transaction_learns_how_it_ended",
        ),
    ),
    Planted(
        bug="KAFKA-5376, KoP #1283",
        where="LogReader.aborted",
        old="found: list[AbortedTxn] = []",
        new="return ()\nfound: list[AbortedTxn] = []",
        tests=(
            f"{TOGETHER}a_reader_that_waits_across_the_end_of_a_transaction_learns_how_it_ended",
        ),
    ),
    Planted(
        bug="Redpanda #10671, Redpanda #28360, Redpanda #29796",
        where="Partition.begin_lead",
        old="self.update_visible()",
        new="self.marks.high_watermark = self.marks.last_stable_offset = self.log_end_offset",
        tests=(f"{LOGS}no_read_shows_more_than_what_is_applied",),
    ),
    Planted(
        bug="Redpanda #7819",
        where="LogReader.aborted",
        old="if index.collect(from_offset, to_offset, found):\n    break",
        new="index.collect(from_offset, to_offset, found)\nbreak",
        tests=(f"{LOGS}records_and_the_aborted_transactions_among_them_agree_at_every_seam",),
    ),
    Planted(
        bug="KAFKA-7866",
        where="Log.roll",
        old=(
            "self.saver.write_snapshot()\n"
            "segment = Segment(self.files, self.directory, self.log_end_offset)"
        ),
        new=(
            "segment = Segment(self.files, self.directory, self.log_end_offset)\n"
            "self.segments.append(segment)\n"
            "sealed, self.active = self.active, segment\n"
            "self.saver.write_snapshot()\n"
            "self.active = sealed\n"
            "self.segments.pop()"
        ),
        tests=(f"{DISKS}a_full_disk_while_rolling_leaves_the_log_as_it_was",),
    ),
    Planted(
        bug="KAFKA-12153",
        where="good_batches.good_batches",
        old="if not crc_is_good(batch, header):",
        new="if False:",
        tests=(f"{LOGS}the_torn_batch_of_an_open_transaction_leaves_nothing_open",),
    ),
    Planted(
        bug="KAFKA-8351, KAFKA-6854",
        where="Transactions.see",
        old="self._seen.add(header.producer_id)",
        tests=(f"{COMPACTED_TRANSACTIONS}a_marker_stays_as_long_as_its_data",),
    ),
    Planted(
        bug="KAFKA-13727, KAFKA-8351, KAFKA-6854",
        where="Writer.keep_aborted",
        old="self._new.indexes.aborted.append(entry)",
        tests=(f"{COMPACTION}a_small_map_takes_several_passes",),
    ),
    Planted(
        bug="KAFKA-13194",
        where="plan.may_be_compacted",
        old="segment.next_offset <= stable_offset",
        new="segment.base_offset <= stable_offset",
        tests=(f"{COMPACTION}nothing_at_or_above_the_last_stable_offset_is_touched",),
    ),
    Planted(
        bug="KAFKA-9065",
        where="Cleaner._kept",
        old="header.next_offset == self._end_of_group",
        new="False",
        tests=(f"{COMPACTION}loading_ends_where_the_tail_was_compacted_away",),
    ),
    Planted(
        bug="KAFKA-5522",
        where="Marks.end_for",
        old="self.last_stable_offset if read_committed else self.high_watermark",
        new="self.high_watermark",
        tests=(f"{READ}a_time_in_an_open_transaction_is_not_found_by_a_committed_reader",),
    ),
    Planted(
        bug="a partition whose records were returned is first again in its session",
        where="_news_answer",
        old="session.to_the_end(place)",
        tests=(f"{SESSIONS}partitions_take_turns_where_an_answer_has_room_for_one",),
    ),
    Planted(
        bug="an error is answered once in a fetch session",
        where="SessionPlace.has_not_told",
        old="is_urgent(data)",
        new="False",
        tests=(f"{SESSIONS}an_error_is_answered_each_time_until_it_is_gone",),
    ),
    Planted(
        bug="a fetch is answered in the order of the request, whatever was not found",
        where="in_order",
        old="NOT_FOUND.get(each[3].error_code, 0)",
        new="0",
        tests=(f"{SESSIONS}what_is_not_found_is_last_in_an_answer_and_in_the_session_that_begins",),
    ),
    Planted(
        bug="a partition that a fetch lists twice is read twice",
        where="_everything",
        old="topic.topic, topic.topic_id, reading.wanted.partition",
        new="topic.topic, topic.topic_id, len(readings)",
        tests=(f"{SESSIONS}what_is_listed_twice_is_answered_once_as_it_is_listed_last",),
    ),
    Planted(
        bug="a fetch with a topic that is not there is answered at once, again and again",
        where="_ends_wait",
        old="return reading.was_there",
        new="return True",
        tests=(f"{SESSIONS}a_topic_that_is_not_there_does_not_end_the_wait_for_the_others",),
    ),
    Planted(
        bug="a fetch takes any epoch but -1 for one that the client knows",
        where="Reading.look_up",
        old="max(NOT_SAID, self.wanted.current_leader_epoch)",
        new="self.wanted.current_leader_epoch",
        tests=(f"{SESSIONS}any_negative_leader_epoch_of_a_fetch_is_none",),
    ),
    Planted(
        bug="a session does not hear of a log start that has moved",
        where="Maintenance.delete_before",
        old="self._marks.readers.notify()",
        tests=(f"{SESSIONS}deleted_records_are_news_of_the_log_start",),
    ),
    Planted(
        bug="a fetch waits on although its session goes on without it",
        where="FetchSessions.go_on",
        old="session.wake()",
        tests=(f"{SESSIONS}a_fetch_ends_when_its_session_goes_on_elsewhere",),
    ),
    Planted(
        bug="a recompressed batch has another sequence, so a retry after a failover is refused",
        where="recompressed",
        old="made[HEADER_BYTES:] = payload",
        new="made[53:57] = bytes(4)\nmade[HEADER_BYTES:] = payload",
        tests=(
            f"{RECOMPRESSED}everything_but_the_codec_stays",
            f"{COMPRESSION}a_retry_after_a_failover_is_recognised_by_its_sequence",
        ),
    ),
    Planted(
        bug="a recompressed batch is no longer part of its transaction",
        where="set_codec",
        old="~CODEC_MASK",
        new="0",
        tests=(
            f"{RECOMPRESSED}everything_but_the_codec_stays",
            f"{COMPRESSION}transactions_are_whole_while_the_type_changes_and_leaders_are_killed",
        ),
    ),
    Planted(
        bug="a read ends for the next reader at an offset that no batch begins at",
        where="LogReader._read_in",
        old="segment.note_boundary(chain.next_offset, end)",
        new="segment.note_boundary(bound, end)",
        tests=(
            "tests/broker/storage/test_reading.py::test_"
            "a_reader_that_reads_on_needs_no_index_and_no_walk_over_headers",
        ),
    ),
)
