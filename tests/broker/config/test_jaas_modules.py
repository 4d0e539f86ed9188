"""A line of JAAS names a module, and no module is ever loaded (CVE-2023-25194, CVE-2025-27819)."""

import sys

import pytest

from odradek.broker.config.changes import SettingChange, broker_alteration
from odradek.broker.config.live import is_live
from odradek.broker.config.sasl_listeners import MODULES, sasl_of
from odradek.broker.config.settings import ConfigError
from odradek.protocol.errors import KafkaError
from tests.broker.config.configured import from_properties

LISTENER = "SECURE"
OTHERS = (
    "com.sun.security.auth.module.JndiLoginModule",
    "com.sun.security.auth.module.LdapLoginModule",
    "org.apache.kafka.common.security.plain.PlainLoginModule2",
    "antigravity",
    "scripts.nothing",
)


def named(mechanism: str) -> str:
    return f"listener.name.{LISTENER.lower()}.{mechanism.lower()}.sasl.jaas.config"


def no_file(path: str) -> str:
    raise AssertionError(f"{path} was read")


@pytest.mark.parametrize("mechanism", MODULES)
@pytest.mark.parametrize("other", OTHERS)
def test_no_module_but_that_of_the_mechanism_is_taken_and_none_is_loaded(
    mechanism: str, other: str
) -> None:
    line = f'{other} required user.provider.url="ldap://127.0.0.1:1/x" user_a="b";'
    settings = from_properties({"sasl.enabled.mechanisms": mechanism, named(mechanism): line})
    with pytest.raises(ConfigError, match="nothing is loaded here"):
        sasl_of(settings, LISTENER, no_file)
    assert other not in sys.modules


@pytest.mark.parametrize("mechanism", MODULES)
def test_no_request_changes_a_line_of_jaas(mechanism: str) -> None:
    for name in (named(mechanism), "sasl.jaas.config"):
        assert not is_live(name)
        for broker in ("1", ""):
            alter = broker_alteration(broker, [SettingChange(name, 0, f"{OTHERS[0]} required;")])
            with pytest.raises(KafkaError):
                alter({})
