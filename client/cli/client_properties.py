"""Files of Kafka's client settings, such as `client.properties`, for commands.

Kafka's tools take them by `--command-config`. Settings of security are those of
`security_settings.py`; other names say how a Java client works, and are left out. A value may stand
elsewhere, as with the config providers of Kafka, which need not be named here:

    ${env:NAME}               an environment variable
    ${file:PATH:NAME}         a setting of another file
    ${directory:PATH:FILE}    the content of a file

`--profile NAME` is the file NAME.properties in the directory of this user.

A file that has a secret itself, and that all users of the machine may read, has a warning: its
owner may not know that `sudo` and an editor have made it so.
"""

import os
import re
import stat
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.client.config import ClientOptions
from odradek.client.security_settings import take_setting, used_options
from odradek.protocol.properties import properties

ELSEWHERE: Final = re.compile(r"\$\{(env|file|directory):([^}:]*)(?::([^}]*))?\}")
SECRET_OPTIONS: Final = ("sasl_password", "sasl_oauthbearer_client_secret", "ssl_key_password")
PEM_OPTIONS: Final = ("ssl_key_location", "ssl_certificate_location")
"""The options that may be the text of a key instead of the name of a file."""
KEY: Final = "PRIVATE KEY-----"


class ClientProperties(NamedTuple):
    """The part of a file that a command takes."""

    options: ClientOptions
    bootstrap: str | None
    has_secret: bool = False
    """A secret stands in the file itself, and not elsewhere."""


def profile_file(name: str) -> Path:
    """Return the file of a profile."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "odradek" / f"{name}.properties"


def read_client_properties(file: Path) -> ClientProperties:
    """Return the options of a client that a file gives. Raises OSError and ValueError."""
    return client_properties(file.read_text(encoding="utf-8-sig"), str(file))


def warning_of(file: Path, found: ClientProperties) -> str | None:
    """Return what to warn of in a file that has been read; None if there is nothing."""
    if not found.has_secret or not file.stat().st_mode & stat.S_IROTH:
        return None
    return (
        f"Warning: {file} has a secret, and its mode lets every user of this machine read it: "
        f"chmod 600 {file}"
    )


def client_properties(text: str, source: str) -> ClientProperties:
    """Return the options of a client that a text gives. Raises ValueError, with the line."""
    options: dict[str, Any] = {}
    bootstrap = None
    literal: set[str] = set()
    """The values that stand in the text itself."""

    def noting(value: str) -> str:
        resolved = resolve(value)
        if resolved == value:
            literal.add(value)
        return resolved

    for each in properties(text):
        try:
            if take_setting(each.name, each.value, options, noting):
                continue
            if each.name == "bootstrap.servers":
                bootstrap = resolve(each.value)
            elif each.name == "client.id":
                options["client_id"] = resolve(each.value)
        except ValueError as error:
            raise ValueError(f"{source}, line {each.line}: {error}") from None
    return ClientProperties(used_options(options), bootstrap, _has_secret(options, literal))


def _has_secret(options: Mapping[str, Any], literal: Container[str]) -> bool:
    passwords = [options[name] for name in SECRET_OPTIONS if options.get(name)]
    texts = [options[name] for name in PEM_OPTIONS if KEY in options.get(name, "")]
    return any(value in literal for value in (*passwords, *texts))


def resolve(value: str) -> str:
    """Return a value with what it names elsewhere. Raises ValueError if that is not there."""
    return ELSEWHERE.sub(_text_of, value)


def _text_of(match: re.Match[str]) -> str:
    kind, place, name = match.groups()
    if kind == "env":
        if place not in os.environ or name is not None:
            raise ValueError(f"{match[0]} names no environment variable that is set")
        return os.environ[place]
    path = Path(place) / (name or "") if kind == "directory" else Path(place)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ValueError(f"{path} cannot be read: {why}") from None
    if kind == "directory":
        return text.removesuffix("\n")
    found = {each.name: each.value for each in properties(text)}
    if name not in found:
        raise ValueError(f"{path} has no setting {name}")
    return found[name]
