"""Requests of producers: their identity, what they may do, how epochs are used up."""

from typing import Final

from tests.planted.bug import Planted

STATE: Final = "broker/txn/state.py"
EVENTS: Final = "broker/txn/events.py"
MOVES: Final = "broker/txn/moves.py"
STEPS: Final = "broker/txn/steps.py"
LEDGER: Final = "broker/txn/ledger.py"
COORDINATOR: Final = "broker/txn/coordinator.py"
TXN_API: Final = "broker/api/txn.py"
CODES: Final = "broker/api/transactional.py"
PRODUCE: Final = "broker/api/produce.py"
PRODUCERS: Final = "broker/storage/producers.py"

KNOWN: Final = "tests/broker/txn/test_known_bugs.py::test_"
STEP: Final = "tests/broker/txn/test_step.py::test_"
OVER_TIME: Final = "tests/broker/txn/test_expiry.py::test_"
REQUESTS: Final = "tests/broker/txn/test_requests.py::test_"
API: Final = "tests/broker/api/test_txn.py::test_"
TOGETHER: Final = "tests/broker/api/test_known_bugs.py::test_"

COORDINATOR_BUGS: Final = (
    Planted(
        bug="KAFKA-17754, KIP-890",
        file=MOVES,
        old="producer_epoch=min(transaction.producer_epoch + 1, FENCED_LAST_EPOCH),",
        new="producer_epoch=transaction.producer_epoch,",
        tests=(f"{KNOWN}a_delayed_commit_does_not_commit_the_next_transaction",),
    ),
    Planted(
        bug="KAFKA-12671",
        file=EVENTS,
        old="""    if producer.producer_epoch != current.producer_epoch:
        return Event.ADD_STALE
""",
        new="",
        tests=(f"{KNOWN}a_delayed_produce_opens_no_transaction_that_nobody_owns",),
    ),
    Planted(
        bug="KAFKA-14402",
        file=STATE,
        old="return ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE",
        new="return ErrorCode.NONE",
        tests=(f"{KNOWN}a_delayed_produce_of_an_old_client_is_not_verified",),
    ),
    Planted(
        bug="KAFKA-14904",
        file=STEPS,
        old="    with trio.move_on_at(give_up_at):",
        new="    with trio.move_on_after(0):",
        tests=(f"{KNOWN}the_first_write_after_a_commit_is_not_bounced",),
    ),
    Planted(
        bug="KAFKA-9600",
        file=EVENTS,
        old="""    if epoch != current.producer_epoch:
        return Event.END_STALE""",
        new="""    if epoch < current.producer_epoch:
        return Event.END_STALE""",
        tests=(f"{KNOWN}a_commit_with_an_epoch_from_the_future_is_refused",),
    ),
    Planted(
        bug="KAFKA-9666",
        file=LEDGER,
        old="            await self._make_durable(changes[0][0].tenure, records)\n",
        new="            self._apply(*changes[0])\n"
        "            await self._make_durable(changes[0][0].tenure, records)\n",
        tests=(f"{KNOWN}a_failed_fence_spends_no_epoch_however_often_it_is_tried",),
    ),
    Planted(
        bug="KAFKA-5351, KAFKA-7519",
        file=LEDGER,
        old="    entry.pending = None\n    entry.tenure.count(entry)",
        new="    entry.tenure.count(entry)",
        tests=(f"{KNOWN}a_failed_append_leaves_nothing_pending",),
    ),
    Planted(
        bug="KAFKA-5283",
        file=MOVES,
        old="return replace(emptied, producer_id=request.producer_id, producer_epoch=0)",
        new="pass",
        tests=(f"{STEP}init_after_the_last_epoch_takes_a_new_producer_id",),
    ),
    Planted(
        bug="KAFKA-18660",
        file="broker/txn/transaction.py",
        old="        if is_rotating and not self.is_kept:",
        new="        if False:",
        tests=(f"{STEP}an_end_after_the_last_epoch_takes_a_new_producer_id",),
    ),
    Planted(
        bug="KAFKA-20090",
        file=MOVES,
        old="            producer_epoch=assigned.producer_epoch,\n",
        new="            producer_epoch=transaction.producer_epoch,\n",
        tests=(f"{KNOWN}epochs_run_out_in_the_middle_of_transactions",),
    ),
    Planted(
        bug="KAFKA-6119, KAFKA-5231",
        file=STATE,
        old="NEVER,   NEVER,   NEVER,   NEVER,   NEVER,   NEVER,   NEVER, ABORT2)),",
        new="NEVER,   NEVER,   NEVER,   NEVER,   NEVER,   NEVER,   NEVER, ABORT1)),",
        tests=(f"{OVER_TIME}a_zombie_cannot_commit_after_its_transaction_timed_out",),
    ),
    Planted(
        bug="KAFKA-19367",
        file=MOVES,
        old="        state=State.PREPARE_EPOCH_FENCE,\n",
        new="        state=State.PREPARE_EPOCH_FENCE,\n"
        "        producer_epoch=transaction.producer_epoch + 1,\n",
        tests=(f"{STEP}a_fence_spends_one_epoch_and_the_fenced_client_may_learn_of_it",),
    ),
    Planted(
        bug="KAFKA-16386",
        file=CODES,
        old="""    if code in COORDINATOR_TROUBLE:
        return ErrorCode.NOT_ENOUGH_REPLICAS
""",
        new="",
        tests=(
            "tests/broker/api/test_codes_by_version.py::"
            "test_no_error_between_brokers_reaches_an_old_producer",
        ),
    ),
    Planted(
        bug="KAFKA-5171",
        file=COORDINATOR,
        old="    if not transactional_id:",
        new="    if False:",
        tests=(f"{REQUESTS}an_empty_transactional_id_is_an_invalid_request",),
    ),
    Planted(
        bug="KAFKA-5322",
        file=TXN_API,
        old="dict.fromkeys(names, ErrorCode.OPERATION_NOT_ATTEMPTED)",
        new="dict.fromkeys(names, ErrorCode.NONE)",
        tests=(f"{API}one_bad_partition_holds_up_the_others",),
    ),
    Planted(
        bug="KAFKA-14916",
        file=PRODUCE,
        old="if batch.error is None and batch.is_transactional]",
        new="if batch.error is None]",
        tests=(f"{TOGETHER}not_every_batch_beside_a_transactional_id_is_part_of_the_transaction",),
    ),
    Planted(
        bug="YDB #52731",
        file=STATE,
        old="(E.COMMIT,       OLD, (INVALID, COMMIT1, BUSY,    BUSY,    DONE, ",
        new="(E.COMMIT,       OLD, (INVALID, COMMIT1, DONE,    BUSY,    DONE, ",
        tests=(f"{KNOWN}an_end_while_the_last_one_is_torn_down_is_not_an_empty_success",),
    ),
    Planted(
        bug="YDB #51053",
        file=PRODUCERS,
        old="""\
        if entry is None:
            return True
        is_repeat""",
        new="""\
        if entry is None:
            raise KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID, "nobody")
        is_repeat""",
        tests=(f"{TOGETHER}partitions_that_were_added_and_never_written_to_hold_up_no_end",),
    ),
)
