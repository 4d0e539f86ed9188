"""What DescribeConfigs shows of the broker's settings."""

from pathlib import Path
from typing import Final

from odradek.broker.api.config_values import broker_configs
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.live import LiveConfig
from odradek.broker.config.settings import ConfigType
from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.configs import (
    DESCRIBE_CONFIGS,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.broker.api.altering import BROKER, described
from tests.broker.raw import RawClient
from tests.broker.server.authenticating import RIGHT, authenticate, handshake, sasl_broker

STATIC: Final = ConfigSource.STATIC_BROKER
DEFAULT: Final = ConfigSource.DEFAULT
JAAS: Final = "sasl.jaas.config"
SECRETS: Final = ("alice secret", "eve secret", "user_eve", "opens the key")


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


async def test_no_description_has_a_password_of_a_user_of_plain(autojump_clock: object) -> None:
    names: tuple[tuple[str, ...] | None, ...] = (
        None,
        ("sasl.jaas.config", f"listener.name.clients.plain.{JAAS}", f"plain.{JAAS}"),
    )
    async with sasl_broker({"ssl.key.password": "opens the key"}) as broker:
        asker = broker.connect()
        await handshake(asker)
        await authenticate(asker, RIGHT)
        for wanted in names:
            resource = DescribeConfigsResource(
                resource_type=BROKER, resource_name="1", configuration_keys=wanted
            )
            request = DescribeConfigsRequest(
                resources=(resource,), include_synonyms=True, include_documentation=True
            )
            answer = await asker.ask(DESCRIBE_CONFIGS, 4, request)
            (result,) = answer.results
            assert result.error_code == 0
            found = {each.name: each for each in result.configs}
            assert found[JAAS].is_sensitive
            shown = repr(answer)
            assert [secret for secret in SECRETS if secret in shown] == []


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
