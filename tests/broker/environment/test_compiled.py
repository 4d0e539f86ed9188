"""What is written in C does what its twin in Python does."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.broker.environment import compiled
from odradek.protocol import plain_produce
from tests.broker.environment import compare_scans

ROOT: Final = Path(__file__).parents[3]
SOURCE: Final = ROOT / "protocol" / "_bytes.c"
SANITIZED_FRAMES: Final = 100_000
MUST_NOT_SKIP: Final = "ODRADEK_CI"

needs_c = pytest.mark.skipif(
    compiled.steps_in_c() is None and MUST_NOT_SKIP not in os.environ,
    reason="built without a C compiler, or not for this processor",
)


@needs_c
@pytest.mark.parametrize("seed", range(4))
def test_frames_are_read_alike_in_c_and_in_python(seed: int) -> None:
    steps = compiled.steps_in_c()
    assert steps is not None
    count = 5_000
    plain = compare_scans.compare(steps, seed, count)
    assert count // 10 < plain < count - count // 10


@needs_c
def test_the_comparison_sees_a_difference() -> None:
    def wrong(frame: memoryview) -> plain_produce.PlainProduce | None:
        found = plain_produce.scan(frame)
        return found and found._replace(headers=[None for _ in found.headers])

    def late(batches: list[memoryview], base_offset: int, leader_epoch: int) -> Any:
        return plain_produce.join(batches, base_offset + 1, leader_epoch)

    for steps in (
        plain_produce.IN_PYTHON._replace(scan=wrong),
        plain_produce.IN_PYTHON._replace(join=late),
    ):
        with pytest.raises(AssertionError):
            compare_scans.compare(steps, 1, 1_000)


@needs_c
def test_what_is_no_list_of_batches_is_not_joined() -> None:
    steps = compiled.steps_in_c()
    assert steps is not None
    for batches in ([memoryview(bytes(60))], [memoryview(bytes(70)), b"short"], [None]):
        with pytest.raises((TypeError, ValueError)):
            steps.join(batches, 0, 0)  # type: ignore[arg-type]


@needs_c
@pytest.mark.slow
def test_no_changed_frame_makes_the_code_in_c_read_past_its_memory(tmp_path: Path) -> None:
    """Built with the address sanitizer, which ends the process at the first such read."""
    built = tmp_path / "_bytes.so"
    command = ["cc", "-O1", "-g", "-shared", "-fPIC", "-fsanitize=address,undefined"]
    include = sysconfig.get_paths()["include"]
    made = subprocess.run(
        [*command, f"-I{include}", str(SOURCE), "-o", str(built)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0 and MUST_NOT_SKIP not in os.environ:
        pytest.skip(f"no compiler with an address sanitizer: {made.stderr[-200:]}")
    assert made.returncode == 0, made.stderr
    library = subprocess.run(
        ["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "tests.broker.environment.compare_scans"),
            *("--frames", str(SANITIZED_FRAMES), "--module", str(built)),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "LD_PRELOAD": library,
            "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter keeps memory until its end
            "UBSAN_OPTIONS": "halt_on_error=1",
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": os.pathsep.join((str(ROOT / ".ns"), str(ROOT))),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert f"{SANITIZED_FRAMES} frames were read alike" in ran.stdout


def test_without_c_the_function_in_python_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.OFF, "1")
    assert compiled.fastest_steps() is plain_produce.IN_PYTHON


@needs_c
def test_the_function_in_c_serves_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiled.OFF, raising=False)
    assert compiled.fastest_steps() is not plain_produce.IN_PYTHON
