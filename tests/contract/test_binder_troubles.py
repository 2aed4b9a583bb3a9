"""A binder at work with device plugins that are slow, fail, die, or want the node locked."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web
from tests.build import card, decided, holding, node, placement, pod, policy, request, wants
from tests.contract.binder_loops import Api, Scene, at_work
from tests.waiting import until

from allotment.core import reasons
from allotment.core.ledger.check import oversold
from allotment_binder import binder as binder_module
from allotment_binder import locks as locks_module
from allotment_binder import records as records_module
from allotment_binder import troubles as troubles_module
from allotment_proto.events import BindFailed, PodGone
from allotment_proto.facts import Problem

pytestmark = pytest.mark.anyio
LARGE = holding(memory_mib=15_000)


class Server(Api):
    """Also keeps the annotations of nodes, and what was erased of pods."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 1
        self.locks: dict[str, str] = {}
        self.steps: list[str] = []
        self.erased: list[str] = []
        self.notes: list[tuple[str, str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "/nodes/" in request.path:
            return await self._node(request)
        if request.path.endswith("/binding"):
            self.steps.append(f"bind {request.path.split('/')[6]}")
        name = request.path.split("/")[6] if "/pods/" in request.path else ""
        if request.method == "GET" and name not in self.there:
            left = {"volcano.sh/devices-to-allocate": "GPU-0,NVIDIA,1,1:"}
            meta = {"uid": name.removeprefix("pod-"), "resourceVersion": "1", "annotations": left}
            return web.json_response({"metadata": meta})
        if request.path.endswith("/status"):
            body = await request.json()
            if "annotations" in body["metadata"]:
                self.erased.append(name)
                return web.json_response({"metadata": {"resourceVersion": "1"}})
        if request.path.endswith("/events"):
            body = await request.json()
            self.notes.append((body["regarding"]["name"], body["reason"], body["note"]))
        return await super().answer(request)

    async def _node(self, request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH":
            meta = (await request.json())["metadata"]
            if meta["resourceVersion"] != str(self.version):
                return web.json_response({"reason": "Conflict"}, status=409)
            self.version += 1
            for key, value in meta["annotations"].items():
                if value is None:
                    self.locks.pop(key, None)
                else:
                    self.locks[key] = value
            self.steps.append("lock" if "hamivgpu" in self.locks else "unlock")
        meta = {"resourceVersion": str(self.version), "annotations": self.locks}
        return web.json_response({"metadata": meta})

    def said(self, reason: str) -> list[tuple[str, str]]:
        return [(name, note) for name, why, note in self.notes if why == reason]


def seen(scene: Scene, uid: str, rv: int = 2, **changes: Any) -> Any:
    """The fact of a pod once it is bound as decided."""
    held = scene.fold.state.pods[uid].allocation
    assert held is not None
    values = {"node": held.node, "holdings": held.holdings, "bind_phase": "allocating"}
    return pod(uid, rv=rv, **{**values, **changes})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks_module, "PLUGIN_DELETES_WITHIN_S", 0.05)
    monkeypatch.setattr(locks_module, "POLL_FIRST_S", 0.01)
    monkeypatch.setattr(binder_module, "WAITS_LOOKED_AT_EVERY_S", 0.02)
    monkeypatch.setattr(troubles_module, "LATE_AFTER_S", 0)
    monkeypatch.setattr(records_module, "PASSED_AFTER_S", 0.05)


@pytest.mark.usefixtures("quick")
async def test_the_lock_is_taken_before_the_binding_and_given_back_after_the_acknowledgement(
    tmp_path: Path,
) -> None:
    api = Server()
    async with at_work(tmp_path, policy(node_lock=True), node(), pod("a"), api=api) as scene:
        await scene.propose("a")
        await until(lambda: scene.kinds()[-1] == "Bound")
        assert api.steps == ["lock", "bind pod-a"]
        await scene.add(seen(scene, "a"))
        await anyio.sleep(0.1)
        assert "hamivgpu" in api.locks  # the plugin is at work
        await scene.add(seen(scene, "a", 3, bind_phase="success"))
        await until(lambda: "hamivgpu" not in api.locks)
        assert api.steps == ["lock", "bind pod-a", "unlock"]


@pytest.mark.usefixtures("quick")
async def test_a_binding_that_fails_leaves_no_lock_and_without_the_switch_there_is_none(
    tmp_path: Path,
) -> None:
    api = Server()
    api.status = 403
    async with at_work(tmp_path, policy(node_lock=True), node(), pod("a"), api=api) as scene:
        await scene.propose("a")
        await until(lambda: "BindFailed" in scene.kinds() and not api.locks)
        assert api.steps == ["lock", "bind pod-a", "unlock"]
        api.status = 201
        await scene.add(policy())
        await scene.propose("a", cycle="c2")
        await until(lambda: scene.kinds()[-1] == "Bound")
        assert api.steps[3:] == ["bind pod-a"]


@pytest.mark.usefixtures("quick")
async def test_a_pod_that_waits_for_a_plugin_is_told_for_whom_and_goes_when_that_pod_is_gone(
    tmp_path: Path,
) -> None:
    api = Server()
    async with at_work(tmp_path, policy(), node(cards=1), pod("a"), pod("b"), api=api) as scene:
        await scene.propose("a", "b")
        await until(lambda: "Bound" in scene.kinds())
        await scene.add(seen(scene, "a"))
        await until(lambda: api.said("WaitingForDevicePlugin"))
        ((name, note),) = api.said("WaitingForDevicePlugin")
        assert name == "pod-b"
        assert "node n1" in note
        assert "default/pod-a" in note
        assert scene.binder.unacknowledged() == {("n1",): 1}
        assert scene.binder.waiting() == {("n1",): 1}
        assert set(scene.binder.unacknowledged_s()) == {("n1",)}
        await anyio.sleep(0.1)
        assert len(api.said("WaitingForDevicePlugin")) == 1
        assert api.bindings == ["pod-a"]
        await scene.add(PodGone(uid="a", namespace="default", name="pod-a", rv=3))
        await until(lambda: api.bindings == ["pod-a", "pod-b"])
        assert scene.binder.waiting() == {}


async def test_what_waits_for_a_plugin_that_died_is_given_back_and_not_bound(
    tmp_path: Path,
) -> None:
    api = Server()
    async with at_work(tmp_path, policy(), node(cards=1), pod("a"), pod("b"), api=api) as scene:
        await scene.propose("a", "b")
        await until(lambda: "Bound" in scene.kinds())
        await scene.add(seen(scene, "a"), node(cards=0, rv=2))
        await until(lambda: "BindFailed" in scene.kinds())
        (failed,) = [e for e in scene.events() if isinstance(e, BindFailed)]
        assert (failed.uid, failed.code) == ("b", reasons.NO_GPU)
        assert "device plugin" in failed.message
        assert api.bindings == ["pod-a"]
        assert list(scene.fold.state.pending) == ["b"]


async def test_a_card_that_went_bad_meanwhile_gets_nobody(tmp_path: Path) -> None:
    api = Server()
    history = (policy(), node(cards=1), pod("a"), pod("b"))
    async with at_work(tmp_path, *history, api=api) as scene:
        await scene.propose("a", "b")
        await until(lambda: "Bound" in scene.kinds())
        bad = node(cards=[card(0, healthy=False)], rv=2)
        await scene.add(bad, seen(scene, "a", bind_phase="success"))
        await until(lambda: "BindFailed" in scene.kinds())
        (failed,) = [e for e in scene.events() if isinstance(e, BindFailed)]
        assert (failed.uid, failed.code) == ("b", reasons.GPU_UNHEALTHY)


async def test_a_card_that_flaps_is_not_given_away_while_an_earlier_lifes_binding_is_under_way(
    tmp_path: Path,
) -> None:
    """The API server is slow, the binder is killed, the card falls ill, and then the Binding lands.

    The next binder must not take the illness for the end of a Binding that it knows nothing of.
    """
    api = Server()
    meta = {"metadata": {"uid": "a", "annotations": {}}}
    api.there["pod-a"] = {**meta, "spec": {}}
    large = request(wants(15_000))
    history = (policy(), node(cards=1), pod("a", large), decided(placement("a", "n1", LARGE)))
    ill = node(cards=[card(0, healthy=False)], rv=2)
    async with at_work(tmp_path, *history, ill, pod("b", large), api=api) as scene:
        await until(lambda: len(api.looks) > 2)
        assert "BindFailed" not in scene.kinds()
        await scene.propose("b")
        api.there["pod-a"] = {**meta, "spec": {"nodeName": "n1"}}
        await scene.add(node(cards=1, rv=3))
        await until(lambda: "Bound" in scene.kinds())
        await scene.propose("b", cycle="c2")
        assert "BindFailed" not in scene.kinds()
        assert [p.uid for d in scene.decisions() for p in d.placements] == ["a"]
        assert oversold(scene.fold.state) == []


async def test_who_edits_a_bound_pod_is_told_that_it_counts_for_nothing(tmp_path: Path) -> None:
    api = Server()
    async with at_work(tmp_path, policy(), node(cards=2), pod("a"), api=api) as scene:
        await scene.propose("a")
        await until(lambda: "Bound" in scene.kinds())
        await scene.add(seen(scene, "a"))
        assert scene.binder.mismatches() == {}
        other = (holding("GPU-0"), holding("GPU-1"))
        await scene.add(seen(scene, "a", rv=3, holdings=other))
        await scene.add(seen(scene, "a", rv=4, holdings=other, reason="x"))
        await until(lambda: bool(api.said("ClaimMismatch")))
        assert scene.binder.mismatches() == {("n1",): 1}
        ((name, text),) = api.said("ClaimMismatch")
        assert name == "pod-a"
        assert text.startswith("annotations claim GPU-0 (4000 MiB, compute 25), GPU-1")
        await scene.add(seen(scene, "a", rv=5))
        assert scene.binder.mismatches() == {}


async def test_a_pod_that_could_not_start_is_explained_erased_and_avoided(tmp_path: Path) -> None:
    api = Server()
    history = (policy(), node(), pod("a", owner="rs"), pod("b", owner="rs"))
    async with at_work(tmp_path, *history, api=api) as scene:
        await scene.propose("a")
        await until(lambda: "Bound" in scene.kinds())
        first = scene.fold.state.pods["a"].allocation
        assert first is not None
        failed = seen(scene, "a", owner="rs", bind_phase="failed")
        await scene.add(failed)
        ended = seen(
            scene,
            "a",
            3,
            owner="rs",
            bind_phase="failed",
            phase="Failed",
            reason="UnexpectedAdmissionError",
        )
        await scene.add(ended)
        await until(lambda: api.said("DevicesNotAssigned") and api.erased)
        ((name, note),) = api.said("DevicesNotAssigned")
        assert name == "pod-a"
        assert (
            f"the device plugin of node n1 did not start this pod on {first.holdings[0].card}"
            in (note)
        )
        assert "the next pod of its owner" in note
        assert api.erased == ["pod-a"]
        await scene.propose("b", cycle="c2")
        await until(lambda: api.bindings == ["pod-a", "pod-b"])
        second = scene.fold.state.pods["b"].allocation
        assert second is not None
        assert second.holdings[0].card != first.holdings[0].card
        assert len(api.said("DevicesNotAssigned")) == 1
        assert api.erased == ["pod-a"]


async def test_what_failed_before_this_life_is_erased_again_but_not_told_again(
    tmp_path: Path,
) -> None:
    api = Server()
    gone_wrong: dict[str, Any] = {"node": "n1", "holdings": (holding(),), "bind_phase": "failed"}
    elsewhere: dict[str, Any] = {**gone_wrong, "node": "unknown"}
    history = (policy(), node(), pod("a", **gone_wrong), pod("b", **elsewhere))
    async with at_work(tmp_path, *history, api=api) as scene:
        await until(lambda: api.erased)
        await scene.add(pod("a", rv=2, deleting=True, **gone_wrong))
        await anyio.sleep(0.05)
        assert api.erased == ["pod-a"]
        assert api.notes == []


async def test_a_record_that_we_marked_as_failed_is_not_said_to_be_the_plugins_doing(
    tmp_path: Path,
) -> None:
    """Kubelet turned the pod away for another reason, and nobody was asked for devices."""
    api = Server()
    rejected: dict[str, Any] = {"node": "n1", "holdings": (holding(),), "phase": "Failed"}
    history = (policy(), node(), pod("a", bind_phase="allocating", **rejected))
    async with at_work(tmp_path, *history, api=api) as scene:
        await until(lambda: api.erased)
        await scene.add(pod("a", rv=2, bind_phase="failed", **rejected))
        await anyio.sleep(0.05)
        assert api.notes == []
        assert api.erased == ["pod-a"]


async def test_who_keeps_a_nodes_cards_in_quarantine_is_told_so_once(tmp_path: Path) -> None:
    wanted = request(wants(4_000, 25))
    why = Problem("BrokenAssignment", "annotation volcano.sh/vgpu-ids-new", "is 'x'")
    server = Server()
    async with at_work(tmp_path, policy(), node(), pod("b", wanted), api=server) as scene:
        for rv in (2, 3):
            await scene.add(pod("a", wanted, rv=rv, node="n1", phase="Running", broken=why))
        await until(lambda: server.said(reasons.CARDS_QUARANTINED))
        ((name, note),) = server.said(reasons.CARDS_QUARANTINED)
        assert name == "pod-a"
        assert "volcano.sh/vgpu-ids-new is 'x': so it is unknown which cards of node n1" in note
        assert "Correct the annotation or delete the pod" in note
