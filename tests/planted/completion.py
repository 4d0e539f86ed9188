"""What follows from a decision, or from none: markers, time-outs, leadership, pending offsets."""

from typing import Final

from tests.planted import reach
from tests.planted.bug import Planted

LEDGER: Final = "broker/txn/ledger.py"
MARKERS: Final = "broker/txn/markers.py"
EXPIRY: Final = "broker/txn/expiry.py"
TENURE: Final = "broker/coordination/tenure.py"
PRODUCERS: Final = "broker/storage/producers.py"

KNOWN: Final = "tests/broker/txn/test_known_bugs.py::test_"
KNOWN_MARKERS: Final = "tests/broker/txn/test_known_bugs_of_markers.py::test_"
OVER_TIME: Final = "tests/broker/txn/test_expiry.py::test_"
TELLING: Final = "tests/broker/txn/test_markers.py::test_"
SEQUENCES: Final = "tests/broker/storage/test_producers.py::test_"
OFFSETS: Final = "tests/broker/group/test_offsets.py::test_"

COMPLETION_BUGS: Final = (
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
        old="    if code in NOTHING_OWED:",
        new="    if code in NOTHING_OWED or code not in STOP:",
        tests=(f"{TELLING}no_error_code_loses_a_marker_or_leaves_it_stuck",),
    ),
    Planted(
        bug="KAFKA-5202",
        file=MARKERS,
        old="is_gone = leader is None and await self._sender.is_gone(partition)",
        new="is_gone = False",
        tests=(f"{TELLING}a_topic_that_was_deleted_is_owed_nothing",),
    ),
    Planted(
        bug="KAFKA-16352",
        file=MARKERS,
        old="        if producer_ids.isdisjoint(parcel.markers):",
        new="        if True:",
        tests=(f"{TELLING}one_request_has_one_marker_of_a_producer",),
    ),
    Planted(
        bug="KAFKA-10080",
        file=LEDGER,
        old="            self._on_decided([entry])\n",
        new="            self._on_decided([entry])\n            self._on_decided([entry])\n",
        tests=(f"{KNOWN_MARKERS}completions_of_two_tenures_do_not_take_each_others_markers",),
    ),
    Planted(
        bug="KAFKA-9235, KAFKA-9307, KAFKA-5280",
        file=TENURE,
        old="            await self.partition.flushed(next_offset)\n        self.check()\n",
        new="            await self.partition.flushed(next_offset)\n",
        tests=(f"{KNOWN}an_operation_begun_before_the_partition_left_changes_nothing_after",),
        seed=7,
        fixed=reach.ALONE,
    ),
    Planted(
        bug="KAFKA-9235",
        file="broker/api/markers.py",
        old="flushed(last.next_offset, leader_epoch=last.leader_epoch)",
        new="flushed(last.next_offset)",
        tests=(
            "tests/broker/api/test_markers_of_an_ended_lead.py::test_"
            "a_marker_of_a_lead_that_ended_is_not_acknowledged_by_the_next_lead",
        ),
    ),
    Planted(
        bug="a deletion takes the offsets of a topic that was made anew",
        file="broker/group/offsets.py",
        old="if partition.topic == topic and stored.topic_id in ids",
        new="if partition.topic == topic",
        tests=(
            "tests/broker/group/test_topic_ids.py::test_"
            "a_deletion_leaves_the_offsets_of_a_topic_that_was_made_anew",
        ),
    ),
    Planted(
        bug="an offset is written under the topic of the one before it",
        file="broker/group/store.py",
        old="if topic != topic_here or stored[1:] != common:",
        new="if stored[1:] != common:",
        tests=("tests/broker/group/test_store.py::test_many_offsets_are_written_as_each_of_them",),
    ),
    Planted(
        bug="KAFKA-15468",
        file=TENURE,
        old="if previous is not None and previous.coordinator_epoch > tenure.coordinator_epoch:",
        new="if False:",
        tests=(f"{KNOWN}loads_one_after_the_other_end_with_the_newest",),
    ),
    Planted(
        bug="KAFKA-14880",
        file=LEDGER,
        old="        entry.tenure.drop(entry.transactional_id)\n",
        new="        pass\n",
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
        bug="KAFKA-17507",
        file="broker/api/markers.py",
        old="    if last.where.topic == CONSUMER_OFFSETS_TOPIC:",
        new="    if False:",
        tests=("tests/broker/group/test_wire_offsets.py::test_offsets_in_a_transaction",),
    ),
    Planted(
        bug="KAFKA-7296",
        file="broker/group/offsets.py",
        old="        for pending in self._take_pending(producer_id, is_decided):\n",
        new="        taken = self._take_pending(producer_id, is_decided) if committed else []\n"
        "        for pending in taken:\n",
        tests=(f"{OFFSETS}an_offset_in_a_transaction_that_aborts_was_never_there",),
    ),
    Planted(
        bug="Redpanda #18324",
        file=LEDGER,
        old="            self._watch_timeout(entry, after.timeout_ms)\n",
        new="            pass\n",
        tests=(f"{OVER_TIME}a_transaction_in_which_nothing_is_written_ends_in_time_too",),
    ),
    Planted(
        bug="Redpanda #14624",
        file=LEDGER,
        old="self._watch_timeout(entry, left_ms if entry.clock is None else whole_ms)",
        new="pass",
        tests=(f"{OVER_TIME}a_transaction_found_in_the_log_has_what_is_left_of_its_time",),
    ),
    Planted(
        bug="Redpanda #18198",
        file="broker/coordination/deadlines.py",
        old="        if due < self._planned.get(thing, inf):",
        new="        if due < inf:",
        tests=(f"{OVER_TIME}memory_does_not_grow_with_transactions",),
    ),
    Planted(
        bug="KAFKA-15784",
        file="broker/group/tenure.py",
        old="self.offsets.add_pending(producer_id, entry, log_offset)\n",
        new="""\
async def late(entry: OffsetEntry = entry, offset: int = log_offset) -> None:
                    await self.partition.flushed(offset + 1)
                    self.offsets.add_pending(producer_id, entry, offset)

                trio.lowlevel.spawn_system_task(late)
""",
        tests=(f"{OFFSETS}a_committed_offset_is_there_when_its_marker_is_acknowledged",),
    ),
)
