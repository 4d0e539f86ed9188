"""Bugs of the asyncio client: what a cancellation, or two tasks at once, would lose or leave."""

from typing import Final

from tests.planted.bug import Planted

AT_ONCE: Final = "tests/client/test_reading_at_once.py::test_"
ENDS: Final = "tests/client/aio/test_every_call_ends.py::test_"
EXITS: Final = "tests/client/aio/test_exit_paths.py::test_"
GROUPS: Final = "tests/client/aio/test_groups_live.py::test_"
LIVE: Final = "tests/client/aio/test_aio_live.py::test_"
OPENING: Final = "tests/client/aio/test_open_and_close.py::test_"
LAST: Final = "tests/client/producing/test_last_producer.py::test_"
IN_MEMORY: Final = "tests/client/producing/test_transaction_pool.py::test_"
POOLS: Final = "tests/client/test_pools_live.py::test_"
TURNS: Final = "tests/client/blocking/test_turns.py::test_"
LOOPS: Final = "tests/client/aio/test_event_loops.py::test_"

ASYNCIO_BUGS: Final = (
    Planted(
        bug="a call goes on in trio after its asyncio task was cancelled",
        where="Caller.call",
        old="loop.run_soon(scope.cancel)\nawait pending.wait_cancelled()",
        new="await pending.wait_cancelled()",
        tests=(
            f"{ENDS}every_asyncio_call_is_cancelled_at_once_and_so_is_its_task_in_trio[Consumer.poll]",
        ),
    ),
    Planted(
        bug="an asyncio send never waits for room in the buffer",
        where="aio.producer.Producer.send",
        old="self._unconfirmed_bytes >= self._queued_bytes_max",
        new="False",
        tests=(f"{LOOPS}send_waits_while_the_buffer_is_full_and_a_timeout_ends_the_wait",),
    ),
    Planted(
        bug="of two tasks that poll at once, one replaces the records of the other",
        where="aio.consumer.Consumer._keep",
        old="if run.is_over:",
        new="if run.is_over or True:",
        tests=(f"{LIVE}tasks_that_read_at_the_same_time_get_each_record_once",),
    ),
    Planted(
        bug="a task takes batches while those before them are still under way to another task",
        where="Consumer._lend",
        old="loan.has_turn = True",
        new="self._turn.release()",
        tests=(f"{AT_ONCE}batches_of_a_cancelled_task_go_to_the_task_that_waits",),
    ),
    Planted(
        bug="two threads take records of one blocking consumer at the same moment",
        where="OneThread.resume",
        old="raise Refused(IN_USE)",
        tests=(f"{AT_ONCE}an_iteration_that_a_thread_has_taken_over_raises",),
    ),
    Planted(
        bug="the batches of a cancelled fetch_batches are skipped",
        where="Consumer._end",
        old="if not loan.has_arrived:",
        new="if False:",
        tests=(f"{LOOPS}records_that_a_cancelled_task_did_not_get_are_not_skipped[batches]",),
    ),
    Planted(
        bug="an asyncio client that was entered at the moment of a cancellation stays open",
        where="Aio.__aenter__",
        old="self._abandon((type(error), error, error.__traceback__))",
        tests=(f"{LOOPS}a_client_that_was_entered_at_the_moment_of_a_cancellation_is_left",),
    ),
    Planted(
        bug="an asyncio transaction that began at the moment of a cancellation stays open",
        where="aio.transaction.Transaction.__aenter__",
        old="if self._behind._is_current:",
        new="if False:",
        tests=(f"{LOOPS}a_transaction_that_began_at_the_moment_of_a_cancellation_is_aborted",),
    ),
    Planted(
        bug="a client that is closed while it is being opened is open afterwards",
        where="Hosted._end",
        old="self._attempt.cancel()",
        new="return",
        tests=(f"{OPENING}opening_that_is_cancelled_or_closed_ends_at_once[close]",),
    ),
    Planted(
        bug="a client whose close is cancelled at once is never left",
        where="Hosted._end",
        old="with trio.CancelScope(shield=True):",
        new="with trio.CancelScope():",
        tests=(
            "tests/client/blocking/test_hosted.py::"
            "test_a_close_that_is_cancelled_before_it_begins_still_leaves_the_object",
        ),
    ),
    Planted(
        bug="nobody aborts a transaction whose commit fails after its task was cancelled",
        where="Ending.run",
        old="if self.is_left_alone and self._session.state is SessionState.ABORTABLE:",
        new="if False and self._session.state is SessionState.ABORTABLE:",
        tests=(
            f"{IN_MEMORY}a_turn_comes_after_a_commit_that_fails_when_its_block_was_cancelled[2]",
        ),
    ),
    Planted(
        bug="a pool that is closed leaves a producer that is initialised at that moment",
        where="Members._renew",
        old="if self._ended is not None:",
        new="if False:",
        tests=(f"{IN_MEMORY}closing_a_pool_leaves_no_producer_that_is_initialised_at_that_moment",),
    ),
    Planted(
        bug="a pool takes an id back from the instance that has fenced it",
        where="TransactionRequests.regain",
        old="if is_ours:",
        new="if True:",
        tests=(f"{POOLS}of_two_pools_with_one_prefix_the_older_ends_once[odradek]",),
    ),
    Planted(
        bug="a time-out of the successor's transaction is taken for one of the producer's own",
        where="is_free",
        old="epoch < now.epoch <= epoch + bumps",
        new="bumps > 0",
        tests=(f"{POOLS}a_successor_whose_transaction_was_aborted_is_not_fenced_back[odradek]",),
    ),
    Planted(
        bug="on Kafka 3, a transaction that the successor aborts is taken for a time-out",
        where="is_free",
        old="last.was_open",
        new="True",
        tests=(f"{LAST}an_id_is_free_only_if_no_successor_has_it[abort of a successor]",),
    ),
    Planted(
        bug="a transaction that ended early drops the records of the next one on leaving its block",
        where="Transaction._drop_queued",
        old="if self._producer._transaction in (None, self):",
        new="if True:",
        tests=(f"{TURNS}a_block_that_is_left_drops_nothing_of_the_next_transaction",),
    ),
    Planted(
        bug="a client whose event loop was closed is never left",
        where="Aio._leave",
        old="self._abandon(reason)",
        tests=(f"{EXITS}an_event_loop_that_is_closed_aborts_the_transaction_of_a_task_in_it",),
    ),
    Planted(
        bug="the time limit of an asyncio poll cuts off the callback of a rebalance",
        where="aio.consumer.Consumer._keep",
        old="await run.keep(partial(take, left_ms))",
        new="with trio.move_on_at(deadline):\n    await run.keep(partial(take, left_ms))",
        tests=(f"{GROUPS}a_callback_is_not_cut_off_by_the_time_limit_of_a_poll",),
    ),
)
