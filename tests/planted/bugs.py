"""Known bugs of other coordinators and logs, each with the line that keeps it out of here.

The numbers are those of the projects' own lists; without a number it is a bug that our own tests
found. A bug may stand here twice where two lines keep it out in two places.
"""

from typing import Final

from tests.planted.bug import Planted

STATE: Final = "broker/txn/state.py"
EVENTS: Final = "broker/txn/events.py"
MOVES: Final = "broker/txn/moves.py"
STEPS: Final = "broker/txn/steps.py"
LEDGER: Final = "broker/txn/ledger.py"
MARKERS: Final = "broker/txn/markers.py"
EXPIRY: Final = "broker/txn/expiry.py"
TENURE: Final = "broker/txn/tenure.py"
COORDINATOR: Final = "broker/txn/coordinator.py"
TXN_API: Final = "broker/api/txn.py"
ADMISSION: Final = "broker/api/transactional.py"
PRODUCERS: Final = "broker/storage/producers.py"

KNOWN: Final = "tests/txn/test_known_bugs.py::test_"
STEP: Final = "tests/txn/test_step.py::test_"
OVER_TIME: Final = "tests/txn/test_expiry.py::test_"
REQUESTS: Final = "tests/txn/test_requests.py::test_"
TELLING: Final = "tests/txn/test_markers.py::test_"
SEQUENCES: Final = "tests/storage/test_producers.py::test_"
RECOVERY: Final = "tests/storage/test_recovery.py::test_"
PARTITIONS: Final = "tests/test_partitions.py::test_"
OFFSETS: Final = "tests/group/test_offsets.py::test_"
API: Final = "tests/broker/api/test_txn.py::test_"

COORDINATOR_BUGS: Final = (
    Planted(
        bug="KAFKA-17754",
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
        bug="KAFKA-14884",
        file=PRODUCERS,
        old="if last_marker != verified_after and not is_open:",
        new="if False:",
        tests=(f"{SEQUENCES}a_transaction_that_was_verified_before_a_marker_came_is_not_opened",),
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
        old="            await self._make_durable(entry.tenure, [",
        new="            self._apply(entry, after)\n"
        "            await self._make_durable(entry.tenure, [",
        tests=(f"{KNOWN}a_failed_fence_spends_no_epoch_however_often_it_is_tried",),
    ),
    Planted(
        bug="KAFKA-5351, KAFKA-7519",
        file=LEDGER,
        old="""            entry.pending = None
            if entry.is_new:""",
        new="""            if entry.is_new:""",
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
        old="            producer_epoch=told.producer_epoch,\n",
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
        file=ADMISSION,
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
        bug="KAFKA-19999",
        file=PRODUCERS,
        old="is_repeat = not entry.has_open_transaction",
        new="raise _stale_marker(entry, producer_epoch)",
        tests=(f"{SEQUENCES}a_repeated_marker_is_harmless_and_not_written_again",),
    ),
    Planted(
        bug="KAFKA-9749, KAFKA-5610",
        file=MARKERS,
        old="    if code in LET_OFF:",
        new="    if code in LET_OFF or code not in STOP:",
        tests=(f"{TELLING}no_error_code_loses_a_marker_or_leaves_it_stuck",),
    ),
    Planted(
        bug="KAFKA-5202",
        file=MARKERS,
        old="            if leader is None:",
        new="            if False:",
        tests=(f"{TELLING}a_topic_that_was_deleted_is_owed_nothing",),
    ),
    Planted(
        bug="KAFKA-16352",
        file=MARKERS,
        old="        if parcel.debt.producer_id in taken:",
        new="        if False:",
        tests=(f"{TELLING}one_request_has_one_marker_of_a_producer",),
    ),
    Planted(
        bug="KAFKA-10080",
        file=LEDGER,
        old="""        if after.state.is_prepared:
            self._on_decided(entry)
""",
        new="""        if after.state.is_prepared:
            self._on_decided(entry)
            self._on_decided(entry)
""",
        tests=(f"{REQUESTS}a_transaction_from_begin_to_end",),
    ),
    Planted(
        bug="KAFKA-9235, KAFKA-9307, KAFKA-5280",
        file=TENURE,
        old="""        if self.is_over:
            message = f"this broker""",
        new="""        if False:
            message = f"this broker""",
        tests=(f"{KNOWN}an_operation_begun_before_the_partition_left_changes_nothing_after",),
    ),
    Planted(
        bug="KAFKA-15468",
        file=LEDGER,
        old="if previous is not None and previous.coordinator_epoch > tenure.coordinator_epoch:",
        new="if False:",
        tests=(f"{KNOWN}loads_one_after_the_other_end_with_the_newest",),
    ),
    Planted(
        bug="KAFKA-14880",
        file=LEDGER,
        old="                entry.tenure.entries.pop(entry.transactional_id, None)\n",
        new="                pass\n",
        tests=(f"{OVER_TIME}a_first_init_that_failed_leaves_nothing_that_would_have_to_expire",),
    ),
    Planted(
        bug="KAFKA-13099",
        file=EXPIRY,
        old="            yield batch\n            batch, key_bytes = [], 0\n",
        new="            pass\n",
        tests=(f"{OVER_TIME}ten_thousand_ids_expire_in_batches_that_fit",),
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
        old="refused.get(p, ErrorCode.OPERATION_NOT_ATTEMPTED)",
        new="refused.get(p, ErrorCode.NONE)",
        tests=(f"{API}one_bad_partition_holds_up_the_others",),
    ),
    Planted(
        bug="KAFKA-17507",
        file="broker/api/markers.py",
        old="    if write.where.topic == CONSUMER_OFFSETS_TOPIC:",
        new="    if False:",
        tests=("tests/group/test_wire.py::test_offsets_in_a_transaction",),
    ),
    Planted(
        bug="KAFKA-7296",
        file="broker/group/offsets.py",
        old="        for pending in self._take_pending(producer_id, is_decided):\n",
        new="        taken = self._take_pending(producer_id, is_decided) if committed else []\n"
        "        for pending in taken:\n",
        tests=(f"{OFFSETS}an_offset_in_a_transaction_that_aborts_was_never_there",),
    ),
)

LOG_BUGS: Final = (
    Planted(
        bug="KAFKA-10702",
        file=PRODUCERS,
        old="""        if first_offset == NO_OFFSET:
            return None
        entry.first_offset = NO_OFFSET
""",
        new="""        if first_offset == NO_OFFSET:
            return EndedTransaction(producer_id, offset, offset, offset + 1)
        entry.first_offset = NO_OFFSET
""",
        tests=(f"{PARTITIONS}a_transaction_without_records_here_is_in_no_index",),
    ),
    Planted(
        bug="the aborted list must be sorted by first offset",
        file="broker/storage/reading.py",
        old="""            found.sort(key=attrgetter("first_offset"))
""",
        new="",
        tests=(f"{PARTITIONS}aborted_transactions_are_sorted_by_their_first_offset",),
    ),
    Planted(
        bug="the marker counts once it is below the high watermark",
        file=PRODUCERS,
        old="        self._ended[offset] = first_offset\n",
        new="",
        tests=(f"{PARTITIONS}a_marker_that_is_not_on_disk_yet_lets_nobody_read_on",),
    ),
)

PRODUCER_BUGS: Final = (
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
        old="if entry.updated_ms < before_ms and not entry.has_open_transaction",
        new="if entry.updated_ms < before_ms",
        tests=(
            f"{SEQUENCES}producers_expire_by_the_time_they_were_last_heard_of_and_not_while_"
            "something_is_open",
        ),
    ),
    Planted(
        bug="Redpanda #3038, #3039",
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
)

BUGS: Final = (*COORDINATOR_BUGS, *LOG_BUGS, *PRODUCER_BUGS)
