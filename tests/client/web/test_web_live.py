"""`odradek web` beside a real broker: what its stream says."""

import base64
import http.client
import json
import shlex
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.testing import create_topic, run_broker
from odradek.client.blocking import Producer
from odradek.client.config import system_wall_ms
from tests.certificates import Authority
from tests.client.hanging import WITHOUT_VERIFICATION, leave_hanging
from tests.client.web.pages import LINK, ServedPage, served_page
from tests.programs import running

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "odradek.broker"]
SECTIONS = ("transactions", "pins", "cluster", "groups", "access")
Rows = dict[tuple[str, str], Any]


def run_command(shown: str) -> None:
    """Run a command as the page shows it."""
    odradek, *arguments = shlex.split(shown)
    assert odradek == "odradek"
    subprocess.run([*COMMAND, *arguments], check=True, capture_output=True, timeout=60)


def test_a_producer_that_stalls_is_named_with_what_it_keeps_waiting_and_what_ends_it() -> None:
    with run_broker() as broker, served_page(broker.address) as page:
        topic = create_topic(broker, "ledger", partitions=2)
        with (
            Producer(broker.address, transactional_id="teller", client_id="till") as producer,
            producer.transaction(),
        ):
            producer.send(topic, b"x", partition=1).result()
            pin = page.rows_until(lambda rows: rows.get(("pin", f"{topic}-1")))
        assert pin["name"] == "teller"
        assert pin["client"] == "till at 127.0.0.1"
        assert (pin["last_stable_offset"], pin["high_watermark"]) == (0, 1)
        assert pin["deadline_ms"] == pin["since_ms"] + 60_000
        assert pin["command"] == f"odradek txn abort --bootstrap {broker.address} -- teller"
        assert pin["describe"] == f"odradek txn describe --bootstrap {broker.address} -- teller"
        span = page.rows_until(
            lambda rows: [
                row
                for (section, _), row in rows.items()
                if section == "span" and row and row["how"] == "committed"
            ]
        )
        assert span[0]["partitions"] == [f"{topic}-1"]
        page.rows_until(lambda rows: ("pin", f"{topic}-1") not in rows)


def test_a_fence_is_in_the_events_of_its_lane_with_its_cause() -> None:
    def fences(rows: Rows) -> list[str]:
        return [
            row["text"]
            for (section, _), row in rows.items()
            if section == "event" and row and row["kind"] == "fenced"
        ]

    with (
        run_broker() as broker,
        served_page(broker.address) as page,
        Producer(broker.address, transactional_id="teller"),
    ):
        page.rows_until(lambda rows: rows.get(("lane", "teller")))
        with Producer(broker.address, transactional_id="teller", client_id="newcomer"):
            (said,) = page.rows_until(fences)
    assert said == "was fenced: a new instance, newcomer at 127.0.0.1, started"


def test_the_page_outlives_its_broker_and_says_since_when_it_is_away() -> None:
    with run_broker() as broker, served_page(broker.address) as page:
        page.rows_until(lambda rows: rows.get(("status", "transactions"), {}).get("is_well"))
        broker.kill()
        trouble = page.rows_until(
            lambda rows: (
                not rows["status", "transactions"]["is_well"] and rows["status", "transactions"]
            )
        )
        assert not trouble["is_refusal"]
        assert trouble["since_ms"] > 0
        assert trouble["sentence"].endswith(".")
        broker.start()
        page.rows_until(lambda rows: rows["status", "transactions"]["is_well"])


def test_the_page_starts_before_its_broker() -> None:
    with run_broker() as broker:
        broker.kill()
        with served_page(broker.address) as page:
            page.rows_until(lambda rows: ("status", "transactions") in rows)
            broker.start()
            page.rows_until(lambda rows: rows["status", "transactions"]["is_well"])


async def test_a_transaction_that_no_coordinator_has_is_found_with_the_command_that_ends_it() -> (
    None
):
    with run_broker(config=WITHOUT_VERIFICATION) as broker, served_page(broker.address) as page:
        place, name = await leave_hanging(broker.address)
        pin = page.rows_until(lambda rows: rows.get(("pin", str(place))))
        assert (pin["is_hanging"], pin["name"], pin["deadline_ms"]) == (True, name, None)
        assert pin["command"] == (
            f"odradek txn abort --bootstrap {broker.address} --topic {place.topic} "
            "--partition 0 --start-offset 0"
        )
        run_command(pin["command"])
        page.rows_until(lambda rows: ("pin", str(place)) not in rows)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_page_without_a_word(number: signal.Signals) -> None:
    with run_broker() as broker, served_page(broker.address) as page:
        page.rows_until(lambda rows: rows)
        page.process.send_signal(number)
        assert page.process.wait(60) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "0.0.0.0:0"], "give --tls-certificate and --tls-key and --password-file"),
        (["--listen", "8080"], "--listen is HOST:PORT"),
        (["--listen", "192.0.2.1:0"], "Other machines reach 192.0.2.1"),
    ],
)
def test_an_address_that_is_not_safe_is_refused_in_one_sentence(
    options: list[str], said: str
) -> None:
    ran = subprocess.run([*COMMAND, "web", *options], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_a_port_that_is_taken_is_refused_in_one_sentence() -> None:
    with run_broker() as broker:
        command = [*COMMAND, "web", "--listen", broker.address]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ran.stderr == (
            f"Error: {broker.address} cannot be listened on: Address already in use.\n"
        )


def test_another_host_gets_no_page_of_a_real_process() -> None:
    with run_broker() as broker, served_page(broker.address) as page:
        request = urllib.request.Request(page.link, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="421"):
            urllib.request.urlopen(request, timeout=60)


def test_with_tls_and_a_password_the_page_is_served_to_those_who_know_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signed = authority.signed("page")
    passwords = tmp_path / "readers"
    passwords.write_text("anna:secret\n")
    passwords.chmod(0o600)
    options = [
        *("--tls-certificate", signed.certificate_file, "--tls-key", signed.key_file),
        *("--password-file", str(passwords), "--name", "odradek.example.org"),
        *("--listen", "0.0.0.0:0"),
    ]
    with run_broker() as broker, served_page(broker.address, *options) as page:
        assert page.link.startswith("https://odradek.example.org:")
        page.link = page.link.replace("odradek.example.org", "127.0.0.1")
        context = ssl.create_default_context(cadata=authority.pem)
        for password, status in (("guess", 401), ("secret", 200)):
            credentials = base64.b64encode(f"anna:{password}".encode()).decode()
            headers = {"Authorization": f"Basic {credentials}", "Host": "odradek.example.org"}
            request = urllib.request.Request(page.link, headers=headers)
            assert status_of(request, context) == status
        plain = urllib.request.Request(page.link.replace("https", "http"))
        with pytest.raises((urllib.error.URLError, ConnectionError, http.client.HTTPException)):
            urllib.request.urlopen(plain, timeout=60)


def test_behind_a_proxy_that_names_its_visitors_no_certificate_and_no_password_is_needed() -> None:
    options = ["--listen", "0.0.0.0:0", "--name", "odradek.example.org"]
    options += ["--proxy", "127.0.0.1", "--user-header", "X-Forwarded-User"]
    with run_broker() as broker, served_page(broker.address, *options) as page:
        # Browsers cannot use the link: they ask the proxy.
        assert " to its proxy at http://odradek.example.org:" in page.said
        link = page.link.replace("odradek.example.org", "127.0.0.1")
        headers = {"Host": "odradek.example.org", "X-Forwarded-Proto": "https"}
        nameless = urllib.request.Request(f"{link}events", headers=headers)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(nameless, timeout=60)
        headers["X-Forwarded-User"] = "anna"
        request = urllib.request.Request(f"{link}events", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.headers["X-Accel-Buffering"] == "no"
            assert answer.readline() == b"retry: 1000\n"


def status_of(request: urllib.request.Request, context: ssl.SSLContext) -> int:
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            status: int = answer.status
    except urllib.error.HTTPError as error:
        status = error.code
    return status


def test_a_file_of_passwords_that_everybody_may_read_has_a_warning(tmp_path: Path) -> None:
    passwords = tmp_path / "readers"
    passwords.write_text("anna:secret\n")
    passwords.chmod(0o644)
    command = [*COMMAND, "web", "--listen", "127.0.0.1:0", "--password-file", str(passwords)]
    with running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert f"chmod 600 {passwords}" in process.stderr.readline()


def test_the_log_is_one_json_object_a_line_where_that_is_wanted(tmp_path: Path) -> None:
    passwords = tmp_path / "readers"
    passwords.write_text("anna:secret\n")
    passwords.chmod(0o644)
    with run_broker() as broker:
        command = [*COMMAND, "web", "--bootstrap", broker.address, "--listen", "127.0.0.1:0"]
        options = ["--log-format", "json", "--password-file", str(passwords)]
        with running(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            started = json.loads(process.stdout.readline())
            assert LINK.search(started["message"])
            warning = json.loads(process.stderr.readline())
            assert f"chmod 600 {passwords}" in warning["message"]
            assert warning["cause"] == "readable by others"
            broker.kill()
            lost = json.loads(process.stderr.readline())
            assert (lost["level"], lost["logger"].split(".")[:2]) == (
                "WARNING",
                ["odradek", "client"],
            )
            assert broker.address in lost["message"]
            assert lost["cause"] == "lost"


def test_what_prevents_the_start_is_an_object_of_the_log_too() -> None:
    command = [*COMMAND, "web", "--listen", "8080", "--log-format", "json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    found = json.loads(ran.stderr)
    assert (found["level"], found["cause"]) == ("CRITICAL", "cannot serve")
    assert found["message"].startswith("--listen is HOST:PORT")


def test_a_broker_that_is_away_for_long_is_a_few_lines_of_log_and_not_one_for_each_look() -> None:
    with run_broker() as broker:
        broker.kill()
        command = [*COMMAND, "web", "--bootstrap", broker.address, "--listen", "127.0.0.1:0"]
        with running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            found = LINK.search(process.stdout.readline())
            assert found is not None
            page = ServedPage(f"{found[1]}:{found[2]}/", process)
            page.rows_until(lambda rows: all(("status", each) in rows for each in SECTIONS))
            since = page.rows_until(lambda rows: rows["status", "transactions"]["since_ms"])
            page.rows_until(lambda rows: system_wall_ms() - since > 12_000)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
        assert len(errors.splitlines()) <= 10, errors
