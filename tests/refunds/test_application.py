"""The application of the demo in small: it is exact, and the demo finds it when it is not."""

from pathlib import Path

import pytest
from rich.console import Console

from odradek.broker.testing import run_broker
from scripts.refunds.access import give_rights, run_secured
from scripts.refunds.besieged import OneBroker
from scripts.refunds.chaos import INSIDE, SCALE, ZOMBIE, Strike
from scripts.refunds.demo import Plan, create_topics, run_application
from scripts.refunds.processes import GROUP_SETTINGS, TERMINATED
from scripts.refunds.supervisor import ZOMBIES_REFUSED, Supervisor

FLIGHTS = 6_000
SESSION_MS = 1_000


def faults_of(
    place: Path, *strikes: Strike, offsets: str, session_ms: int | None = SESSION_MS
) -> list[str]:
    """Run the application, under fire, on a broker of its own, and return what is wrong with it."""
    plan = Plan(
        seed=1,
        limit=FLIGHTS,
        slice_records=100,
        session_timeout_ms=session_ms,
        strikes=list(strikes),
        place=place,
        offsets=offsets,
    )
    settings = {**GROUP_SETTINGS, "group.consumer.session.timeout.ms": str(SESSION_MS)}
    with run_broker(data_dir=place / "data", config=settings) as broker:
        create_topics(broker.address)
        console = Console(width=200)
        verdict, counts = run_application(console, lambda say: OneBroker(broker, say), plan)
    if offsets == "transaction":
        assert counts[ZOMBIES_REFUSED] == 1
    return list(verdict.faults)


SCALE_OUT = Strike(0.1, SCALE, 2)
ONE_ZOMBIE = Strike(0.3, ZOMBIE, 1, after=3)


@pytest.mark.parametrize(
    "session_ms",
    [
        pytest.param(SESSION_MS, id="classic", marks=pytest.mark.minutes),
        pytest.param(None, id="consumer"),
    ],
)
def test_refunds_are_exact_over_a_zombie_a_killed_processor_and_a_killed_broker(
    tmp_path: Path, session_ms: int | None
) -> None:
    """In either group protocol: a session time-out of the member's own makes it the classic one."""
    strikes = (
        *(SCALE_OUT, ONE_ZOMBIE, Strike(0.4, INSIDE, 0, after=2)),
        *(Strike(0.45, "kill broker"), Strike(0.8, SCALE, 1)),
    )
    faults = faults_of(tmp_path, *strikes, offsets="transaction", session_ms=session_ms)
    assert faults == []


def test_they_are_exact_with_scram_over_tls_and_rights_that_are_just_enough(
    tmp_path: Path,
) -> None:
    """No client is a super user but the one that makes the topics. The broker is killed."""
    plan = Plan(
        seed=1,
        limit=FLIGHTS,
        slice_records=100,
        session_timeout_ms=None,
        strikes=[SCALE_OUT, ONE_ZOMBIE, Strike(0.6, "kill broker")],
        place=tmp_path,
    )
    settings = {**GROUP_SETTINGS, "group.consumer.session.timeout.ms": str(SESSION_MS)}
    with run_secured(tmp_path, settings) as (broker, access):
        create_topics(broker.address, access=access)
        give_rights(broker.address, access)
        console = Console(width=200)
        verdict, counts = run_application(console, lambda say: OneBroker(broker, say), plan, access)
    assert verdict.faults == ()
    assert counts[ZOMBIES_REFUSED] == 1


@pytest.mark.parametrize("offsets", ["outside", pytest.param("bare", marks=pytest.mark.minutes)])
def test_the_demo_fails_if_offsets_are_stored_without_the_transaction_or_the_member(
    tmp_path: Path, offsets: str
) -> None:
    """The slice of a processor that was taken for dead commits as well as that of its heir."""
    faults = faults_of(tmp_path, SCALE_OUT, ONE_ZOMBIE, offsets=offsets)
    assert any("are there more than once" in fault for fault in faults), faults
    assert any("had two owners" in fault for fault in faults), faults
    assert "the zombie was not refused" in faults


def test_a_processor_that_leaves_before_it_handles_sigterm_has_done_nothing_wrong(
    tmp_path: Path,
) -> None:
    """Its interpreter has hardly started then: the signal ends it by its default."""
    said: list[str] = []
    say = said.append
    with run_broker(data_dir=tmp_path / "data") as broker:
        supervisor = Supervisor(
            OneBroker(broker, say),
            flights=0,
            worker_options=("--slice", "1"),
            log=tmp_path / "log",
            say=say,
            progress=lambda _: None,
            strikes=[],
        )
        supervisor.start("1")
        worker = supervisor.workers["1"]
        supervisor.stop(["1"])
    assert worker.process.returncode == TERMINATED
    assert said == ["SIGTERM to processor 1, owner of no partition"]
