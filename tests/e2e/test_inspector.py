"""The inspector in a browser: real services, a real log, and what somebody sees who looks.

One cluster for all tests of this file: they only look, apart from those that add pods of their own.
"""

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser

from allotment.adapters.log.exported import encode
from allotment.core.logport import Record
from allotment_lab.bench.worlds.long_log import LongLog
from allotment_proto.subjects import DECISION
from tests.e2e.browser import chromium, looking, markup, seq_of, until_seq
from tests.e2e.stack import ROLES, Process, Stack, vgpu
from tests.waiting import PATIENCE_S, until_so

pytestmark = pytest.mark.slow

START_NS = 1_795_000_000_000_000_000
NODES = """
- name: gpu-a
  gpus: {model: Tesla T4, count: 4, memory_mib: 15360, slots: 10}
  cpu: 32
  memory: 128Gi
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("inspected")
    with Stack(directory, NODES, services=(*ROLES, "inspector")) as running:
        for number in range(3):
            running.create_pod(f"early-{number}", vgpu(memory=4000, cores=20))
        running.create_pod("too-big", vgpu(memory=90_000))
        running.until(lambda: len(running.bound()) == 3, "three run")
        running.until(lambda: bool(running.refusal("too-big")), "the fourth is told why not")
        yield running


@pytest.fixture(scope="module")
def address(stack: Stack) -> str:
    """Where the pages are."""
    _, said = stack.readiness("inspector")
    return str(said["holds"]["pages"])


@pytest.fixture(scope="module")
def records(stack: Stack) -> list[Record]:
    """The log when the tests began; read before the browser, which brings an event loop."""
    return stack.records()


@pytest.fixture(scope="module")
def browser(records: list[Record]) -> Iterator[Browser]:
    with chromium() as running:
        yield running


def get(url: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, body and headers of an answer, whatever the status is."""
    method = headers.pop("method", "GET")
    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def test_pods_arrive_and_the_map_moves(stack: Stack, address: str, browser: Browser) -> None:
    with looking(browser, address) as eyes:
        page = eyes.open()
        before = seq_of(page)
        assert page.locator(".seg", has_text="early-0").count()
        assert page.locator("#live").get_attribute("aria-pressed") == "true"
        assert page.locator(".card.changed").count() == 0
        stack.create_pod("arrives", vgpu(memory=2000, cores=10))
        page.wait_for_selector(".seg[data-pod='default/arrives']")
        assert seq_of(page) > before
        assert page.locator(".changed").count() == 0, "live changes in place, without an outline"
        stack.delete_pod("arrives")
        page.wait_for_selector(".seg[data-pod='default/arrives']", state="detached")


def test_there_and_back_is_the_same(address: str, browser: Browser) -> None:
    with looking(browser, address) as eyes:
        page = eyes.open()
        head = seq_of(page)
        page.goto(f"{address}/?at={head}")
        wanted = {head: markup(page)}
        for seq in range(head - 1, 0, -1):
            page.keyboard.press("[")
            until_seq(page, seq)
            wanted[seq] = markup(page)
        assert "early-0" not in wanted[1]
        for seq in range(2, head + 1):
            page.keyboard.press("]")
            until_seq(page, seq)
            assert markup(page) == wanted[seq], seq
        middle = head // 2
        page.goto(f"{address}/?at={middle}")
        assert markup(page) == wanted[middle], "a link opens what the steps led to"


def test_a_step_outlines_what_it_changed(
    records: list[Record], address: str, browser: Browser
) -> None:
    (decided,) = [
        record.seq
        for record in records
        if record.subject == "allot.log.decision" and b'"early-0","gpu-a"' in record.payload
    ][:1]
    with looking(browser, address) as eyes:
        page = eyes.open(f"/?at={decided - 1}")
        assert page.locator(".changed").count() == 0
        page.keyboard.press("]")
        until_seq(page, decided)
        assert page.locator("li.card.changed").count() >= 1
        assert page.locator("body.live-now").count() == 0
        assert page.locator("#then").is_visible()


def test_a_link_opens_its_moment_with_its_card(address: str, browser: Browser) -> None:
    with looking(browser, address) as eyes:
        page = eyes.open()
        head = seq_of(page)
        page.locator("[data-card='gpu-a/GPU-0']").first.click()
        assert page.locator("#picked h2").inner_text() == "gpu-a/GPU-0"
        page.keyboard.press("[")
        until_seq(page, head - 1)
        url = page.url
        assert f"at={head - 1}" in url
        assert "card=gpu-a" in url
        shown = markup(page)
    with looking(browser, "") as eyes:
        page = eyes.page
        page.goto(url)
        assert seq_of(page) == head - 1
        assert page.locator("#picked h2").inner_text() == "gpu-a/GPU-0"
        assert page.locator("li.card[aria-current=true]").get_attribute("id") == "gpu-a/GPU-0"
        assert markup(page) == shown


def test_moments_are_named_in_every_form(records: list[Record], address: str) -> None:
    first = records[0]
    _, body, _ = get(f"{address}/?format=json&at=2~1")
    assert json.loads(body)["seq"] == 1
    later = json.loads(get(f"{address}/?format=json&at=-0s")[1])
    assert later["seq"] > 1
    long_ago = json.loads(get(f"{address}/?format=json&at=2001-01-01T00:00:00Z")[1])
    assert long_ago["seq"] == 0
    assert long_ago["cards"]["nodes"] == []
    at = json.loads(get(f"{address}/?format=json&at=1")[1])
    assert at["timeMs"] == first.time_ns // 1_000_000
    status, body, _ = get(f"{address}/?format=json&at=soon")
    assert status == 400
    assert "14:03" in json.loads(body)["message"]
    assert get(f"{address}/?at=<script>")[0] == 400


def test_the_keyboard_goes_everywhere(address: str, browser: Browser) -> None:
    with looking(browser, address) as eyes:
        page = eyes.open()
        head = seq_of(page)
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "find"
        page.keyboard.type("[")
        assert seq_of(page) == head, "what is typed is no step"
        page.keyboard.press("Escape")
        page.keyboard.press("[")
        until_seq(page, head - 1)
        page.keyboard.press("{")
        until_so(lambda: seq_of(page) < head - 1)
        marked = seq_of(page)
        page.keyboard.press("{")
        page.keyboard.press("}")
        until_so(lambda: seq_of(page) >= marked)
        page.focus("#at")
        before = seq_of(page)
        page.keyboard.press("ArrowLeft")
        until_seq(page, before - 1)
        page.keyboard.press("l")
        page.wait_for_selector("body.live-now")
        assert "at=" not in page.url
        page.focus(".cap")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.dataset.card") == "gpu-a/GPU-1"
        page.keyboard.press("Enter")
        assert page.locator("#picked h2").inner_text() == "gpu-a/GPU-1"
        page.keyboard.press("Escape")
        assert page.locator("#picked").is_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_serious_bars_anybody(address: str, browser: Browser, theme: str) -> None:
    with looking(browser, address, color_scheme=theme) as eyes:
        grounds = set()
        for path in ("/", "/?at=5&card=gpu-a/GPU-0", "/nodes/gpu-a", "/nodes/gpu-b", "/?at=never"):
            page = eyes.open(path)
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            found = Axe().run(page).response["violations"]
            bad = [v["id"] for v in found if v["impact"] in ("serious", "critical")]
            assert not bad, (path, [(v["id"], v["nodes"][0]["html"]) for v in found])
        assert grounds == {"rgb(250, 250, 249)" if theme == "light" else "rgb(15, 17, 20)"}
        eyes.complaints = [c for c in eyes.complaints if "404" not in c and "400" not in c]


def test_a_theme_is_chosen_and_kept(address: str, browser: Browser) -> None:
    with looking(browser, address, color_scheme="light") as eyes:
        page = eyes.open()
        page.click("#theme")
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.reload()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_it_only_reads_and_answers_to_its_own_names(address: str) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        status, _, headers = get(f"{address}/", method=method)
        assert status == 405
        assert headers["Allow"] == "GET, HEAD"
    assert get(f"{address}/", method="HEAD")[:2] == (200, "")
    port = address.rpartition(":")[2]
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert get(f"{address}/", Host=host)[0] == 200
    for host in (f"rebound.example:{port}", "localhost.example", "127.0.0.1.example"):
        assert get(f"{address}/", Host=host)[0] == 421
        assert get(f"{address}/events", Host=host)[0] == 421


def test_every_answer_forbids_what_is_not_ours(address: str) -> None:
    for path in ("/", "/static/style.css", "/nowhere", "/?format=json", "/nodes/none"):
        _, body, headers = get(f"{address}{path}")
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "<script>" not in body


def test_what_is_not_there_is_said_with_what_is_near(address: str, browser: Browser) -> None:
    status, body, _ = get(f"{address}/nodes/gpu-b", Accept="application/json")
    assert status == 404
    assert json.loads(body)["node"]["nearest"][0]["name"] == "gpu-a"
    assert get(f"{address}/nowhere")[0] == 404
    status, body, _ = get(f"{address}/nodes/%3Cimg%20src%3Dx%3E")
    assert status == 404
    assert "<img" not in body
    assert "&lt;img src=x&gt;" in body


def test_the_json_of_the_map_is_what_it_shows(address: str, browser: Browser) -> None:
    _, body, _ = get(f"{address}/", Accept="application/json")
    said = json.loads(body)
    cards = said["cards"]
    assert cards["totals"]["cards"] == 4
    assert [wait["name"] for wait in cards["waiting"]] == ["too-big"]
    held = {s["pod"] for node in cards["nodes"] for c in node["cards"] for s in c["segments"]}
    assert held == {"early-0", "early-1", "early-2"}
    with looking(browser, address) as eyes:
        page = eyes.open()
        assert {each.inner_text() for each in page.locator("#map .seg").all()} == held
        assert page.locator("[data-key=waiting] li").count() == 1


def test_the_page_stays_when_the_inspector_is_gone(address: str, browser: Browser) -> None:
    """And says since when it has heard nothing."""
    with looking(browser, address) as eyes:
        page = eyes.open()
        page.context.set_offline(True)
        page.evaluate("stream.close(); stream.onerror()")  # news under way would take it back
        assert "No news from the inspector" in page.locator("#headline").inner_text()
        assert page.locator(".seg").count() >= 3
        page.context.set_offline(False)
        eyes.complaints.clear()


def test_the_slider_shows_as_much_of_the_log_as_is_wanted(address: str, browser: Browser) -> None:
    with looking(browser, address) as eyes:
        page = eyes.open("/?at=1")
        page.select_option("#window", "5m")
        until_so(lambda: "window=5m" in str(page.locator("a[data-go]").first.get_attribute("href")))
        low, high = (int(page.locator("#at").get_attribute(name) or 0) for name in ("min", "max"))
        assert 0 < high - low <= 300_000
        assert seq_of(page) == 1


def test_a_large_cluster_stays_light(tmp_path: Path, browser: Browser) -> None:
    """1,000 nodes with 8,000 cards and 10,000 pods: one cell a card, and few elements."""
    path = tmp_path / "large.jsonl"
    log, decision = LongLog(1000, 10_000, Random(1)), 0
    with path.open("w") as lines:
        for seq, made in enumerate(log.entries(45_000), 1):
            time_ns = START_NS + seq * 10**9
            decision = seq if made.subject == DECISION else decision
            lines.write(encode(Record(seq, made.subject, made.payload, time_ns, str(seq))) + "\n")
    process = Process("inspector", ["allotment_inspector", "--file", str(path)], tmp_path)
    try:
        http = process.announce()["http"]

        def pages() -> str:
            said = json.loads(get(f"http://{http}/readyz")[1])
            return str(said["holds"].get("pages", "")) if said["ready"] else ""

        until_so(pages)
        address = pages()
        _, body, _ = get(f"{address}/")
        assert len(body) < 60_000
        with looking(browser, address) as eyes:
            page = eyes.open()
            assert page.locator(".strip path").count() >= 3
            assert int(page.evaluate("document.querySelectorAll('*').length")) < 400
            shown = markup(page)
            page = eyes.open(f"/?at={decision}")
            page.keyboard.press("[")
            until_seq(page, decision - 1)
            assert page.locator(".strip rect.step").count() > 0, "what the decision changed"
            page.focus(".strip")
            page.keyboard.press("ArrowRight")
            assert page.locator("#picked h2").inner_text() == "gpu-000000"
            page.keyboard.press("l")
            page.wait_for_selector("body.live-now")
            assert markup(page).count("data-levels") == shown.count("data-levels") == 1
            page.keyboard.press("Enter")
            page.wait_for_selector("h1")
    finally:
        process.kill()


def test_while_nats_stands_still_everything_says_of_when_it_is(
    stack: Stack, address: str, browser: Browser
) -> None:
    with looking(browser, address) as eyes:
        page = eyes.open()
        os.kill(stack.nats.pid, signal.SIGSTOP)
        try:
            page.wait_for_selector("#headline:not([hidden])")
            assert "No news from NATS since " in page.locator("#headline").inner_text()
            for name in ("inspector", "filter"):
                until_so(
                    lambda name=name: (
                        "No news from NATS since "  # type: ignore[misc]
                        in stack.readiness(name)[1].get("reasons", {}).get("log", "")
                    )
                )
                status, said = stack.readiness(name)
                assert status == 503
                assert "Error" not in str(said["reasons"])
                assert said["figures"]["log"]["silentSinceMs"] > START_NS // 1_000_000
        finally:
            os.kill(stack.nats.pid, signal.SIGCONT)
        page.wait_for_selector("#headline", state="hidden")
        stack.until(lambda: stack.is_ready("inspector"), "news again")


def test_the_token_is_asked_for_once(tmp_path: Path, browser: Browser) -> None:
    token, log = tmp_path / "token", tmp_path / "log.jsonl"
    token.write_text("a-token-that-is-long-enough\n")
    log.write_text("")
    arguments = ["allotment_inspector", "--file", str(log), "--page-token-file", str(token)]
    process = Process("inspector", arguments, tmp_path)
    try:
        http = process.announce()["http"]
        until_so(lambda: get(f"http://{http}/readyz")[0] == 200)
        address = str(json.loads(get(f"http://{http}/readyz")[1])["holds"]["pages"])
        with looking(browser, address) as eyes:
            page = eyes.open("/?card=x")
            page.fill("#shown", "not-the-token-at-all")
            page.click("form button")
            until_so(lambda: "Wrong token" in page.locator("#answer").inner_text())
            page.fill("#shown", "a-token-that-is-long-enough")
            page.click("form button")
            page.wait_for_selector(".stats")
            assert "token" not in page.url
            page.reload()
            assert page.locator("#map").count() == 1
            assert not any("long-enough" in url for url in eyes.asked)
            eyes.complaints = [said for said in eyes.complaints if "401" not in said]
    finally:
        process.kill()
