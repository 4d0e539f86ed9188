"""What a partition knows of its producers: sequences, epochs, and all of it after a restart."""

from typing import Final

from tests.planted import reach
from tests.planted.bug import Planted

SEQUENCES: Final = "tests/broker/storage/test_producers.py::test_"
RECOVERY: Final = "tests/broker/storage/test_recovery.py::test_"
LOGS: Final = "tests/broker/storage/test_known_bugs.py::test_"
OVERTAKEN: Final = "tests/broker/api/test_overtaken_verdicts.py::test_"
PRODUCER_IDS: Final = "tests/broker/txn/test_producer_ids.py::test_"
BACKGROUND: Final = "tests/broker/partitions/test_background.py::test_"

PRODUCERS_BUGS: Final = (
    Planted(
        bug="a producer with an open transaction makes room for another one",
        where="Producers._longest_idle",
        old="if not entry.has_open_transaction:",
        new="if True:",
        tests=(
            f"{SEQUENCES}a_producer_with_an_open_transaction_never_goes_and_a_newcomer_is_refused_"
            "for_now",
        ),
    ),
    Planted(
        bug="a transactional id is made although there is no room",
        where="TransactionCoordinator.init_producer_id",
        old="await self._room.make(transactional_id)",
        tests=(
            "tests/broker/txn/test_room_for_ids.py::"
            "test_made_up_transactional_ids_do_not_take_more_and_more_memory",
        ),
    ),
    Planted(
        bug="the partitions of open transactions take any memory",
        where="TransactionTenure.count",
        old="size_of(entry.transactional_id) + partitions * PARTITION_BYTES",
        new="size_of(entry.transactional_id)",
        tests=(
            "tests/broker/txn/test_room_for_ids.py::"
            "test_the_partitions_of_open_transactions_do_not_take_more_and_more_memory",
        ),
    ),
    Planted(
        bug="tasks that wait for a producer id block do not learn that there is none",
        where="ProducerIds.refill",
        old="if refill.failure is not None:",
        new="if False:",
        tests=(f"{PRODUCER_IDS}all_that_wait_for_a_block_share_its_failure",),
    ),
    Planted(
        bug="a producer id block is taken twice",
        where="ProducerIds._claim_block",
        old=('succeeded, _ = await self._meta.txn([claim], {PRODUCER_IDS_KEY: b"%d" % following})'),
        new=(
            "from odradek.broker.cluster.guarded_write import guarded_write\n"
            "succeeded, _ = await guarded_write(self._meta, [claim], {PRODUCER_IDS_KEY: "
            'b"%d" % following})'
        ),
        tests=(
            f"{PRODUCER_IDS}a_block_whose_claim_was_lost_is_not_taken_for_that_of_a_faster_broker",
        ),
        seed=5,
        fixed=reach.ID_BLOCKS,
    ),
    Planted(
        bug="KAFKA-14884",
        where="Producers._check_still_verified",
        old="if last_marker != verified_after and not is_open:",
        new="if False:",
        tests=(
            f"{SEQUENCES}a_transaction_that_was_verified_before_a_marker_came_is_not_opened",
            f"{OVERTAKEN}a_transaction_that_ends_after_the_admission_takes_no_more_records",
        ),
    ),
    Planted(
        bug="KAFKA-14884",
        where="request_appends._append",
        old="verified_after=batch.verified_after",
        tests=(f"{OVERTAKEN}a_batch_whose_admission_a_marker_has_overtaken_is_refused",),
    ),
    Planted(
        bug="KAFKA-14884",
        where="Runtime.append",
        old="verified_after=producer.verified_after",
        tests=(f"{OVERTAKEN}offsets_whose_admission_a_marker_has_overtaken_are_refused",),
    ),
    Planted(
        bug="KAFKA-9144",
        where="Producers.add_marker",
        old="entry.last_timestamp_ms = timestamp_ms\nentry.updated_ms = now_ms",
        tests=(f"{SEQUENCES}a_marker_is_a_sign_of_life",),
    ),
    Planted(
        bug="KAFKA-9144",
        where="Producers.expire",
        old="not entry.has_open_transaction",
        new="True",
        tests=(
            f"{SEQUENCES}producers_expire_by_the_time_they_were_last_heard_of_and_not_while_"
            "something_is_open",
        ),
    ),
    Planted(
        bug="Redpanda #3038, Redpanda #3039",
        where="WINDOW",
        old="5",
        new="1",
        tests=(
            f"{SEQUENCES}each_of_the_last_five_batches_is_recognised_and_an_older_one_is_"
            "out_of_order",
            f"{RECOVERY}five_batches_in_flight_are_recognised_after_a_kill",
        ),
    ),
    Planted(
        bug="Redpanda #22687",
        where="Producers.check_client",
        old=(
            "if transaction_version == TRANSACTION_VERSION_2 and header.is_transactional "
            "and header.base_sequence != 0:"
        ),
        new="if header.base_sequence != 0:",
        tests=(f"{SEQUENCES}an_unknown_producer_may_begin_anywhere",),
    ),
    Planted(
        bug="KAFKA-5283 (sequences)",
        where="is_next_sequence",
        old="return following == add_sequence(last, 1)",
        new="return following == last + 1",
        tests=(f"{SEQUENCES}sequences_begin_again_at_zero_after_the_last",),
    ),
    Planted(
        bug="KAFKA-7190",
        where="Recovery._from_the_start",
        old="await self._producers_before(first)",
        new="Producers()",
        tests=(f"{RECOVERY}producers_outlive_their_records_even_without_a_checkpoint",),
    ),
    Planted(
        bug="KAFKA-7298",
        where="Log.begin_at",
        old="self.epochs.truncate_start(offset)",
        new=(
            "self.epochs.truncate_start(offset)\n"
            "for known in list(self.producers.entries.values()):\n"
            "    if known.last_offset < offset:\n"
            "        del self.producers.entries[known.producer_id]"
        ),
        tests=(f"{LOGS}sequences_go_on_after_the_records_before_them_were_deleted",),
    ),
    Planted(
        bug="KAFKA-12520",
        where="remove_leftovers",
        old="if offset is not None and offset not in bases and offset != end_offset:",
        new="if offset is not None and offset < 0:",
        tests=(f"{RECOVERY}a_snapshot_from_beyond_the_end_is_removed_for_good",),
    ),
    Planted(
        bug="KAFKA-5829",
        where="remove_leftovers",
        old="if offset is not None and offset not in bases and offset != end_offset:",
        new="if offset is not None:",
        tests=(f"{RECOVERY}recovery_keeps_the_snapshots_that_it_may_need_once_more",),
    ),
    Planted(
        bug="Redpanda #5026",
        where="Producers.add_marker",
        old="entry.batches = ()",
        tests=(f"{LOGS}a_sequence_used_anew_after_an_abort_is_no_repeat_of_the_aborted_batch",),
    ),
    Planted(
        bug="Redpanda #8566, Redpanda #30003",
        where="_packed",
        old="*numbers, batches = fields",
        new="*numbers, batches = fields\nnumbers[3] = -1",
        tests=(f"{LOGS}a_transaction_that_is_open_at_a_checkpoint_is_open_after_it",),
    ),
    Planted(
        bug="Redpanda #18198",
        where="Partitions._expire_producers",
        old="expired = await Turns().do(silent)",
        new="expired: list[int] = []",
        tests=(
            f"{BACKGROUND}silent_producers_are_forgotten_and_retention_goes_on_in_the_background",
        ),
    ),
)
