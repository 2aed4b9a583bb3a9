"""A watch whose connection died without a word, and one on which there is nothing to tell."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from aiohttp import web
from tests.contract.kube_server import (
    gone,
    listing,
    pod,
    queries,
    refuse,
    scripted,
    stream,
)
from tests.contract.kube_watched import PODS, Watched, watching
from tests.waiting import patience

from allotment.adapters.kube import watch as kube_watch

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]

SILENT_S = 0.2
BOOKMARK = ("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "5"}})


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_watch, "GRACE_S", 0.2)
    monkeypatch.setattr(kube_watch, "PROBE_ANSWER_S", 3.0)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something nobody announces."""
    with patience():
        while True:
            if holds():
                return
            await anyio.sleep(0.02)


async def probed(watched: Watched, times: int) -> None:
    await until(lambda: watched.reflector.stats.probes >= times)


async def test_a_stream_that_does_not_tell_what_a_second_one_tells_is_left(tmp_path: Path) -> None:
    """Half open: the server gave its events to a connection that is no more."""
    news = stream(("ADDED", pod("a", 6)))
    async with scripted() as script:
        script.then(listing(version="5"), stream(hold=True), news, stream(("ADDED", pod("a", 6))))
        async with watching(script, tmp_path, silent_s=SILENT_S) as watched:
            await watched.until("=5/0", "+a")
            assert watched.reflector.stats.lists == 1
            (problem,) = watched.problems
        assert "a second watch found: news" in problem
        beside, again = queries(script)[2:4]
        assert (beside["resourceVersion"], beside["timeoutSeconds"]) == ("5", "1")
        assert again["resourceVersion"] == "5"
        assert int(again["timeoutSeconds"]) > 1


async def test_a_quiet_stream_is_kept_and_nothing_is_listed_again(tmp_path: Path) -> None:
    async with scripted() as script:
        script.then(listing(version="5"), stream(hold=True), *[stream(BOOKMARK), stream()] * 2)
        async with watching(script, tmp_path, silent_s=SILENT_S) as watched:
            await probed(watched, 4)
            assert watched.reflector.stats.lists == 1
            assert watched.reflector.stats.watches == 1
            assert watched.problems == []
            assert watched.client.silent == {}


@pytest.mark.parametrize(
    "refused",
    [refuse(403, "Forbidden"), stream(hold=True)],
    ids=["refused", "unanswered"],
)
async def test_a_probe_that_fails_leaves_the_stream_alone(tmp_path: Path, refused: object) -> None:
    async with scripted() as script:
        script.then(listing(version="5"), stream(hold=True), refused)  # type: ignore[arg-type]
        async with watching(script, tmp_path, silent_s=SILENT_S) as watched:
            await probed(watched, 2)
            assert watched.reflector.stats.watches == 1


async def test_where_no_stream_delivers_anything_it_is_said_and_lists_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy or a server that opens every watch and sends nothing, not even the end."""
    monkeypatch.setattr(kube_watch, "PROBE_S", 0)
    there = [pod("a", 5)]
    silence = stream(hold=True)

    async def answer(request: web.Request) -> web.StreamResponse:
        one = silence if "watch" in request.query else listing(*there, version=str(4 + len(there)))
        return await one(request)

    async with scripted() as script, watching(script, tmp_path, silent_s=SILENT_S) as watched:
        script.otherwise = answer
        await watched.until("+a", "=5/1")
        there.append(pod("b", 6))
        await until(lambda: kube_watch.OUTLIVED in watched.client.silent.get(PODS, ""))
        await watched.until("+a", "=5/1", "+b", "=6/2")
        asked = ["watch" if "watch" in query else "list" for query in queries(script)[:5]]
        assert asked == ["list", "watch", "watch", "watch", "list"], "one late probe lists nothing"
        there.append(pod("c", 7))
        await watched.until("+a", "=5/1", "+b", "=6/2", "+c", "=7/3")
        assert kube_watch.OUTLIVED in watched.client.silent[PODS], "still not ready"
        silence = stream(("ADDED", pod("d", 8)), hold=True)
        await until(lambda: "+d" in watched.told)
        assert watched.client.silent == {}


async def test_that_nobody_knows_is_told_until_somebody_does(tmp_path: Path) -> None:
    async with scripted() as script:
        script.then(
            listing(version="5"), stream(hold=True), refuse(403, "Forbidden"), stream(BOOKMARK)
        )
        said: list[tuple[bool, str]] = []
        async with (
            watching(script, tmp_path, silent_s=SILENT_S) as watched,
            anyio.create_task_group() as group,
        ):
            await until(lambda: bool(watched.client.silent))
            group.start_soon(kube_watch.tell_silence, watched.client, lambda *one: said.append(one))
            await until(lambda: bool(said))
            assert not said[0][0]
            assert "403 Forbidden" in said[0][1]
            assert PODS in said[0][1]
            await until(lambda: said[-1][0])
            group.cancel_scope.cancel()
        assert len(watched.problems) == 1


async def test_an_old_version_is_no_reason_to_list_again_while_bookmarks_may_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted() as script:
        script.then(listing(version="5"), stream(hold=True), *[stream(gone())] * 3)
        async with watching(script, tmp_path, silent_s=SILENT_S) as watched:
            await probed(watched, 3)
            assert watched.reflector.stats.lists == 1
            monkeypatch.setattr(kube_watch, "BOOKMARK_LATE_S", 0.0)
            script.then(refuse(410, "Expired"), listing(version="9"), stream(hold=True))
            await watched.until("=5/0", "=9/0")
