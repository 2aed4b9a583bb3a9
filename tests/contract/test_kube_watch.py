"""The reflector against streams that expire, break, stall and carry odd objects."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import anyio
import msgspec
import pytest
from aiohttp import web
from tests.contract.kube_server import (
    Script,
    client_of,
    gone,
    hang_up,
    listing,
    pod,
    queries,
    refuse,
    reply,
    scripted,
    stream,
)

from allotment.adapters.kube import KubeClient
from allotment.adapters.kube_watch import (
    Added,
    Backoff,
    Deleted,
    Identity,
    Modified,
    Reflector,
    Synced,
    Undecodable,
    WatchEvent,
    list_and_watch,
)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]
PODS = "/api/v1/pods"
Consumer = Callable[["WatchEvent[Pod]"], Awaitable[None]]


class Spec(msgspec.Struct):
    nodeName: str = ""


class Meta(msgspec.Struct):
    name: str


class Pod(msgspec.Struct):
    metadata: Meta
    spec: Spec


class Watched:
    """A reflector at work: what it told, in short words, and what it complained about."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.events: list[WatchEvent[Pod]] = []
        self.problems: list[str] = []
        self.changed = anyio.Event()
        self.reflector: Reflector[Pod]

    async def on_event(self, event: WatchEvent[Pod]) -> None:
        self.events.append(event)
        match event:
            case Added(identity=identity, object=found):
                self.told.append(f"+{identity.name} {found.spec.nodeName}".rstrip())
            case Modified(identity=identity, object=found):
                self.told.append(f"~{identity.name} {found.spec.nodeName}".rstrip())
            case Deleted(identity=identity):
                self.told.append(f"-{identity.name} {identity.uid}")
            case Undecodable():
                self.told.append(f"?{event.name}")
            case Synced():
                self.told.append(f"={event.resource_version}/{event.objects}")
        self.changed.set()

    async def until(self, *told: str) -> None:
        with anyio.fail_after(10):
            while len(self.told) < len(told):
                self.changed = anyio.Event()
                await self.changed.wait()
        assert self.told == list(told)


@contextlib.asynccontextmanager
async def watching(
    script: Script,
    tmp_path: Path,
    absent_ok: bool = False,
    page_objects: int = 500,
    watch_s: int = 290,
) -> AsyncIterator[Watched]:
    watched = Watched()
    async with client_of(script, tmp_path) as client, anyio.create_task_group() as group:
        watched.reflector = Reflector(
            client,
            PODS,
            msgspec.json.Decoder(Pod),
            watched.on_event,
            random=Random(1),
            on_problem=watched.problems.append,
            absent_ok=absent_ok,
            absent_retry_s=0.01,
            page_objects=page_objects,
            watch_s=watch_s,
            backoff=Backoff(first_s=0.01, max_s=0.05),
        )
        script.otherwise = stream(hold=True)
        group.start_soon(watched.reflector.run)
        yield watched
        group.cancel_scope.cancel()


async def test_list_then_watch_then_the_next_stream_from_the_last_version(tmp_path: Path) -> None:
    async with scripted() as script:
        script.then(
            listing(pod("a", 3), pod("b", 4), version="7"),
            stream(
                ("ADDED", pod("c", 8)),
                ("MODIFIED", pod("a", 9, nodeName="n1")),
                ("DELETED", pod("b", 10)),
                ("BOOKMARK", {"metadata": {"resourceVersion": "20"}}),
            ),
            stream(("MODIFIED", pod("c", 21)), hold=True),
        )
        async with watching(script, tmp_path) as watched:
            await watched.until("+a", "+b", "=7/2", "+c", "~a n1", "-b uid-b", "~c")
        first, second, third = queries(script)[:3]
    assert first == {"resourceVersion": "0"}
    assert second["resourceVersion"] == "7"
    assert (second["watch"], second["allowWatchBookmarks"]) == ("1", "true")
    assert 261 <= int(second["timeoutSeconds"]) <= 319
    assert third["resourceVersion"] == "20"
    assert watched.problems == []
    assert watched.events[0] == Added(
        Identity("default", "a", "uid-a"), Pod(metadata=Meta("a"), spec=Spec())
    )


@pytest.mark.parametrize("over_http", [False, True])
async def test_expired_means_a_consistent_relist_and_the_difference_by_uid(
    tmp_path: Path, over_http: bool
) -> None:
    async with scripted() as script:
        script.then(
            listing(pod("a", 1), pod("b", 2), pod("same", 3), version="5"),
            refuse(410, "Expired") if over_http else stream(gone()),
            listing(
                pod("a", 9, uid="uid-a2"), pod("same", 3), pod("b", 8, nodeName="n"), version="9"
            ),
        )
        async with watching(script, tmp_path) as watched:
            relisted = ["-a uid-a", "+a", "~b n", "=9/3"]
            await watched.until("+a", "+b", "+same", "=5/3", *relisted)
        assert queries(script)[2] == {"limit": "500"}
        assert watched.reflector.stats.expired == 1


async def test_relists_are_paged_and_a_page_that_expires_starts_over(tmp_path: Path) -> None:
    async with scripted() as script:
        script.then(
            listing(pod("a", 1), version="5"),
            stream(gone()),
            listing(pod("a", 1), version="6", more="t1"),
            refuse(410, "Expired", "continue token too old"),
            listing(pod("a", 1), version="7", more="t2"),
            listing(pod("b", 2), version="7"),
        )
        async with watching(script, tmp_path, page_objects=1) as watched:
            await watched.until("+a", "=5/1", "+b", "=7/2")
        assert queries(script)[3] == {"limit": "1", "continue": "t1"}
        assert queries(script)[5] == {"limit": "1", "continue": "t2"}


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


async def test_of_versions_that_arrived_together_the_last_is_told(tmp_path: Path) -> None:
    def at_once(*events: tuple[str, dict[str, Any]]) -> bytes:
        lines = (json.dumps({"type": event[0], "object": event[1]}) for event in events)
        return "".join(f"{line}\n" for line in lines).encode()

    crowd = at_once(
        ("ADDED", pod("a", 6)),
        ("MODIFIED", pod("a", 7, nodeName="n1")),
        ("ADDED", pod("b", 8)),
        ("MODIFIED", pod("a", 9, nodeName=3)),
        ("MODIFIED", pod("a", 10, nodeName="n2")),
        ("MODIFIED", pod("b", 11, nodeName="n3")),
        ("DELETED", pod("b", 12, nodeName="n3")),
        ("ADDED", pod("b", 13, uid="another")),
        ("BOOKMARK", {"metadata": {"resourceVersion": "14"}}),
    )
    ending = at_once(("ADDED", pod("c", 15)), ("MODIFIED", pod("c", 16)), gone())
    async with scripted() as script:
        script.then(listing(version="5"), stream(crowd), stream(ending), listing(version="20"))
        async with watching(script, tmp_path) as watched:
            await watched.until(
                *("=5/0", "+a n2", "+b n3", "-b uid-b", "+b", "+c"),
                *("-a uid-a", "-b another", "-c uid-c", "=20/0"),
            )
        assert queries(script)[2]["resourceVersion"] == "14"
        assert watched.reflector.stats.events == 11
        assert watched.reflector.stats.undecodable == 0


async def test_odd_objects_are_told_and_do_not_hide_the_others(tmp_path: Path) -> None:
    odd = pod("odd", 2)
    odd["spec"] = None
    nameless = {"metadata": {"name": 7, "uid": "u7"}, "spec": {}}
    async with scripted() as script:
        script.then(
            listing(pod("a", 1), odd, nameless, version="5"),
            stream(
                ("MODIFIED", pod("a", 6, nodeName=3)),
                ("MODIFIED", pod("odd", 7)),
                ("DELETED", {**odd, "spec": 5}),
                ("ADDED", pod("b", 8)),
            ),
        )
        async with watching(script, tmp_path) as watched:
            await watched.until("+a", "?odd", "?", "=5/3", "?a", "+odd", "-odd uid-odd", "+b")
        undecodable = watched.events[1]
        assert isinstance(undecodable, Undecodable)
        assert (undecodable.uid, undecodable.namespace) == ("uid-odd", "default")
        assert "$.spec" in undecodable.error
        assert json.loads(undecodable.raw)["metadata"]["name"] == "odd"
        assert watched.reflector.stats.undecodable == 3


async def test_objects_larger_than_any_buffer(tmp_path: Path) -> None:
    huge = pod("huge", 6)
    huge["metadata"]["annotations"] = {"x": "y" * 5_000_000}
    async with scripted() as script:
        script.then(listing(version="5"), stream(("ADDED", huge), ("ADDED", pod("b", 7))))
        async with watching(script, tmp_path) as watched:
            await watched.until("=5/0", "+huge", "+b")


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


async def test_a_kind_the_server_does_not_know_is_empty_until_it_appears(tmp_path: Path) -> None:
    absent = refuse(404, "NotFound", "the server could not find the requested resource")
    async with scripted() as script:
        script.then(
            absent,
            listing(pod("a", 1), version="5"),
            absent,
            absent,
            listing(pod("a", 9, uid="new"), version="9"),
        )
        async with watching(script, tmp_path, absent_ok=True) as watched:
            gone_again = ["-a uid-a", "=/0", "=/0", "+a", "=9/1"]
            await watched.until("=/0", "+a", "=5/1", *gone_again)
        assert watched.problems == []


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
    monkeypatch.setattr("allotment.adapters.kube_watch.IDLE_EXTRA_S", -0.8)
    async with scripted() as script:
        script.then(listing(version="5"), stream(hold=True), stream(("ADDED", pod("a", 6))))
        async with watching(script, tmp_path, watch_s=1) as watched:
            await watched.until("=5/0", "+a")
        assert len(watched.problems) == 1


async def test_the_consumers_error_ends_the_reflector(tmp_path: Path) -> None:
    async def explode(event: WatchEvent[Pod]) -> None:
        raise OSError("the log is full")

    async def run(client: KubeClient, on_event: Consumer) -> None:
        decoder = msgspec.json.Decoder(Pod)
        await list_and_watch(client, PODS, decoder, on_event, random=Random(1))

    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(listing(version="5"))
        with pytest.raises(OSError, match="the log is full"), anyio.fail_after(5):
            await run(client, explode)
        script.then(listing(version="5"), stream(("ADDED", pod("a", 6)), hold=True))

        async def explode_late(event: WatchEvent[Pod]) -> None:
            if isinstance(event, Added):
                raise OSError("the log is full")

        with pytest.raises(OSError, match="the log is full"), anyio.fail_after(5):
            await run(client, explode_late)


def test_backoff_doubles_within_bounds() -> None:
    backoff = Backoff(first_s=1.0, max_s=10.0)
    for failures, whole_s in [(1, 1.0), (2, 2.0), (3, 4.0), (9, 10.0), (10_000, 10.0)]:
        assert whole_s / 2 <= backoff.delay_s(failures, Random(failures)) <= whole_s


async def test_the_first_list_is_told_page_by_page(tmp_path: Path) -> None:
    """So that a large cluster's list is never in memory as a whole."""
    asked: list[list[str]] = []
    async with scripted() as script, client_of(script, tmp_path) as client:
        watched = Watched()
        script.then(listing(pod("a", 1), version="5", more="t1"))

        async def second_page(request: web.Request) -> web.StreamResponse:
            asked.append(list(watched.told))
            return await listing(pod("b", 2), version="5")(request)

        script.then(second_page)
        script.otherwise = stream(hold=True)
        reflector = Reflector(
            client,
            PODS,
            msgspec.json.Decoder(Pod),
            watched.on_event,
            random=Random(1),
            first_list_from_cache=False,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(reflector.run)
            await watched.until("+a", "+b", "=5/2")
            group.cancel_scope.cancel()
    assert asked == [["+a"]]


async def test_a_first_list_that_breaks_off_is_set_right_by_the_next(tmp_path: Path) -> None:
    async with scripted() as script:
        script.then(
            listing(pod("gone", 1), pod("a", 1), version="5", more="t1"),
            refuse(410, "Expired", "continue token too old"),
            listing(pod("a", 1), pod("b", 2), version="7"),
        )
        async with watching(script, tmp_path) as watched:
            await watched.until("+gone", "+a", "-gone uid-gone", "+b", "=7/2")
