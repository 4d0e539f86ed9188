"""Bugs of the client's members of consumer groups."""

from typing import Final

from tests.planted.bug import Planted

STEPS: Final = "tests/client/grouping/test_member.py::test_"
STORING: Final = "tests/client/grouping/test_member_commits.py::test_"
BEATS: Final = "tests/client/grouping/test_kip848_member.py::test_"
EPOCHS: Final = "tests/client/grouping/test_kip848_offsets.py::test_"
CHOICE: Final = "tests/client/grouping/test_protocol_choice.py::test_"
DIVIDED: Final = "tests/client/grouping/test_assignors.py::test_"

MEMBER_BUGS: Final = (
    Planted(
        bug="an eager member joins before it has given up its partitions",
        where="GroupMembership._step",
        old="if not member.is_cooperative:",
        new="if False:",
        tests=(f"{STEPS}an_eager_member_gives_all_up_before_it_joins",),
    ),
    Planted(
        bug="a cooperative rebalance gives a partition away that its owner still reads",
        where="assign_cooperatively",
        old=(
            "[partition for partition in partitions if not claimed.get(partition, set()) - "
            "{member_id}]"
        ),
        new="[partition for partition in partitions]",
        tests=(f"{DIVIDED}a_cooperative_rebalance_takes_first_and_gives_afterwards",),
    ),
    Planted(
        bug="an expelled member stores offsets as if it were in no group",
        where="ClassicMember._expel",
        old="self.losses += 1",
        new="self._visible = self._identity()\nself.losses += 1",
        tests=(f"{STEPS}an_expelled_member_joins_anew",),
    ),
    Planted(
        bug="a member of another generation leaves its old id behind, for which all others wait",
        where="ClassicMember._expel",
        old='self._member_id if keeps_id else ""',
        new='""',
        tests=(f"{STEPS}a_member_of_another_generation_joins_again_under_its_id",),
    ),
    Planted(
        bug="an automatic commit stores records that the program is still processing",
        where="GroupMembership._remind",
        old="self._look()",
        new="self.store_if_due({})",
        tests=(f"{STORING}an_automatic_commit_waits_for_the_poll_after_the_records",),
    ),
    Planted(
        bug="leaving by an exception stores records that are not processed",
        where="GroupMembership.leave",
        old="elif is_clean:",
        new="elif True:",
        tests=(f"{STORING}a_clean_end_stores_and_an_exception_does_not",),
    ),
    Planted(
        bug="an older commit in the background overtakes a newer one",
        where="Commits.now",
        old="self.forget(offsets)",
        new="if offsets == self._waiting:\n    self.forget(offsets)",
        tests=(f"{STORING}commits_in_the_background_keep_their_order",),
    ),
    Planted(
        bug="a long iteration over one fetch counts as a program that hangs",
        where="Liveness.left_s",
        old="if self._polls or progress != self._seen:",
        new="if self._polls:",
        tests=(f"{STEPS}an_iteration_lives_as_long_as_it_yields",),
    ),
    Planted(
        bug="a member acknowledges a revocation while on_revoked still runs",
        where="Kip848Member._request",
        old="names, owned = self._sent",
        new=(
            "names, owned = self._sent\n"
            "assigned = self._assignment.partitions\n"
            "self._owned = tuple(each for each in self._owned if each in assigned)"
        ),
        tests=(f"{BEATS}what_is_revoked_is_acknowledged_when_on_revoked_has_ended",),
    ),
    Planted(
        bug="an assignment whose answer was lost never arrives",
        where="Kip848Member._beat",
        old="self._is_all_due = True",
        tests=(f"{BEATS}an_assignment_in_an_answer_that_is_lost_is_asked_for_again",),
    ),
    Planted(
        bug="a commit stores offsets of partitions that were lost while it was tried again",
        where="Commits._store",
        old="if member is not None and member.losses != losses:",
        new="if False:",
        tests=(f"{EPOCHS}a_commit_that_began_before_the_loss_stores_nothing_afterwards",),
    ),
    Planted(
        bug="a commit fails because another member came or went",
        where="Commits._store",
        old="if is_stale and member.state in MEMBERS:",
        new="if False:",
        tests=(f"{EPOCHS}a_commit_whose_epoch_alone_is_stale_is_tried_again_with_the_next",),
    ),
    Planted(
        bug="a member reads stored offsets without its epoch",
        where="Commits._look_up",
        old="None if member is None else member.reader",
        new="None",
        tests=(f"{EPOCHS}a_member_reads_stored_offsets_with_its_id_and_epoch",),
    ),
    Planted(
        bug="a poll fails because the coordinator has moved the member to the next epoch",
        where="Commits._look_up",
        old="if member is None or reader is None or error.code not in NO_MEMBER:",
        new="if True:",
        tests=(f"{EPOCHS}stored_offsets_are_read_again_with_the_epoch_of_the_next_heartbeat",),
    ),
    Planted(
        bug="the new protocol is used although the cluster has it switched off",
        where="has_new_protocol",
        old="connection.features.get(GROUP_FEATURE, 0) >= 1",
        new="True",
        tests=(f"{CHOICE}a_broker_without_the_new_protocol_has_classic_members",),
    ),
)
