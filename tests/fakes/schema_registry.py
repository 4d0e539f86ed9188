"""A small schema registry: the part of the REST API of Confluent's that serializers use.

It runs in a thread and keeps everything in memory. Of compatibility it knows one rule, that of
BACKWARD for Avro records: a new field has a default. A test may make it fail (`fails`), and asks
what was requested (`requests`).
"""

import base64
import json
import re
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote, urlsplit

UNKNOWN_SUBJECT: Final = (404, 40401, "Subject '{}' not found.")
UNKNOWN_VERSION: Final = (404, 40402, "Version {} not found.")
UNKNOWN_SCHEMA: Final = (404, 40403, "Schema {} not found.")
NO_SUBJECT_LEVEL: Final = (404, 40408, "Subject '{}' does not have subject-level compatibility")
INCOMPATIBLE: Final = (
    409,
    409,
    "Schema being registered is incompatible with an earlier schema {}",
)
INVALID: Final = (422, 42201, "Invalid schema {}")


class Problem(Exception):
    """An answer that is an error: a status, a code and a text."""

    def __init__(self, problem: tuple[int, int, str], about: object = "") -> None:
        super().__init__(problem[2].format(about))
        self.status, self.code, _ = problem


class Registered:
    """A schema with its id, which it has under every subject."""

    def __init__(self, schema_id: int, given: dict[str, Any]) -> None:
        self.id = schema_id
        self.guid = str(uuid.uuid4())
        self.fields = {
            "schema": given["schema"],
            "schemaType": given.get("schemaType") or "AVRO",
            "references": given.get("references") or [],
        }

    def shown(self, **more: Any) -> dict[str, Any]:
        shown = {**self.fields, "id": self.id, "guid": self.guid, **more}
        if shown["schemaType"] == "AVRO":
            del shown["schemaType"]  # as the real one does
        return shown


class FakeSchemaRegistry:
    """The registry's state, and its answers."""

    def __init__(self) -> None:
        self.url = ""
        self.auth: tuple[str, str] | None = None
        self.fails = 0
        """The number of requests that are answered with 503 from now on."""
        self.requests: Counter[str] = Counter()
        self.schemas: list[Registered] = []
        self.subjects: dict[str, list[Registered]] = {}
        self.levels: dict[str, str] = {"": "BACKWARD"}
        self._lock = threading.Lock()

    def answer(
        self, method: str, path: str, body: dict[str, Any], authorization: str | None
    ) -> tuple[int, Any]:
        """Return the status and the JSON for a request."""
        with self._lock:
            self.requests[f"{method} {path}"] += 1
            if self.fails:
                self.fails -= 1
                return 503, {"error_code": 503, "message": "the leader is not known"}
            if self.auth is not None:
                wanted = base64.b64encode(":".join(self.auth).encode()).decode()
                if authorization != f"Basic {wanted}":
                    return 401, {"error_code": 401, "message": "Unauthorized"}
            try:
                return 200, self._found(method, [unquote(each) for each in path.split("/")], body)
            except Problem as problem:
                return problem.status, {"error_code": problem.code, "message": str(problem)}

    def _found(self, method: str, path: list[str], body: dict[str, Any]) -> Any:
        match method, path:
            case "GET", ["subjects"]:
                return list(self.subjects)
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, body)
            case "POST", ["subjects", subject]:
                return self._lookup(subject, body)
            case "GET", ["subjects", subject, "versions"]:
                return list(range(1, len(self._versions(subject)) + 1))
            case "GET", ["subjects", subject, "versions", version]:
                number, found = self._version(subject, version)
                return found.shown(subject=subject, version=number)
            case "GET", ["schemas", "ids", schema_id]:
                return self._by(lambda each: each.id == int(schema_id), schema_id).shown()
            case "GET", ["schemas", "guids", guid]:
                return self._by(lambda each: each.guid == guid, guid).shown()
            case "POST", ["compatibility", "subjects", subject, "versions", version]:
                _, earlier = self._version(subject, version)
                return {"is_compatible": not self._breaks(subject, earlier, body)}
            case "GET", ["config"]:
                return {"compatibilityLevel": self.levels[""]}
            case "GET", ["config", subject]:
                if subject not in self.levels:
                    raise Problem(NO_SUBJECT_LEVEL, subject)
                return {"compatibilityLevel": self.levels[subject]}
            case "PUT", ["config", *subject]:
                self.levels["".join(subject)] = body["compatibility"]
                return body
        raise Problem((404, 404, "HTTP 404 Not Found{}"))

    def _by(self, is_it: Any, name: str) -> Registered:
        for each in self.schemas:
            if is_it(each):
                return each
        raise Problem(UNKNOWN_SCHEMA, name)

    def _versions(self, subject: str) -> list[Registered]:
        if subject not in self.subjects:
            raise Problem(UNKNOWN_SUBJECT, subject)
        return self.subjects[subject]

    def _version(self, subject: str, version: str) -> tuple[int, Registered]:
        versions = self._versions(subject)
        number = len(versions) if version == "latest" else int(version)
        if not 0 < number <= len(versions):
            raise Problem(UNKNOWN_VERSION, version)
        return number, versions[number - 1]

    def _known(self, given: dict[str, Any]) -> Registered | None:
        fields = Registered(0, given).fields
        return next((each for each in self.schemas if each.fields == fields), None)

    def _lookup(self, subject: str, given: dict[str, Any]) -> Any:
        versions, known = self._versions(subject), self._known(given)
        if known is None or known not in versions:
            raise Problem(UNKNOWN_SCHEMA)
        return known.shown(subject=subject, version=versions.index(known) + 1)

    def _register(self, subject: str, given: dict[str, Any]) -> Any:
        self._check(given)
        known = self._known(given)
        versions = self.subjects.get(subject, [])
        if known is None or known not in versions:
            if versions and self._breaks(subject, versions[-1], given):
                raise Problem(INCOMPATIBLE, f"for subject {subject!r}")
            if known is None:
                known = Registered(len(self.schemas) + 1, given)
                self.schemas.append(known)
            self.subjects.setdefault(subject, []).append(known)
        return known.shown(subject=subject, version=self.subjects[subject].index(known) + 1)

    def _check(self, given: dict[str, Any]) -> None:
        for reference in given.get("references") or ():
            self._version(reference["subject"], str(reference["version"]))
        if given.get("schemaType") != "PROTOBUF":
            try:
                json.loads(given["schema"])
            except ValueError:
                raise Problem(INVALID, given["schema"]) from None

    def _breaks(self, subject: str, earlier: Registered, given: dict[str, Any]) -> bool:
        """Return True if a reader with the schema `given` cannot read what `earlier` wrote."""
        if self.levels.get(subject, self.levels[""]) == "NONE" or given.get("schemaType"):
            return False
        new, old = json.loads(given["schema"]), json.loads(earlier.fields["schema"])
        had = {each["name"] for each in old.get("fields", ())}
        return any(
            each["name"] not in had and "default" not in each for each in new.get("fields", ())
        )


@contextmanager
def run_schema_registry() -> Iterator[FakeSchemaRegistry]:
    """Run a registry of its own while the block runs; `url` is its address."""
    fake = FakeSchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            path = re.sub("^/", "", urlsplit(self.path).path)
            status, answer = fake.answer(
                self.command, path, body, self.headers.get("Authorization")
            )
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
