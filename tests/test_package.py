"""The import package `odradek`: its door, its name, and what is built of it."""

import os
import pydoc
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Final

import pytest

import odradek
from tests.first_page import EXPECTED, build_wheel, copy_sources, steps_of

ROOT: Final = Path(__file__).parents[1]
SECONDS: Final = 120.0
PLATFORM: Final = sysconfig.get_platform().replace("-", "_").replace(".", "_")
REMOVED: Final = "odradek/broker/removed_meanwhile.py"


def run_python(
    *arguments: str, path: Path | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=environment,
        cwd=cwd,
    )


def test_the_package_knows_its_version_and_names_its_clients() -> None:
    help_text = pydoc.render_doc(odradek)
    for name in ("odradek.client.blocking", "odradek.client.aio", "odradek.client "):
        assert name in help_text
    ran = run_python("-m", "odradek", "--version", path=ROOT / ".ns")
    assert f"version {odradek.__version__}" in ran.stdout


def test_a_name_of_the_client_is_not_in_the_package_and_an_error_says_where_it_is() -> None:
    sentence = "odradek has no name Producer: .* odradek.client.blocking for plain programs, in"
    assert not hasattr(odradek, "Producer")
    with pytest.raises(AttributeError, match=sentence):
        _ = odradek.Producer  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match=sentence):
        from odradek import Producer  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'no_such_part'"):
        from odradek import no_such_part  # type: ignore[attr-defined]  # noqa: F401


@pytest.mark.parametrize("package", ["broker", "client", "protocol"])
def test_a_folder_of_the_clone_is_not_imported_as_a_second_copy(package: str) -> None:
    ran = run_python("-c", f"import {package}", cwd=ROOT)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith(f"ImportError: import odradek.{package}: ")
    ran = run_python("-c", f"import odradek.{package}", cwd=ROOT, path=ROOT / ".ns")
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built in a clone where an earlier build has left a module that was removed."""
    place = tmp_path_factory.mktemp("wheel")
    sources = copy_sources(place / "clone")
    for lib in ("lib", f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"):
        stale = sources / "build" / lib / REMOVED
        stale.parent.mkdir(parents=True)
        stale.write_text("")
    return build_wheel(sources, place)


@pytest.mark.slow
def test_a_wheel_has_no_module_that_was_removed_since_the_last_build(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert REMOVED not in names
    for needed in ("__init__", "__main__", "extras", "broker/cli", "client/spark/source"):
        assert f"odradek/{needed}.py" in names
    assert "odradek/py.typed" in names  # without it pyright does not take our types for ours
    packed = {name for name in names if name.startswith("odradek/broker/") and name[-3:] == ".py"}
    there = {
        f"odradek/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "broker").rglob("*.py")
    }
    assert packed == there


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_wheel_with_what_is_compiled_is_for_its_platform(wheel: Path) -> None:
    assert wheel.name == f"odradek-{odradek.__version__}-cp311-abi3-{PLATFORM}.whl"


@pytest.mark.slow
def test_a_wheel_without_what_is_compiled_is_for_every_platform(tmp_path: Path) -> None:
    """It took its place beside a wheel with it, under the same name."""
    sources = copy_sources(tmp_path / "clone")
    built = build_wheel(sources, tmp_path, CC="false")
    assert built.name == f"odradek-{odradek.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(built).namelist()
    assert "odradek/__init__.py" in names
    assert not [name for name in names if name.endswith(".so")]


@pytest.mark.slow
def test_the_package_is_imported_from_a_zip(wheel: Path, tmp_path: Path) -> None:
    program = (
        "import odradek, odradek.client.spark.source as source\n"
        "from odradek.client.blocking import Producer\n"
        "print(odradek.__file__, source.OdradekSource.name(), odradek.__version__)"
    )
    zipped = Path(shutil.copy(wheel, tmp_path / "odradek.zip"))
    ran = run_python("-c", program, path=zipped)
    assert ran.stdout.split() == [
        f"{zipped}/odradek/__init__.py",
        "odradek",
        odradek.__version__,
    ], ran.stderr


def test_the_first_page_is_found_in_the_readme() -> None:
    steps = steps_of((ROOT / "README.md").read_text())
    assert steps[0] == ("sh", "pip install .")
    assert steps[1][1].startswith("odradek serve")
    assert [language for language, _ in steps[-2:]] == ["sh", "python"]
    done = [language if language == "python" else text for language, text in steps]
    assert all(any(step.startswith(words) for step in done) for words in EXPECTED)
