"""`odradek storage backup` of a broker whose only listener has TLS."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.testing import run_broker
from odradek.client.blocking import Admin, Producer
from tests.secured import run_secured

pytestmark = pytest.mark.slow


def test_a_broker_with_tls_is_backed_up_with_the_settings_of_a_client(tmp_path: Path) -> None:
    with run_secured(tmp_path) as secured:
        options: dict[str, Any] = {
            "security_protocol": "SSL",
            "ssl_ca_location": secured.authority.file,
            "ssl_certificate_location": secured.alice.certificate_file,
            "ssl_key_location": secured.alice.key_file,
        }
        with Producer(secured.address, **options) as producer:
            producer.send("flights", b"LH 400").result()
        file = tmp_path / "client.properties"
        file.write_text(
            f"bootstrap.servers={secured.address}\n"
            "security.protocol=SSL\n"
            f"ssl.truststore.location={secured.authority.file}\n"
            f"ssl.keystore.location={secured.alice.both_file}\n"
        )
        target = tmp_path / "copy"
        words = ["storage", "backup", str(target)]
        without = CliRunner().invoke(main, [*words, "--bootstrap", secured.address])
        assert without.exit_code == 1
        assert "cannot be asked: " in without.output
        assert not target.exists()
        done = CliRunner().invoke(main, [*words, "--command-config", str(file)])
        assert done.exit_code == 0, done.output
    with run_broker(data_dir=target) as restored, Admin(restored.address) as admin:
        assert "flights" in admin.list_topics()
