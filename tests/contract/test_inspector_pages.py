"""Every page over HTTP: as HTML, as JSON and in parts, at several moments, with hostile names."""

import json
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from urllib.parse import quote

import aiohttp
import pytest
from tests.hostile import MARKUP, UNPRINTABLE, poisoned
from tests.inspecting import history_of, names_of, paths_of, served
from tests.recorded import A_FEW, read_log
from tests.recording import busy_cluster
from tests.recording_batch import busy_queues, preempted
from yarl import URL

from allotment.adapters.telemetry.log import printable
from allotment.core.logport import Record
from allotment_inspector.pages import PAGES
from allotment_proto import subjects

pytestmark = pytest.mark.anyio

MADE = {"busy": busy_cluster, "queues": busy_queues, "preempted": preempted}


class Tags(HTMLParser):
    """Notes tags that no template has, and attributes that would run something."""

    def __init__(self) -> None:
        super().__init__()
        self.strange: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        links = [value or "" for name, value in attrs if name == "href"]
        is_strange = tag == "img" or any(name.startswith("on") for name in names)
        if is_strange or any(not link.startswith(("/", "#", "data:,")) for link in links):
            self.strange.append(f"{tag} {attrs}")

    def handle_data(self, data: str) -> None:
        self.text += data


async def ask_all(records: Sequence[Record], moments: Iterable[int | None]) -> int:
    """Ask for every page in every form; how many answers there were."""
    history, fold = history_of(records)
    asked = 0
    async with served(history) as address, aiohttp.ClientSession() as session:
        for at in moments:
            for path in paths_of(records, names_of(records), fold):
                for form in ("", "format=json", "parts=1"):
                    query = "&".join(
                        part for part in ("" if at is None else f"at={at}", form) if part
                    )
                    joint = ("&" if "?" in path else "?") if query else ""
                    url = f"{address}{path}{joint}{query}"
                    async with session.get(URL(url, encoded=True)) as response:
                        text = await response.text()
                    assert response.status in (200, 404), (
                        f"{response.status} for {url}: {text[:300]}"
                    )
                    if at is None and "/advice" not in path and "gone" not in path:
                        assert response.status == 200, url
                    if form == "parts=1":
                        for _, html in json.loads(text)["parts"].values():
                            assert html.replace("\n", "").replace("\xa0", "").isprintable(), url
                    elif form:
                        assert json.loads(text)
                    else:
                        assert text.replace("\n", "").replace("\xa0", "").isprintable(), url
                        tags = Tags()
                        tags.feed(text)
                        assert not tags.strange, url
                    asked += 1
    return asked


@pytest.mark.parametrize("log", MADE)
async def test_every_page_answers_in_every_form(log: str) -> None:
    records = MADE[log]().records
    assert await ask_all(records, (None, len(records) // 2)) > 100


@pytest.mark.parametrize("log", A_FEW)
async def test_every_recorded_log_has_its_pages(log: str) -> None:
    records = read_log(log)
    assert await ask_all(records, (None,)) > 20


@pytest.mark.parametrize("log", MADE)
async def test_hostile_names_are_text_and_nothing_else(log: str) -> None:
    records, swaps = poisoned(MADE[log](), UNPRINTABLE + MARKUP)
    assert len(swaps) > 10
    assert await ask_all(records, (None,)) > 50


async def test_the_template_language_is_not_read_out_of_names() -> None:
    records, swaps = poisoned(busy_cluster(), UNPRINTABLE + MARKUP)
    history, _ = history_of(records)
    name = quote(swaps["big"], safe="")
    async with served(history) as address, aiohttp.ClientSession() as session:
        url = f"{address}/pods/{quote(swaps['default'], safe='')}/{name}"
        async with session.get(URL(url, encoded=True)) as response:
            text = await response.text()
            policy = response.headers["Content-Security-Policy"]
    assert response.status == 200
    tags = Tags()
    tags.feed(text)
    assert printable(swaps["big"]) in tags.text
    assert "script-src 'self'" in policy


async def changed_parts(session: aiohttp.ClientSession, url: str, seq: int) -> set[str]:
    """The parts of a page that the record `seq` changed, going by their digests."""
    found = []
    for at in (seq - 1, seq):
        async with session.get(url, params={"at": at, "parts": 1}) as response:
            found.append({key: v for key, (v, _) in (await response.json())["parts"].items()})
    return {key for key, v in found[1].items() if found[0].get(key) != v}


async def test_a_step_changes_only_what_its_record_is_about() -> None:
    """The moment is in every link and command, and yet no change of what shows them."""
    log = busy_cluster()
    uid = log.pod("late")
    again = log.append(subjects.pod(uid), "watcher/0", log.state.pods[uid].fact)
    decided = log.decide(uid)
    log.bind(uid)
    bound = decided + 1
    card = {"c:gpu-01/GPU-0"}
    node = {*card, "n:gpu-01"}
    wanted: dict[tuple[str, int], set[str]] = {
        ("/", again): set(),
        ("/pods", again): set(),
        ("/pods/default/big/advice", again): set(),
        ("/nodes/gpu-01", again): set(),
        ("/queues", again): set(),
        ("/", decided): {*node, "said", "stats", "waiting"},
        ("/", bound): card,
        ("/nodes/gpu-01", decided): {*node, "records", "pods", "facts", "answers"},
        ("/nodes/gpu-02", decided): {"answers"},
        ("/nodes/gpu-01", bound): {*card, "pods"},
    }
    history, _ = history_of(log.records)
    async with served(history) as address, aiohttp.ClientSession() as session:
        for (path, seq), parts in wanted.items():
            found = await changed_parts(session, address + path, seq)
            assert found == parts, (path, seq)


@pytest.mark.parametrize("name", ["to", "context", "self", "caller", "q", "page", "frame"])
async def test_no_word_of_a_query_fails_a_page(name: str) -> None:
    history, _ = history_of(busy_cluster().records)
    async with served(history) as address, aiohttp.ClientSession() as session:
        for path in ("/", "/pods", "/log", "/compare", "/queues", "/pods/default/big"):
            for value in ("1", "", "x" * 300, "<b>", "-1", "9" * 30):
                async with session.get(f"{address}{path}", params={name: value}) as response:
                    assert response.status == 200, (path, name, value)


async def test_a_service_that_does_not_work_heads_every_page() -> None:
    """A frozen scorer: the map said "no problems" while the doctor had two errors."""
    history, _ = history_of(busy_cluster().records)
    async with served(history) as address, aiohttp.ClientSession() as session:

        async def answer(path: str) -> str:
            async with session.get(f"{address}{path}") as response:
                return await response.text()

        before = json.loads(await answer("/?format=json"))["cards"]
        history.active = lambda: {"watcher": "a", "scorer": "", "binder": "a"}
        said = "Service scorer: no replica is active, so no pod is scheduled"
        assert said in await answer("/pods")
        assert said not in await answer("/pods?at=3")
        after = json.loads(await answer("/?format=json"))["cards"]
        assert after["lookTotal"] == before["lookTotal"] + 1
        assert after["look"][0]["code"] == "NobodyActive"
        history.silent_since_ms = lambda: history.index.times_ms[-1]
        silent = json.loads(await answer("/?format=json"))["cards"]
        assert "problem" not in silent["said"]


async def test_what_does_not_exist_is_404_with_names_like_it() -> None:
    history, _ = history_of(busy_cluster().records)
    wanted = {
        "/pods/research/lama": "research/llama",
        "/pods/research/lama/advice": "research/llama",
        "/queues/nothing": "No queue nothing",
        "/gangs/a/b": "No gang a/b",
        "/decisions/1": "No decision 1",
        "/decisions/1/otherwise": "No decision 1",
        "/log/99999": "No record 99999",
        "/log/x": "No record x",
    }
    async with served(history) as address, aiohttp.ClientSession() as session:
        for path, text in wanted.items():
            async with session.get(f"{address}{path}") as response:
                assert response.status == 404
                assert text in await response.text()


async def test_every_page_has_its_command_and_its_json() -> None:
    log = busy_queues()
    history, fold = history_of(log.records)
    group = next(iter(fold.state.groups))
    pod = names_of(log.records)[0]
    decision = next(r.seq for r in log.records if r.subject == subjects.DECISION)
    match = {
        "pods": "/pods",
        "pod": f"/pods/{pod}",
        "advice": f"/pods/{pod}/advice",
        "queues": "/queues",
        "queue": f"/queues/{next(iter(fold.state.queues))}",
        "gang": f"/gangs/{group}",
        "gangAdvice": f"/gangs/{group}/advice",
        "log": "/log",
        "record": "/log/1",
        "decision": f"/decisions/{decision}",
        "whatif": f"/decisions/{decision}/otherwise",
        "compare": "/compare",
        "search": "/search?q=a",
        "usage": "/usage?by=node",
    }
    assert {page.name for page in PAGES} - {"cards", "node"} == set(match)
    async with served(history) as address, aiohttp.ClientSession() as session:
        for name, path in match.items():
            async with session.get(f"{address}{path}") as response:
                html = await response.text()
            assert ("<code>allot " in html) is (name != "search"), name
            async with session.get(
                f"{address}{path}", headers={"Accept": "application/json"}
            ) as response:
                document = await response.json()
            assert name in document, name
