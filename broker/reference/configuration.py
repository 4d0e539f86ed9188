"""The configuration reference, made from the declarations of settings, so that it stays true.

`scripts/fix` writes the page. A test fails if the page differs from the declarations, or if a
setting has no sentence.
"""

from collections.abc import Iterator
from typing import Final

from odradek.broker.config.broker import broker_settings
from odradek.broker.config.live import DYNAMIC
from odradek.broker.config.settings import INT32_MAX, INT64_MAX, ConfigType, Setting, text_of
from odradek.broker.config.settling import COARSER, RENAMED
from odradek.broker.config.tls import LIVE
from odradek.broker.config.topic import TOPIC_SETTINGS, about_topic

INTRODUCTION: Final = """\
<!-- made from broker/config/broker.py and broker/config/topic.py: scripts/fix makes it anew -->

# Configuration

`odradek serve --config FILE` reads a properties file, such as Kafka's `server.properties`.
`--set NAME=VALUE` overrules the file. The broker refuses a setting that it does not have, and
prints its line, unless `--ignore-unknown` is given. The names are Kafka's, except those that are
marked *ours*. A time is in milliseconds if its name ends in `ms`; a size is in bytes. Both may also
be written with a unit (`90s`, `7d`, `512MiB`), in the file, in `--set`, and in commands.

A setting with *live* can be changed while the broker runs, for one broker or for all of a cluster,
with `odradek config set` or Kafka's `kafka-configs.sh`. The metadata store keeps the change, which
counts before the file: first the change for this broker, then the change for all brokers. A change
of `min.insync.replicas` is for all brokers, and counts for topics that are created afterwards.
A setting with *listener* can be changed for one listener of one broker, under the name
`listener.name.<listener>.<setting>` ([security.md](security.md#new-certificates)).
"""
TOPICS: Final = """\
## Settings of a topic

`odradek topic create NAME --config NAME=VALUE` gives a topic a setting of its own, and
`odradek topic alter NAME --set NAME=VALUE` changes one at any time. Without it, the setting of the
broker applies.
"""
UNUSED_ONES: Final = """\
## Settings without effect

Kafka's tools and files have these, and they change nothing for a reader. The broker accepts, keeps
and describes them, and logs once for each whose value is not the default that it has no effect.
"""
OTHER_NAMES: Final = """\
## Other names

If a file has a setting in two units, the finer unit counts.
"""


def page() -> str:
    """Return the text of docs/configuration.md."""
    sections = [INTRODUCTION, *_broker(), "", TOPICS, *_topics(), "", UNUSED_ONES, *_unused()]
    return "\n".join([*sections, "", OTHER_NAMES, *_names()])


def _broker() -> Iterator[str]:
    yield from ("| setting | default | values | live | what it does |", "|---|---|---|---|---|")
    for name, setting in broker_settings().items():
        if setting.no_effect:
            continue
        ours = " *(ours)*" if setting.ours else ""
        live = "yes" if name in DYNAMIC else "listener" if name in LIVE else ""
        yield (
            f"| `{name}`{ours} | {_default(setting)} | {_values(setting)} | {live} | "
            f"{setting.about} |"
        )


def _topics() -> Iterator[str]:
    yield from (
        "| setting | the broker's | default | values | what it does |",
        "|---|---|---|---|---|",
    )
    for name, topic in TOPIC_SETTINGS.items():
        setting = topic.setting
        if setting.no_effect:
            continue
        ours = " *(ours)*" if setting.ours else ""
        broker = f"`{topic.broker_name}`" if topic.broker_name else ""
        yield (
            f"| `{name}`{ours} | {broker} | {_default(setting)} | {_values(setting)} | "
            f"{about_topic(name)} |"
        )


def _unused() -> Iterator[str]:
    yield from ("| setting | of | live | what it does in Kafka | why it has no effect |",)
    yield "|---|---|---|---|---|"
    for name, setting in broker_settings().items():
        if setting.no_effect:
            live = "yes" if name in DYNAMIC else ""
            yield f"| `{name}` | brokers | {live} | {setting.about} | {setting.no_effect} |"
    for name, topic in TOPIC_SETTINGS.items():
        setting = topic.setting
        if setting.no_effect:
            broker = f", the broker's is `{topic.broker_name}`" if topic.broker_name else ""
            yield f"| `{name}` | topics{broker} | yes | {setting.about} | {setting.no_effect} |"


def _names() -> Iterator[str]:
    yield from ("| name | stands for |", "|---|---|")
    for name, (stands_for, unit) in COARSER.items():
        yield f"| `{name}` | `{stands_for}`, in units of {unit:,} ms |"
    for name, stands_for in RENAMED.items():
        yield f"| `{name}` | `{stands_for}` |"
    yield ""


def _default(setting: Setting) -> str:
    text = text_of(setting.default)
    if not text:
        return "unset"
    return "2^63-1" if text == str(INT64_MAX) else f"`{text}`"


def _values(setting: Setting) -> str:
    if setting.choices:
        why = f" ({setting.why})" if setting.why else ""
        return " or ".join(f"`{choice}`" for choice in setting.choices) + why
    if setting.type is ConfigType.BOOLEAN:
        return "`true` or `false`"
    if setting.type in (ConfigType.STRING, ConfigType.PASSWORD):
        return "text"
    if setting.type is ConfigType.LIST:
        return "a list, separated by commas"
    if setting.low is not None and setting.low == setting.high:
        return f"only {setting.low} ({setting.why})"
    largest = INT32_MAX if setting.type is ConfigType.INT else INT64_MAX
    high = largest if setting.high is None else setting.high
    shown = {INT32_MAX: "2^31-1", INT64_MAX: "2^63-1"}.get(int(high), f"{high:,}")
    low = "any" if setting.low is None else f"{setting.low:,}"
    return f"{low} to {shown}"
