"""Bugs of the client's members of consumer groups."""

from typing import Final

from tests.planted.bug import Planted

COMMITS: Final = "client/grouping/commits.py"
LIVENESS: Final = "client/grouping/liveness.py"
MEMBER: Final = "client/grouping/member.py"
MEMBERSHIP: Final = "client/grouping/membership.py"
STICKY: Final = "client/grouping/sticky.py"
STEPS: Final = "tests/client/grouping/test_member.py::test_"
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
        bug="an automatic commit stores records that the program is still processing",
        file=MEMBERSHIP,
        old="            self._is_commit_due = True\n            self._look()\n",
        new="            self._is_commit_due = True\n            self.store_if_due({})\n",
        tests=(f"{STEPS}an_automatic_commit_waits_for_the_poll_after_the_records",),
    ),
    Planted(
        bug="leaving by an exception stores records that are not processed",
        file=MEMBERSHIP,
        old="            elif is_clean:\n",
        new="            else:\n",
        tests=(f"{STEPS}a_clean_end_stores_and_an_exception_does_not",),
    ),
    Planted(
        bug="an older commit in the background overtakes a newer one",
        file=COMMITS,
        old="        self.forget(offsets)  # what waits for the same partitions is older\n",
        new="",
        tests=(f"{STEPS}commits_in_the_background_keep_their_order",),
    ),
    Planted(
        bug="a long iteration over one fetch counts as a program that hangs",
        file=LIVENESS,
        old="        if self._polls or progress != self._seen:\n",
        new="        if self._polls:\n",
        tests=(f"{STEPS}an_iteration_lives_as_long_as_it_yields",),
    ),
)
