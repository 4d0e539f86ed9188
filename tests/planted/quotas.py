"""Quotas: what would let clients use more, or make them wait for nothing."""

from typing import Final

from tests.planted.bug import Planted

HELD: Final = "tests/broker/server/test_held_connections.py::test_"
THROTTLING: Final = "tests/broker/quotas/test_throttling.py::test_"
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
)
