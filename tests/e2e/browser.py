"""A headless Chromium for tests, and an inspector to look at. Skips with the reason where there is
no Chromium.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.waiting import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
WIDE, HIGH = 1280, 900
PATIENCE_MS = PATIENCE_S * 1000


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, for as long as the block lasts."""
    if not CHROMIUM:
        pytest.skip("there is no chromium on PATH")
    os.environ.setdefault("PLAYWRIGHT_SKIP_VALIDATE_HOST_REQUIREMENTS", "1")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Looking:
    """One page of a browser. What the page complains about, and every address it asked for."""

    def __init__(self, browser: Browser, address: str, **context: Any) -> None:
        self.address = address
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self._context = browser.new_context(
            viewport={"width": WIDE, "height": HIGH}, timezone_id="UTC", **context
        )
        self._context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self._context.new_page()
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on(
            "console",
            lambda said: self.complaints.append(said.text) if said.type == "error" else None,
        )

    def open(self, path: str = "/") -> Page:
        """Go to a page of the inspector."""
        self.page.goto(self.address + path, wait_until="load")
        return self.page

    def close(self) -> None:
        self._context.close()


@contextlib.contextmanager
def looking(browser: Browser, address: str, **context: Any) -> Iterator[Looking]:
    """A page in a context of its own. What it complained about fails the test, and so does whatever
    it asked of anybody else.
    """
    eyes = Looking(browser, address, **context)
    try:
        yield eyes
        assert not eyes.complaints
        assert all(url.startswith((address, "data:")) for url in eyes.asked)
    finally:
        eyes.close()


def seq_of(page: Page) -> int:
    """The record that the page shows."""
    return int(page.locator("#at").get_attribute("data-seq") or 0)


def until_seq(page: Page, seq: int) -> None:
    """Wait until the page shows a record; its policy forbids what `wait_for_function` does."""
    page.wait_for_selector(f"#at[data-seq='{seq}']", state="attached")


def markup(page: Page) -> str:
    """What the page shows, without what a change outlines."""
    return str(
        page.evaluate(
            """() => {
                const copy = document.querySelector('main').cloneNode(true);
                copy.querySelectorAll('.changed').forEach(e => e.classList.remove('changed'));
                copy.querySelectorAll('[class=""]').forEach(e => e.removeAttribute('class'));
                return copy.innerHTML;
            }"""
        )
    )
