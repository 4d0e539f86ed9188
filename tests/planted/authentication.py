"""SASL: what would let a client be somebody that it has not shown to be, or a broker."""

from typing import Final

from tests.planted.bug import Planted

CLIENT: Final = "tests/client/sasl/test_"
DIALOG: Final = "tests/broker/server/test_sasl_dialog.py::test_"
OAUTH: Final = "tests/broker/oauth/test_"
STAGE: Final = "tests/broker/server/test_sasl_stage.py::test_"
SESSION: Final = "tests/broker/server/test_sasl_session.py::test_"

AUTHENTICATION_BUGS: Final = (
    Planted(
        bug="the name to act for is ignored in PLAIN",
        where="_plain_result",
        old='if acts_for not in ("", name):',
        new="if False:",
        tests=(f"{DIALOG}what_plain_refuses",),
    ),
    Planted(
        bug="a password of before the file has changed is still right",
        where="Plain._is_kept",
        old="self._hashes is not None and self._hashes.get(name) == kept",
        new="True",
        tests=(
            "tests/broker/config/test_users_file.py::"
            "test_a_password_that_waited_while_the_file_changed_is_that_of_no_user_any_more",
        ),
    ),
    Planted(
        bug="the name to act for is ignored in OAUTHBEARER",
        where="_OAuthExchange._check",
        old='if first.authorization_id not in ("", verified.name):',
        new="if False:",
        tests=(f"{OAUTH}oauthbearer.py::test_a_token_lets_nobody_act_for_another",),
    ),
    Planted(
        bug="a token may name any algorithm",
        where="_header",
        old="if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:",
        new="if not isinstance(algorithm, str):",
        tests=(f"{OAUTH}tokens.py::test_a_token_that_nobody_signed_is_refused",),
    ),
    Planted(
        bug="the audience of a token is not checked",
        where="_check_claims",
        old='{"essential": True, "values": list(rules.audiences)}',
        new='{"essential": True}',
        tests=(f"{OAUTH}tokens.py::test_a_claim_that_is_wrong_is_named",),
    ),
    Planted(
        bug="each token with an unknown key has the keys read",
        where="KeySource.wait_newer",
        old="if now >= self._asked_at + ONCE_IN_SECONDS and not self._is_wanted:",
        new="if not self._is_wanted:",
        tests=(
            f"{OAUTH}key_source.py::"
            "test_a_thousand_tokens_with_unknown_keys_have_them_read_once_in_ten_seconds",
        ),
    ),
    Planted(
        bug="the name to act for is ignored in SCRAM",
        where="_ScramExchange._challenge",
        old="if acts_for and _unescaped(acts_for) != user:",
        new="if False:",
        tests=(f"{DIALOG}scram_refuses_to_let_a_user_act_for_another",),
    ),
    Planted(
        bug="a nonce is compared by its beginning",
        where="_ScramExchange._check",
        old="if not hmac.compare_digest(nonce, challenged.nonce):",
        new="if not challenged.nonce.startswith(nonce):",
        tests=(f"{DIALOG}scram_refuses_a_second_message_that_does_not_follow_the_first",),
    ),
    Planted(
        bug="a user that does not exist is refused at its first message",
        where="_ScramExchange._challenge",
        old="credential, _ = self._scram.credential_of(user)",
        new=(
            "credential, is_real = self._scram.credential_of(user)\n"
            'if not is_real:\n    return Rejection(cause="unknown")'
        ),
        tests=(f"{DIALOG}scram_refuses_a_wrong_password_and_an_unknown_user_alike",),
    ),
    Planted(
        bug="a handshake that was answered is no progress",
        where="sasl_stage.authenticate",
        old="if dialog.has_mechanism:",
        new="if False:",
        tests=(f"{STAGE}silent_clients_displace_nobody_whose_handshake_was_answered",),
    ),
    Planted(
        bug="a renewal has no time limit",
        where="ClientConnection.look_after",
        old="is_late = self._session is not None and self._session.is_late",
        new="is_late = False",
        tests=(f"{SESSION}a_re_authentication_has_ten_seconds",),
    ),
    Planted(
        bug="the lane serves a session that is over",
        where="Receiver._may_take",
        old="if self._session is not None and (not self._session.is_open):",
        new="if False:",
        tests=(f"{SESSION}the_lane_takes_nothing_after_the_end_of_a_session",),
    ),
    Planted(
        bug="the client does not check the signature of the broker",
        where="ScramExchange._check_signature",
        old="if not hmac.compare_digest(_bytes(text), self._signature):",
        new="if False:",
        tests=(f"{CLIENT}authentication.py::test_a_broker_without_the_password_is_not_believed",),
    ),
    Planted(
        bug="the client believes a broker that repeats its nonce",
        where="ScramExchange._prove",
        old="if not nonce.startswith(self._nonce) or nonce == self._nonce:",
        new="if not nonce.startswith(self._nonce):",
        tests=(
            f"{CLIENT}authentication.py::"
            "test_a_broker_that_does_not_add_to_the_nonce_is_not_believed",
        ),
    ),
    Planted(
        bug="the client sends a request during the renewal of its session",
        where="BrokerConnection.post",
        old="if self._held is not None and is_held:",
        new="if False:",
        tests=(f"{CLIENT}sessions.py::test_what_was_held_is_sent_in_order_after_that",),
    ),
    Planted(
        bug="the client sends a request without answer during the renewal of its session",
        where="BrokerConnection.post",
        old="elif self._held is not None:",
        new="elif False:",
        tests=(f"{CLIENT}sessions.py::test_a_request_without_answer_is_held_too",),
    ),
)
