"""Quotas: what would let clients use more, or make them wait for nothing."""

from typing import Final

from tests.planted.bug import Planted

HELD: Final = "tests/broker/server/test_held_connections.py::test_"
THROTTLING: Final = "tests/broker/quotas/test_throttling.py::test_"
ACCOUNTS: Final = "tests/broker/quotas/test_accounts.py::test_"
ENTITIES: Final = "tests/broker/quotas/test_entities.py::test_"

QUOTA_BUGS: Final = (
    Planted(
        bug="a mute that also stops answers",
        where="AnswerSender.run",
        old="await self.send(answer, pending.size_bytes)",
        new="await self._messages._throttle.wait(); await self.send(answer, pending.size_bytes)",
        tests=(f"{HELD}answers_are_sent_while_the_connection_is_not_read",),
    ),
    Planted(
        bug="a client that goes while it is held is not noticed",
        where="ClientConnection.look_after",
        old="self._receiver.count == self._sender.count and (not is_held)",
        new="self._receiver.count == self._sender.count",
        tests=(f"{HELD}a_client_that_goes_while_it_is_held_is_noticed",),
    ),
    Planted(
        bug="a request that has arrived before is served while the connection is held",
        where="ClientConnection._read_requests",
        old="if self._throttle.until:",
        new="if self._throttle.until and not self._receiver.is_inside_frame:",
        tests=(f"{HELD}the_answer_goes_at_once_and_the_next_request_is_served_later",),
    ),
    Planted(
        bug="the lane serves clients with a quota",
        where="Lane.take",
        old="if self._has_quotas and self._is_limited(asking, plain.client_id or ''):",
        new="if False:",
        tests=(f"{THROTTLING}a_producer_over_its_quota_is_answered_at_once_and_waits",),
    ),
    Planted(
        bug="the quota of the client id counts before that of the user",
        where="QuotaTable.find",
        old="(((USER, user),), of_user)",
        new="(((CLIENT_ID, client_id),), of_client)",
        tests=(f"{ENTITIES}the_first_entity_that_has_a_value_counts",),
    ),
    Planted(
        bug="a refused change of topics is counted, so a client that tries again waits for ever",
        where="QuotaAccounts.mutate",
        old="if is_strict and waits:",
        new="if is_strict and waits and (bucket.take(count) or True):",
        tests=(f"{THROTTLING}changes_of_topics_over_the_quota_are_refused_from_a_version_on",),
    ),
    Planted(
        bug="a broker that starts with a quota of time does not measure it",
        where="QuotaAccounts.__init__",
        old="self._table = NO_QUOTAS",
        new="self._table = table()",
        tests=(f"{THROTTLING}the_time_of_the_loop_counts_after_a_restart",),
    ),
    Planted(
        bug="the time of the last request of a connection counts for nobody",
        where="Throttle.leave",
        old="self.accounts.use(REQUEST_PERCENTAGE, *self._asker, rest)",
        tests=(f"{THROTTLING}the_time_of_the_last_request_of_a_connection_counts",),
    ),
    Planted(
        bug="all connections over the quota of their address are delayed",
        where="Server._is_refused",
        old="if self._refused_count < REFUSED_AT_ONCE:",
        new="if True:",
        tests=(
            f"{THROTTLING}of_many_connections_over_the_quota_some_are_delayed_and_the_others_"
            "closed_at_once",
        ),
    ),
    Planted(
        bug="a quota of connections keeps an administrator on the machine itself out",
        where="Server._is_refused",
        old="self._serves_brokers or stream.is_local",
        new="self._serves_brokers",
        tests=(f"{THROTTLING}connections_from_the_machine_itself_do_not_count",),
    ),
    Planted(
        bug="long ids of clients are kept",
        where="QuotaAccounts.find",
        old="if max(len(user), len(client_id)) > NAME_REMEMBERED_MAX:",
        new="if False:",
        tests=(f"{ACCOUNTS}long_ids_are_not_kept_and_each_has_its_own_account",),
    ),
)
