"""A real Chromium, driven by Playwright. Tests are skipped where there is none."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE_MS: Final = 60_000
NONE: Final = (
    "there is no Chromium to drive: apt-get install chromium, and scripts/install, which then "
    "brings Playwright (CONTRIBUTING.md)"
)


@contextmanager
def chromium() -> Iterator["Browser"]:
    """Run a Chromium while the block runs. Skips the test where there is none."""
    program = os.environ.get("ODRADEK_CHROMIUM") or shutil.which("chromium")
    if program is None and "ODRADEK_CI" in os.environ:
        pytest.fail(NONE)
    if program is None:
        pytest.skip(NONE)
    sync_api = pytest.importorskip("playwright.sync_api", reason=NONE)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Window:
    """A window with the page, and what its console has complained of."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda said: self._on_console(said.type, said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))

    def _on_console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def show(self, link: str, view: str = "transactions") -> None:
        self.page.goto(f"{link}#{view}")
        self.page.wait_for_selector("#state.well")

    def wait_redrawn(self) -> None:
        """Wait until the timeline is drawn once more."""
        first = "document.querySelector('.axis').firstChild"
        self.page.evaluate(f"window.drawn = {first}")
        self.page.wait_for_function(f"() => {first} !== window.drawn")

    def wait_text(self, selector: str, text: str) -> str:
        """Wait until an element has a text, and return all its text."""
        found = self.page.locator(selector).filter(has_text=text).first
        found.wait_for()
        return found.inner_text()


@contextmanager
def window(browser: "Browser", *, may_complain: bool = False, **options: Any) -> Iterator[Window]:
    """Open a window. Nothing may have complained when the block ends without an error.

    With `may_complain` the console may: it names each request that has failed.
    """
    page = browser.new_page(**options)
    try:
        opened = Window(page)
        yield opened
        assert may_complain or opened.complaints == []
    finally:
        page.close()
