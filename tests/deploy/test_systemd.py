"""scripts/deploy/systemd: the unit as systemd reads it, and its settings as the broker reads them.

`systemd-analyze` comes with systemd; it needs none that runs.
"""

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.config.addresses import listeners_of
from odradek.broker.config.properties import read_properties
from odradek.broker.config.settling import settle
from tests.cluster.test_compose_file import check_command

FOLDER: Final = Path(__file__).parents[2] / "scripts" / "deploy" / "systemd"
UNIT: Final = "odradek.service"
VARIANT: Final = "cluster.conf"
CONFIGS: Final = ("odradek.properties", "odradek-cluster.properties")
EXPOSURE_MAX: Final = 2.0
"""Of the ten points of `systemd-analyze security`: below it begins what it calls OK."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze comes with systemd"
)


def section(file: str, name: str) -> dict[str, str]:
    """Return a section of a unit; of a setting that is given twice, the last value."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(FOLDER / file)
    return dict(parser[name])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of units: ours, with programs that are there in the place of /opt/odradek/bin."""
    unit = tmp_path / UNIT
    unit.write_text((FOLDER / UNIT).read_text().replace("/opt/odradek/bin/odradek", "/bin/true"))
    drop_in = tmp_path / f"{UNIT}.d" / VARIANT
    drop_in.parent.mkdir()
    drop_in.write_text(
        (FOLDER / VARIANT).read_text().replace("/opt/odradek/bin/odradek", "/bin/true")
    )
    return tmp_path


def analyze(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *words, str(root / UNIT)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@needs_systemd
@pytest.mark.parametrize("variant", ["alone", "cluster"])
def test_systemd_finds_nothing_wrong_with_the_unit(root: Path, variant: str) -> None:
    if variant == "alone":
        shutil.rmtree(root / f"{UNIT}.d")
    ran = analyze(root, "verify", "--man=no")
    ours = [line for line in ran.stderr.splitlines() if "odradek" in line]
    assert (ran.returncode, ours) == (0, []), ran.stderr


@needs_systemd
@pytest.mark.parametrize("file", [UNIT, f"{UNIT}.d/{VARIANT}"])
def test_systemd_sees_a_setting_that_it_does_not_know(root: Path, file: str) -> None:
    unit = root / file
    unit.write_text(unit.read_text().replace("TimeoutStopSec=", "TimeoutStoppingSec="))
    assert "'TimeoutStoppingSec'" in analyze(root, "verify", "--man=no").stderr


@needs_systemd
def test_the_unit_is_exposed_to_little(root: Path) -> None:
    ran = analyze(root, "security", "--offline=true")
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", ran.stdout)
    assert found is not None, ran.stderr
    assert float(found[1]) <= EXPOSURE_MAX, ran.stdout


@pytest.mark.parametrize(("file", "config"), [(UNIT, CONFIGS[0]), (VARIANT, CONFIGS[1])])
def test_the_command_of_the_unit_parses(file: str, config: str) -> None:
    program, *words = section(file, "Service")["ExecStart"].split()
    assert program == "/opt/odradek/bin/odradek"
    assert words[-2:] == ["--config", f"/etc/odradek/{config}"]
    check_command(["odradek", *words[:-2], "--config", str(FOLDER / config)])


@pytest.mark.parametrize("config", CONFIGS)
def test_the_sample_of_the_settings_is_what_the_unit_needs(config: str) -> None:
    settled = settle(read_properties((FOLDER / config).read_text(), source=config)).config
    service = section(UNIT, "Service")
    assert settled.log_dirs == f"/var/lib/{service['StateDirectory']}"
    memory = int(service["MemoryMax"].removesuffix("G")) * 2**30
    assert settled.queued_max_request_bytes <= memory / 4
    assert bool(settled.etcd_endpoints) == ("cluster" in config)
    for listener in listeners_of(settled):
        is_open = listener.host not in ("127.0.0.1", "localhost")
        assert not is_open or settled.ssl_client_auth == "required"


def test_the_unit_does_what_the_broker_notifies_and_hears() -> None:
    service = section(UNIT, "Service")
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) >= 10
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_the_user_of_the_unit_is_made() -> None:
    lines = (FOLDER / "odradek.sysusers").read_text().splitlines()
    (user,) = [line.split()[1] for line in lines if not line.startswith("#")]
    assert section(UNIT, "Service")["User"] == user
