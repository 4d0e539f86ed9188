"""Keys over https and from a file: no redirect, and no more bytes than there may be."""

import gzip
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from odradek.broker.config.settings import ConfigError
from odradek.broker.oauth.key_places import (
    CONTENT_MAX_BYTES,
    CannotRead,
    KeyFile,
    KeyServer,
    place_of,
)
from tests.broker.oauth.signing import TokenServer
from tests.certificates import Authority
from tests.token_server import RunningTokenServer, run_token_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningTokenServer]:
    with run_token_server(tmp_path) as found:
        yield found


async def reason(server: RunningTokenServer) -> str:
    with pytest.raises(CannotRead) as caught:
        await place_of(server.keys_url, server.authorities).read()
    return str(caught.value)


async def test_keys_are_read_over_https(server: RunningTokenServer) -> None:
    place = place_of(server.keys_url, server.authorities)
    assert await place.read() == server.tokens.jwks()
    assert str(place) == server.keys_url


async def test_a_server_that_nobody_trusted_signs_for_is_not_asked(
    server: RunningTokenServer, tmp_path: Path
) -> None:
    for authorities in (Authority(tmp_path, "other").file, ""):
        with pytest.raises(CannotRead, match="certificate verify failed"):
            await place_of(server.keys_url, authorities).read()
    assert server.asked == []


async def test_the_name_in_the_certificate_must_be_that_of_the_address(
    server: RunningTokenServer,
) -> None:
    url = server.keys_url.replace("localhost", "127.0.0.1")
    with pytest.raises(CannotRead, match="certificate verify failed"):
        await place_of(url, server.authorities).read()


@pytest.mark.parametrize(
    "to", ["file:///etc/passwd", "http://169.254.169.254/latest", "https://localhost/keys", "/keys"]
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(server: RunningTokenServer, to: str, status: int) -> None:
    server.answers.append((status, {"Location": to}, b""))
    assert f"it redirects (status {status}), which is not followed" in await reason(server)
    assert server.asked == ["/keys"]


async def test_another_status_is_no_answer(server: RunningTokenServer) -> None:
    server.answers.append((500, {}, server.tokens.jwks()))
    assert await reason(server) == "it answers with status 500"


async def test_only_so_many_bytes_are_read(server: RunningTokenServer) -> None:
    server.answers.append((200, {}, b" " * (CONTENT_MAX_BYTES + 1)))
    assert "longer than 1048576 bytes" in await reason(server)


async def test_a_packed_body_is_not_unpacked(server: RunningTokenServer) -> None:
    packed = gzip.compress(b" " * (64 * CONTENT_MAX_BYTES))
    server.answers.append((200, {"Content-Encoding": "gzip"}, packed))
    assert await place_of(server.keys_url, server.authorities).read() == packed


async def test_a_server_that_is_not_there_has_a_reason(server: RunningTokenServer) -> None:
    url = server.keys_url.replace(str(server.port), "1")
    with pytest.raises(CannotRead, match=r"."):
        await place_of(url, server.authorities).read()


async def test_a_file_is_read_by_its_url(tmp_path: Path) -> None:
    path = tmp_path / "the keys"
    path.write_bytes(TokenServer().jwks())
    for url in (path.as_uri(), f"file://localhost{tmp_path}/the%20keys"):
        place = place_of(url, "")
        assert isinstance(place, KeyFile)
        assert await place.read() == path.read_bytes()
        assert str(place) == str(path)


async def test_a_disk_that_stands_still_holds_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()

    def content(_file: KeyFile) -> bytes:
        assert may_go_on.wait(60), "the loop was held"
        return b"late"

    monkeypatch.setattr(KeyFile, "content", content)
    place = KeyFile((tmp_path / "keys").as_uri())
    with trio.move_on_after(0) as scope:
        await place.read()
    assert scope.cancelled_caught, "the time limit of a reading counts"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place.read)
        await trio.testing.wait_all_tasks_blocked()
        may_go_on.set()


async def test_the_authorities_of_a_token_server_are_read_with_its_keys(
    server: RunningTokenServer, tmp_path: Path
) -> None:
    authorities = tmp_path / "authorities"
    authorities.write_text(content(Authority(tmp_path, "other").file))
    place = place_of(server.keys_url, str(authorities))
    with pytest.raises(CannotRead, match="certificate verify failed"):
        await place.read()
    authorities.write_text(content(server.authorities))
    assert await place.read() == server.tokens.jwks()
    authorities.write_text("no certificate")
    with pytest.raises(CannotRead, match=r"jwks\.endpoint\.tls\.ca cannot be read"):
        await place.read()


def content(file: str) -> str:
    return Path(file).read_text()


async def test_what_is_no_file_of_keys_has_a_reason(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b" " * (CONTENT_MAX_BYTES + 1))
    for path, said in (
        (tmp_path / "none", "no such file"),
        (tmp_path, "no such file"),
        (Path("/dev/zero"), "no such file"),
        (large, "longer than"),
    ):
        with pytest.raises(CannotRead, match=said):
            await place_of(path.as_uri(), "").read()


def test_a_file_of_another_machine_is_no_file() -> None:
    with pytest.raises(ConfigError, match=r"with three slashes\.$"):
        place_of("file://other/keys", "")


@pytest.mark.parametrize("url", ["http://localhost/keys", "ftp://localhost/keys", "/keys"])
def test_keys_come_over_https_or_from_a_file(url: str) -> None:
    with pytest.raises(ConfigError, match="begins with neither"):
        place_of(url, "")


def test_an_address_that_is_none_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"https://localhost:port/keys, which is no address: "):
        place_of("https://localhost:port/keys", "")


def test_authorities_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.write_text("no certificate")
    for path in (nothing, tmp_path / "none"):
        with pytest.raises(ConfigError, match=r"jwks\.endpoint\.tls\.ca cannot be read .*\.$"):
            KeyServer("https://localhost/keys", str(path))
