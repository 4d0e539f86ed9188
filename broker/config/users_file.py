"""The users of PLAIN in the file of a listener (`sasl.plain.users.file`), as they are now.

`reload` reads the file again: at SIGHUP, and when a request names a file. The new users count as a
whole, for authentications from then on. If anything is wrong with the file, the users of before
stay, and the log says why in one line.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from odradek.broker.config.settings import ConfigError
from odradek.broker.config.tls import TlsSettings
from odradek.broker.security.plain import SCRYPT, PasswordHash, parse_hash

LOGGER: Final = logging.getLogger(__name__)

SETTING: Final = "sasl.plain.users.file"
ReadText = Callable[[str], str]
"""Returns the text of a file. Raises OSError and UnicodeDecodeError."""
Hashes = Mapping[str, PasswordHash]


class UsersFile:
    """The users of the listener `name` that are in a file."""

    def __init__(self, name: str, settings: TlsSettings, read: ReadText) -> None:
        """Read the file, if there is one. Raises `ConfigError`, with the setting and its place."""
        self.name = name
        self._settings = settings
        self._read = read
        self.hashes = self._users_of(settings)
        """The users, by name; None without a file."""
        self._followers: list[Callable[[Hashes | None], None]] = []

    def call_with_each(self, follow: Callable[[Hashes | None], None]) -> None:
        """Call `follow` with the users of now, and again whenever they have changed."""
        self._followers.append(follow)
        follow(self.hashes)

    def check(self, settings: TlsSettings) -> None:
        """Raise `ConfigError` if the listener could not use these settings."""
        self._users_of(settings)

    def follow(self, settings: TlsSettings) -> None:
        """Use the file of other settings, unless it is wrong."""
        if _path(settings, self.name) != _path(self._settings, self.name):
            self._settings = settings
            self.reload()

    def renew(self) -> None:
        """Use what the file has now, after a change that may name it again."""
        self.reload(says_same=False)

    def reload(self, *, says_same: bool = True) -> bool:
        """Use what the file has now. Return False if it is wrong.

        `says_same`: log also that nothing is new.
        """
        before = self.hashes or {}
        try:
            found = self._users_of(self._settings)
        except ConfigError as error:
            LOGGER.error(
                "listener %s keeps its %d users of PLAIN of before: %s",
                self.name,
                len(before),
                error,
            )
            return False
        is_other = found != self.hashes
        self.hashes = found
        if is_other:
            for follow in self._followers:
                follow(found)
        if is_other or says_same:
            now = found or {}
            LOGGER.info(
                "listener %s has %d users of PLAIN in its file: %d are new, %d have another "
                "password, %d are gone",
                self.name,
                len(now),
                len(now.keys() - before.keys()),
                sum(before[each] != now[each] for each in now.keys() & before.keys()),
                len(before.keys() - now.keys()),
            )
        return True

    def _users_of(self, settings: TlsSettings) -> Hashes | None:
        """Return the users of the file; None without a file. Raises `ConfigError`."""
        path = _path(settings, self.name)
        if not path:
            return None
        name = settings.name_given(self.name, SETTING)
        try:
            text = self._read(path)
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ConfigError(
                settings.blamed(name, f"{name} is {path}, which cannot be read: {why}.")
            ) from None
        return _parsed(path, text)


def _path(settings: TlsSettings, listener: str) -> str:
    return str(settings.of_listener(listener, SETTING))


def _parsed(path: str, text: str) -> Hashes:
    """Return the users that the lines of a file have. Raises `ConfigError`."""
    users: dict[str, PasswordHash] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, found, rest = line.strip().partition(f":{SCRYPT}")
        try:
            if not user or not found or user in users:
                raise ValueError("it is not NAME:HASH, or its name stands twice")
            users[user] = parse_hash(SCRYPT + rest)
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: {error}.") from None
    return users
