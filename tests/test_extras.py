"""Without an extra all else works, and what needs the extra says how to install it."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.extras import EXTRAS, ExtraMissing, imports_of

ROOT: Final = Path(__file__).parents[1]
SECONDS: Final = 120.0
SERVE: Final = """
from click.testing import CliRunner
from odradek.broker.cli import main
given = ["etcd.endpoints=http://127.0.0.1:1", "node.id=1", "inter.broker.listener.port=2"]
options = [word for each in given for word in ("--set", each)]
listen = ["--ephemeral", "--listen", "127.0.0.1:0"]
raise RuntimeError(CliRunner().invoke(main, ["serve", *listen, *options]).output)
"""
OAUTH = """
from click.testing import CliRunner
from odradek.broker.cli import main
given = ["sasl.enabled.mechanisms=OAUTHBEARER"]
name = "sasl.oauthbearer."
given.append(f"{name}jwks.endpoint.url=https://localhost/keys")
given += [f"{name}expected.{each}=x" for each in ("issuer", "audience")]
options = [word for each in given for word in ("--set", each)]
listen = ["--ephemeral", "--listen", "SASL_PLAINTEXT://127.0.0.1:0"]
raise RuntimeError(CliRunner().invoke(main, ["serve", *listen, *options]).output)
"""
OTEL = """
from click.testing import CliRunner
from odradek.broker.cli import main
options = ["--ephemeral", "--listen", "127.0.0.1:0", "--set", "otel.traces.exporter=otlp"]
raise RuntimeError(CliRunner().invoke(main, ["serve", *options]).output)
"""
# extra -> what a program does that needs it
USES: Final = {
    "cluster": [SERVE],
    "java": [],
    "oauth": [OAUTH],
    "otel": [OTEL],
    "postgres": ["import odradek.client.postgres", "import odradek.client.postgres.blocking"],
    "schemas": ["import odradek.client.schemas"],
    "spark": ["from odradek.client.spark.source import OdradekSource"],
}
# a sentence that installs from an index by name, where nothing is published
BY_NAME: Final = re.compile(r"pip install (-\S+ )*['\"]?odradek(?!-)")


def without(modules: tuple[str, ...], uses: list[str]) -> dict[str, Any]:
    """Run `tests.hidden_modules`."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.hidden_modules", ",".join(modules), json.dumps(uses)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ns")},
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("extra", EXTRAS)
def test_without_an_extra_every_command_shows_its_help_and_uses_of_the_extra_name_it(
    extra: str,
) -> None:
    found = without(EXTRAS[extra], USES[extra])
    assert found["failed"] == []
    assert found["asked"] > 30
    for error in found["errors"]:
        assert re.search(
            rf"needs {EXTRAS[extra][0]}\S*, which is in the extra {extra}: install it with "
            rf"`pip install '\.\[{extra}\]'` in a clone, or from a wheel with "
            rf"`pip install 'FILE\.whl\[{extra}\]'`\.",
            error,
        ), error


def test_the_source_for_spark_names_the_one_module_that_is_missing() -> None:
    (error,) = without(("pyarrow",), USES["spark"])["errors"]
    assert error.startswith("ExtraMissing: odradek.client.spark needs pyarrow, which is"), error


def test_every_extra_whose_modules_the_package_imports_is_one_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert EXTRAS.keys() <= project["optional-dependencies"].keys()


def test_a_missing_module_that_no_extra_brings_is_not_taken_for_one_of_an_extra() -> None:
    with (
        pytest.raises(ModuleNotFoundError, match="No module named 'no_such_module'") as caught,
        imports_of("spark", "this"),
    ):
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert not isinstance(caught.value, ExtraMissing)


def test_nobody_is_told_to_install_by_name_what_is_not_published() -> None:
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    texts += [path for folder in ("broker", "client") for path in (ROOT / folder).rglob("*.py")]
    assert [path for path in texts if BY_NAME.search(path.read_text())] == []
