"""Spark on several processes, with the package as a zip.

The interpreter of driver and executors has what the package needs, and not the package. The demo
runs on a standalone cluster.
"""

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from odradek.client.spark.java import find_java_home
from tests.spark.conftest import ROOT, CreateTopic, ReadTopic

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.minutes,
    pytest.mark.timeout(900),
]

JOB_TIMEOUT_S = 400
JOB = ROOT / "tests" / "spark" / "cluster_job.py"

Submit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def bootstrap(odradek_address: str) -> str:
    """Only Odradek has transaction groups."""
    return odradek_address


@pytest.fixture(scope="module")
def package_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, as `--py-files` takes it."""
    path = tmp_path_factory.mktemp("zip") / "odradek.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("odradek")  # Python finds a package without __init__.py by its folder
        for package in ("odradek/client", "odradek/protocol", "pyspark_odradek"):
            folder = (ROOT / ".ns" / package).resolve()
            archive.mkdir(package)
            for file in sorted(folder.rglob("*")):
                if file.is_dir() or file.suffix == ".py":
                    archive.write(file, Path(package) / file.relative_to(folder))
    return path


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with everything that is installed here, but the package."""
    place = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    python = place / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = place / "lib" / version / "site-packages" / "libraries.pth"
    # A path in a .pth file is searched, and the .pth file there that has the package is not read.
    libraries.write_text(sysconfig.get_path("purelib") + "\n")
    asked = "import importlib.util as i, sys; sys.exit(i.find_spec('odradek') is not None)"
    subprocess.run([python, "-c", asked], env={}, check=True)
    return python


@pytest.fixture
def submit(bare_python: Path, package_zip: Path, tmp_path: Path) -> Submit:
    """Run a script by `spark-submit`, with the zip."""
    home = Path(pyspark.__file__).parent

    def run(master: str, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(home / "bin" / "spark-submit"), "--master", master]
        command += ["--py-files", str(package_zip), "--driver-memory", "512m"]
        command += ["--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"]
        command += ["--conf", f"spark.sql.warehouse.dir={tmp_path}"]
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(find_java_home()),
            "PYSPARK_PYTHON": str(bare_python),
            "PYSPARK_DRIVER_PYTHON": str(bare_python),
        }
        return subprocess.run(
            [*command, str(script), *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT_S,
            check=False,
        )

    return run


def test_executors_take_the_package_from_a_zip(
    submit: Submit, bootstrap: str, create_topic: CreateTopic, read_topic: ReadTopic
) -> None:
    topic = create_topic(partitions=2)
    done = submit("local-cluster[2,1,1024]", JOB, bootstrap, topic)
    assert "rows 200" in done.stdout, done.stderr[-5_000:]
    assert sorted(int(record.value or b"") for record in read_topic(topic)) == list(range(200))
