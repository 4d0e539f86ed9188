"""OAUTHBEARER of a listener: its settings, what is wrong with them, and keys that change."""

import json
from pathlib import Path

import pytest
import trio
import trio.testing

from odradek.broker.config.changes import SettingChange, broker_alteration
from odradek.broker.config.live import is_live
from odradek.broker.config.oauth import OAUTH_SETTINGS
from odradek.broker.config.properties import read_properties
from odradek.broker.config.settings import ConfigError
from odradek.broker.config.settling import settle
from odradek.broker.oauth.listener_oauth import ListenerOAuth
from odradek.broker.security.mechanism import Challenge, Success, Waiting
from odradek.protocol.errors import KafkaError
from tests.broker.config.configured import from_properties
from tests.broker.oauth.signing import AUDIENCE, ISSUER, NOW_S, TokenServer, rsa
from tests.token_server import run_token_server

NAME = "SECURE"
PREFIX = "sasl.oauthbearer."


class StillClock:
    """A clock that stands still."""

    def wall_ms(self) -> int:
        return NOW_S * 1000


def settings(url: str, **others: str) -> dict[str, str]:
    given = {"jwks.endpoint.url": url, "expected.issuer": ISSUER, "expected.audience": AUDIENCE}
    return {f"{PREFIX}{name}": text for name, text in {**given, **others}.items()}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(TokenServer().jwks())
    return path


async def outcome(oauth: ListenerOAuth, token: str) -> Challenge | Success:
    message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    found = oauth.mechanism(StillClock()).begin().answer(message)
    assert isinstance(found, Waiting)
    answer = await found.function()
    assert isinstance(answer, Challenge | Success)
    return answer


def refusal(*lines: str) -> str:
    """What is said of a file with these lines."""
    text = "\n".join(["# OAuth", *lines])
    with pytest.raises(ConfigError) as refused:
        ListenerOAuth(NAME, settle(read_properties(text, source="f")).config)
    assert "\n" not in str(refused.value)
    return str(refused.value)


async def test_a_token_is_checked_by_the_keys_of_a_file(keys: Path) -> None:
    oauth = ListenerOAuth(NAME, from_properties(settings(keys.as_uri())))
    found = await outcome(oauth, TokenServer().token())
    assert isinstance(found, Success)
    assert str(found.principal) == "User:alice"
    assert found.expires_at_ms == (NOW_S + 300) * 1000
    assert isinstance(await outcome(oauth, TokenServer().token(aud="hotels")), Challenge)


async def test_a_listener_and_its_mechanism_come_before_all_listeners(keys: Path) -> None:
    own = {
        f"listener.name.secure.{PREFIX}expected.audience": "hotels, cars",
        f"listener.name.secure.oauthbearer.{PREFIX}sub.claim.name": "email",
        f"listener.name.secure.oauthbearer.{PREFIX}clock.skew.seconds": "0",
    }
    oauth = ListenerOAuth(NAME, from_properties({**settings(keys.as_uri()), **own}))
    found = await outcome(oauth, TokenServer().token(aud="cars", email="a@b"))
    assert isinstance(found, Success)
    assert str(found.principal) == "User:a@b"
    assert isinstance(await outcome(oauth, TokenServer().token(email="a@b")), Challenge)
    late = TokenServer().token(aud="cars", email="a@b", exp=NOW_S - 1)
    assert isinstance(await outcome(oauth, late), Challenge)


def test_a_setting_that_is_needed_and_not_there_is_one_sentence(keys: Path) -> None:
    given = settings(keys.as_uri())
    for name in given:
        said = refusal(*(f"{each}={text}" for each, text in given.items() if each != name))
        assert said.startswith(f"Listener SECURE has OAUTHBEARER, and {name} is not set: give ")
        assert said.endswith(f"or as listener.name.secure.{name}.")


def test_keys_that_cannot_be_used_are_one_sentence_with_file_and_line(tmp_path: Path) -> None:
    others = [f"{PREFIX}expected.issuer={ISSUER}", f"{PREFIX}expected.audience=a"]
    url = f"{PREFIX}jwks.endpoint.url"
    path = tmp_path / "keys.json"
    assert refusal(*others, f"{url}={path.as_uri()}") == (
        f"f, line 4: {url} names {path}, which cannot be used: there is no such file."
    )
    path.write_text("{}")
    assert 'it is no JWKS, {"keys": [...]}.' in refusal(*others, f"{url}={path.as_uri()}")
    own = f"listener.name.secure.oauthbearer.{url}"
    assert refusal(f"{own}={path.as_uri()}", *others).startswith("f, line 2: ")
    assert "three slashes" in refusal(*others, f"{url}=file://keys.json/x")
    authorities = f"{PREFIX}jwks.endpoint.tls.ca={tmp_path}/none"
    assert refusal(authorities, *others, f"{url}=https://localhost/keys") == (
        f"f, line 2: {PREFIX}jwks.endpoint.tls.ca cannot be read ({tmp_path}/none): No such file "
        "or directory."
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/keys",
        "ftp://localhost/keys",
        "https://user:secret@localhost/keys",
        "https:///keys",
        "jar:file:///keys",
        "/etc/keys",
        "data:,{}",
        "file:",
    ],
)
def test_only_https_and_files_are_places_of_keys(url: str) -> None:
    with pytest.raises(ConfigError, match=r"is https://HOST\[:PORT\]/PATH, or file:///PATH, not"):
        from_properties({f"{PREFIX}jwks.endpoint.url": url})


def test_no_class_but_kafkas_own_is_taken_for_the_handler_of_tokens() -> None:
    name = "listener.name.secure.oauthbearer.sasl.server.callback.handler.class"
    kafkas = "org.apache.kafka.common.security.oauthbearer"
    for handler in ("", "secured."):
        from_properties({name: f"{kafkas}.{handler}OAuthBearerValidatorCallbackHandler"})
    with pytest.raises(ConfigError, match="nothing is loaded"):
        from_properties({name: f"{kafkas}.internals.unsecured.OAuthBearerUnsecuredValidator"})


@pytest.mark.parametrize("setting", sorted(OAUTH_SETTINGS))
def test_no_request_changes_where_keys_are_read(setting: str) -> None:
    """CVE-2025-27817: it would make the broker read a file, or ask an address, of its choice."""
    names = (
        setting,
        f"listener.name.secure.{setting}",
        f"listener.name.secure.oauthbearer.{setting}",
    )
    for name in names:
        assert not is_live(name)
        for broker in ("1", ""):
            change = SettingChange(name, 0, "file:///etc/passwd")
            alter = broker_alteration(broker, [change])
            with pytest.raises(KafkaError):
                alter({})


async def test_a_new_key_of_the_server_is_there_when_a_token_needs_it(tmp_path: Path) -> None:
    with run_token_server(tmp_path) as server:
        given = settings(server.keys_url, **{"jwks.endpoint.tls.ca": server.authorities})
        oauth = ListenerOAuth(NAME, from_properties(given))
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(oauth.run)
                assert isinstance(await outcome(oauth, TokenServer().token()), Success)
                new = rsa("second", 2)
                server.tokens.keys.append(new)
                assert isinstance(await outcome(oauth, TokenServer().token(key=new)), Success)
                assert server.asked == ["/keys", "/keys"]
                for _ in range(20):
                    token = TokenServer().token(key=rsa("third", 3))
                    assert isinstance(await outcome(oauth, token), Challenge)
                assert server.asked == ["/keys", "/keys"]
                nursery.cancel_scope.cancel()


async def test_a_file_is_read_anew_when_an_administrator_asks(keys: Path) -> None:
    oauth = ListenerOAuth(NAME, from_properties(settings(keys.as_uri())))
    new = TokenServer([rsa("second", 2)])
    write = keys.write_bytes
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(oauth.run)
            for content in (new.jwks(), json.dumps({"keys": []}).encode()):
                write(content)
                oauth.renew()
                await trio.testing.wait_all_tasks_blocked()
                assert isinstance(await outcome(oauth, new.token()), Success)
            nursery.cancel_scope.cancel()
