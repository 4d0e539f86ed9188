"""Three real brokers and an etcd: TLS between the brokers, and the way to it."""

import socket
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.testing import BrokerDidNotStart
from odradek.client.blocking import Admin, NewTopic
from tests.broker.serving import Asked
from tests.certificates import DAY, Authority, named
from tests.cluster.bookkeeper import (
    LEDGER,
    PARTITIONS,
    SOURCE,
    Bookkeeper,
    check_numbers,
    read,
)
from tests.cluster.test_network import wait_until
from tests.cluster.tls_brokers import COUNT, INSIDE, SECURE, TlsBrokers, tls_brokers
from tests.peers.etcd_server import RealEtcd

pytestmark = [pytest.mark.peers, pytest.mark.slow]

ALERT: Final = b"\x15"
"""The first byte of an answer of TLS to what is no TLS."""
WRITTEN: Final = 10


def make_topics(cluster: TlsBrokers, listener: str) -> None:
    with Admin(cluster.addresses(listener), **cluster.options(listener)) as admin:
        admin.create_topics([NewTopic(SOURCE.topic, 1, COUNT), NewTopic(LEDGER, PARTITIONS, COUNT)])


def roll(
    cluster: TlsBrokers,
    bookkeeper: Bookkeeper,
    *,
    between: str,
    listeners: tuple[str, ...],
    watched: str,
) -> None:
    """Restart one broker after the other with these listeners, while the bookkeeper writes."""
    for node_id in cluster.node_ids:
        cluster.listen_on(node_id, between=between, listeners=listeners)
        cluster.brokers[node_id - 1].restart()
        cluster.wait_in_sync(watched)
        bookkeeper.wait_for_more(WRITTEN)


def test_a_cluster_goes_from_plain_to_tls_while_an_application_counts(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    """The steps of docs/security.md: a second listener, the one of brokers, and without the first.

    Meanwhile brokers with the old and the new listener ask each other.
    """
    with tls_brokers(
        real_etcd, tmp_path, "/migrated", between=INSIDE, listeners=(INSIDE,)
    ) as cluster:
        make_topics(cluster, INSIDE)
        both = (INSIDE, SECURE)
        with Bookkeeper(cluster.addresses(INSIDE)) as plain:
            plain.wait_for_more(WRITTEN)
            roll(cluster, plain, between=INSIDE, listeners=both, watched=INSIDE)
            roll(cluster, plain, between=SECURE, listeners=both, watched=INSIDE)
            assert "still serves brokers without TLS (listener INSIDE)" in cluster.brokers[0].log
        options = cluster.options(SECURE)
        with Bookkeeper(cluster.addresses(SECURE), **options) as secure:
            secure.wait_for_more(WRITTEN)
            roll(cluster, secure, between=SECURE, listeners=(SECURE,), watched=SECURE)
        check_numbers(read(cluster.addresses(SECURE), secure.next_number, **options))
        for node_id in cluster.node_ids:
            assert not any(
                "WARNING" in line and "TLS" in line
                for line in cluster.brokers[node_id - 1].log.splitlines()
            )
            address = ("127.0.0.1", cluster.peer_port(node_id))
            with socket.create_connection(address, 60) as stranger:
                stranger.sendall(Asked().frame(7))
                assert stranger.recv(1) == ALERT


def test_a_broker_whose_certificate_does_not_count_is_kept_out_and_the_others_go_on(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    """Broker 3 is killed and comes back with one that has expired, a foreign one, a client's."""
    with tls_brokers(
        real_etcd, tmp_path, "/refused", between=SECURE, listeners=(SECURE,)
    ) as cluster:
        make_topics(cluster, SECURE)
        *others, third = cluster.brokers
        options = cluster.options(SECURE)
        rightful = cluster.authority.signed("broker3")
        (tmp_path / "other").mkdir()
        other = Authority(tmp_path / "other", "other")
        expired = cluster.authority.signed(
            "old", subject=named("broker3"), begins=-2 * DAY, ends=-DAY
        )
        bootstrap = ",".join(cluster.addresses(SECURE).split(",")[:2])
        with Bookkeeper(bootstrap, **options) as bookkeeper:
            bookkeeper.wait_for_more(WRITTEN)
            cluster.wait_in_sync(SECURE)

            def is_kept_out(why: str) -> None:
                third.start()
                wait_until(lambda: any(why in broker.log for broker in others))
                bookkeeper.wait_for_more(WRITTEN)
                assert third.process.poll() is None
                with Admin(bootstrap, **options) as admin:
                    (topic,) = admin.describe_topics(LEDGER)
                assert all(3 not in each.isr for each in topic.partitions)
                third.kill()

            third.kill()
            cluster.certify(3, expired)
            is_kept_out("for brokers closed: its certificate is not trusted (certificate has exp")
            cluster.certify(3, other.signed("broker3"))
            with pytest.raises(BrokerDidNotStart, match=r"other brokers would not trust .*"):
                third.start()
            third.config["ssl.truststore.location"] = other.file
            is_kept_out("for brokers closed: it does not trust the certificate of this broker")
            cluster.certify(3, cluster.authority.signed("alice3"))
            is_kept_out("it is that of User:CN=alice3,O=Test, which is no broker")
            cluster.certify(3, rightful)
            third.start()
            cluster.wait_in_sync(SECURE)
            bookkeeper.wait_for_more(WRITTEN)
        check_numbers(read(bootstrap, bookkeeper.next_number, **options))


def test_brokers_use_certificates_where_clients_have_passwords(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    """Of SASL_SSL, which a cluster may have as its only listener, brokers use the TLS."""
    with tls_brokers(
        real_etcd, tmp_path, "/sasl", between=SECURE, listeners=(SECURE,), has_sasl=True
    ) as cluster:
        make_topics(cluster, SECURE)
        options = cluster.options(SECURE)
        with Bookkeeper(cluster.addresses(SECURE), **options) as bookkeeper:
            bookkeeper.wait_for_more(WRITTEN)
        cluster.wait_in_sync(SECURE)
        check_numbers(read(cluster.addresses(SECURE), bookkeeper.next_number, **options))
