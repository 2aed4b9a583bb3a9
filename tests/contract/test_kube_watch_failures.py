"""The reflector when lists fail, streams break, stall or err, and when its consumer does."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from unittest.mock import MagicMock

import anyio
import msgspec
import pytest
from tests.contract.kube_server import (
    client_of,
    hang_up,
    listing,
    pod,
    queries,
    refuse,
    reply,
    scripted,
    stream,
)
from tests.contract.kube_watched import PODS, Pod, watching
from tests.waiting import patience

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.watch import Reflector
from allotment.adapters.kube.watch_events import Added, Backoff, Deleted, Undecodable, WatchEvent
from allotment.adapters.telemetry.refusals import Refusals

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]
Consumer = Callable[["WatchEvent[Pod]"], Awaitable[None]]


async def test_a_cut_stream_goes_on_where_it_was(tmp_path: Path) -> None:
    async with scripted() as script:
        script.then(
            listing(version="5"),
            stream(("ADDED", pod("a", 6)), b'{"type": "ADDED", "obj', cut=True),
            stream(("ADDED", pod("b", 7))),
        )
        async with watching(script, tmp_path) as watched:
            await watched.until("=5/0", "+a", "+b")
        assert queries(script)[2]["resourceVersion"] == "6"
        assert len(watched.problems) == 1
        assert PODS in watched.problems[0]


async def test_failing_lists_are_tried_again_until_one_succeeds(tmp_path: Path) -> None:
    async with scripted() as script:
        script.then(
            refuse(500, "InternalError"),
            hang_up,
            hang_up,  # the connection pool may repeat a GET once by itself
            refuse(403, "Forbidden", "pods is forbidden"),
            reply({"metadata": {}, "items": "many"}),
            listing(pod("a", 1), version="5"),
        )
        async with watching(script, tmp_path) as watched:
            await watched.until("+a", "=5/1")
    said = "\n".join(watched.problems)
    for words in ("server: because", "403 Forbidden: pods is forbidden", "not a list object"):
        assert words in said


async def test_a_stream_that_only_ever_errs_leads_to_a_relist(tmp_path: Path) -> None:
    nonsense = stream(b"not json\n")
    internal = stream(("ERROR", {"code": 500, "reason": "InternalError", "message": "oh"}))
    wordless = stream(b'{"type": "ERROR", "object": "no status"}\n')
    async with scripted() as script:
        script.then(
            listing(pod("a", 1), version="5"),
            *(nonsense, internal, wordless),
            listing(version="9"),
        )
        async with watching(script, tmp_path) as watched:
            await watched.until("+a", "=5/1", "-a uid-a", "=9/0")
        assert len(watched.problems) == 3
        assert "500 InternalError: oh" in watched.problems[1]
        assert "no status" in watched.problems[2]


async def test_an_unreachable_server_does_not_cost_a_relist(tmp_path: Path) -> None:
    async with scripted() as script:
        script.then(
            listing(version="5"),
            *[refuse(503, "ServiceUnavailable")] * 5,
            stream(("ADDED", pod("a", 6))),
        )
        async with watching(script, tmp_path) as watched:
            await watched.until("=5/0", "+a")
        assert watched.reflector.stats.lists == 1


async def test_a_server_that_closes_every_stream_is_not_stormed(tmp_path: Path) -> None:
    async with scripted() as script:
        script.then(listing(version="5"))
        async with watching(script, tmp_path):
            script.otherwise = stream()
            await anyio.sleep(0.5)
        assert len(script.requests) < 40  # backing off to 0.05 s; without it, thousands


async def test_a_silent_stream_is_dead_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allotment.adapters.kube.watch.IDLE_EXTRA_S", -0.8)
    async with scripted() as script:
        script.then(listing(version="5"), stream(hold=True), stream(("ADDED", pod("a", 6))))
        async with watching(script, tmp_path, watch_s=1) as watched:
            await watched.until("=5/0", "+a")
        assert len(watched.problems) == 1


def test_backoff_doubles_within_bounds() -> None:
    backoff = Backoff(first_s=1.0, max_s=10.0)
    for failures, whole_s in [(1, 1.0), (2, 2.0), (3, 4.0), (9, 10.0), (10_000, 10.0)]:
        assert whole_s / 2 <= backoff.delay_s(failures, Random(failures)) <= whole_s


async def test_the_consumers_error_about_the_whole_ends_the_reflector(tmp_path: Path) -> None:
    async def explode(event: WatchEvent[Pod]) -> None:
        raise OSError("the log is full")

    async def run(client: KubeClient, on_event: Consumer) -> None:
        decoder = msgspec.json.Decoder(Pod)
        await Reflector(client, PODS, decoder, on_event, random=Random(1)).run()

    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(listing(version="5"))
        with pytest.raises(OSError, match="the log is full"), patience():
            await run(client, explode)


async def test_an_object_that_the_consumer_fails_on_is_refused_alone(tmp_path: Path) -> None:
    told: list[str] = []
    ended = anyio.Event()

    async def explode(event: WatchEvent[Pod]) -> None:
        told.append(type(event).__name__)
        if isinstance(event, Added | Deleted | Undecodable) and "bad" in str(event):
            raise ZeroDivisionError(f"no. {len(told)}")
        if isinstance(event, Added) and event.identity.name == "last":
            ended.set()

    async with scripted() as script, client_of(script, tmp_path) as client:
        events = [("ADDED", pod("a", 7)), ("DELETED", pod("bad", 8)), ("ADDED", pod("last", 9))]
        script.then(listing(pod("bad", 1), pod("b", 2), version="5"), stream(*events, hold=True))
        refusals = Refusals(MagicMock())
        decoder = msgspec.json.Decoder(Pod)
        reflector = Reflector(client, PODS, decoder, explode, random=Random(1), refusals=refusals)
        with patience():
            async with anyio.create_task_group() as group:
                group.start_soon(reflector.run)
                await ended.wait()
                group.cancel_scope.cancel()
    assert told == ["Added", "Undecodable", "Added", "Synced", "Added", "Deleted", "Added"]
    assert refusals.total == {("kubernetes", "pods"): 3}
    assert refusals.standing() == [], "it is gone"
