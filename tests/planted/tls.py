"""TLS: handshakes, certificates, names, and the bytes that OpenSSL keeps."""

from typing import Final

from tests.planted.bug import Planted

HANDSHAKES: Final = "tests/broker/server/test_handshakes.py::test_"
LISTENER: Final = "tests/broker/tls/test_listener_tls.py::test_"
NAMES: Final = "tests/broker/tls/test_principal_names.py::test_"
LOGINS: Final = "tests/broker/cluster/test_peer_login.py::test_"
PEERS: Final = "tests/broker/cluster/test_peer_network.py::test_"
CONNECTION: Final = "tests/broker/environment/test_tls_connection.py::test_"

TLS_BUGS: Final = (
    Planted(
        bug="a peer is trusted for its port",
        where="Server._serve_client",
        old="not self._is_broker(principal, host_of(stream.peer))",
        new="False",
        tests=(f"{PEERS}a_client_with_a_certificate_of_the_same_authority_learns_nothing",),
    ),
    Planted(
        bug="any certificate of the authority is that of a broker",
        where="PeerNetwork._why_certified_is_none",
        old="self._is_broker(principal, _host_of(stream), tls.own_principal())",
        new="True",
        tests=(f"{PEERS}a_broker_asks_nothing_of_a_client_in_the_place_of_another_broker",),
    ),
    Planted(
        bug="any user that logs in is a broker",
        where="PeerNetwork._why_registered_is_none",
        old="self._is_broker(principal, _host_of(stream), login.principal)",
        new="True",
        tests=(f"{LOGINS}a_broker_asks_nothing_of_one_that_logs_in_as_a_client",),
    ),
    Planted(
        bug="a connection to a broker is judged once",
        where="peer_connection._end_distrusted",
        old="if why := why_distrusted():",
        new='if why := "":',
        tests=(f"{PEERS}the_end_of_an_entry_ends_the_connections_to_a_broker_that_leads",),
    ),
    Planted(
        bug="a connection outlives the authorities by which it was trusted",
        where="Server._why_distrusted",
        old="security.tls is not None and security.tls.authorities != authorities",
        new="False",
        tests=(f"{PEERS}other_authorities_end_the_connections_that_the_old_ones_have_let_in",),
    ),
    Planted(
        bug="a certificate without a subject is that of a broker",
        where="Authorizer.is_broker",
        old="not principal.name",
        new="False",
        tests=(f"{PEERS}a_principal_without_a_name_is_no_broker",),
    ),
    Planted(
        bug="a broker starts with a name that all clients have",
        where="ListenerTls._check_for_brokers",
        old="not made.own.name or made.own == ANONYMOUS",
        new="False",
        tests=(f"{PEERS}a_broker_whose_certificate_has_no_subject_does_not_start",),
    ),
    Planted(
        bug="a broker takes another name while it runs",
        where="ListenerTls._make_valid",
        old="is_known_by_it and made.own != self._made.own",
        new="False",
        tests=(f"{PEERS}a_certificate_of_another_name_is_not_taken_while_the_broker_runs",),
    ),
    Planted(
        bug="an expired authority is taken for an expired certificate",
        where="peer_contexts.peer_contexts",
        old="is_out_of_time and not identity.why_invalid(now)",
        new="False",
        tests=(f"{PEERS}an_expired_authority_is_refused_with_its_date",),
    ),
    Planted(
        bug="where no entry is about the cluster, everybody is a broker",
        where="Authorizer.is_broker",
        old="self.table.decide(str(principal), host, operation, kind, CLUSTER_NAME)",
        new=(
            "self.table.decide(str(principal), host, operation, kind, CLUSTER_NAME, "
            "allows_unknown=self.allows_unknown)"
        ),
        tests=(f"{PEERS}an_entry_makes_a_broker_and_its_end_ends_the_connection",),
    ),
    Planted(
        bug="threads of handshakes do not give way to the loop",
        where="HandshakeThreads.__init__",
        old='Threads("handshakes", FIRST_STEPS_AT_ONCE + LATER_STEPS_AT_ONCE, give_way)',
        new='Threads("handshakes", FIRST_STEPS_AT_ONCE + LATER_STEPS_AT_ONCE)',
        tests=(
            "tests/broker/environment/test_giving_way.py::"
            "test_handshakes_of_strangers_give_way_and_our_own_do_not",
        ),
    ),
    Planted(
        bug="a thread that signs has the processor until it is taken away",
        where="HandshakeThreads._in_thread",
        old="partial(call_yielding, step)",
        new="step",
        tests=(
            "tests/broker/environment/test_giving_way.py::"
            "test_a_step_of_a_strangers_handshake_yields_and_one_of_ours_does_not",
        ),
    ),
    Planted(
        bug="a keystore that is replaced counts after a signal only",
        where="ListenerTls._follow_files",
        old="if marks == before != self._marks:",
        new="if marks != before != self._marks:",
        tests=(
            "tests/broker/tls/test_listener_tls.py::"
            "test_a_file_that_is_replaced_is_used_without_a_signal",
        ),
    ),
    Planted(
        bug="a handshake has no time limit",
        where="Handshakes.know",
        old="trio.CancelScope(deadline=trio.current_time() + HANDSHAKE_SECONDS)",
        new="trio.CancelScope(deadline=trio.current_time() + 360 * HANDSHAKE_SECONDS)",
        tests=(f"{HANDSHAKES}bytes_that_trickle_do_not_renew_the_time_limit",),
    ),
    Planted(
        bug="silent clients take all places of handshakes",
        where="_Crowd.next_to_go",
        old="next(iter(crowd))",
        new="next(reversed(crowd))",
        tests=(f"{HANDSHAKES}the_oldest_of_too_many_handshakes_goes",),
    ),
    Planted(
        bug="an expired certificate replaces a good one",
        where="ListenerTls.reload",
        old="made = self._make_valid(self._settings)",
        new="made = self._make(self._settings)",
        tests=(f"{LISTENER}a_broken_certificate_leaves_the_old_one_in_use",),
    ),
    Planted(
        bug="a certificate that is required is only asked for",
        where="ListenerTls._to_made",
        old="context.verify_mode = VERIFY[wish]",
        new="context.verify_mode = min(VERIFY[wish], ssl.CERT_OPTIONAL)",
        tests=(f"{CONNECTION}a_client_without_the_certificate_that_is_required_reads_why",),
    ),
    Planted(
        bug="clients may renegotiate",
        where="peer_contexts.without_costs",
        old="context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET",
        new="context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET",
        tests=(f"{LISTENER}strangers_can_neither_renegotiate_nor_have_tickets",),
    ),
    Planted(
        bug="a rule of principals matches a part of a name",
        where="_Rule.to_name",
        old="self.pattern.fullmatch(name) is None",
        new="self.pattern.search(name) is None",
        tests=(f"{NAMES}the_first_rule_that_matches_the_whole_name_counts",),
    ),
    Planted(
        bug="a name has the characters that part it as they are",
        where="principal_names._attribute",
        old='f"\\\\{it}" if it in ESCAPED else it',
        new="it",
        tests=(f"{NAMES}a_name_is_written_as_java_writes_it",),
    ),
    Planted(
        bug="bytes that were decrypted wait for the next ones",
        where="TlsConnection.receive_untaken",
        old="self._reactor is not None and not self._records.pending_bytes",
        new="self._reactor is not None",
        tests=(f"{CONNECTION}what_was_decrypted_is_not_forgotten_when_the_buffer_was_too_small",),
    ),
    Planted(
        bug="each byte of a handshake takes a thread",
        where="EncryptedSocket.arrive",
        old="self._record_ends.are_in(arrived)",
        new="True",
        tests=(f"{CONNECTION}a_step_of_a_handshake_begins_when_a_record_is_whole",),
    ),
    Planted(
        bug="a turn that has read as much as it may is the last of its connection",
        where="Reactor._receive",
        old="self._unfinished.append(descriptor)",
        new="pass",
        tests=(f"{CONNECTION}more_than_a_turn_may_read_is_taken_in_the_next_one",),
    ),
    Planted(
        bug="a flood of ClientHellos displaces who has agreed on TLS",
        where="Handshakes.know",
        old="self._places.note_progress(scope, HandshakeProgress.HAS_TLS)",
        new="self._places.note_progress(scope)",
        tests=(
            f"{HANDSHAKES}client_hellos_of_many_addresses_displace_nobody_who_has_agreed_on_tls",
        ),
    ),
    Planted(
        bug="the oldest handshake goes",
        where="HandshakePlaces.enter",
        old="displaced = self._crowd_to_shrink().next_to_go()",
        new="displaced = next(iter(self._places))",
        tests=(
            "tests/broker/server/test_handshakes.py::"
            "test_two_thousand_silent_clients_displace_no_handshake_that_is_nearly_done",
        ),
    ),
)
