"""One hostile object in a list, and on a watch: it alone is refused, by name, and the rest served.

The objects are the files of `tests/corpus/kubernetes/<resource>`: those in `refused` cannot be
read, those in `read` are read as well as they can be.
"""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import anyio
import pytest
from aiohttp import web
from tests.contract.controller_scene import Scene as ControllerScene
from tests.contract.kube_server import client_of, scripted
from tests.waiting import until

from allotment.adapters.log.recorder import Recorder
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.refusals import Refusals
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment_local.apiserver.store import Store
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import Envelope, Event
from allotment_proto.facts import Policy
from allotment_watcher.__main__ import Context
from allotment_watcher.batch_watch import BatchWatch
from allotment_watcher.observer import Observer
from allotment_watcher.reported import Reported
from allotment_watcher.settings import WatcherSettings

pytestmark = pytest.mark.anyio
CORPUS = Path(__file__).parents[1] / "corpus" / "kubernetes"
WATCHED = ("pods", "nodes", "podgroups", "queues", "priorityclasses")
CONTROLLED = ("pods", "podgroups", "queues", "priorityclasses", "jobs", "commands")
CLUSTER_WIDE = ("nodes", "queues", "priorityclasses")


def files_of(*resources: str) -> list[Path]:
    """The corpus of these resources. Every folder is of one that somebody reads."""
    assert {path.name for path in CORPUS.iterdir()} == {*WATCHED, *CONTROLLED}
    return sorted(file for resource in resources for file in CORPUS.glob(f"{resource}/*/*.json"))


def name_of(file: Path) -> str:
    return "/".join(file.parts[-3:])


def good(resource: str, name: str, version: int = 5) -> bytes:
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    metadata["annotations"] = {"scheduling.k8s.io/group-name": "g"}
    if resource not in CLUSTER_WIDE:
        metadata["namespace"] = "team-a"
    spec = {"containers": [], "schedulerName": "allotment"} if resource == "pods" else {}
    return json.dumps({"metadata": metadata, "spec": spec}).encode()


class Api:
    """Lists nothing, but of one resource a hostile object between good ones; then watches it."""

    def __init__(self, file: Path) -> None:
        self.resource = file.parts[-3]
        self.hostile = file.read_bytes()
        self.streams = anyio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        resource = request.path.rpartition("/")[2]
        if request.method != "GET":
            return web.json_response({"kind": "Status", "reason": "Forbidden"}, status=403)
        is_it = resource == self.resource
        if not request.query.get("watch"):
            items = [good(resource, "first"), self.hostile, good(resource, "second")]
            body = b",".join(items if is_it else [])
            head = b'{"kind":"List","metadata":{"resourceVersion":"10"},"items":['
            return web.Response(body=head + body + b"]}", content_type="application/json")
        response = web.StreamResponse()
        await response.prepare(request)
        if is_it:
            for object_ in (self.hostile, good(resource, "third", 11)):
                await response.write(b'{"type":"ADDED","object":' + object_ + b"}\n")
        await self.streams.wait()
        return response


def names_of(refusals: Refusals) -> list[tuple[str, str]]:
    return [(refusal.kind, refusal.name) for refusal in refusals.standing()]


@pytest.mark.parametrize("file", files_of(*WATCHED), ids=name_of)
async def test_the_watcher(file: Path, tmp_path: Path) -> None:
    api, told, state = Api(file), list[Any](), ClusterState()

    def put(events: list[Event], *, awaited: bool = True) -> None:
        for event in events:
            told.append(event)
            record = Envelope(at_ms=0, by="", events=(event,))
            assert decode_envelope(encode(record)) == record, "every service can read the record"
            apply(state, event, state.seq + 1)

    def names() -> set[str]:
        return {getattr(fact, "name", "") for fact in told}

    refusals = Refusals(MagicMock())
    context = cast(
        Context,
        SimpleNamespace(
            log=MagicMock(),
            ready=lambda *_: None,
            refusals=refusals,
            settings=WatcherSettings(),
        ),
    )
    recorder = cast(Recorder, SimpleNamespace(put=put, waiting=0, refuses=lambda _: False))
    batch = BatchWatch(context, state, recorder)
    observer = Observer(context, Policy(), Reported(ClusterState()), recorder)
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = api.answer
        async with anyio.create_task_group() as group:
            group.start_soon(batch.run, client)
            group.start_soon(observer.run, client)
            await until(lambda: names() >= {"first", "second", "third"})
            group.cancel_scope.cancel()
        api.streams.set()
    is_refused = file.parts[-2] == "refused"
    assert bool(refusals.total[("kubernetes", api.resource)]) is is_refused, refusals.shown()
    assert len(refusals.standing()) == is_refused
    if is_refused and file.stem not in ("nothing", "name-is-a-number"):
        assert names_of(refusals) == [(api.resource, "hostile")]
    if api.resource == "pods" and file.stem != "nothing":
        assert "hostile" in names() or file.stem == "name-is-a-number", (
            "it is told with its problem"
        )


@pytest.mark.parametrize("file", files_of(*CONTROLLED), ids=name_of)
async def test_the_controller(file: Path, tmp_path: Path) -> None:
    api = Api(file)
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = api.answer
        scene = ControllerScene(cast(Store, None), client, script.url)
        async with scene.controller() as controller:
            known = controller.known
            kept: Callable[[], set[str]] = {
                "pods": lambda: {p.metadata.name for p in known.pods},
                "podgroups": lambda: {g.metadata.name for g in known.groups},
                "queues": lambda: {q.metadata.name for q in known.queues},
                "priorityclasses": lambda: {c.metadata.name for c in known.classes},
                "jobs": lambda: {j.metadata.name for j in known.jobs},
                "commands": lambda: {c for _, c in controller.queues._commands},
            }[api.resource]
            refusals = controller.ctx.refusals
            await until(lambda: kept() >= {"first", "second", "third"})
        api.streams.set()
    assert set(names_of(refusals)) <= {(api.resource, "hostile"), (api.resource, "")}
    if file.stem.startswith(("nested-1500", "nested-5000", "nested-9900", "nan")):
        assert refusals.total[("kubernetes", api.resource)]


def test_a_refusal_is_counted_named_and_said_once() -> None:
    log = MagicMock()
    refusals = Refusals(log, clock=lambda: 0.0)
    metrics = ServiceMetrics("test")
    refusals.expose(metrics)
    for _ in range(3):
        refusals.refuse(
            *("kubernetes", "pods", ValueError("no\nnumber")),
            namespace="a",
            name="p\x1b",
            uid="u",
            stands=True,
        )
    assert log.warning.call_count == 1
    assert refusals.shown() == ["pods 'a/p\\x1b' (uid 'u'): ValueError: no number"]
    page = metrics.encode("")[0].decode()
    assert 'allot_refused_total{door="kubernetes",kind="pods"} 3.0' in page
    assert 'allot_refused_objects{door="kubernetes",kind="pods"} 1.0' in page
    refusals.accept("kubernetes", "pods", "a", "p\x1b")
    assert refusals.shown() == []


def test_a_flood_of_refusals_fills_no_disk() -> None:
    log, now_s = MagicMock(), 0.0
    refusals = Refusals(log, clock=lambda: now_s)
    for number in range(5000):
        refusals.refuse("bus", "Proposal", f"cause {number}", name=str(number), stands=True)
    assert log.warning.call_count == 20
    assert len(refusals.standing()) == 1000
    assert refusals.shown()[-1] == "and 980 more"
    now_s = 60.0
    refusals.refuse("bus", "Proposal", "the last")
    assert log.warning.call_args.kwargs["unlogged"] == 4980
