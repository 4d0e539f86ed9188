"""The page in a real Chromium, beside a real broker."""

import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.broker.testing import RunningBroker, create_topic, run_broker
from odradek.client.blocking import Producer
from odradek.client.web.page_server import STREAMS_MAX
from tests.client.web.browser import NONE, chromium, window
from tests.client.web.full_page import FullPage, full_page
from tests.client.web.pages import ServedPage, served_page
from tests.client.web.scene import FENCED, LATE, STALLS, fence, scene

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

VIEWS = ("transactions", "groups", "replicas", "access")
HOSTILE = '<img src=x onerror="window.wasRun = true">'
PICTURES = os.environ.get("ODRADEK_PICTURES")
"""The folder that gets the pictures of the documentation, if it is given."""


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def broker(browser: "Browser") -> Iterator[RunningBroker]:
    access = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    config = {"authorizer.class.name": access, "super.users": "User:ANONYMOUS"}
    with run_broker(config=config) as running:
        yield running


@pytest.fixture(scope="module")
def page(broker: RunningBroker) -> Iterator[ServedPage]:
    with served_page(broker.address) as served:
        yield served


@pytest.fixture(scope="module")
def crowd(browser: "Browser") -> Iterator[FullPage]:
    with full_page() as served:
        yield served


def test_a_producer_that_stalls_is_named_with_what_ends_it(
    browser: "Browser", broker: RunningBroker, page: ServedPage
) -> None:
    topic = create_topic(broker, "till", partitions=1)
    with window(browser) as opened:
        opened.show(page.link)
        with (
            Producer(broker.address, transactional_id="stalled", client_id="till-app") as producer,
            producer.transaction() as transaction,
        ):
            transaction.send(topic, b"x").result()
            began = time.monotonic()
            opened.wait_text(".waiting", "stalled")
            print(f"the page named it after {time.monotonic() - began:.1f} s")
            said = opened.wait_text(".pin", "stalled")
        assert "till-app at 127.0.0.1" in said
        assert "1 record waits, open for" in said
        assert f"odradek txn abort --bootstrap {broker.address} -- stalled" in said
        assert f"{topic}-0" in said
        opened.page.locator(".pin").filter(has_text="stalled").wait_for(state="detached")
        opened.page.locator('.lane[data-key="stalled"] .span-committed').first.wait_for()


def test_a_fence_appears_in_its_lane_with_its_cause(
    browser: "Browser", broker: RunningBroker, page: ServedPage
) -> None:
    with window(browser) as opened:
        opened.show(page.link)
        with Producer(broker.address, transactional_id="twice") as first:
            with first.transaction() as transaction:
                transaction.send(create_topic(broker, "t"), b"x").result()
            opened.page.locator('.lane[data-key="twice"]').wait_for()
            with Producer(broker.address, transactional_id="twice", client_id="newcomer"):
                flag = opened.page.locator('.lane[data-key="twice"] .fence title')
                flag.wait_for(state="attached")
        cause = "was fenced: a new instance, newcomer at 127.0.0.1, started"
        assert cause in (flag.text_content() or "")
        assert cause in opened.wait_text(".happened li", "twice was fenced")


def test_names_that_are_html_stay_text(
    browser: "Browser", broker: RunningBroker, page: ServedPage
) -> None:
    topic = create_topic(broker, "html")
    with window(browser) as opened:
        opened.show(page.link)
        with (
            Producer(broker.address, transactional_id=HOSTILE, client_id=HOSTILE) as producer,
            producer.transaction() as transaction,
        ):
            transaction.send(topic, b"x").result()
            said = opened.wait_text(".pin", HOSTILE)
            assert said.count(HOSTILE) >= 2  # the transactional id and the client id
            opened.page.locator(".lane-name").filter(has_text=HOSTILE).click()
            opened.page.get_by_role("button", name="Table").click()
            opened.wait_text("table", HOSTILE)
        assert opened.page.locator("img").count() == 0
        assert opened.page.evaluate("window.wasRun") is None
        assert opened.hosts == {page.link.split("/")[2]}  # nobody else was asked for anything


def test_the_page_says_since_when_the_broker_is_away_and_goes_on_when_it_is_back(
    browser: "Browser",
) -> None:
    with (
        run_broker() as broker,
        served_page(broker.address) as page,
        window(browser) as opened,
    ):
        opened.show(page.link)
        broker.kill()
        said = opened.wait_text("#state.trouble", "no answer from the brokers since")
        assert "what is shown is old" in said
        broker.start()
        opened.page.wait_for_selector("#state.well")


def test_the_page_says_that_its_own_process_is_away_and_takes_everything_anew_from_the_next(
    browser: "Browser", broker: RunningBroker
) -> None:
    with window(browser, may_complain=True) as opened:
        with served_page(broker.address) as served:
            opened.show(served.link, "access")
            port = served.link.rpartition(":")[2].rstrip("/")
        opened.wait_text("#state.trouble", "odradek web does not answer since")
        opened.page.get_by_role("button", name="Ask").click()
        opened.wait_text(".answer", "odradek web does not answer.")
        with served_page(broker.address, "--listen", f"127.0.0.1:{port}"):
            opened.page.wait_for_selector("#state.well")


def test_a_page_whose_process_stands_still_is_not_called_live(
    browser: "Browser", broker: RunningBroker
) -> None:
    """It was live for good: no connection had ended."""
    with served_page(broker.address) as served, window(browser) as opened:
        opened.page.clock.install()
        opened.show(served.link)
        served.process.send_signal(signal.SIGSTOP)
        try:
            opened.page.clock.fast_forward(60_000)
            opened.wait_text("#state.trouble", "odradek web does not answer since")
        finally:
            served.process.send_signal(signal.SIGCONT)
        opened.page.clock.fast_forward(10_000)
        opened.page.wait_for_selector("#state.well")


def test_the_page_asks_again_after_a_proxy_has_answered_for_its_process(
    browser: "Browser", page: ServedPage
) -> None:
    with window(browser, may_complain=True) as opened:
        opened.page.route("**/events", lambda route: route.fulfill(status=502))
        opened.page.goto(page.link)
        opened.wait_text("#state.trouble", "odradek web does not answer since")
        opened.page.unroute("**/events")
        opened.page.wait_for_selector("#state.well")


def test_a_window_too_many_says_so_and_goes_on_when_another_is_closed(
    browser: "Browser", broker: RunningBroker
) -> None:
    with served_page(broker.address) as page, ExitStack() as stack, window(browser) as opened:
        streams = [
            stack.enter_context(urllib.request.urlopen(f"{page.link}events"))
            for _ in range(STREAMS_MAX)
        ]
        opened.page.goto(page.link)
        opened.wait_text("#state.trouble", "too many windows have this page open: close one")
        streams[0].close()
        opened.page.wait_for_selector("#state.well")


def test_the_skip_link_stays_in_its_view_and_a_word_that_is_no_view_shows_the_first(
    browser: "Browser", page: ServedPage
) -> None:
    with window(browser) as opened:
        opened.show(page.link, "groups")
        opened.page.keyboard.press("Tab")
        opened.page.keyboard.press("Enter")
        assert opened.page.evaluate("document.activeElement.id") == "main"
        assert opened.page.title() == "Groups · Odradek"
        opened.page.goto(f"{page.link}#constructor")
        opened.page.wait_for_function("() => document.title === 'Transactions · Odradek'")


def test_a_row_keeps_its_focus_when_one_above_it_goes_and_none_is_left_behind(
    browser: "Browser", page: ServedPage
) -> None:
    with window(browser) as opened:
        opened.show(page.link)
        focused, keys = opened.page.evaluate(
            """async () => {
                const { el, sync } = await import("/dom.js");
                const list = el("ol");
                document.body.append(list);
                const draw = (keys) =>
                    sync(list, keys, (key) => key, (key) => el("button", {}, key), () => {});
                draw(["gone", "above", "focused"]);
                list.children[2].focus();
                draw(["above", "focused"]);
                const focused = document.activeElement.textContent;
                for (let count = 0; count < 3; count += 1) draw(["twice", "twice", "focused"]);
                return [focused, [...list.children].map((child) => child.dataset.key)];
            }"""
        )
        assert focused == "focused"
        assert keys == ["twice", "twice", "focused"]


def test_everything_can_be_done_with_the_keyboard(browser: "Browser", crowd: FullPage) -> None:
    with window(browser) as opened:
        opened.show(crowd.link)
        keyboard = opened.page.keyboard
        lane = opened.page.locator(".lane-name").first
        lane.wait_for()
        reached = set()
        for _ in range(40):
            keyboard.press("Tab")
            reached.add(opened.page.evaluate("document.activeElement.textContent.trim()"))
            if opened.page.evaluate("document.activeElement.className") == "lane-name":
                break
        assert {"Skip to the content", "Groups", "Copy", "Table", "All ids", "Hold"} <= reached
        assert opened.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != (
            "none"
        )
        keyboard.press("Enter")
        assert lane.get_attribute("aria-expanded") == "true"
        opened.wait_text(".lane-detail", "producer")
        opened.wait_redrawn()
        opened.wait_redrawn()
        assert opened.page.evaluate("document.activeElement.className") == "lane-name"


def test_a_thousand_open_transactions_can_be_looked_through(
    browser: "Browser", crowd: FullPage
) -> None:
    with window(browser) as opened:
        opened.show(crowd.link)
        opened.wait_text(".figures", "1,000 open of 1,000 transactional ids")
        assert opened.page.locator(".lane").count() == 60
        opened.page.get_by_role("button", name="Show more of 1,000 lanes").click()
        assert opened.page.locator(".lane").count() == 120
        opened.page.get_by_label("Find").fill("task-0777")
        opened.page.locator(".lane").nth(1).wait_for(state="detached")
        assert opened.wait_text(".lane", "task-0777")
        assert opened.page.locator(".pin").count() == 6
        opened.page.get_by_role("button", name="Show more of 1,000 transactions").click()
        opened.page.locator(".pin").nth(35).wait_for()
        opened.page.goto(f"{crowd.link}#replicas")
        opened.wait_text(".figures", "10,000 partitions of 100 topics · 3 not in sync")


def test_a_decided_transaction_has_the_command_that_shows_what_it_waits_for(
    browser: "Browser", crowd: FullPage
) -> None:
    command = "odradek txn describe -- task-0999"
    with window(browser) as opened:
        opened.show(crowd.link)
        opened.page.evaluate(
            """async (describe) => {
                const { section } = await import("/rows.js");
                const row = section("pin").get("t-999");
                Object.assign(row, { state: "PrepareCommit", command: null, describe });
            }""",
            command,
        )
        said = opened.wait_text(".pin", command)
        assert "it is decided: its commit marker is to be written" in said
        assert f"shows what it waits for: {command}" in " ".join(said.split())


def test_a_part_of_the_page_that_is_old_is_named_while_the_rest_is_live(
    browser: "Browser", crowd: FullPage
) -> None:
    with window(browser) as opened:
        opened.show(crowd.link)
        opened.page.evaluate(
            """async () => {
                const { section } = await import("/rows.js");
                const sentence = "Broker 2 does not answer.";
                const since_ms = Date.now();
                section("status").set("groups", { is_well: false, since_ms, sentence });
            }"""
        )
        said = opened.wait_text("#state.trouble", "groups as of")
        assert said.endswith("the rest is live. Broker 2 does not answer.")


def test_times_of_other_days_have_their_date_and_the_page_says_in_which_zone_they_are(
    browser: "Browser", crowd: FullPage
) -> None:
    with window(browser, timezone_id="Asia/Kolkata") as opened:
        opened.show(crowd.link)
        opened.wait_text("footer", "Times of day are UTC+5:30.")
        said = opened.page.evaluate(
            """async () => {
                const { clock } = await import("/words.js");
                const at = Date.UTC(2026, 10, 28, 0, 30);
                return [clock(at, at + 3_600_000), clock(at, at + 86_400_000)];
            }"""
        )
        assert said == ["06:00:00", "28 Nov 06:00:00"]


def test_hold_stops_the_time(browser: "Browser", crowd: FullPage) -> None:
    with window(browser) as opened:
        opened.show(crowd.link)
        hold = opened.page.get_by_role("button", name="Hold")
        hold.click()
        axis = opened.page.locator(".axis")
        before = axis.inner_html()
        opened.wait_redrawn()
        opened.wait_redrawn()
        assert axis.inner_html() == before
        hold.click()
        opened.page.wait_for_function(
            "before => document.querySelector('.axis').innerHTML !== before", arg=before
        )


def test_a_transaction_that_hangs_in_two_partitions_has_the_command_of_each(
    browser: "Browser", page: ServedPage
) -> None:
    with window(browser) as opened:
        opened.show(page.link)
        commands = opened.page.evaluate(
            """async () => {
                const { section } = await import("/rows.js");
                const { pins } = await import("/pins.js");
                for (const partition of [0, 1])
                    section("pin").set(`t-${partition}`, {
                        topic: "t", partition, producer_id: 4, producer_epoch: 0, others: [],
                        last_stable_offset: 0, high_watermark: 1, other_count: 0, since_ms: 0,
                        name: null, client: null, state: null, deadline_ms: null,
                        is_hanging: true, command: `end it in ${partition}`,
                    });
                const made = pins();
                made.draw(Date.now());
                const codes = [...made.element.querySelectorAll(".pin code")];
                return codes.map((each) => each.textContent);
            }"""
        )
        assert commands == ["end it in 0", "end it in 1"]


def test_hold_stops_the_time_of_the_brokers_where_the_browsers_clock_is_wrong(
    browser: "Browser", crowd: FullPage
) -> None:
    def last_tick() -> int:
        text = opened.page.locator(".axis text").last.text_content() or ""
        hours, minutes, seconds = map(int, text.split(":"))
        return (hours * 60 + minutes) * 60 + seconds

    with window(browser) as opened:
        opened.page.add_init_script("const real = Date.now; Date.now = () => real() + 3_600_000")
        opened.show(crowd.link)
        before = last_tick()
        opened.page.get_by_role("button", name="Hold").click()
        assert (last_tick() - before) % 86_400 < 300


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(browser: "Browser", crowd: FullPage, view: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=NONE).Axe()
    with window(browser, color_scheme=scheme) as opened:
        opened.show(crowd.link, view)
        if view == "transactions":
            opened.page.locator(".lane-name").first.click()
        found = axe.run(opened.page)
        assert found.violations_count == 0, found.generate_report()
        if view == "transactions":
            opened.page.get_by_role("button", name="Table").click()
            found = axe.run(opened.page)
            assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [360, 1600])
def test_nothing_is_wider_than_the_window(
    browser: "Browser", crowd: FullPage, view: str, width: int
) -> None:
    with window(browser, viewport={"width": width, "height": 800}) as opened:
        opened.show(crowd.link, view)
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width


def test_the_question_why_is_answered(
    browser: "Browser", broker: RunningBroker, page: ServedPage
) -> None:
    with window(browser) as opened:
        opened.show(page.link, "access")
        opened.page.get_by_label("May").fill("User:alice")
        opened.page.get_by_label("called").fill("ledger")
        opened.page.get_by_role("button", name="Ask").click()
        opened.wait_text(".answer", "✕ Denied: No entry is about the resource.")


def test_the_pictures_of_the_documentation(browser: "Browser", tmp_path: Path) -> None:
    """They are taken anew with `ODRADEK_PICTURES=docs/pictures`."""
    folder = Path(PICTURES) if PICTURES else tmp_path
    size = {"width": 1280, "height": 800}
    with (
        run_broker() as broker,
        served_page(broker.address) as page,
        window(browser, viewport=size) as opened,
        scene(broker),
    ):
        opened.show(page.link)
        opened.page.get_by_label("1 min").check()
        opened.wait_text(".happened li", f"{LATE} timed out")
        fence(broker.address)
        opened.wait_text(".happened li", f"{FENCED} was fenced")
        opened.page.wait_for_function("() => document.querySelectorAll('.span').length > 40")
        opened.wait_text(".pin", STALLS)
        opened.page.screenshot(path=folder / "web-transactions.png")
        opened.page.goto(f"{page.link}#groups")
        opened.page.wait_for_function(
            "() => [...document.querySelectorAll('.lag-line')].filter("
            "line => line.getAttribute('d').split('L').length > 4).length == 2"
        )
        opened.page.locator(".lane-name").first.click()
        opened.page.wait_for_selector(".group-detail tbody tr")
        opened.page.screenshot(path=folder / "web-groups.png")
