"""What is read otherwise is listed again; Ascend nodes wait for what ConfigMaps tell of them."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import anyio
import pytest
from aiohttp import web
from tests.contract.kube_server import client_of, listing, refuse, scripted, stream
from tests.unit.kube_json import Json, container, node_json, pod_json
from tests.waiting import patience

from allotment.adapters.log.recorder import Recorder
from allotment.adapters.telemetry.refusals import Refusals
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.devices.mindcluster import MindclusterInfo
from allotment_proto.device_config import DeviceConfig, Nvidia
from allotment_proto.events import NodeObserved, PodGone, PodObserved
from allotment_proto.facts import Policy
from allotment_watcher.__main__ import Context
from allotment_watcher.node_info import NodeInfoWatch
from allotment_watcher.observer import ASKED_EVERY_S, Observer
from allotment_watcher.reported import Reported
from allotment_watcher.settings import WatcherSettings

pytestmark = pytest.mark.anyio
GPU = {"volcano.sh/vgpu-number": 1}
MINDX = "cluster-info-device-0"


class Scene:
    """A watcher's observer before an API server that answers what `objects` says."""

    def __init__(self) -> None:
        self.nodes: list[Json] = []
        self.pods: list[Json] = []
        self.config_maps: list[Json] | None = []
        """None: forbidden."""
        self.told: list[Any] = []
        self.begun: list[str] = []
        """The kinds of the lists of nodes and pods that were asked of the API server."""
        self.synced: list[str] = []
        """The kinds of those that were read to the end."""
        self.may_answer = anyio.Event()
        self.may_answer.set()
        self.log = MagicMock()
        self.observer: Observer
        self.info: NodeInfoWatch

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if kind == "configmaps" and self.config_maps is None:
            return await refuse(403, "Forbidden")(request)
        if request.query.get("watch"):
            return await stream(hold=True)(request)
        if kind in ("nodes", "pods"):
            self.begun.append(kind)
            await self.may_answer.wait()
        items = {"nodes": self.nodes, "pods": self.pods, "configmaps": self.config_maps or []}
        return await listing(*items[kind])(request)

    def of(self, kind: type) -> list[Any]:
        return [fact for fact in self.told if isinstance(fact, kind)]

    async def until(self, holds: Callable[[], bool]) -> None:
        with patience():
            while not holds():  # noqa: ASYNC110 - facts are only gathered
                await anyio.sleep(0.02)


@asynccontextmanager
async def observing(scene: Scene, tmp_path: Path, policy: Policy) -> AsyncIterator[None]:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = scene.answer
        context = cast(
            Context,
            SimpleNamespace(
                log=scene.log,
                ready=lambda kind, *_: scene.synced.append(kind),
                refusals=Refusals(scene.log),
                settings=WatcherSettings(),
            ),
        )
        recorder = cast(
            Recorder, SimpleNamespace(put=lambda events, *, awaited=True: scene.told.extend(events))
        )
        scene.info = NodeInfoWatch(
            *(context, client, "mindcluster", MindclusterInfo(), policy),
            lambda n: scene.observer.told_of(n),
        )
        scene.observer = Observer(context, policy, Reported(ClusterState()), recorder, [scene.info])
        async with anyio.create_task_group() as group:
            group.start_soon(scene.info.run)
            group.start_soon(scene.observer.run, client)
            yield
            group.cancel_scope.cancel()


def pod(name: str, *containers: Json) -> Json:
    document = pod_json(*containers)
    document["metadata"].update(name=name, uid=f"uid-{name}")
    return document


async def test_another_policy_reads_pods_again_that_it_reads_otherwise(tmp_path: Path) -> None:
    scene = Scene()
    scene.pods = [pod("two", container("a", GPU), container("b", GPU)), pod("none", container())]
    async with observing(scene, tmp_path, Policy()):
        await scene.until(lambda: len(scene.told) == 2)
        assert scene.told[0].problem is not None
        scene.observer.use(Policy(device_policy="spread"))
        scene.observer.use(Policy(multi_container=True))
        await scene.until(lambda: len(scene.told) == 3)
        assert (scene.told[2].name, scene.told[2].problem) == ("two", None)
        scene.pods.pop()
        scene.observer.configure(DeviceConfig(nvidia=Nvidia(default_memory=7)))
        await scene.until(lambda: len(scene.told) == 5)
    assert scene.told[3].request.devices[0].memory_mib == 7
    assert scene.told[4] == PodGone(uid="uid-none", namespace="team-a", name="none", rv=77)


async def test_a_policy_that_reads_the_same_lists_nothing_again(tmp_path: Path) -> None:
    scene = Scene()
    async with observing(scene, tmp_path, Policy()):
        scene.pods = [pod("first", container())]
        await scene.until(lambda: len(scene.told) == 1)
        scene.pods = [pod("second", container())]
        scene.observer.use(Policy(device_policy="spread"))
        await anyio.sleep(0.3)
        assert len(scene.told) == 1


def ascend_node() -> Json:
    document = node_json(None, {"huawei.com/npu-core": "16"})
    document["metadata"]["labels"] = {
        "servertype": "Ascend310P-8",
        "accelerator": "huawei-Ascend310P",
        "node.kubernetes.io/npu.chip.name": "310P3",
    }
    return document


def device_info(chips: str) -> Json:
    entry = {"DeviceList": {"huawei.com/Ascend310P": chips}}
    data = {MINDX: json.dumps({"mindx-dl-deviceinfo-n.example": entry})}
    metadata = {"name": MINDX, "namespace": "mindx-dl", "uid": chips, "resourceVersion": "3"}
    return {"metadata": metadata, "data": data}


def cards(fact: NodeObserved) -> list[str]:
    return [card.id for inventory in fact.inventories for card in inventory.cards]


async def test_an_ascend_node_is_told_with_what_config_maps_tell_of_it(tmp_path: Path) -> None:
    scene = Scene()
    scene.nodes = [ascend_node()]
    scene.config_maps = [device_info("Ascend310P-0,Ascend310P-1")]
    async with observing(scene, tmp_path, Policy()):
        await scene.until(lambda: bool(scene.told))
        (fact,) = scene.told
        assert cards(fact) == ["0", "1"]
        own = Policy(families=("vgpu",))
        scene.info.use(own)
        await scene.until(lambda: len(scene.told) == 2)
        assert cards(scene.told[1]) == []
        scene.config_maps = [device_info("Ascend310P-1")]
        scene.info.use(Policy())
        await scene.until(lambda: len(scene.told) == 3)
        assert cards(scene.told[2]) == ["1"]


async def test_without_the_right_to_them_the_node_is_told_and_so_is_the_remedy(
    tmp_path: Path,
) -> None:
    scene = Scene()
    scene.nodes, scene.config_maps = [ascend_node()], None
    async with observing(scene, tmp_path, Policy()):
        await scene.until(lambda: bool(scene.told))
    assert cards(scene.told[0]) == []
    assert "device information" in scene.told[0].problems[0].place
    (said,) = scene.log.warning.call_args_list
    assert "403" in said.kwargs["reason"]
    assert "watcher-mindcluster.yaml" in said.kwargs["remedy"]


async def test_who_has_no_such_nodes_asks_for_no_config_maps(tmp_path: Path) -> None:
    scene = Scene()
    scene.nodes, scene.config_maps = [node_json()], None
    async with observing(scene, tmp_path, Policy()):
        await scene.until(lambda: bool(scene.told))
        await anyio.sleep(0.2)
    assert scene.log.error.call_args_list == []
    assert isinstance(scene.told[0], NodeObserved)
    assert scene.of(PodObserved) == []


async def test_whoever_asks_gets_a_new_list_and_what_is_gone_is_told(tmp_path: Path) -> None:
    """A pod went, and the watch never said so: nothing else would ever correct that."""
    scene = Scene()
    scene.pods = [pod_json(container(limits=GPU))]
    async with observing(scene, tmp_path, Policy()):
        await scene.until(lambda: len(scene.synced) == 2)
        assert scene.of(PodObserved)
        scene.pods = []
        scene.observer.list_again()
        await scene.until(lambda: len(scene.synced) == 4)
        assert scene.of(PodGone)
        for _ in range(100):
            scene.observer.list_again()  # just now: one list, and one line about it
        said = [call.args[0] for call in scene.log.info.call_args_list]
        assert [text for text in said if "list again" in text] == ["asked to list again"]


async def test_asks_do_not_end_a_list_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists of a large cluster take longer than the time between asks that are heeded."""
    clock = [1_000.0]
    monkeypatch.setattr(
        "allotment_watcher.observer.time", SimpleNamespace(monotonic=lambda: clock[0])
    )
    scene = Scene()
    both = ["nodes", "pods"]

    def ask_later() -> None:
        clock[0] += ASKED_EVERY_S + 1
        scene.observer.list_again()

    async with observing(scene, tmp_path, Policy()):
        await scene.until(lambda: len(scene.synced) == 2)
        scene.may_answer = anyio.Event()
        ask_later()
        await scene.until(lambda: sorted(scene.begun) == sorted(both * 2))
        for _ in range(5):
            ask_later()
            await anyio.wait_all_tasks_blocked()
        scene.may_answer.set()
        await scene.until(lambda: len(scene.synced) >= 4)
        assert sorted(scene.begun) == sorted(both * 2)
        scene.observer.list_again()  # it took long, and is there just now
        assert scene.log.debug.call_args.args[0] == "asked to list again, and did so just now"
        ask_later()
        scene.observer.list_again()  # at once, before the lists have begun
        assert scene.log.debug.call_args.args[0] == "asked to list again, and a list is under way"
        await scene.until(lambda: len(scene.synced) == 6)
    assert sorted(scene.begun) == sorted(both * 3)


async def test_what_is_listed_anew_for_another_reason_is_not_ended_by_an_ask(
    tmp_path: Path,
) -> None:
    scene = Scene()
    async with observing(scene, tmp_path, Policy()):
        await scene.until(lambda: len(scene.synced) == 2)
        scene.may_answer = anyio.Event()
        scene.observer.use(Policy(multi_container=True))
        await scene.until(lambda: len(scene.begun) == 4)
        scene.observer.list_again()
        scene.may_answer.set()
        await scene.until(lambda: len(scene.synced) == 4)
        scene.observer.list_again()  # nobody's ask was heeded so far
        await scene.until(lambda: len(scene.synced) == 6)
    assert len(scene.begun) == 6
