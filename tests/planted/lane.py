"""The lane of small Produce requests."""

from typing import Final

from tests.planted.bug import Planted

LANE: Final = "tests/broker/server/test_lane.py::test_"
BOUNDS: Final = "tests/broker/server/test_lane_bounds.py::test_"

LANE_BUGS: Final = (
    Planted(
        bug="the lane answers before the fsync",
        where="Group._count_down",
        old="call_later(decided)",
        new="self.leader.marks.move(self.leader.log.log_end_offset)\ndecided()",
        tests=(f"{LANE}an_answer_of_the_lane_leaves_after_the_fsync",),
    ),
    Planted(
        bug="the lane passes an answer that is pending",
        where="PendingAnswers.note_due",
        old="index or is_writing or not self._send_now(pending)",
        new="is_writing or not self._send_now(pending)",
        tests=(f"{LANE}answers_keep_the_order_of_requests_behind_one_that_the_task_serves",),
    ),
    Planted(
        bug="the lane takes more requests of a connection than may wait for their answers",
        where="Receiver._is_taken",
        old="if not self._may_take():",
        new="if False:",
        tests=(f"{BOUNDS}the_lane_takes_no_request_while_five_answers_are_pending",),
    ),
    Planted(
        bug="a batch that could not be written spends its sequence",
        where="Log.append_together",
        old="self.files.disk.check_room()",
        new=(
            "self.files.disk.check_room()\n"
            "for header in headers:\n"
            "    self.producers.add_batch(header, base_offset, now_ms, now_ms)"
        ),
        tests=(f"{LANE}batches_that_could_not_be_written_spend_no_sequences",),
    ),
    Planted(
        bug="the lane stores a part of a request that it leaves to the task",
        where="Lane.take",
        old="numbers.append(len(group.batches))",
        new=(
            "numbers.append(len(group.batches))\n"
            "records = plain.records[len(groups) - 1]\n"
            "group.leader.append_together([records], [header], self._now_ms)"
        ),
        tests=(f"{LANE}of_a_request_with_a_bad_batch_the_good_one_is_stored_once",),
    ),
    Planted(
        bug="a batch of a fenced producer slips through in the turn of its fencing",
        where="Lane._may_append",
        old="header.producer_epoch == before.producer_epoch",
        new="True",
        tests=(f"{LANE}a_producer_that_is_fenced_in_a_turn_stores_nothing_in_that_turn",),
    ),
    Planted(
        bug="the lane writes by the id of a topic that is gone into the one of its name",
        where="Lane._leader",
        old="has_ids and leader.log.topic_id.bytes != topic_bytes",
        new="False",
        tests=(f"{LANE}an_old_id_does_not_write_to_the_topic_made_anew_under_its_name",),
    ),
    Planted(
        bug="the lane goes on behind a batch that it could not append",
        where="Leader.append_together",
        old="offsets and isinstance(offsets[-1], KafkaError)",
        new="False",
        tests=(f"{LANE}what_follows_a_batch_that_was_not_appended_is_refused_too",),
    ),
    Planted(
        bug="an answer to acks=1 waits for the followers",
        where="_waits_for_all",
        old="found.pop() if len(found) == 1 else None",
        new="True",
        tests=(f"{LANE}acks_1_waits_for_this_disk_and_not_for_followers",),
    ),
    Planted(
        bug="the lane takes the time of a producer where the topic has that of the log",
        where="Leader.append_together",
        old="log.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME",
        new="False",
        tests=(f"{LANE}where_the_log_has_the_time_the_lane_writes_and_answers_it",),
    ),
    Planted(
        bug="a request that has arrived in parts is appended in somebody else's turn",
        where="Receiver.next_frame",
        old="self._lane.end_turn()",
        new="",
        tests=(f"{LANE}large_requests_that_arrive_in_parts_are_taken_once_they_are_whole",),
    ),
)
