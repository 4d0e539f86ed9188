"""What DescribeConfigs shows of the broker's settings."""

from pathlib import Path
from typing import Final

from odradek.broker.api.config_values import broker_configs
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.live import LiveConfig
from odradek.broker.config.settings import ConfigType
from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.configs import ConfigSource
from tests.broker.api.altering import BROKER, described
from tests.broker.raw import RawClient

STATIC: Final = ConfigSource.STATIC_BROKER
DEFAULT: Final = ConfigSource.DEFAULT


def test_a_password_is_never_shown() -> None:
    configs = broker_configs(LiveConfig(BrokerConfig(etcd_user="ada", etcd_password="very secret")))
    assert "very secret" not in repr(configs)
    by_name = {config.name: config for config in configs}
    assert by_name["etcd.user"].value == "ada"
    assert not by_name["etcd.user"].is_sensitive
    password = by_name["etcd.password"]
    assert (password.value, password.is_sensitive) == (None, True)
    assert password.config_type == ConfigType.PASSWORD
    assert {synonym.value for synonym in password.synonyms} == {None}


def test_what_the_file_or_the_command_line_sets_is_static_even_if_it_is_the_default(
    tmp_path: Path,
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=4\nlog.retention.hours=168\n")

    class WithAFile(RunningBroker):
        command = (*RunningBroker.command, "--config", str(file))

    config = {"group.max.size": "1000", "broker.id": "1"}
    data_dir = tmp_path / "data"
    with (
        run_broker(data_dir=data_dir, config=config, kind=WithAFile) as broker,
        RawClient(broker) as it,
    ):
        shown = described(it, BROKER, "1")
        given = {name for name, found in shown.items() if found.config_source == STATIC}
        assert given == {
            "group.max.size",
            "listeners",
            "log.dirs",
            "log.retention.ms",
            "node.id",
            "num.partitions",
        }
        assert shown["log.dirs"].value == str(data_dir)
        assert [s.source for s in shown["num.partitions"].synonyms] == [STATIC, DEFAULT]
        assert shown["num.io.threads"].config_source == DEFAULT
