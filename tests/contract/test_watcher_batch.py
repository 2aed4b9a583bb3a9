"""PodGroups, Queues and PriorityClasses before the local API server, also where it lacks them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import anyio
import pytest
from tests.contract.kube_server import client_of, kubeconfig, listing, refuse, scripted, stream
from tests.contract.local_apiserver import new_store, running
from tests.waiting import patience

from allotment.adapters.kube.client import connect
from allotment.adapters.log.recorder import Recorder
from allotment.adapters.telemetry.refusals import Refusals
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment_local.apiserver.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    PRIORITY_CLASSES,
    ResourceKey,
)
from allotment_local.apiserver.store import Store
from allotment_local.definitions import read_definitions
from allotment_proto.events import (
    GroupGone,
    GroupObserved,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
)
from allotment_watcher import batch_watch
from allotment_watcher.__main__ import Context
from allotment_watcher.batch_watch import BatchWatch

pytestmark = pytest.mark.anyio
GROUPS = ResourceKey("scheduling.volcano.sh", "podgroups")
QUEUES = ResourceKey("scheduling.volcano.sh", "queues")
Told = list[Any]


class Scene:
    """The watch, with a fold of what it told and what it said of itself."""

    def __init__(self, state: ClusterState | None = None) -> None:
        self.state = ClusterState() if state is None else state
        self.told: Told = []
        self.ready: dict[str, tuple[bool, str]] = {}
        self.log = MagicMock()
        context = SimpleNamespace(log=self.log, ready=self._set_ready, refusals=Refusals(self.log))
        recorder = SimpleNamespace(put=self._put, waiting=0, refuses=lambda _: False)
        self.watch = BatchWatch(cast(Context, context), self.state, cast(Recorder, recorder))

    def _set_ready(self, name: str, holds: bool, detail: str) -> None:
        self.ready[name] = holds, detail

    def _put(self, facts: Told) -> None:
        for fact in facts:
            self.told.append(fact)
            apply(self.state, fact, self.state.seq + 1)

    def but_classes(self) -> Told:
        """What was told, without the PriorityClasses that every cluster has."""
        return [fact for fact in self.told if not isinstance(fact, PriorityClassObserved)]

    async def until(self, holds: Callable[[], bool]) -> None:
        with patience():
            while not holds():  # noqa: ASYNC110 - facts are only gathered
                await anyio.sleep(0.02)


@asynccontextmanager
async def watching(scene: Scene, store: Store, tmp_path: Path) -> AsyncIterator[None]:
    async with (
        running(store) as api,
        connect(kubeconfig(tmp_path / "kubeconfig", api.url)) as client,
        anyio.create_task_group() as group,
    ):
        group.start_soon(scene.watch.run, client)
        yield
        group.cancel_scope.cancel()


def define(store: Store) -> None:
    for definition in read_definitions():
        store.create(CUSTOM_RESOURCE_DEFINITIONS, "", definition)


def create_group(store: Store, name: str, **spec: object) -> None:
    store.create(GROUPS, "default", {"metadata": {"name": name}, "spec": spec})


async def test_objects_are_told_once_changed_and_gone(tmp_path: Path) -> None:
    store, scene = new_store(), Scene()
    define(store)
    store.create(QUEUES, "", {"metadata": {"name": "training"}, "spec": {"weight": 3}})
    store.create(PRIORITY_CLASSES, "", {"metadata": {"name": "high"}, "value": 1000})
    create_group(store, "train", minMember=2, queue="training")
    async with watching(scene, store, tmp_path):
        await scene.watch.settled.wait()
        assert scene.ready["batch"] == (
            True,
            "PodGroups listed, 1 at that time, Queues listed, 1 at that time, "
            "PriorityClasses listed, 3 at that time",
        )
        assert {type(fact) for fact in scene.told} == {
            GroupObserved,
            QueueObserved,
            PriorityClassObserved,
        }
        assert scene.state.classes["high"].value == 1000
        assert scene.state.queues["training"].weight == 3
        before = len(scene.told)
        noise = {"metadata": {"labels": {"noise": "1"}}}
        store.merge_patch(GROUPS, "default", "train", noise)
        phase = {"status": {"phase": "Inqueue"}}
        store.merge_patch(GROUPS, "default", "train", phase, subresource="status")
        await scene.until(lambda: len(scene.told) == before + 1)
        assert scene.told[-1].phase == "Inqueue"
        store.delete(GROUPS, "default", "train")
        await scene.until(lambda: scene.state.groups == {})
        assert isinstance(scene.told[-1], GroupGone)
    assert scene.log.warning.call_args_list == []


async def test_without_definitions_it_is_ready_and_silent_and_finds_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_watch, "ABSENT_RETRY_S", 0.05)
    store, scene = new_store(), Scene()
    async with watching(scene, store, tmp_path):
        await scene.watch.settled.wait()
        assert scene.ready["batch"][0] is True
        assert "Queues not defined in this cluster" in scene.ready["batch"][1]
        await anyio.sleep(0.3)
        assert scene.but_classes() == []
        define(store)
        store.create(QUEUES, "", {"metadata": {"name": "default"}})
        create_group(store, "late")
        await scene.until(lambda: scene.state.is_batched and bool(scene.state.groups))
        await scene.until(lambda: "Queues listed, 1 at that time" in scene.ready["batch"][1])
    assert scene.log.warning.call_args_list == []


async def test_what_the_log_believes_and_nobody_defines_any_more_is_gone(tmp_path: Path) -> None:
    state = ClusterState()
    apply(state, QueueObserved(uid="u", name="training", rv=4), 1)
    scene = Scene(state)
    async with watching(scene, new_store(), tmp_path):
        await scene.watch.settled.wait()
    assert scene.but_classes() == [QueueGone(uid="u", name="training", rv=4)]
    assert not scene.state.is_batched


async def test_a_refusal_is_said_once_with_the_remedy_and_nothing_is_settled(
    tmp_path: Path,
) -> None:
    scene = Scene()

    async def answer(request: Any) -> Any:
        if request.path.endswith("/queues"):
            return await refuse(403, "Forbidden")(request)
        if request.query.get("watch"):
            return await stream(hold=True)(request)
        return await listing()(request)

    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = answer
        async with anyio.create_task_group() as group:
            group.start_soon(scene.watch.run, client)
            await scene.until(lambda: sum(r.path.endswith("/queues") for r in script.requests) >= 3)
            group.cancel_scope.cancel()
    assert not scene.watch.settled.is_set()
    is_ready, detail = scene.ready["batch"]
    assert not is_ready
    assert "403" in detail
    (said,) = scene.log.warning.call_args_list
    assert "rbac.yaml" in said.kwargs["remedy"]


async def test_an_object_that_cannot_be_read_stays_as_it_was(tmp_path: Path) -> None:
    state = ClusterState()
    apply(state, QueueObserved(uid="u", name="training", rv=4, weight=2), 1)
    scene = Scene(state)
    broken = {
        "metadata": {"name": "training", "uid": "u", "resourceVersion": "5"},
        "spec": {"weight": "heavy"},
    }

    async def answer(request: Any) -> Any:
        if request.query.get("watch"):
            return await stream(hold=True)(request)
        return await listing(*([broken] if request.path.endswith("/queues") else []))(request)

    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = answer
        async with anyio.create_task_group() as group:
            group.start_soon(scene.watch.run, client)
            await scene.watch.settled.wait()
            group.cancel_scope.cancel()
    (told,) = scene.told
    assert (told.weight, told.rv) == (2, 4)
    assert "what it said before stays" in told.problem.message
    (said,) = scene.log.warning.call_args_list
    assert "weight" in said.kwargs["cause"]
