"""The pages beside the map in a real browser: names, links between them at one moment, keyboard,
what is asked for later, and an accessibility check. Skipped where there is no Chromium.
"""

import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Browser, Page, async_playwright, expect
from tests.build import node
from tests.hostile import MARKUP, poisoned
from tests.inspecting import FedFold, append, history_of, served
from tests.memory_log import MemoryLog
from tests.recording import Recorder, busy_cluster, uid_of
from tests.recording_batch import busy_queues, preempted
from tests.waiting import PATIENCE_S

from allotment.adapters.service.moments import local_text
from allotment.core.logport import Record
from allotment_inspector.pages.things.cards import NODES_DRAWN_MAX, ZONE_LABEL
from allotment_proto import subjects

CHROMIUM = Path("/usr/bin/chromium")
PATIENCE_MS = PATIENCE_S * 1000
SERIOUS = ("serious", "critical")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}"),
]


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all; each test looks at a page without a past."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox"]
        )
        yield browser
        await browser.close()


@asynccontextmanager
async def browsing(
    browser: Browser, records: Sequence[Record], *, width: int = 1280, theme: Any = "light"
) -> AsyncIterator[tuple[Page, str, FedFold]]:
    """A page of a browser, the address of the inspector, and what feeds it. Whatever the page says
    to its console, and every error, fails the test.
    """
    history, fold = history_of(records)
    complaints: list[str] = []
    async with served(history) as address:
        page = await browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text))
        try:
            yield page, address, fold
        finally:
            await page.close()
    assert not complaints


async def follow(page: Page, text: str, *, within: str = "main") -> None:
    """Click the first link of that text."""
    await page.locator(f"{within} a", has_text=text).first.click()
    await page.wait_for_load_state()


async def test_from_the_map_to_pod_and_decision_and_back_at_one_moment(browser: Browser) -> None:
    async with browsing(browser, busy_cluster().records) as (page, address, _):
        await page.goto(f"{address}/?at=20")
        await follow(page, "big", within="#map")
        assert page.url == f"{address}/pods/default/big?uid={uid_of('default/big')}&at=20" or (
            page.url.startswith(f"{address}/pods/default/big?") and "at=20" in page.url
        )
        await expect(page.locator("h1")).to_contain_text("big")
        await follow(page, "record 11")
        assert page.url.startswith(f"{address}/decisions/11?")
        assert "at=20" in page.url
        await expect(page.locator("#then")).to_contain_text("Past state")
        await follow(page, "big")
        assert "at=20" in page.url
        await page.go_back()
        await expect(page.locator("h1")).to_contain_text("Decision 11")
        await follow(page, "Map")
        assert page.url == f"{address}/?at=20"


async def test_a_step_back_shows_the_pod_as_it_was(browser: Browser) -> None:
    async with browsing(browser, busy_cluster().records) as (page, address, _):
        await page.goto(f"{address}/pods/default/big?at=17")
        await expect(page.locator("h1")).to_contain_text("Running")
        await page.keyboard.press("[")
        await expect(page.locator("#seq")).to_have_text("seq 16")
        await expect(page.locator("h1")).to_contain_text("Bound")
        await expect(page.locator(".fall .row", has_text="runs")).to_have_count(0)
        for _ in range(6):
            await page.keyboard.press("[")
        await expect(page.locator("#seq")).to_have_text("seq 10")
        await expect(page.locator("h1")).to_contain_text("Waiting")
        for _ in range(7):
            await page.keyboard.press("]")
        await expect(page.locator("#seq")).to_have_text("seq 17")
        await expect(page.locator("h1")).to_contain_text("Running")
        await expect(page.locator(".fall .row", has_text="runs")).to_have_count(1)


async def test_a_step_moves_the_links_and_commands_of_what_stays_along(browser: Browser) -> None:
    async with browsing(browser, busy_cluster().records) as (page, address, _):
        await page.goto(f"{address}/?at=20")
        await page.keyboard.press("]")
        await expect(page.locator("#seq")).to_have_text("seq 21")
        shown = "[...document.querySelectorAll('main a[data-go], main [data-key] .tools code')]"
        word = "e.getAttribute('href') || e.textContent"
        stale = await page.evaluate(
            f"{shown}.filter(e => !/(at=|--at )21\\b/.test({word})).map(e => e.outerHTML)"
        )
        assert not stale
        assert await page.locator(".changed").count() < 12
        await page.keyboard.press("l")
        await expect(page.locator("body")).to_have_class("live-now")
        assert not await page.locator("main .tools code", has_text="--at").count()


async def test_without_news_the_page_says_so_first_and_its_ages_stand_still(
    browser: Browser,
) -> None:
    history, _ = history_of(busy_cluster().records)
    last_ms = history.index.times_ms[-1]
    async with served(history) as address:
        page = await browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        await page.goto(address)
        await expect(page.locator("#headline")).to_be_hidden()
        history.silent_since_ms = lambda: last_ms + 5_000
        await expect(page.locator("#headline")).to_contain_text(
            f"No news from NATS since {local_text(last_ms + 5_000)}; this is the state of then"
        )
        ages = await page.locator("time.age").all_inner_texts()
        await page.wait_for_timeout(2_500)
        assert await page.locator("time.age").all_inner_texts() == ages
        await page.reload()
        await expect(page.locator("#headline")).to_be_visible()
        assert await page.locator("time.age").all_inner_texts() == ages
        await page.keyboard.press("[")
        await expect(page.locator("#headline")).to_be_hidden()
        history.silent_since_ms = lambda: None
        await page.keyboard.press("l")
        await expect(page.locator("#headline")).to_be_hidden()
        await page.close()


@pytest.mark.parametrize("make", [busy_cluster, busy_queues])
async def test_no_page_scrolls_sideways_on_a_phone(
    browser: Browser, make: Callable[[], Recorder]
) -> None:
    records = make().records
    async with browsing(browser, records, width=420) as (page, address, fold):
        pods = [f"{pod.fact.namespace}/{pod.fact.name}" for pod in fold.state.pods.values()][:3]
        nodes = [f"/nodes/{name}" for name in list(fold.state.nodes)[:1]]
        for path in ("/", *nodes, *every_page(records, fold, pods)):
            await page.goto(address + path)
            wide = await page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 420, (path, wide)


async def test_a_table_is_sorted_by_a_click_and_stays_sorted(browser: Browser) -> None:
    async with browsing(browser, busy_cluster().records) as (page, address, _):
        await page.goto(f"{address}/pods?at=30")
        names = page.locator("main tbody tr td:nth-child(2)")
        await page.locator("th", has_text="name").last.click()
        shown = await names.all_inner_texts()
        assert shown == sorted(shown)
        await page.locator("th[aria-sort]").click()
        await expect(page.locator("th[aria-sort=descending]")).to_have_count(1)
        shown = await names.all_inner_texts()
        assert shown == sorted(shown, reverse=True)
        await page.keyboard.press("[")
        await expect(page.locator("#seq")).to_have_text("seq 29")
        shown = await names.all_inner_texts()
        assert shown == sorted(shown, reverse=True)


async def test_the_map_is_filtered_and_lights_up_cards_of_a_pod_or_namespace(
    browser: Browser,
) -> None:
    async with browsing(browser, busy_cluster().records) as (page, address, _):
        await page.goto(address)
        await page.get_by_label("nodes").fill("A100")
        await expect(page.locator("#map .node:visible")).to_have_count(2)
        await expect(page.locator("#sifted")).to_contain_text("2 of 5 nodes")
        await page.get_by_label("nodes").fill("")
        for light, lit in (("research", 1), ("default/big", 1), ("nobody", 0)):
            await page.get_by_label("highlight").fill(light)
            await expect(page.locator(".seg.lit")).to_have_count(lit)
        await page.get_by_label("highlight").fill("research")
        await page.wait_for_url("**light=research*")
        await page.reload()
        await expect(page.locator(".seg.lit")).to_have_count(1)
        await page.keyboard.press("Escape")


async def test_a_large_map_is_filtered_grouped_and_lit_up(browser: Browser) -> None:
    log = Recorder()
    for index in range(NODES_DRAWN_MAX + 1):
        log.node(f"gpu-{index:03}", labels=((ZONE_LABEL, f"zone-{index % 2}"),))
    for name in ("one", "two"):
        log.decide(log.pod(name))
    async with browsing(browser, log.records) as (page, address, _):
        await page.goto(address)
        await expect(page.locator(".pool")).to_have_count(1)
        await page.get_by_label("group by").select_option("zone")
        await expect(page.locator(".pool h2")).to_have_text(["zone-0", "zone-1"])
        await page.get_by_label("highlight").fill("default/one")
        await expect(page.locator("#sifted")).to_have_text("1 pod on 1 card")
        await expect(page.locator(".strip path.lit")).to_have_count(1)
        await page.get_by_role("searchbox", name="nodes").fill("zone-1")
        await expect(page.locator("#map .node:visible")).to_have_count(NODES_DRAWN_MAX // 2)
        await expect(page.locator("#sifted")).to_contain_text("50 of 101 nodes")
        await expect(page.locator("h2.group")).to_have_text(["zone-1"])
        await page.get_by_label("nodes").fill("")
        await page.get_by_label("group by").select_option("namespace")
        await expect(page.locator(".pool h2")).to_have_text(["no pods", "default"])
        await page.get_by_role("searchbox", name="nodes").fill("no such node")
        await expect(page.locator("#map")).to_contain_text("No node matches")


async def test_help_names_every_key(browser: Browser) -> None:
    async with browsing(browser, busy_cluster().records) as (page, address, _):
        await page.goto(address)
        await page.keyboard.press("?")
        help_box = page.locator("#help")
        await expect(help_box).to_be_visible()
        for key in ("[", "]", "{", "}", "l", "/", "?", "Esc"):
            assert await help_box.locator("kbd", has_text=key).count(), key
        await page.keyboard.press("Escape")
        await expect(help_box).to_be_hidden()


async def test_times_are_in_the_zone_of_the_browser(browser: Browser) -> None:
    history, _ = history_of(busy_cluster().records)
    async with served(history) as address:
        context = await browser.new_context(timezone_id="Asia/Kolkata")
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        await page.goto(f"{address}/pods/default/big?at=17")
        await expect(page.locator("#zone")).to_have_text("UTC+05:30")
        await expect(page.locator("#when")).to_contain_text("19:30:0")
        await expect(page.locator(".said")).to_contain_text("19:30:0")
        await context.close()


async def test_advice_comes_after_the_page_and_is_there_without_script(browser: Browser) -> None:
    async with browsing(browser, busy_cluster().records) as (page, address, _):
        await page.goto(f"{address}/pods/research/llama")
        await expect(page.locator(".advice td").first).to_have_text(
            "also accept the model NVIDIA-GeForce-RTX-4090"
        )
        await page.goto(f"{address}/pods/research/llama/advice")
        await expect(page.locator(".advice")).to_contain_text("uncordon node gpu-03")


async def test_the_advice_to_a_gang_comes_after_its_page(browser: Browser) -> None:
    async with browsing(browser, busy_queues().records) as (page, address, _):
        await page.goto(f"{address}/gangs/default/quota")
        await expect(page.locator(".advice td").first).to_contain_text("in queue")


async def test_a_pod_that_is_placed_while_one_looks_is_shown_so(browser: Browser) -> None:
    log = busy_cluster()
    uid = log.pod("late")
    before = list(log.records)
    log.decide(uid)
    log.bind(uid)
    async with browsing(browser, before) as (page, address, fold):
        await page.goto(f"{address}/pods/default/late")
        await expect(page.locator("h1")).to_contain_text("Waiting")
        for record in log.records[len(before) :]:
            fold.feed(record)
        await expect(page.locator("h1")).to_contain_text("Running")
        await expect(page.locator(".said")).to_contain_text("Runs on")
        await expect(page.locator("[data-key=why]")).to_be_visible()
        await expect(page.locator(".advice")).to_have_count(0)


async def test_search_finds_and_leads_on(browser: Browser) -> None:
    async with browsing(browser, busy_cluster().records) as (page, address, _):
        await page.goto(f"{address}/?at=28")
        await page.keyboard.press("/")
        await page.keyboard.type("llama")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/search?*")
        await follow(page, "research/llama")
        await expect(page.locator("h1")).to_contain_text("llama")
        assert "at=28" in page.url


async def test_filters_stay_in_the_address(browser: Browser) -> None:
    async with browsing(browser, busy_cluster().records) as (page, address, _):
        await page.goto(f"{address}/pods?at=30")
        await page.get_by_label("state").select_option("waiting")
        await page.get_by_role("button", name="Show").click()
        await page.wait_for_url("**/pods?*state=waiting*")
        assert "at=30" in page.url
        await page.keyboard.press("[")
        await expect(page.locator("#seq")).to_have_text("seq 29")
        assert "state=waiting" in page.url


@pytest.mark.parametrize("count", [1, 120])
async def test_commands_of_what_is_picked_on_the_map_are_typed_as_they_stand(
    browser: Browser, count: int
) -> None:
    """Also of names that a shell would read otherwise; from 100 nodes on a cell is a card."""
    log = MemoryLog()
    names = [f"it's-${{HOME}}-{number:03}" for number in range(count)]
    await append(log, *map(node, names))
    async with browsing(browser, log.core.records) as (page, address, _):
        await page.goto(address)
        if count == 1:
            await page.locator(".cap").first.click()
        else:
            await page.locator(".strip").click(position={"x": 2, "y": 2})
        command = page.locator("#picked code")
        word, place = ("blame", f"{names[0]}/GPU-0") if count == 1 else ("ledger", names[0])
        await expect(command).to_contain_text(word)
        assert shlex.split(await command.inner_text()) == ["allot", word, place]


@pytest.mark.parametrize("width", [800, 1280])
async def test_hostile_names_do_nothing_and_break_nothing(browser: Browser, width: int) -> None:
    records, swaps = poisoned(busy_cluster(), MARKUP)
    space, pod = (quote(swaps[name], safe="") for name in ("research", "llama"))
    async with browsing(browser, records, width=width) as (page, address, _):
        paths = (
            *("/pods", "/log", "/compare?from=5", f"/pods/{space}/{pod}"),
            *(f"/log?pod={space}/{pod}", f"/search?q={pod[:40]}", "/decisions/29", "/log/29"),
        )
        for path in paths:
            await page.goto(address + path)
            assert not await page.evaluate("window.hacked")
            assert await page.locator("main img").count() == 0
            too_wide = await page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert too_wide <= 0, f"{path} scrolls sideways by {too_wide} px"
        await page.goto(f"{address}/pods/{space}/{pod}")
        await expect(page.locator(".advice table")).to_be_visible()
        assert not await page.evaluate("window.hacked")


def every_page(records: Sequence[Record], fold: FedFold, pods: Sequence[str]) -> list[str]:
    """An address of each kind."""
    decision = next(r.seq for r in reversed(records) if r.subject == subjects.DECISION)
    found = [
        *("/pods", "/queues", "/log", "/compare", "/search?q=e", "/usage", "/log/4"),
        *(f"/decisions/{decision}", f"/decisions/{decision}/otherwise"),
        *(f"/pods/{pod}" for pod in pods),
    ]
    found += [f"/gangs/{key}" for key in list(fold.state.groups)[:1]]
    return found + [f"/queues/{name}" for name in list(fold.state.queues)[:1]]


async def test_no_page_has_a_serious_finding(browser: Browser) -> None:
    cases: tuple[tuple[Recorder, list[str]], ...] = (
        (busy_cluster(), ["default/big", "research/llama", "default/wrong", "default/half"]),
        (busy_queues(), []),
        (preempted(), ["default/background-worker-2"]),
    )
    # The theme is nothing but colours: in the dark only what depends on them is asked again.
    themes: dict[Any, dict[str, Any]] = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
    axe = Axe()
    for log, pods in cases:
        async with browsing(browser, log.records) as (page, address, fold):
            for path in every_page(log.records, fold, pods):
                await page.goto(address + path)
                if await page.locator("[data-later]").count():
                    await expect(page.locator("[data-later] h2 ~ *").first).to_be_visible()
                for theme, options in themes.items():
                    await page.emulate_media(color_scheme=theme)
                    found = await axe.run(page, options=options)
                    assert found.response["passes"], (path, theme)
                    worse = [
                        (each["id"], each["nodes"][0]["html"])
                        for each in found.response["violations"]
                        if each["impact"] in SERIOUS
                    ]
                    assert not worse, (path, theme, worse)
