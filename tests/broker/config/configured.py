"""Configurations of brokers in few words."""

from collections.abc import Mapping

from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.properties import Given
from odradek.broker.config.settling import settle


def from_properties(properties: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration that names and texts give. Raises `ConfigError`."""
    return settle([Given(name=name, text=text) for name, text in properties.items()]).config
