"""The settings of topics, groups and brokers as answers have them: values, sources and synonyms."""

from collections.abc import Mapping, Sequence

from odradek.broker.cluster.image import TopicImage
from odradek.broker.config.broker import broker_settings, setting_of, value_of
from odradek.broker.config.changes import MIN_ISR
from odradek.broker.config.consumer_group_settings import (
    GROUP_SETTINGS,
    broker_name_of,
    group_value,
)
from odradek.broker.config.live import LiveConfig, is_live
from odradek.broker.config.settings import ConfigType, Setting, text_of
from odradek.broker.config.topic import TOPIC_SETTINGS, about_topic, topic_value
from odradek.protocol.apis.configs import (
    ConfigSource,
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)


def topic_configs(
    topic: TopicImage, settings: LiveConfig
) -> tuple[DescribeConfigsResourceResult, ...]:
    """Return every setting of a topic with the value that is in force."""
    return tuple(_topic_config(topic, name, settings) for name in TOPIC_SETTINGS)


def _topic_config(
    topic: TopicImage, name: str, settings: LiveConfig
) -> DescribeConfigsResourceResult:
    known = TOPIC_SETTINGS[name]
    value = text_of(topic_value(name, topic.configs, settings.now))
    if name == MIN_ISR and topic.min_insync_replicas is not None:
        value = str(topic.min_insync_replicas)
    synonyms = []
    inherited = text_of(topic_value(name, {}, settings.now))
    if name in topic.configs or (name == MIN_ISR and value != inherited):
        synonyms.append((name, topic.configs.get(name, value), ConfigSource.TOPIC))
    if known.broker_name is not None:
        synonyms += _synonyms(known.broker_name, settings)
    source = synonyms[0][2] if synonyms else ConfigSource.DEFAULT
    return _result(name, value, source, known.setting, synonyms, about=about_topic(name))


def group_configs(
    own: Mapping[str, str], settings: LiveConfig
) -> tuple[DescribeConfigsResourceResult, ...]:
    """Return every setting of a consumer group with the value that is in force."""
    found = []
    for name, setting in GROUP_SETTINGS.items():
        synonyms = [(name, own[name], ConfigSource.GROUP)] if name in own else []
        synonyms += _synonyms(broker_name_of(name), settings)
        value = str(group_value(name, own, settings.now))
        found.append(_result(name, value, synonyms[0][2], setting, synonyms, about=setting.about))
    return tuple(found)


def broker_configs(settings: LiveConfig) -> tuple[DescribeConfigsResourceResult, ...]:
    """Return every setting of the broker with the value that is in force."""
    names = [*broker_settings(), *sorted(settings.now.own_of_listeners)]
    return tuple(_broker_config(name, settings) for name in names)


def _broker_config(name: str, settings: LiveConfig) -> DescribeConfigsResourceResult:
    synonyms = _synonyms(name, settings)
    value = text_of(value_of(settings.now, name))
    setting = setting_of(name)
    assert setting is not None, name
    return _result(
        name,
        value,
        synonyms[0][2],
        setting,
        synonyms,
        about=setting.documentation,
        read_only=not is_live(name),
    )


def configs_of_all_brokers(settings: LiveConfig) -> tuple[DescribeConfigsResourceResult, ...]:
    """Return the settings that were changed for all brokers."""
    found = []
    for name, text in settings.of_all.items():
        setting = broker_settings().get(name)
        if setting is not None:
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER
            synonyms = [(name, text, source)]
            about = setting.documentation
            found.append(_result(name, text, source, setting, synonyms, about=about))
    return tuple(found)


def _synonyms(name: str, settings: LiveConfig) -> list[tuple[str, str, ConfigSource]]:
    """Return the values of a setting of the broker, the one that counts first."""
    setting = setting_of(name)
    assert setting is not None, name
    default = setting.default
    given = value_of(settings.given, name)
    found = []
    if name in settings.own:
        found.append((name, settings.own[name], ConfigSource.DYNAMIC_BROKER))
    if name in settings.of_all:
        found.append((name, settings.of_all[name], ConfigSource.DYNAMIC_DEFAULT_BROKER))
    is_given = name in settings.given.given or name in settings.given.own_of_listeners
    if is_given or given != default:
        found.append((name, text_of(given), ConfigSource.STATIC_BROKER))
    return [*found, (name, text_of(default), ConfigSource.DEFAULT)]


def _result(
    name: str,
    value: str,
    source: ConfigSource,
    setting: Setting,
    synonyms: Sequence[tuple[str, str, ConfigSource]],
    *,
    about: str,
    read_only: bool = False,
) -> DescribeConfigsResourceResult:
    is_sensitive = setting.type is ConfigType.PASSWORD
    return DescribeConfigsResourceResult(
        name=name,
        value=None if is_sensitive else value,
        read_only=read_only,
        config_source=source,
        is_sensitive=is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=name, value=None if is_sensitive else value, source=source)
            for name, value, source in synonyms
        ),
        config_type=setting.type,
        documentation=about,
    )
