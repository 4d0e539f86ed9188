"""What a partition knows of its producers: sequences, epochs, and all of it after a restart."""

from typing import Final

from tests.planted.bug import Planted

PRODUCERS: Final = "broker/storage/producers.py"
LOG: Final = "broker/storage/log.py"
OPENING: Final = "broker/storage/recovery.py"

SEQUENCES: Final = "tests/broker/storage/test_producers.py::test_"
RECOVERY: Final = "tests/broker/storage/test_recovery.py::test_"
LOGS: Final = "tests/broker/storage/test_known_bugs.py::test_"
OVERTAKEN: Final = "tests/broker/api/test_overtaken_verdicts.py::test_"
PRODUCER_IDS: Final = "tests/broker/txn/test_producer_ids.py::test_"
BACKGROUND: Final = "tests/broker/partitions/test_background.py::test_"

PRODUCERS_BUGS: Final = (
    Planted(
        bug="a producer with an open transaction makes room for another one",
        file=PRODUCERS,
        old="            if not entry.has_open_transaction:\n                return entry\n",
        new="            return entry\n",
        tests=(
            f"{SEQUENCES}a_producer_with_an_open_transaction_never_goes_and_a_newcomer_is_refused_"
            "for_now",
        ),
    ),
    Planted(
        bug="a transactional id is made although there is no room",
        file="broker/txn/coordinator.py",
        old="            await self._room.make(transactional_id)\n",
        new="",
        tests=(
            "tests/broker/txn/test_room_for_ids.py::"
            "test_made_up_transactional_ids_do_not_take_more_and_more_memory",
        ),
    ),
    Planted(
        bug="the partitions of open transactions take any memory",
        file="broker/txn/tenure.py",
        old=" + partitions * PARTITION_BYTES\n",
        new="\n",
        tests=(
            "tests/broker/txn/test_room_for_ids.py::"
            "test_the_partitions_of_open_transactions_do_not_take_more_and_more_memory",
        ),
    ),
    Planted(
        bug="tasks that wait for a producer id block do not learn that there is none",
        file="broker/txn/producer_ids.py",
        old="            if refill.failure is not None:\n",
        new="            if False:\n",
        tests=(f"{PRODUCER_IDS}all_that_wait_for_a_block_share_its_failure",),
    ),
    Planted(
        bug="a producer id block is taken twice",
        file="broker/txn/producer_ids.py",
        old="succeeded, _ = await self._meta.txn([",
        new="from odradek.broker.guarded_write import guarded_write\n"
        "            succeeded, _ = await guarded_write(self._meta, [",
        tests=(
            f"{PRODUCER_IDS}a_block_whose_claim_was_lost_is_not_taken_for_that_of_a_faster_broker",
        ),
    ),
    Planted(
        bug="KAFKA-14884",
        file=PRODUCERS,
        old="if last_marker != verified_after and not is_open:",
        new="if False:",
        tests=(
            f"{SEQUENCES}a_transaction_that_was_verified_before_a_marker_came_is_not_opened",
            f"{OVERTAKEN}a_transaction_that_ends_after_the_admission_takes_no_more_records",
        ),
    ),
    Planted(
        bug="KAFKA-14884",
        file="broker/api/produce.py",
        old="            verified_after=batch.verified_after,\n",
        new="",
        tests=(f"{OVERTAKEN}a_batch_whose_admission_a_marker_has_overtaken_is_refused",),
    ),
    Planted(
        bug="KAFKA-14884",
        file="broker/group/tenure.py",
        old="                    verified_after=verified_after,\n",
        new="",
        tests=(f"{OVERTAKEN}offsets_whose_admission_a_marker_has_overtaken_are_refused",),
    ),
    Planted(
        bug="KAFKA-9144",
        file=PRODUCERS,
        old="""        entry.last_marker_offset = offset
        entry.last_timestamp_ms = timestamp_ms
        entry.updated_ms = now_ms
""",
        new="""        entry.last_marker_offset = offset
""",
        tests=(f"{SEQUENCES}a_marker_is_a_sign_of_life",),
    ),
    Planted(
        bug="KAFKA-9144",
        file=PRODUCERS,
        old="entry.updated_ms < limit_ms and not entry.has_open_transaction\n",
        new="entry.updated_ms < limit_ms\n",
        tests=(
            f"{SEQUENCES}producers_expire_by_the_time_they_were_last_heard_of_and_not_while_"
            "something_is_open",
        ),
    ),
    Planted(
        bug="Redpanda #3038, Redpanda #3039",
        file=PRODUCERS,
        old="WINDOW: Final = 5",
        new="WINDOW: Final = 1",
        tests=(
            f"{SEQUENCES}each_of_the_last_five_batches_is_recognised_and_an_older_one_is_"
            "out_of_order",
            f"{RECOVERY}five_batches_in_flight_are_recognised_after_a_kill",
        ),
    ),
    Planted(
        bug="Redpanda #22687",
        file=PRODUCERS,
        old="""                transaction_version == TRANSACTION_VERSION_2
                and header.is_transactional
                and header.base_sequence != 0
""",
        new="""                header.base_sequence != 0
""",
        tests=(f"{SEQUENCES}an_unknown_producer_may_begin_anywhere",),
    ),
    Planted(
        bug="KAFKA-5283 (sequences)",
        file="protocol/batch.py",
        old="def is_next_sequence(",
        new="""def is_next_sequence(last: int, following: int) -> bool:
    return following == last + 1


def _sound_is_next_sequence(""",
        tests=(f"{SEQUENCES}sequences_begin_again_at_zero_after_the_last",),
    ),
    Planted(
        bug="KAFKA-7190",
        file=OPENING,
        old="            producers=await self._producers_before(first),\n",
        new="            producers=Producers(),\n",
        tests=(f"{RECOVERY}producers_outlive_their_records_even_without_a_checkpoint",),
    ),
    Planted(
        bug="KAFKA-7298",
        file=LOG,
        old="        self.epochs.truncate_start(offset)\n",
        new="""\
        self.epochs.truncate_start(offset)
        for known in list(self.producers.entries.values()):
            if known.last_offset < offset:
                del self.producers.entries[known.producer_id]
""",
        tests=(f"{LOGS}sequences_go_on_after_the_records_before_them_were_deleted",),
    ),
    Planted(
        bug="KAFKA-12520",
        file=OPENING,
        old="if offset is not None and offset not in bases and offset != end_offset:",
        new="if offset is not None and offset < 0:",
        tests=(f"{RECOVERY}a_snapshot_from_beyond_the_end_is_removed_for_good",),
    ),
    Planted(
        bug="KAFKA-5829",
        file=OPENING,
        old="if offset is not None and offset not in bases and offset != end_offset:",
        new="if offset is not None:",
        tests=(f"{RECOVERY}recovery_keeps_the_snapshots_that_it_may_need_once_more",),
    ),
    Planted(
        bug="Redpanda #5026",
        file=PRODUCERS,
        old="""\
            entry.epoch = producer_epoch
            entry.batches = ()
""",
        new="            entry.epoch = producer_epoch\n",
        tests=(f"{LOGS}a_sequence_used_anew_after_an_abort_is_no_repeat_of_the_aborted_batch",),
    ),
    Planted(
        bug="Redpanda #8566, Redpanda #30003",
        file="broker/storage/checkpoint.py",
        old="""\
        entry.first_offset,
        entry.last_marker_offset,
""",
        new="""\
        -1,
        entry.last_marker_offset,
""",
        tests=(f"{LOGS}a_transaction_that_is_open_at_a_checkpoint_is_open_after_it",),
    ),
    Planted(
        bug="Redpanda #18198",
        file="broker/partitions/partitions.py",
        old="""\
                expired = await Turns().do(silent)
""",
        new="                expired: list[int] = []\n",
        tests=(
            f"{BACKGROUND}silent_producers_are_forgotten_and_retention_goes_on_in_the_background",
        ),
    ),
)
