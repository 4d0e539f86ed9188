"""Bugs of the client's members of consumer groups."""

from typing import Final

from tests.planted.bug import Planted

UNDECIDED: Final = "client/grouping/undecided.py"
COMMITS: Final = "client/grouping/commits.py"
LIVENESS: Final = "client/grouping/liveness.py"
MEMBER: Final = "client/grouping/member.py"
KIP848_MEMBER: Final = "client/grouping/kip848_member.py"
MEMBERSHIP: Final = "client/grouping/membership.py"
STICKY: Final = "client/grouping/sticky.py"
STEPS: Final = "tests/client/grouping/test_member.py::test_"
STORING: Final = "tests/client/grouping/test_member_commits.py::test_"
BEATS: Final = "tests/client/grouping/test_kip848_member.py::test_"
EPOCHS: Final = "tests/client/grouping/test_kip848_offsets.py::test_"
CHOICE: Final = "tests/client/grouping/test_protocol_choice.py::test_"
DIVIDED: Final = "tests/client/grouping/test_assignors.py::test_"

MEMBER_BUGS: Final = (
    Planted(
        bug="an eager member joins before it has given up its partitions",
        file=MEMBERSHIP,
        old="            if not member.is_cooperative:\n",
        new="            if False:\n",
        tests=(f"{STEPS}an_eager_member_gives_all_up_before_it_joins",),
    ),
    Planted(
        bug="a cooperative rebalance gives a partition away that its owner still reads",
        file=STICKY,
        old=" if not claimed.get(partition, set()) - {member_id}\n",
        new="\n",
        tests=(f"{DIVIDED}a_cooperative_rebalance_takes_first_and_gives_afterwards",),
    ),
    Planted(
        bug="an expelled member stores offsets as if it were in no group",
        file=MEMBER,
        old="        self._expelled += 1\n",
        new="        self._expelled += 1\n        self._visible = self._identity()\n",
        tests=(f"{STEPS}an_expelled_member_joins_anew",),
    ),
    Planted(
        bug="a member of another generation leaves its old id behind, for which all others wait",
        file=MEMBER,
        old='        self._member_id = self._member_id if keeps_id else ""\n',
        new='        self._member_id = ""\n',
        tests=(f"{STEPS}a_member_of_another_generation_joins_again_under_its_id",),
    ),
    Planted(
        bug="an automatic commit stores records that the program is still processing",
        file=MEMBERSHIP,
        old="            self._is_commit_due = True\n            self._look()\n",
        new="            self._is_commit_due = True\n            self.store_if_due({})\n",
        tests=(f"{STORING}an_automatic_commit_waits_for_the_poll_after_the_records",),
    ),
    Planted(
        bug="leaving by an exception stores records that are not processed",
        file=MEMBERSHIP,
        old="            elif is_clean:\n",
        new="            else:\n",
        tests=(f"{STORING}a_clean_end_stores_and_an_exception_does_not",),
    ),
    Planted(
        bug="an older commit in the background overtakes a newer one",
        file=COMMITS,
        old="        self.forget(offsets)  # what waits for the same partitions is older\n",
        new="        if offsets == self._waiting:\n            self.forget(offsets)\n",
        tests=(f"{STORING}commits_in_the_background_keep_their_order",),
    ),
    Planted(
        bug="a long iteration over one fetch counts as a program that hangs",
        file=LIVENESS,
        old="        if self._polls or progress != self._seen:\n",
        new="        if self._polls:\n",
        tests=(f"{STEPS}an_iteration_lives_as_long_as_it_yields",),
    ),
    Planted(
        bug="a member acknowledges a revocation while on_revoked still runs",
        file=KIP848_MEMBER,
        old="        names, owned = self._sent\n",
        new="        names, owned = self._sent\n"
        "        self._owned = tuple(name for name in self._owned if name in self._assignment)\n",
        tests=(f"{BEATS}what_is_revoked_is_acknowledged_when_on_revoked_has_ended",),
    ),
    Planted(
        bug="an assignment whose answer was lost never arrives",
        file=KIP848_MEMBER,
        old="                self._is_all_due = True\n                self._cluster.last_trouble",
        new="                self._cluster.last_trouble",
        tests=(f"{BEATS}an_assignment_in_an_answer_that_is_lost_is_asked_for_again",),
    ),
    Planted(
        bug="a commit stores offsets of partitions that were lost while it was tried again",
        file=COMMITS,
        old="        if member is not None and member.losses != losses:\n",
        new="        if False:\n",
        tests=(f"{EPOCHS}a_commit_that_began_before_the_loss_stores_nothing_afterwards",),
    ),
    Planted(
        bug="a commit fails because another member came or went",
        file=COMMITS,
        old="            if is_stale and member.state in MEMBERS:\n",
        new="            if False:\n",
        tests=(f"{EPOCHS}a_commit_whose_epoch_alone_is_stale_is_tried_again_with_the_next",),
    ),
    Planted(
        bug="a member reads stored offsets without its epoch",
        file=COMMITS,
        old="        reader = None if member is None else member.reader\n",
        new="        reader = None\n",
        tests=(f"{EPOCHS}a_member_reads_stored_offsets_with_its_id_and_epoch",),
    ),
    Planted(
        bug="a poll fails because the coordinator has moved the member to the next epoch",
        file=COMMITS,
        old="            if member is None or reader is None or error.code not in NO_MEMBER:\n",
        new="            if True:\n",
        tests=(f"{EPOCHS}stored_offsets_are_read_again_with_the_epoch_of_the_next_heartbeat",),
    ),
    Planted(
        bug="the new protocol is used although the cluster has it switched off",
        file=UNDECIDED,
        old="    return connection.features.get(GROUP_FEATURE, 0) >= 1\n",
        new="    return True\n",
        tests=(f"{CHOICE}a_broker_without_the_new_protocol_has_classic_members",),
    ),
)
