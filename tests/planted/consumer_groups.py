"""Consumer groups of the new protocol (KIP-848): what would give a partition two owners."""

from typing import Final

from tests.planted.bug import Planted

RECONCILE: Final = "broker/group/consumer/reconcile.py"
MODEL: Final = (
    "tests/broker/group/test_consumer_model.py::"
    "test_a_partition_never_has_two_owners_and_has_one_in_the_end"
)
SCENARIO: Final = "tests/broker/group/test_consumer_groups.py::test_"
BESIDE: Final = "tests/broker/group/test_consumer_interplay.py::test_"

CONSUMER_GROUP_BUGS: Final = (
    Planted(
        bug="a partition moves before its owner has revoked it",
        file=RECONCILE,
        old="    if leaving and _owns_any(owned, leaving):\n",
        new="    if False:\n",
        tests=(MODEL, f"{SCENARIO}a_partition_moves_after_its_owner_has_revoked_it"),
    ),
    Planted(
        bug="a partition is given to a member while another one owns it",
        file=RECONCILE,
        old="if owner_of(topic_id, index) in (None, member.member_id):",
        new="if True:",
        tests=(MODEL, f"{SCENARIO}a_partition_moves_after_its_owner_has_revoked_it"),
    ),
    Planted(
        bug="a heartbeat is answered before its records are durable",
        file="broker/group/consumers.py",
        old="        await tenure.durable(live.written)\n        return beaten\n",
        new="        return beaten\n",
        tests=(MODEL, f"{BESIDE}a_heartbeat_that_was_not_answered_has_happened_or_not"),
    ),
    Planted(
        bug="a member with the epoch before is believed whatever it says that it owns",
        file="broker/group/consumer/heartbeat.py",
        old="        and is_part_of(asked.owned, member.assigned)\n",
        new="",
        tests=(f"{SCENARIO}the_epoch_before_is_accepted_if_the_answer_was_lost",),
    ),
    Planted(
        bug="an older epoch stores offsets of partitions that the member got later",
        file="broker/group/live_consumer.py",
        old="if since is None or epoch < since:",
        new="if since is None:",
        tests=(f"{BESIDE}an_older_epoch_may_store_what_the_member_has_owned_since_then",),
    ),
    Planted(
        bug="a revocation may take any time",
        file="broker/group/live_consumer.py",
        old="        timer.start(member.rebalance_timeout_ms, is_late)\n",
        new="",
        tests=(f"{SCENARIO}a_member_that_does_not_revoke_in_time_is_removed",),
    ),
    Planted(
        bug="half of a change of a consumer group may survive a crash",
        file="broker/group/tenure.py",
        old="            appended = self.partition.append_records(records)\n        except",
        new="            for record in records:\n"
        "                appended = self.partition.append_records([record])\n        except",
        tests=(f"{BESIDE}all_records_of_a_change_are_one_batch",),
    ),
)
