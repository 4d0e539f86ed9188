"""Files of settings in Java's format, which Kafka's users have (`odradek.protocol.properties`).

Differs from Java: a line without a value is refused, unless its setting may be empty, and a name
that is given twice is refused, where Java takes an empty text, and the last of the two.
"""

from collections.abc import Container, Sequence

from odradek.broker.config.settings import ConfigError, nearest_name, unknown_name
from odradek.late import dataclass
from odradek.protocol.properties import properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One setting as a user gave it, with its place."""

    name: str
    text: str
    source: str = ""
    """The file, or the option of the command line."""
    line: int | None = None

    def blamed(self, sentence: str) -> str:
        """Return `sentence`, which is about this setting, with the place of the setting first."""
        return sentence if self.line is None else f"{self.source}, line {self.line}: {sentence}"


def read_properties(text: str, *, source: str, may_be_empty: Container[str] = ()) -> list[Given]:
    """Return the settings of a properties file in their order.

    Raises `ConfigError` for a line that is no setting, and for a name that is given twice.
    `may_be_empty` has the names whose value may be an empty text.
    """
    found: dict[str, Given] = {}
    for line, logical, name, value in properties(text):
        if not name or not (value or name in may_be_empty):
            raise ConfigError(f"{source}, line {line}: {logical!r} is not name=value.")
        given = Given(name=name, text=value, source=source, line=line)
        if name in found:
            first = found[name].line
            raise ConfigError(given.blamed(f"{name} is in line {first} already; keep one of them."))
        found[name] = given
    return list(found.values())


def unknown_settings(unknown: Sequence[Given], known: Sequence[str]) -> str:
    """Return the error for unknown settings: one sentence, or a sentence and a list."""
    if len(unknown) == 1:
        setting = unknown[0]
        remedy = " Remove it, or go on without it by --ignore-unknown." if setting.line else ""
        return setting.blamed(unknown_name(setting.name, known, of="the broker") + remedy)
    lines = [f"{len(unknown)} settings are none of the broker's:"]
    for setting in unknown:
        near = nearest_name(setting.name, known)
        meant = f" (did you mean {near}?)" if near else ""
        lines.append(f"  {setting.blamed(setting.name)}{meant}")
    return "\n".join([*lines, "Remove them, or go on without them by --ignore-unknown."])
