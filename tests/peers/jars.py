"""Fetches the jars of a peer with Maven, once, into `tests/peers/libs/` (not in git).

A peer is described by a pom, so that its versions stand in one readable place and the machine's own
Maven settings (mirrors, proxies) are obeyed.
"""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
LIBS: Final = HERE / "libs"
KAFKA_POM: Final = HERE / "pom.xml"
STREAMS_POM: Final = HERE / "streams.pom.xml"
CONNECT_POM: Final = HERE / "connect.pom.xml"
SPARK_CONNECTOR_POM: Final = HERE / "spark-connector.pom.xml"
FETCH_TIMEOUT_SECONDS: Final = 600
HOW_TO_GET_THEM: Final = (
    "Peers need a JDK 17 or later and Maven on the PATH "
    "(Debian: apt install openjdk-17-jdk-headless maven; macOS: brew install openjdk@17 maven)."
)


class PeersMissing(Exception):
    """This machine cannot run the peers; the text says what to install."""


QUICK_JAVA: Final = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""A JVM that starts quickly, and does not optimise what ends soon: a test waits for its start."""


def require_tools() -> None:
    """Raises PeersMissing if there is no JDK or no Maven here."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        raise PeersMissing(f"Not found: {' and '.join(missing)}. {HOW_TO_GET_THEM}")


def kafka_jars() -> Path:
    """The directory with Apache Kafka's jars: for `java -cp 'DIRECTORY/*' CLASS`."""
    return _fetched(KAFKA_POM, LIBS / "kafka")


def streams_jars() -> Path:
    """The directory with the jars of Kafka Streams."""
    return _fetched(STREAMS_POM, LIBS / "kafka-streams")


def connect_jars() -> Path:
    """The directory with the jars of Kafka Connect, with MirrorMaker 2 and connectors for files."""
    return _fetched(CONNECT_POM, LIBS / "connect")


def spark_connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka connector: for `spark.jars`."""
    return sorted(_fetched(SPARK_CONNECTOR_POM, LIBS / "spark-connector").glob("*.jar"))


def _fetched(pom: Path, directory: Path) -> Path:
    """The directory, filled from the pom unless this very pom has filled it before."""
    require_tools()
    wanted = hashlib.sha256(pom.read_bytes()).hexdigest()
    stamp = directory / ".complete"  # written last: a fetch that was cut off is done again
    LIBS.mkdir(exist_ok=True)
    with (LIBS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs may start at once
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(directory, ignore_errors=True)
            _copy_dependencies(pom, directory)
            stamp.write_text(wanted)
    return directory


def _copy_dependencies(pom: Path, directory: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    finished = subprocess.run(
        [*command, f"-DoutputDirectory={directory}"],
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_SECONDS,
        check=False,
    )
    if finished.returncode != 0:
        said = (finished.stdout + finished.stderr).strip()
        raise PeersMissing(f"Maven could not fetch what {pom.name} lists:\n{said}")
