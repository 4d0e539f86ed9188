"""Three real brokers and an etcd: they log in at each other by SCRAM."""

import socket
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.testing import RunningBroker
from odradek.client.blocking import Acl, Admin, NewTopic, OdradekError, Producer
from tests.broker.serving import Asked
from tests.certificates import Authority
from tests.cluster.bookkeeper import (
    LEDGER,
    PARTITIONS,
    SOURCE,
    Bookkeeper,
    check_numbers,
    read,
)
from tests.cluster.password_brokers import (
    ADMIN,
    BROKER,
    SHA_256,
    STRANGER,
    PasswordBrokers,
    password_brokers,
)
from tests.cluster.test_network import wait_until
from tests.cluster.test_tls_between_brokers import ALERT
from tests.cluster.tls_brokers import COUNT, INSIDE, SECURE
from tests.peers.etcd_server import RealEtcd

pytestmark = [pytest.mark.peers, pytest.mark.slow]

WRITTEN: Final = 10
NEW_PASSWORD: Final = "another-one"
ENTRY: Final = Acl("cluster", "kafka-cluster", "User:broker3", "cluster_action")


def is_in(broker: RunningBroker, text: str) -> bool:
    return text in broker.log


def make_topics(cluster: PasswordBrokers, listener: str = SECURE) -> None:
    options = cluster.options(listener=listener)
    with Admin(cluster.addresses(listener), **options) as admin:
        admin.create_topics([NewTopic(SOURCE.topic, 1, COUNT), NewTopic(LEDGER, PARTITIONS, COUNT)])


def test_an_application_counts_while_each_broker_is_killed_and_its_sessions_end(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    """Sessions between brokers last two seconds, and each is renewed. A stranger is let in nowhere.

    The stranger has a name and a password of the same cluster.
    """
    more = {"connections.max.reauth.ms": "2000"}
    with password_brokers(real_etcd, tmp_path, "/scram", more=more) as cluster:
        make_topics(cluster)
        with Bookkeeper(cluster.addresses(), **cluster.options()) as bookkeeper:
            for broker in cluster.brokers:
                bookkeeper.wait_for_more(WRITTEN)
                broker.kill()
                bookkeeper.wait_for_more(WRITTEN)
                broker.start()
                cluster.wait_in_sync()
            bookkeeper.wait_for_more(WRITTEN)
        check_numbers(read(cluster.addresses(), bookkeeper.next_number, **cluster.options()))
        peer = f"127.0.0.1:{cluster.peer_port(1)}"
        with (
            pytest.raises(OdradekError),
            Producer(
                peer,
                **cluster.options(STRANGER),
                max_block_ms=2_000,
            ) as stranger,
        ):
            stranger.send(LEDGER, b"0").result()
        log = cluster.brokers[0].log
        assert f"it is that of User:{STRANGER}, which is no broker" in log
        for broker in cluster.brokers:
            assert "was not renewed" not in broker.log
            assert "Traceback" not in broker.log
            assert cluster.options(BROKER)["sasl_password"] not in broker.log


def test_passwords_and_records_go_through_tls_on_a_listener_of_sasl_ssl(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    with password_brokers(real_etcd, tmp_path, "/tls", authority=authority) as cluster:
        make_topics(cluster)
        with Bookkeeper(cluster.addresses(), **cluster.options()) as bookkeeper:
            bookkeeper.wait_for_more(WRITTEN)
            cluster.brokers[0].kill()
            bookkeeper.wait_for_more(WRITTEN)
            cluster.brokers[0].start()
            cluster.wait_in_sync()
            bookkeeper.wait_for_more(WRITTEN)
        check_numbers(read(cluster.addresses(), bookkeeper.next_number, **cluster.options()))
        with socket.create_connection(("127.0.0.1", cluster.peer_port(1)), 60) as stranger:
            stranger.sendall(Asked().frame(7))
            assert stranger.recv(1) == ALERT


def test_a_wrong_password_keeps_one_broker_out_and_a_new_one_is_rolled_out_by_the_other_mechanism(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    with password_brokers(real_etcd, tmp_path, "/wrong") as cluster:
        make_topics(cluster)
        third = cluster.brokers[2]
        with Bookkeeper(cluster.addresses(), **cluster.options()) as bookkeeper:
            bookkeeper.wait_for_more(WRITTEN)
            cluster.wait_in_sync()
            third.kill()
            cluster.log_in_as(3, BROKER, "wrong")
            third.start()
            said = "at {} does not let this broker in: authenticating at"
            for other in (1, 2):
                place = said.format(f"127.0.0.1:{cluster.peer_port(other)}")
                wait_until(partial(is_in, third, place))
            wait_until(lambda: "for brokers closed: its authentication" in cluster.brokers[0].log)
            bookkeeper.wait_for_more(WRITTEN)
            for other in (1, 2):
                place = said.format(f"127.0.0.1:{cluster.peer_port(other)}")
                assert third.log.count(place) == 1
            with Admin(cluster.addresses(), **cluster.options()) as admin:
                (topic,) = admin.describe_topics(LEDGER)
            assert all(3 not in each.isr for each in topic.partitions)
            third.kill()
            cluster.log_in_as(3)
            third.start()
            cluster.wait_in_sync()
            with Admin(cluster.addresses(), **cluster.options()) as admin:
                admin.set_password(BROKER, NEW_PASSWORD, mechanisms=[SHA_256])
            for node_id in cluster.node_ids:
                cluster.log_in_as(node_id, BROKER, NEW_PASSWORD, SHA_256)
                cluster.brokers[node_id - 1].restart()
                cluster.wait_in_sync()
                bookkeeper.wait_for_more(WRITTEN)
            with Admin(cluster.addresses(), **cluster.options()) as admin:
                admin.delete_user(BROKER, mechanisms=["SCRAM-SHA-512"])
            cluster.brokers[0].restart()
            cluster.wait_in_sync()
            bookkeeper.wait_for_more(WRITTEN)
        check_numbers(read(cluster.addresses(), bookkeeper.next_number, **cluster.options()))


def test_a_cluster_goes_from_plain_to_passwords_while_an_application_counts(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    with password_brokers(real_etcd, tmp_path, "/rolled", INSIDE, between=INSIDE) as cluster:
        make_topics(cluster, INSIDE)
        with Bookkeeper(cluster.addresses(INSIDE)) as bookkeeper:
            bookkeeper.wait_for_more(WRITTEN)
            for between in (INSIDE, SECURE):
                for node_id in cluster.node_ids:
                    cluster.listen_on(node_id, INSIDE, SECURE, between=between)
                    cluster.log_in_as(node_id)
                    cluster.brokers[node_id - 1].restart()
                    cluster.wait_in_sync(INSIDE)
                    bookkeeper.wait_for_more(WRITTEN)
            assert "still serves brokers without SASL (listener INSIDE)" in cluster.brokers[0].log
        check_numbers(read(cluster.addresses(INSIDE), bookkeeper.next_number))
        cluster.brokers[0].restart()
        cluster.wait_in_sync()
        assert "without SASL" not in cluster.brokers[0].log


def test_nobody_follows_a_broker_that_leads_once_its_entry_is_removed(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    """Each broker has a name of its own here. Broker 3 leads on, alone, until it is stopped."""
    users = {node_id: f"broker{node_id}" for node_id in (1, 2, 3)}
    more = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:broker1;User:broker2",
        "replica.lag.time.max.ms": "2000",
    }
    with (
        password_brokers(real_etcd, tmp_path, "/entries", users=users, more=more) as cluster,
        Admin(cluster.addresses(), **cluster.options()) as admin,
    ):
        admin.create_acls([ENTRY])
        admin.create_topics([NewTopic(LEDGER, 2 * COUNT, COUNT)])
        with Producer(cluster.addresses(), **cluster.options()) as producer:
            # which all replicas have, so that all brokers follow all others
            for partition in range(2 * COUNT):
                producer.send(LEDGER, b"0", partition=partition).result()
        cluster.wait_in_sync()
        admin.delete_acls(principal=ENTRY.principal)
        for broker in cluster.brokers[:2]:
            wait_until(partial(is_in, broker, "was closed: it logs in as User:broker3, which is"))

        def is_alone() -> bool:
            (topic,) = admin.describe_topics(LEDGER)
            return all(
                set(each.isr) == ({3} if each.leader == 3 else {1, 2}) for each in topic.partitions
            )

        wait_until(is_alone)
        (topic,) = admin.describe_topics(LEDGER)
        assert 3 in {each.leader for each in topic.partitions}
        admin.create_acls([ENTRY])
        cluster.wait_in_sync()
