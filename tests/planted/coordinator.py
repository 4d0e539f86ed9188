"""Requests of producers: their identity, what they may do, how epochs are used up."""

from typing import Final

from tests.planted.bug import Planted

KNOWN: Final = "tests/broker/txn/test_known_bugs.py::test_"
STEP: Final = "tests/broker/txn/test_step.py::test_"
OVER_TIME: Final = "tests/broker/txn/test_expiry.py::test_"
REQUESTS: Final = "tests/broker/txn/test_requests.py::test_"
API: Final = "tests/broker/api/test_txn.py::test_"
TOGETHER: Final = "tests/broker/api/test_known_bugs.py::test_"

COORDINATOR_BUGS: Final = (
    Planted(
        bug="KAFKA-17754, KIP-890",
        where="_decided_with_next_epoch.change",
        old="min(transaction.producer_epoch + 1, FENCED_LAST_EPOCH)",
        new="transaction.producer_epoch",
        tests=(f"{KNOWN}a_delayed_commit_does_not_commit_the_next_transaction",),
    ),
    Planted(
        bug="KAFKA-12671",
        where="add_event",
        old="if producer.producer_epoch != current.producer_epoch:",
        new="if False:",
        tests=(f"{KNOWN}a_delayed_produce_opens_no_transaction_that_nobody_owns",),
    ),
    Planted(
        bug="KAFKA-14402",
        where="state.verify",
        old="ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE",
        new="ErrorCode.NONE",
        tests=(f"{KNOWN}a_delayed_produce_of_an_old_client_is_not_verified",),
    ),
    Planted(
        bug="KAFKA-14904",
        where="wait_for_change",
        old="with trio.move_on_at(give_up_at):",
        new="with trio.move_on_after(0):",
        tests=(f"{KNOWN}the_first_write_after_a_commit_is_not_bounced",),
    ),
    Planted(
        bug="KAFKA-9600",
        where="end_event",
        old="if epoch != current.producer_epoch:",
        new="if epoch < current.producer_epoch:",
        tests=(f"{KNOWN}a_commit_with_an_epoch_from_the_future_is_refused",),
    ),
    Planted(
        bug="KAFKA-9666",
        where="Ledger.write",
        old="next_offset = tenure.append(batch_of(records), change)",
        new=(
            "for entry in change:\n"
            "    tenure.apply(entry, change[entry])\n"
            "next_offset = tenure.append(batch_of(records), change)"
        ),
        tests=(f"{KNOWN}a_failed_fence_spends_no_epoch_however_often_it_is_tried",),
    ),
    Planted(
        bug="KAFKA-5351, KAFKA-7519",
        where="TransactionTenure.release",
        old="entry.pending = None",
        tests=(f"{KNOWN}a_failed_append_leaves_nothing_pending",),
    ),
    Planted(
        bug="KAFKA-5283",
        where="_with_next_epoch",
        old="return replace(emptied, producer_id=request.producer_id, producer_epoch=0)",
        tests=(f"{STEP}init_after_the_last_epoch_takes_a_new_producer_id",),
    ),
    Planted(
        bug="KAFKA-18660",
        where="TransactionMetadata.assigned_producer",
        old="if is_rotating and not self.is_kept:",
        new="if False:",
        tests=(f"{STEP}an_end_after_the_last_epoch_takes_a_new_producer_id",),
    ),
    Planted(
        bug="KAFKA-20090",
        where="_completion.change",
        old="producer_epoch=assigned.producer_epoch",
        new="producer_epoch=transaction.producer_epoch",
        tests=(f"{KNOWN}epochs_run_out_in_the_middle_of_transactions",),
    ),
    Planted(
        bug="KAFKA-6119, KAFKA-5231",
        where="txn.state.ROWS",
        old="(E.ABORT_FENCED, ANY, (NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, ABORT2))",
        new="(E.ABORT_FENCED, ANY, (NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, ABORT1))",
        tests=(f"{OVER_TIME}a_zombie_cannot_commit_after_its_transaction_timed_out",),
    ),
    Planted(
        bug="KAFKA-19367",
        where="moves._to_fenced",
        old="state=State.PREPARE_EPOCH_FENCE",
        new="state=State.PREPARE_EPOCH_FENCE,\nproducer_epoch=transaction.producer_epoch + 1",
        tests=(f"{STEP}a_fence_spends_one_epoch_and_the_fenced_client_may_learn_of_it",),
    ),
    Planted(
        bug="KAFKA-16386",
        where="produce_code",
        old="if code in COORDINATOR_TROUBLE:",
        new="if False:",
        tests=(
            "tests/broker/api/test_codes_by_version.py::"
            "test_no_error_between_brokers_reaches_an_old_producer",
        ),
    ),
    Planted(
        bug="KAFKA-5171",
        where="check_id",
        old="if not transactional_id:",
        new="if False:",
        tests=(f"{REQUESTS}an_empty_transactional_id_is_an_invalid_request",),
    ),
    Planted(
        bug="KAFKA-5322",
        where="add_to_txn._add_partitions",
        old="dict.fromkeys(names, ErrorCode.OPERATION_NOT_ATTEMPTED)",
        new="dict.fromkeys(names, ErrorCode.NONE)",
        tests=(f"{API}one_bad_partition_holds_up_the_others",),
    ),
    Planted(
        bug="KAFKA-14916",
        where="_admit",
        old="batch.error is None and batch.is_transactional",
        new="batch.error is None",
        tests=(f"{TOGETHER}not_every_batch_beside_a_transactional_id_is_part_of_the_transaction",),
    ),
    Planted(
        bug="YDB #52731",
        where="txn.state.ROWS",
        old="(E.COMMIT, OLD, (INVALID, COMMIT1, BUSY, BUSY, DONE, INVALID, NEVER, NEVER))",
        new="(E.COMMIT, OLD, (INVALID, COMMIT1, DONE, BUSY, DONE, INVALID, NEVER, NEVER))",
        tests=(f"{KNOWN}an_end_while_the_last_one_is_torn_down_is_not_an_empty_success",),
    ),
    Planted(
        bug="YDB #51053",
        where="Producers.check_marker",
        old="return True",
        new='raise KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID, "nobody")',
        tests=(f"{TOGETHER}partitions_that_were_added_and_never_written_to_hold_up_no_end",),
    ),
)
