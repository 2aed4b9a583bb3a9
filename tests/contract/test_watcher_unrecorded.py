"""What the watcher writes to pods while the log takes no records, against a scripted API server."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from tests.contract.kube_server import Script, client_of, scripted

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.service.http import Readiness
from allotment.adapters.service.world import LOG_SPACE, World
from allotment_watcher.__main__ import Context
from allotment_watcher.settings import WatcherSettings
from allotment_watcher.unrecorded import PODS_A_LOOK_MAX, Unrecorded

GIB = 1 << 30


class Scene:
    """Pods by name, as the API server has them, and a watcher that looks at them."""

    def __init__(self, script: Script, client: KubeClient) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.patched: list[str] = []
        self.events: list[str] = []
        self.readiness = Readiness()
        self.recorded: dict[str, None] = {}
        self.warnings: list[str] = []
        script.otherwise = self.answer
        self.script = script
        context = SimpleNamespace(
            settings=WatcherSettings(),
            readiness=self.readiness,
            log=SimpleNamespace(warning=lambda text, **_: self.warnings.append(text)),
        )
        world = SimpleNamespace(
            log=SimpleNamespace(bytes=10 * GIB, bytes_limit=10 * GIB),
            lease=SimpleNamespace(is_held=True),
            fold=SimpleNamespace(state=SimpleNamespace(pods=self.recorded)),
        )
        self.unrecorded = Unrecorded(cast(Context, context), cast(World, world), client)

    def add(self, name: str, message: str = "", **metadata: str) -> None:
        conditions = [{"type": "PodScheduled", "message": message}] if message else []
        self.pods[name] = {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": f"uid-{name}",
                "resourceVersion": "7",
                **metadata,
            },
            "spec": {"schedulerName": "allotment"},
            "status": {"conditions": conditions},
        }

    def is_full(self, full: bool) -> None:
        self.readiness.set(LOG_SPACE, not full, "maximum bytes exceeded" if full else "")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            assert request.query["fieldSelector"] == "spec.nodeName=,status.phase=Pending"
            return web.json_response({"metadata": {}, "items": [*self.pods.values()]})
        body = self.script.bodies[-1]
        if request.method == "POST":
            self.events.append(body["metadata"]["name"])
            return web.json_response({})
        name = request.path.split("/")[-2]
        assert body["metadata"] == {"uid": f"uid-{name}", "resourceVersion": "7"}
        (condition,) = body["status"]["conditions"]
        self.patched.append(name)
        self.pods[name]["status"]["conditions"] = [] if "$patch" in condition else [condition]
        return web.json_response(self.pods[name])

    def said(self, name: str) -> str:
        return "".join(c["message"] for c in self.pods[name]["status"]["conditions"])


@pytest.mark.anyio
async def test_each_pod_is_told_once_and_a_bounded_number_a_look(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        scene = Scene(script, client)
        scene.add("refused", "0/3 nodes are available")
        scene.add("leaves", deletionTimestamp="2026-01-01T00:00:00Z")
        scene.pods["odd"] = {"metadata": {"name": 7}}
        names = [f"p{number}" for number in range(2 * PODS_A_LOOK_MAX + 3)]
        for name in names:
            scene.add(name)
        await scene.unrecorded.look()
        assert not scene.patched
        scene.is_full(True)
        for told in (PODS_A_LOOK_MAX, 2 * PODS_A_LOOK_MAX, len(names), len(names)):
            await scene.unrecorded.look()
            assert len(scene.patched) == told
        assert scene.patched == names
        assert len(set(scene.events)) == len(names) == len(scene.events)
        assert scene.said("p0") == (
            "The allocation log is full (10.0 GiB of 10.0 GiB). No pod is scheduled until it has "
            "room again. Ask your platform team."
        )
        # Another replica, which cannot know: its Event has the same name, so the server refuses it.
        scene.add("p0")
        await scene.unrecorded.look()
        assert scene.events[-1] == scene.events[0]


@pytest.mark.anyio
async def test_what_was_said_is_taken_back_once_a_pod_is_recorded(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        scene = Scene(script, client)
        scene.is_full(True)
        scene.add("a")
        scene.add("b")
        await scene.unrecorded.look()
        scene.is_full(False)
        scene.recorded["uid-a"] = None
        scene.pods["b"]["status"]["conditions"][0]["message"] += " Or not."
        await scene.unrecorded.look()
        assert (scene.said("a"), bool(scene.said("b"))) == ("", True)
        scene.recorded["uid-b"] = None
        await scene.unrecorded.look()
        assert scene.said("b") == ""
        await scene.unrecorded.look()
        asked = len(script.requests)
        await scene.unrecorded.look()
        assert len(script.requests) == asked, "nothing is left, and nobody asks any more"


@pytest.mark.anyio
async def test_a_missing_right_is_said_once(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        scene = Scene(script, client)
        scene.is_full(True)

        async def forbid(_: web.Request) -> web.StreamResponse:
            return web.json_response({"message": "may not", "reason": "Forbidden"}, status=403)

        script.otherwise = forbid
        await scene.unrecorded.look()
        await scene.unrecorded.look()
        assert scene.warnings == ["waiting pods cannot be listed"]
