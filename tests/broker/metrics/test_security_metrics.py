"""Logins, refusals and certificates of a secured broker."""

import time

import pytest

from odradek.broker.testing import run_secured_broker
from odradek.client.blocking import Admin
from odradek.client.errors import OdradekError
from tests.broker.metrics.scraping import Page

pytestmark = pytest.mark.slow

SOCKETS = "kafka_server_socket_server_metrics_"


def test_logins_and_refusals_are_counted_and_the_certificate_has_its_end() -> None:
    users = {"alice": "secret", "bob": "other"}
    config = {"metrics.listen": "127.0.0.1:0"}
    with run_secured_broker(users, super_users=["alice"], config=config) as broker:
        page = Page(broker)
        before = page.value(f"{SOCKETS}successful_authentication_total", of="clients")
        with Admin(broker.address, **broker.options("alice")) as admin:
            admin.create_topic("t", partitions=1)
        assert page.value(f"{SOCKETS}successful_authentication_total", of="clients") > before
        assert page.value(f"{SOCKETS}failed_authentication_total", of="clients") == 0
        assert page.value("odradek_authorizer_denied_total") == 0
        with (
            Admin(broker.address, **broker.options("bob")) as admin,
            pytest.raises(OdradekError),
        ):
            admin.delete_topics("t")
        assert page.value("odradek_authorizer_denied_total") > 0
        wrong = {**broker.options("bob"), "sasl_password": "guess"}
        with pytest.raises(OdradekError), Admin(broker.address, **wrong) as admin:
            admin.list_topics()
        # Its connection is closed after a while, so that guesses take time.
        while not page.value(f"{SOCKETS}failed_authentication_total", of="clients"):
            pass
        assert page.value("odradek_tls_certificate_expiry_timestamp_seconds") > time.time()
