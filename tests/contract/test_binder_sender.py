"""Bindings are sent by a few workers: in order, so many at a time; none waits for a slow one."""

from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from aiohttp import web
from tests.build import node, pod, policy
from tests.contract.binder_loops import Api, at_work
from tests.waiting import until

from allotment.core import reasons
from allotment_binder.sender import Sending, Worker
from allotment_proto.events import BindFailed, Bound, PodGone
from allotment_proto.facts import PodRequest

pytestmark = pytest.mark.anyio
AT_ONCE = 3


class Scripted:
    """In place of a Sender: each Binding lasts until it is let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.gates: dict[str, anyio.Event] = {}
        self.aside: set[str] = set()
        self.ended: list[str] = []
        self.released: list[str] = []
        self.failing: set[str] = set()
        self.looked: list[str] = []
        self.gone: set[str] = set()
        self.deleted = self
        self.held: list[tuple[Any, ...]] = []

    def hold(self, *what: Any) -> None:
        """In place of what keeps the places of the deleted."""
        self.held.append(what)

    def target(self, allocation: Any) -> tuple[Any, None]:
        return _Named(allocation), None

    async def send(
        self, target: Any, timed: None, worker: Worker, *, look_first: bool, on_gone: Any
    ) -> Any:
        uid = target.allocation.uid
        self.begun.append(uid)
        if look_first:
            self.looked.append(uid)
        if uid in self.aside:
            worker.stand_aside()
            worker.stand_aside()  # said twice, it counts once
        await self.gates.setdefault(uid, anyio.Event()).wait()
        if uid in self.gone:
            on_gone()
        self.ended.append(uid)
        about = {"uid": uid, "namespace": "default", "name": uid, "node": "n1", "decision": 1}
        if uid in self.failing:
            return BindFailed(**about, code=reasons.API_ERROR, message="")
        return Bound(**about)

    async def release(self, allocation: Any) -> None:
        await anyio.lowlevel.checkpoint()
        self.released.append(allocation.uid)

    def let_go(self, *uids: str) -> None:
        for uid in uids:
            self.gates.setdefault(uid, anyio.Event()).set()

    def put(self, events: Any) -> None:
        """In place of a Recorder."""


class _Named:
    def __init__(self, allocation: Any) -> None:
        self.allocation = allocation


class _Reserved:
    def __init__(self, uid: str) -> None:
        self.uid = uid


class _Scene:
    def __init__(self, group: anyio.abc.TaskGroup, inherited: set[str]) -> None:
        self.script = Scripted()
        self.told: list[str] = []
        places = {"a": ("n1", "q")}
        parts = {
            "ended": self.told.append,
            "place_of": lambda _, uid: places.get(uid),
            "served_before": lambda _, uid: frozenset({f"before {uid}"}),
        }
        pacer = cast(Any, type("P", (), parts)())
        script = cast(Any, self.script)
        self.sending = Sending(script, group, script, pacer, inherited, AT_ONCE)

    async def put(self, uids: str) -> None:
        self.sending.put(cast(Any, [_Reserved(uid) for uid in uids]))
        await anyio.wait_all_tasks_blocked()

    async def let_go(self, uids: str) -> None:
        self.script.let_go(*uids)
        await anyio.wait_all_tasks_blocked()


async def test_so_many_at_a_time_in_their_order() -> None:
    async with anyio.create_task_group() as group:
        scene = _Scene(group, inherited={"b"})
        await scene.put("abcde")
        assert scene.script.begun == ["a", "b", "c"]
        await scene.let_go("b")
        assert (scene.script.begun, scene.told) == (["a", "b", "c", "d"], ["b"])
        await scene.let_go("acde")
        assert sorted(scene.told) == ["a", "b", "c", "d", "e"]
        assert scene.script.looked == ["b"]
        assert scene.sending.working == 0
        await scene.put("fghi")  # those who had nothing to do are gone, others come
        assert scene.script.begun[5:] == ["f", "g", "h"]
        await scene.let_go("fghi")
        assert (scene.sending.working, len(scene.told)) == (0, 9)


async def test_those_that_take_their_time_keep_nobody_waiting() -> None:
    async with anyio.create_task_group() as group:
        scene = _Scene(group, inherited=set())
        scene.script.aside |= {"a", "b", "c", "d"}
        await scene.put("abcdefgh")
        assert scene.script.begun == ["a", "b", "c", "d", "e", "f", "g"]
        await scene.let_go("abcd")
        assert scene.script.begun[7:] == []  # they were beside the others: no place is free
        await scene.let_go("e")
        assert scene.script.begun[7:] == ["h"]
        await scene.let_go("fgh")
        assert (scene.sending.working, len(scene.told)) == (0, 8)


async def test_a_failed_one_gives_back_its_locks_beside_the_others() -> None:
    async with anyio.create_task_group() as group:
        scene = _Scene(group, inherited=set())
        scene.script.failing |= {"a", "b"}
        await scene.put("abcdef")
        await scene.let_go("abcdef")
        assert sorted(scene.script.released) == ["a", "b"]
        assert (scene.sending.working, len(scene.told)) == (0, 6)


async def test_one_that_is_gone_and_may_have_been_bound_keeps_its_place_for_a_while() -> None:
    async with anyio.create_task_group() as group:
        scene = _Scene(group, inherited=set())
        scene.script.gone |= {"a", "b"}  # nobody asks a device plugin for b
        await scene.put("abc")
        await scene.let_go("abc")
        assert scene.script.held == [(("n1", "q"), frozenset({"before a"}))]


async def test_a_pod_may_be_gone_before_its_turn_comes(tmp_path: Path) -> None:
    gate = anyio.Event()

    class Slow(Api):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            if request.path.endswith("/pod-a/binding"):
                await gate.wait()
            self.status = 404 if request.path.endswith("/pod-b/binding") else 201
            return await super().answer(request)

    api = Slow()
    plain = [pod(uid, PodRequest()) for uid in ("a", "b", "c")]
    async with at_work(tmp_path, policy(), node(), *plain, api=api, at_once=1) as scene:
        await scene.propose("a", "b", "c")
        await scene.add(PodGone(uid="b", namespace="default", name="pod-b", rv=2))
        assert api.bindings == []
        gate.set()
        await until(lambda: scene.kinds().count("Bound") == 2)
        await until(lambda: "BindFailed" in scene.kinds())
        (failed,) = (event for event in scene.events() if isinstance(event, BindFailed))
        assert (failed.uid, failed.code) == ("b", reasons.POD_GONE)
        assert api.bindings == ["pod-a", "pod-b", "pod-c"]


async def test_an_unanswered_binding_is_asked_about_while_others_are_sent(tmp_path: Path) -> None:
    class Unsure(Api):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            self.status = 500 if request.path.endswith("/pod-a/binding") else 201
            return await super().answer(request)

    api = Unsure()
    plain = [pod(uid, PodRequest()) for uid in ("a", "b", "c")]
    async with at_work(tmp_path, policy(), node(), *plain, api=api, at_once=1) as scene:
        await scene.propose("a", "b", "c")
        await until(lambda: scene.kinds().count("Bound") == 2)
        assert list(scene.fold.state.reserved) == ["a"]
        held = scene.fold.state.pods["a"].allocation
        assert held is not None
        meta = {"uid": "a", "annotations": {"allotment.dev/log-seq": str(held.seq)}}
        api.there["pod-a"] = {"metadata": meta, "spec": {"nodeName": held.node}}
        await until(lambda: scene.kinds().count("Bound") == 3)
        assert api.bindings == ["pod-a", "pod-b", "pod-c"]
