"""Files of Kafka's client settings, such as `client.properties`, for commands.

Kafka's tools take them by `--command-config`. Settings of security are those of
`security_settings.py`; other names say how a Java client works, and are left out. A value may stand
elsewhere, as with the config providers of Kafka, which need not be named here:

    ${env:NAME}               an environment variable
    ${file:PATH:NAME}         a setting of another file
    ${directory:PATH:FILE}    the content of a file

`--profile NAME` is the file NAME.properties in the directory of this user.

A file that has a secret, and that all users of the machine may read, has a warning: its owner may
not know that `sudo` and an editor have made it so. So have the files that a value names, if it is a
secret, and files of keys without a password.
"""

import os
import re
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from odradek.client.config import ClientOptions
from odradek.client.security_settings import take_setting, used_options
from odradek.client.tls.secret_files import has_open_key, warning_about
from odradek.protocol.properties import properties

ELSEWHERE: Final = re.compile(r"\$\{([A-Za-z0-9_.-]+):([^}:]*)(?::([^}]*))?\}")
PLACES: Final = ("env", "file", "directory")
SECRET_OPTIONS: Final = ("sasl_password", "sasl_oauthbearer_client_secret", "ssl_key_password")
PEM_OPTIONS: Final = ("ssl_key_location", "ssl_certificate_location")
"""The options that may be the text of a key instead of the name of a file."""
KEY: Final = "PRIVATE KEY-----"
PEM_MARK: Final = "-----BEGIN "
ENVIRONMENT: Final = "env"
FILE_OPTIONS: Final = ("command_config", "profile")
"""The names of the two options of commands that name a file."""


class ClientProperties(NamedTuple):
    """The part of a file that a command takes."""

    options: ClientOptions
    bootstrap: str | None
    has_secret: bool = False
    """A secret stands in the file itself, and not elsewhere."""
    secret_files: tuple[str, ...] = ()
    """The other files in which secrets stand."""


def gives_way(context: click.Context, option: str) -> bool:
    """Return True if this option and the other one name a file, and the other one counts.

    The command line counts before the environment. Raises UsageError for two of the same kind.
    """
    environment = click.core.ParameterSource.ENVIRONMENT
    found = [name for name in FILE_OPTIONS if context.get_parameter_source(name) is environment]
    if len(found) != 1:
        raise click.UsageError(
            "--command-config and --profile both name a file of settings: give one."
        )
    return found == [option]


def profile_file(name: str) -> Path:
    """Return the file of a profile. Raises ValueError if it is not there."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    file = Path(base) / "odradek" / f"{name}.properties"
    if not file.is_file():
        raise ValueError(f"There is no profile {name!r}: make the file {file}")
    return file


def read_client_properties(file: Path) -> ClientProperties:
    """Return the options of a client that a file gives. Raises OSError and ValueError."""
    return client_properties(file.read_text(encoding="utf-8-sig"), str(file))


def warnings_of(file: Path, found: ClientProperties) -> list[str]:
    """Return what to warn of in a file that has been read, and in the files that it names."""
    files = [*([str(file)] if found.has_secret else []), *found.secret_files]
    sentences = map(warning_about, files)
    return [f"Warning: {sentence}" for sentence in sentences if sentence is not None]


def client_properties(text: str, source: str) -> ClientProperties:
    """Return the options of a client that a text gives. Raises ValueError, with the line."""
    options: dict[str, Any] = {}
    bootstrap = None
    literal: set[str] = set()
    """The values that stand in the text itself."""
    named: dict[str, list[str]] = {}
    """The files that a value has named, by the value."""

    def noting(value: str) -> str:
        resolved = resolve(value)
        if resolved == value:
            literal.add(value)
        named[resolved] = [
            str(_path(match)) for match in ELSEWHERE.finditer(value) if match[1] != ENVIRONMENT
        ]
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
    secrets = _secrets(options)
    files = [file for secret in secrets for file in named.get(secret, ())]
    used = used_options(options)
    return ClientProperties(
        used,
        bootstrap,
        _stand_in(literal, secrets),
        tuple(dict.fromkeys((*files, *_key_files(used)))),
    )


def _secrets(options: Mapping[str, Any]) -> list[str]:
    passwords = [options[name] for name in SECRET_OPTIONS if options.get(name)]
    return passwords + [options[name] for name in PEM_OPTIONS if KEY in options.get(name, "")]


def _stand_in(literal: Container[str], secrets: list[str]) -> bool:
    return any(value in literal for value in secrets)


def _key_files(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files that have a key without a password."""
    for name in PEM_OPTIONS:
        place = options.get(name, "")
        if place and PEM_MARK not in place:
            try:
                if has_open_key(Path(place).read_bytes()):
                    yield place
            except OSError:  # the connection says so
                continue


def resolve(value: str) -> str:
    """Return a value with what it names elsewhere. Raises ValueError if that is not there."""
    return ELSEWHERE.sub(_text_of, value)


def _path(match: re.Match[str]) -> Path:
    """Return the file that a value names."""
    kind, place, name = match.groups()
    return Path(place) / (name or "") if kind == "directory" else Path(place)


def _text_of(match: re.Match[str]) -> str:
    kind, place, name = match.groups()
    if kind not in PLACES:
        raise ValueError(
            f"${{{kind}:...}} is not known here: a value may stand elsewhere as ${{env:NAME}}, "
            "${file:PATH:NAME} or ${directory:PATH:FILE}"
        )
    if kind == ENVIRONMENT:
        if place not in os.environ or name is not None:
            raise ValueError(f"{match[0]} names no environment variable that is set")
        return os.environ[place]
    path = _path(match)
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
