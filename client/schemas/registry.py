"""A schema registry, by the REST API that Confluent's has.

Its methods are awaited under trio or asyncio. Each request has a connection of its own: a schema is
asked for once in the life of a process, and so a registry belongs to no event loop, and need not be
closed.

What cannot change is kept: the schema of an id, of a GUID and of a version, the id of a schema
under a subject. The latest version of a subject is asked for each time.
"""

import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit
from uuid import UUID

import anyio
import httpx2

from odradek.client.schemas.registered import (
    Reference,
    RegisteredSchema,
    RegistryAway,
    Schema,
    SchemaRefused,
)

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
AWAY: Final = (408, 429, 500, 502, 503, 504)
"""The statuses for which another server, or a later time, may have another answer."""
UNKNOWN: Final = (40401, 40402, 40403)
"""The registry's codes for an unknown subject, version and schema."""

Compatibility = Literal[
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
]


class SchemaRegistry:
    """A schema registry: it gives each schema an id, and keeps the versions of each subject."""

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        auth: tuple[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        request_timeout_ms: float = 10_000,
        retries: int = 3,
        retry_backoff_ms: float = 100,
    ) -> None:
        """Make a client of the registry at `urls`; nothing is sent yet.

        `urls` is `"http://host:port"`, several of them separated by commas, or a sequence of them:
        servers of one registry, of which one that answers is asked. Raises ValueError for a wrong
        option. The options and their defaults:

        - `auth` (None): a user and a password, for HTTP's basic authentication; they may be in the
          URL instead.
        - `ssl_context` (None): the certificates for `https`; None: those that the system trusts.
        - `request_timeout_ms` (10_000): how long to wait for a server's answer.
        - `retries` (3): how often all servers are asked again if none of them could answer, with
          pauses of `retry_backoff_ms` (100), twice that, and so on.
        """
        if isinstance(urls, Mapping):
            raise ValueError(f"urls is http://host:port, and options are keywords; not {urls!r}")
        given = urls.split(",") if isinstance(urls, str) else list(urls)
        self.urls: Final = tuple(_checked_url(url) for url in given)
        if not self.urls:
            raise ValueError("a schema registry has a URL at least: http://host:port")
        self._auth = auth
        self._ssl_context = ssl_context
        self._timeout_s = request_timeout_ms / 1000
        self._retries = retries
        self._backoff_s = retry_backoff_ms / 1000
        self._first = 0
        """The index of the server that has answered last."""
        self._by_name: dict[tuple[int | UUID, str | None], Schema] = {}
        self._registered: dict[tuple[str, Schema, bool], int] = {}
        self._versions: dict[tuple[str, int, str | None], RegisteredSchema] = {}

    def __repr__(self) -> str:
        return f"<SchemaRegistry at {self.address}>"

    @property
    def address(self) -> str:
        """The URLs without passwords, as errors name them."""
        return ", ".join(_without_password(url) for url in self.urls)

    async def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Register a schema under a subject, unless it is there, and return its id.

        Raises `SchemaRefused` if it is not compatible with earlier versions, `RegistryAway`.
        """
        known = self._registered.get((subject, schema, normalize))
        if known is None:
            doing = f"registering a schema under {subject!r}"
            answer = await self._ask(
                "POST", f"subjects/{_quoted(subject)}/versions", doing, schema, normalize=normalize
            )
            known = self._registered[subject, schema, normalize] = answer["id"]
        return known

    async def lookup(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Return the version of a subject that has this schema.

        Raises `SchemaRefused` if it is not registered there, `RegistryAway`.
        """
        doing = f"looking a schema up under {subject!r}"
        answer = await self._ask(
            "POST", f"subjects/{_quoted(subject)}", doing, schema, normalize=normalize
        )
        self._registered[subject, schema, normalize] = answer["id"]
        return RegisteredSchema(subject, answer["version"], answer["id"], schema)

    async def schema(self, name: int | UUID, *, format: str | None = None) -> Schema:
        """Return the schema with an id or a GUID. Raises `SchemaRefused`, `RegistryAway`.

        `format="serialized"` asks for Protobuf as the bytes of its descriptor, in base64.
        """
        known = self._by_name.get((name, format))
        if known is None:
            kind = "guids" if isinstance(name, UUID) else "ids"
            path = f"schemas/{kind}/{name}"
            known = _schema(await self._ask("GET", path, f"reading schema {name}", format=format))
            self._by_name[name, format] = known
        return known

    async def latest(self, subject: str, *, format: str | None = None) -> RegisteredSchema:
        """Return the latest version of a subject. Raises `SchemaRefused`, `RegistryAway`."""
        return await self._version(subject, "latest", format)

    async def version(
        self, subject: str, version: int, *, format: str | None = None
    ) -> RegisteredSchema:
        """Return a version of a subject. Raises `SchemaRefused`, `RegistryAway`."""
        known = self._versions.get((subject, version, format))
        if known is None:
            known = await self._version(subject, str(version), format)
            self._versions[subject, version, format] = known
        return known

    async def _version(self, subject: str, version: str, format: str | None) -> RegisteredSchema:
        doing = f"reading version {version} of {subject!r}"
        path = f"subjects/{_quoted(subject)}/versions/{version}"
        answer = await self._ask("GET", path, doing, format=format)
        return RegisteredSchema(subject, answer["version"], answer["id"], _schema(answer))

    async def references(self, schema: Schema, *, format: str | None = None) -> dict[str, Schema]:
        """Return all schemas that a schema refers to, by their names there, the innermost first."""
        found: dict[str, Schema] = {}
        await self._add_references(schema, format, found)
        return found

    async def _add_references(
        self, schema: Schema, format: str | None, found: dict[str, Schema]
    ) -> None:
        for reference in schema.references:
            if reference.name not in found:
                inner = await self.version(reference.subject, reference.version, format=format)
                await self._add_references(inner.schema, format, found)
                found.setdefault(reference.name, inner.schema)

    async def subjects(self) -> list[str]:
        """Return the names of all subjects. Raises `RegistryAway`, `SchemaRefused`."""
        return list(await self._ask("GET", "subjects", "reading the subjects"))

    async def versions(self, subject: str) -> list[int]:
        """Return the numbers of the versions of a subject. Raises `SchemaRefused`."""
        path = f"subjects/{_quoted(subject)}/versions"
        return list(await self._ask("GET", path, f"reading the versions of {subject!r}"))

    async def is_compatible(
        self, subject: str, schema: Schema, *, version: int | Literal["latest"] = "latest"
    ) -> bool:
        """Return True if a schema could be registered, as far as that version decides it.

        True also if the subject has no such version. Raises `SchemaRefused` for a schema that
        makes no sense, `RegistryAway`.
        """
        doing = f"comparing a schema with version {version} of {subject!r}"
        path = f"compatibility/subjects/{_quoted(subject)}/versions/{version}"
        try:
            answer = await self._ask("POST", path, doing, schema)
        except SchemaRefused as error:
            if error.registry_code in UNKNOWN:
                return True
            raise
        return bool(answer["is_compatible"])

    async def compatibility(self, subject: str | None = None) -> Compatibility:
        """Return the level of a subject, or that of the registry, which counts without one."""
        doing = f"reading the compatibility of {subject or 'all subjects'!r}"
        try:
            answer = await self._ask("GET", _config(subject), doing)
        except SchemaRefused as error:
            if subject is None or error.registry_code is None or error.registry_code // 100 != 404:
                raise
            return await self.compatibility()
        level: Compatibility = answer["compatibilityLevel"]
        return level

    async def set_compatibility(self, level: Compatibility, subject: str | None = None) -> None:
        """Set the level of a subject, or that of the registry. Raises `SchemaRefused`."""
        doing = f"setting the compatibility of {subject or 'all subjects'!r}"
        await self._ask("PUT", _config(subject), doing, {"compatibility": level})

    async def _ask(
        self,
        method: str,
        path: str,
        doing: str,
        body: Schema | dict[str, Any] | None = None,
        **query: Any,
    ) -> Any:
        """Ask one server after the other until one answers, and return what it says."""
        content = None if body is None else json.dumps(_to_json(body)).encode()
        parameters = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in query.items()
            if value is not None and value is not False
        }
        trouble = ""
        for attempt in range(self._retries + 1):
            if attempt:
                await anyio.sleep(self._backoff_s * 2 ** (attempt - 1))
            for offset in range(len(self.urls)):
                place = (self._first + offset) % len(self.urls)
                try:
                    answer = await self._request(place, method, path, content, parameters)
                except (httpx2.TransportError, httpx2.StreamError) as error:
                    trouble = f"{error or type(error).__name__}"
                    continue
                if answer.status_code not in AWAY:
                    self._first = place
                    return self._read(answer, doing)
                trouble = _reason(answer)
        raise RegistryAway(
            f"{doing}: no server of the schema registry at {self.address} could answer: {trouble}"
        )

    async def _request(
        self, place: int, method: str, path: str, content: bytes | None, parameters: dict[str, str]
    ) -> httpx2.Response:
        url = self.urls[place]
        if url.startswith("https") and self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()  # it reads files, so once
        async with httpx2.AsyncClient(
            auth=self._auth, verify=self._ssl_context or False, timeout=self._timeout_s
        ) as client:
            return await client.request(
                method,
                f"{url}/{path}",
                content=content,
                params=parameters,
                headers={"Content-Type": CONTENT_TYPE, "Accept": CONTENT_TYPE},
            )

    def _read(self, answer: httpx2.Response, doing: str) -> Any:
        """Return the answer's JSON. Raises `SchemaRefused` for an error, or what is no registry."""
        if answer.is_success:
            try:
                return answer.json()
            except ValueError:
                pass
        try:
            code = answer.json()["error_code"]
        except (ValueError, TypeError, KeyError):
            code = None
        about = f"{doing}: the schema registry at {self.address} answered {answer.status_code}"
        if answer.status_code in (401, 403):
            message = f"{about}: give auth=(user, password) that it takes"
        elif code is None:
            message = f"{about} and no JSON that a registry has: is the URL that of a registry?"
        else:
            message = f"{about}: {_reason(answer)}"
        raise SchemaRefused(message, registry_code=code)


def _checked_url(url: str) -> str:
    stripped = url.strip().rstrip("/")
    parts = urlsplit(stripped)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"the address of a schema registry is http://host:port or https://..., not {url!r}"
        )
    return stripped


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _config(subject: str | None) -> str:
    return "config" if subject is None else f"config/{_quoted(subject)}"


def _reason(answer: httpx2.Response) -> str:
    try:
        return f"{answer.json()['message']} ({answer.json()['error_code']})"
    except (ValueError, TypeError, KeyError):
        return f"{answer.status_code} {answer.reason_phrase}"


def _to_json(body: Schema | dict[str, Any]) -> dict[str, Any]:
    if isinstance(body, dict):
        return body
    given: dict[str, Any] = {"schema": body.text}
    if body.type != "AVRO":  # the first registries had no other type, and refuse the field
        given["schemaType"] = body.type
    if body.references:
        given["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in body.references
        ]
    return given


def _schema(answer: dict[str, Any]) -> Schema:
    references = tuple(
        Reference(each["name"], each["subject"], each["version"])
        for each in answer.get("references") or ()
    )
    return Schema(answer["schema"], answer.get("schemaType") or "AVRO", references)
