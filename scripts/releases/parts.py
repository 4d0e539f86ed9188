"""What an image consists of, in CycloneDX form: Debian's packages, and what pip has installed.

Both are asked for in the image itself, so that the list is of what is there.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from scripts.releases.source import Release, ReleaseError

Run = Callable[..., str]
"""Runs a command in the image, and returns what it has printed."""

OF_DEBIAN: Final = (
    "dpkg-query",
    "--show",
    r"--showformat=${db:Status-Status}\t${Package}\t${Version}\t${Architecture}"
    r"\t${source:Package}\t${source:Version}\n",
)
OF_PYTHON: Final = """
import importlib.metadata, json
print(json.dumps([
    [each.name, each.version, each.metadata.get("License-Expression") or ""]
    for each in importlib.metadata.distributions()
]))
"""
OF_SYSTEM: Final = (". /etc/os-release; echo $ID $VERSION_ID",)

Component = dict[str, Any]


def list_parts(run: Run, release: Release) -> dict[str, Any]:
    """Return the list of an image. Raise ReleaseError if it is no CycloneDX, or lacks a kind."""
    system, _, version = run("sh", "-ec", *OF_SYSTEM).partition(" ")
    debian = list(debian_parts(run(*OF_DEBIAN), system, version))
    python = list(python_parts(run("python3", "-c", OF_PYTHON)))
    if not debian or not python:
        raise ReleaseError(
            f"The image has {len(debian)} packages of Debian and {len(python)} of Python: the list "
            "of its parts would not be whole."
        )
    return document([*debian, *python], release)


def debian_parts(printed: str, system: str, version: str) -> Iterator[Component]:
    """Yield the packages that `dpkg-query` has printed, with the sources that they are made of."""
    for line in printed.splitlines():
        status, name, number, architecture, source, source_number = line.split("\t")
        if status != "installed":
            continue
        qualifiers = f"arch={architecture}&distro={system}-{version}"
        if (source, source_number) != (name, number):
            qualifiers += f"&upstream={_quoted(f'{source}@{source_number}')}"
        yield _part(
            name, number, f"pkg:deb/{system}/{_quoted(name)}@{_quoted(number)}?{qualifiers}"
        )


def python_parts(printed: str) -> Iterator[Component]:
    for name, number, licence in json.loads(printed):
        purl_name = name.lower().replace("_", "-")
        part = _part(name, number, f"pkg:pypi/{_quoted(purl_name)}@{_quoted(number)}")
        yield {**part, "licenses": [{"expression": licence}]} if licence else part


def _part(name: str, number: str, purl: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": number, "purl": purl}


def _quoted(text: str) -> str:
    return quote(text, safe="")


def document(parts: list[Component], release: Release) -> dict[str, Any]:
    """Return the list as CycloneDX has it."""
    image = {"type": "container", "bom-ref": "image", "name": "odradek", "version": release.version}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(release.seconds, UTC).isoformat(),
            "component": image,
        },
        "components": sorted(parts, key=lambda part: str(part["purl"])),
    }


def check_document(text: str) -> None:
    """Raise ReleaseError unless a text is as the schema of CycloneDX asks for."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        raise ReleaseError(f"The list of the image's parts is no CycloneDX: {problem}")
