"""OAUTHBEARER of one listener: its settings, the keys of its tokens, and their checks."""

from functools import partial
from typing import Final

from odradek.broker.config.sasl import OAUTHBEARER
from odradek.broker.config.settings import ConfigError
from odradek.broker.config.tls import TlsSettings, own_name
from odradek.broker.environment.env import Clock
from odradek.broker.oauth.key_places import EXTRA, CannotRead, KeyFile, place_of
from odradek.broker.oauth.key_source import KeySource, Pauses
from odradek.broker.oauth.oauthbearer import OAuthBearer
from odradek.broker.oauth.signing_keys import SigningKeys, UnknownSigningKey, WrongKeys, parse_keys
from odradek.broker.oauth.tokens import InvalidToken, TokenRules, Verified, verify
from odradek.extras import imports_of

PREFIX: Final = "sasl.oauthbearer."
URL: Final = f"{PREFIX}jwks.endpoint.url"
AUTHORITIES: Final = f"{PREFIX}jwks.endpoint.tls.ca"
AUDIENCE: Final = f"{PREFIX}expected.audience"
NEEDED: Final = {
    URL: "the keys of tokens",
    AUDIENCE: "the name of this service in tokens",
    f"{PREFIX}expected.issuer": "the issuer of tokens",
}
"""The settings without which no token can be trusted, and what each says."""


class ListenerOAuth:
    """The tokens of the listener `name`. `run` keeps their keys."""

    def __init__(self, name: str, settings: TlsSettings) -> None:
        """Read the keys of a file; those of a server come later.

        Raises `ConfigError`, with the setting and its place, and `ExtraMissing`.
        """
        self.name = name
        self._settings = settings
        for setting, what in NEEDED.items():
            if not self._text(setting):
                raise ConfigError(
                    f"Listener {name} has OAUTHBEARER, and {setting} is not set: give {what}, for "
                    f"all listeners or as {own_name(name, setting)}."
                )
        with imports_of(EXTRA, f"OAUTHBEARER of listener {name}"):
            import joserfc  # noqa: F401
        self._rules = TokenRules(
            audiences=tuple(self._text(AUDIENCE).split(",")),
            issuer=self._text(f"{PREFIX}expected.issuer"),
            subject_claim=self._text(f"{PREFIX}sub.claim.name"),
            scope_claim=self._text(f"{PREFIX}scope.claim.name"),
            skew_seconds=int(self._text(f"{PREFIX}clock.skew.seconds")),
        )
        self._source = self._open_source()

    async def run(self) -> None:
        """Read the keys again and again, until cancelled."""
        await self._source.run()

    def renew(self) -> None:
        """Read the keys now, in `run`."""
        self._source.renew()

    def mechanism(self, clock: Clock) -> OAuthBearer:
        """Return the mechanism of the listener."""
        return OAuthBearer(partial(self._verify, clock))

    async def _verify(self, clock: Clock, token: str) -> Verified:
        """Check a token. Raises `InvalidToken`."""
        try:
            return verify(token, self._source.keys, self._rules, now_ms=clock.wall_ms())
        except UnknownSigningKey:
            await self._source.wait_newer()
        try:
            return verify(token, self._source.keys, self._rules, now_ms=clock.wall_ms())
        except UnknownSigningKey as error:
            raise InvalidToken(str(error)) from None

    def _text(self, setting: str) -> str:
        return str(self._settings.of_mechanism(self.name, OAUTHBEARER, setting))

    def _open_source(self) -> KeySource:
        try:
            place = place_of(self._text(URL), self._text(AUTHORITIES))
            keys = self._keys_of(place) if isinstance(place, KeyFile) else None
        except ConfigError as error:
            about = next(each for each in (AUTHORITIES, URL) if each in str(error))
            names = (own_name(self.name, f"{OAUTHBEARER.lower()}.{about}"), about)
            given = [name for name in names if name in self._settings.places]
            named = given[0] if given else self._settings.name_given(self.name, about)
            raise ConfigError(self._settings.blamed(named, str(error))) from None
        pauses = Pauses(
            refresh_seconds=self._seconds("refresh"),
            backoff_seconds=self._seconds("retry.backoff"),
            backoff_max_seconds=self._seconds("retry.backoff.max"),
        )
        return KeySource(place, pauses, listener=self.name, keys=keys)

    def _keys_of(self, file: KeyFile) -> SigningKeys:
        try:
            return parse_keys(file.content())
        except (CannotRead, WrongKeys) as error:
            raise ConfigError(f"{URL} names {file}, which cannot be used: {error}.") from None

    def _seconds(self, what: str) -> float:
        return int(self._text(f"{PREFIX}jwks.endpoint.{what}.ms")) / 1000
