"""A token server over https, as a process of its own would be: it publishes keys, and gives tokens.

`GET /keys` has the JWKS. `POST /token` has a token for whom HTTP's basic authentication names.
`answers` has other answers for `/keys`: a status, headers, and a body.
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.broker.oauth.signing import TokenServer
from tests.certificates import Authority

Sent = tuple[int, Mapping[str, str], bytes]
SECONDS: Final = 60.0
CONTENT: Final = {"Content-Type": "application/json"}


@dataclass
class RunningTokenServer:
    """A token server that runs, and what it was asked."""

    tokens: TokenServer
    authorities: str
    """The file with the authority that signs its certificate."""
    port: int = 0
    asked: list[str] = field(default_factory=list)
    answers: list[Sent] = field(default_factory=list)
    """The next answers, before those that are right."""

    @property
    def keys_url(self) -> str:
        return f"https://localhost:{self.port}/keys"

    @property
    def token_url(self) -> str:
        return f"https://localhost:{self.port}/token"

    def token(self, **claims: Any) -> str:
        """Return a token of now."""
        return self.tokens.token(now_s=time.time(), **claims)

    def answer(self, path: str, user: str) -> Sent:
        self.asked.append(path)
        if self.answers:
            return self.answers.pop(0)
        if path == "/keys":
            return 200, {}, self.tokens.jwks()
        said = {"access_token": self.token(sub=user), "token_type": "Bearer", "expires_in": 300}
        return 200, {}, json.dumps(said).encode()


@contextmanager
def run_token_server(
    directory: Path, tokens: TokenServer | None = None, *, identity: tuple[str, str] | None = None
) -> Iterator[RunningTokenServer]:
    """Run a token server while the block runs.

    `identity` is a file with its key and certificate, and one with the authority that signed it.
    """
    if identity is None:
        authority = Authority(directory, "token-ca")
        signed = authority.signed("token-server", hosts=["localhost"])
        identity = signed.both_file, authority.file
    found = RunningTokenServer(tokens or TokenServer(), identity[1])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*found.answer(self.path, ""))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            _, _, basic = self.headers.get("Authorization", "").partition(" ")
            user, _, _ = base64.b64decode(basic).decode().partition(":")
            self._send(*found.answer(self.path, user))

        def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**CONTENT, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity[0])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join(SECONDS)
        server.server_close()
