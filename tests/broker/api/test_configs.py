"""What DescribeConfigs shows of the broker's settings."""

from odradek.broker.api.configs import broker_configs
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.live import LiveConfig
from odradek.broker.config.settings import ConfigType


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
