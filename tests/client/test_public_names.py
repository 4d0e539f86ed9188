"""The names of the three clients: what a type checker sees is what a program imports."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from odradek.client.public_names import SHARED

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("odradek.client", "odradek.client.aio", "odradek.client.blocking")
MODULES: Final = (
    *("administration", "cluster", "config", "consuming", "errors", "grouping", "options"),
    *("producing", "serialization", "types"),
)
SECONDS: Final = 120.0


def names_for_type_checkers(package: str) -> dict[str, str]:
    """Return name -> module of the imports below `if TYPE_CHECKING`."""
    path = ROOT.joinpath(*package.split(".")[1:], "__init__.py")
    (block,) = (
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {
        alias.name: node.module or ""
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_a_program_imports_the_names_that_type_checkers_see(package: str) -> None:
    module = import_module(package)
    homes = {**SHARED, **module.OWN_NAMES}
    at_run_time = {name: home for home, names in homes.items() for name in names}
    assert at_run_time == names_for_type_checkers(package)
    assert sorted(at_run_time) == module.__all__
    assert set(module.__all__) <= set(dir(module))
    for name, home in at_run_time.items():
        assert getattr(module, name) is getattr(import_module(home), name)
        assert vars(module)[name] is getattr(module, name)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_client_is_there_without_an_import_of_its_own(name: str) -> None:
    """Seen: `odradek.client.errors.Fenced` was an AttributeError after `import odradek.client`."""
    program = f"import odradek.client; print(odradek.client.{name}.__name__)"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={"PYTHONPATH": str(ROOT / ".ns")},
    )
    assert ran.stdout == f"odradek.client.{name}\n", ran.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_a_star_imports_all_names(package: str) -> None:
    names: dict[str, object] = {}
    exec(f"from {package} import *", names)
    assert set(import_module(package).__all__) <= names.keys()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_no_client_has_is_an_import_error(package: str) -> None:
    with pytest.raises(ImportError, match="cannot import name 'Producers'"):
        exec(f"from {package} import Producers")
