"""Bugs of the asyncio client: what a cancellation, or two tasks at once, would lose or leave."""

from typing import Final

from tests.planted.bug import Planted

CROSSING: Final = "client/aio/crossing.py"
CONSUMER: Final = "client/aio/consumer.py"
HOSTED: Final = "client/aio/hosted.py"
PRODUCER: Final = "client/aio/producer.py"
TRANSACTION: Final = "client/aio/transaction.py"
ONE_THREAD: Final = "client/blocking/one_thread.py"

AT_ONCE: Final = "tests/client/test_reading_at_once.py::test_"
ENDS: Final = "tests/client/aio/test_every_call_ends.py::test_"
EXITS: Final = "tests/client/aio/test_exit_paths.py::test_"
GROUPS: Final = "tests/client/aio/test_groups_live.py::test_"
LIVE: Final = "tests/client/aio/test_aio_live.py::test_"
LOOPS: Final = "tests/client/aio/test_event_loops.py::test_"

ASYNCIO_BUGS: Final = (
    Planted(
        bug="a call goes on in trio after its asyncio task was cancelled",
        file=CROSSING,
        old="                loop.run_soon(scope.cancel)\n                await",
        new="                await",
        tests=(
            f"{ENDS}every_asyncio_call_is_cancelled_at_once_and_so_is_its_task_in_trio[Consumer.poll]",
        ),
    ),
    Planted(
        bug="an asyncio send never waits for room in the buffer",
        file=PRODUCER,
        old="while self._unconfirmed_bytes >= self._queued_bytes_max or self._is_full:",
        new="while self._is_full:",
        tests=(f"{LOOPS}send_waits_while_the_buffer_is_full_and_a_timeout_ends_the_wait",),
    ),
    Planted(
        bug="of two tasks that poll at once, one replaces the records of the other",
        file=CONSUMER,
        old="len(behind._run):\n                await behind._keep(",
        new="len(behind._run) or True:\n                await behind._keep(",
        tests=(f"{LIVE}tasks_that_read_at_the_same_time_get_each_record_once",),
    ),
    Planted(
        bug="a task takes batches while those before them are still under way to another task",
        file=CONSUMER,
        old="        loan.has_turn = True\n",
        new="        self._turn.release()\n",
        tests=(f"{AT_ONCE}batches_of_a_cancelled_task_go_to_the_task_that_waits",),
    ),
    Planted(
        bug="two threads take records of one blocking consumer at the same moment",
        file=ONE_THREAD,
        old="            raise Refused(IN_USE)\n        self.begin(iteration)\n",
        new="            pass\n        self.begin(iteration)\n",
        tests=(f"{AT_ONCE}an_iteration_that_a_thread_has_taken_over_raises",),
    ),
    Planted(
        bug="the batches of a cancelled fetch_batches are skipped",
        file=CONSUMER,
        old="        if not loan.has_arrived:\n",
        new="        if False:\n",
        tests=(f"{LOOPS}records_that_a_cancelled_task_did_not_get_are_not_skipped[batches]",),
    ),
    Planted(
        bug="an asyncio client that was entered at the moment of a cancellation stays open",
        file=HOSTED,
        old="            self._abandon((type(error), error, error.__traceback__))\n",
        new="            pass\n",
        tests=(f"{LOOPS}a_client_that_was_entered_at_the_moment_of_a_cancellation_is_left",),
    ),
    Planted(
        bug="an asyncio transaction that began at the moment of a cancellation stays open",
        file=TRANSACTION,
        old="            if self._behind._producer._transaction is self._behind:\n",
        new="            if False:\n",
        tests=(f"{LOOPS}a_transaction_that_began_at_the_moment_of_a_cancellation_is_aborted",),
    ),
    Planted(
        bug="a client whose event loop was closed is never left",
        file=HOSTED,
        old="            self._abandon(reason)\n            return\n",
        new="            return\n",
        tests=(f"{EXITS}an_event_loop_that_is_closed_aborts_the_transaction_of_a_task_in_it",),
    ),
    Planted(
        bug="the time limit of an asyncio poll cuts off the callback of a rebalance",
        file=CONSUMER,
        old="                await behind._keep(partial(take, left_ms))\n",
        new="                with trio.move_on_at(deadline):\n"
        "                    await behind._keep(partial(take, left_ms))\n",
        tests=(f"{GROUPS}a_callback_is_not_cut_off_by_the_time_limit_of_a_poll",),
    ),
)
