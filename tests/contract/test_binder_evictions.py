"""Evictions of landed decisions, through an API server that knows budgets."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.build import decided, node, policy
from tests.contract.binder_loops import Scene
from tests.contract.binder_scene import (
    BUDGETS,
    PODS,
    at_work,
    changed,
    cluster,
    comes_to,
    running_pod,
)
from tests.contract.kube_server import client_of, refuse, reply, scripted
from tests.memory_log import MemoryLog
from tests.waiting import until

from allotment.core.ledger.model import ClusterState
from allotment.core.queues.eligible import NEVER
from allotment.core.queues.round.rounds import Rounds
from allotment_binder import evictions as evictions_module
from allotment_binder.evictions import Evictions
from allotment_binder.notices import Notices
from allotment_binder.readers import Readers
from allotment_board.board import Board
from allotment_proto.events import (
    Decided,
    Evicted,
    Eviction,
    Nomination,
    PodObserved,
    QueueObserved,
    Refusal,
)
from allotment_proto.messages import MESSAGE_VERSION, Proposal

pytestmark = pytest.mark.anyio
QUEUE = QueueObserved(uid="q", name="default", rv=1)
NAMES = policy(scheduler_names=("allotment", "volcano"))
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "keep"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
}


def eviction(pod: PodObserved, **changes: str) -> Eviction:
    values = {
        "uid": pod.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "node": "n1",
        "action": "preempt",
        "preemptor": "default/top",
    }
    return Eviction(**{**values, **changes})


def evicting(*pods: PodObserved) -> Decided:
    return decided(evictions=tuple(map(eviction, pods)))


def outcomes(scene: Scene) -> list[Evicted]:
    return [event for event in scene.events() if isinstance(event, Evicted)]


def some(scene: Scene, count: int) -> Callable[[], bool]:
    return lambda: len(outcomes(scene)) == count


async def test_an_evicted_pod_leaves_and_knows_why(tmp_path: Path) -> None:
    async with cluster() as there:
        group = await there.group("jobs", 1, "Running")
        victim = await running_pod(there, "low", group="jobs")
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), group, victim) as scene:
            await scene.add(evicting(victim))
            await until(some(scene, 1))
            (found,) = outcomes(scene)
            assert (found.uid, found.node, found.decision, found.code) == (victim.uid, "n1", 9, "")
            seen = await there.api.get(f"{PODS}/low")
            assert "deletionTimestamp" in seen["metadata"]
            told = await there.conditions("low")
            said = "Preempted by default/top"
            assert (told["Ready"]["status"], told["Ready"]["reason"]) == ("False", "Evict")
            target = told["DisruptionTarget"]
            assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
            assert target["message"] == said

            async def is_told() -> bool:
                ours = ("Normal", "Evict", "preempt: pod low makes room for default/top")
                return (
                    "Warning",
                    "Evict",
                    f"{said}. Ask: allot story default/low",
                ) in await there.events("low") and (ours in await there.events("jobs"))

            await comes_to(is_told)
            assert victim.uid in scene.fold.state.evicting, "it holds its cards until it is gone"


async def test_a_disruption_budget_is_respected_and_the_log_says_so(tmp_path: Path) -> None:
    async with cluster() as there:
        await there.api.post(BUDGETS, BUDGET)
        victim = await running_pod(there, "low", labels={"app": "kept"})
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), victim) as scene:
            await scene.add(evicting(victim))
            await until(some(scene, 1))
            (found,) = outcomes(scene)
            assert found.code == "DisruptionBudget"
            assert "disruption budget" in found.message
            await until(lambda: scene.fold.state.evicting == {})
            assert "deletionTimestamp" not in (await there.api.get(f"{PODS}/low"))["metadata"]
            assert (await there.conditions("low"))["Ready"]["status"] == "True"
            assert await there.events("low") == []


KEPT = {"app": "kept"}


@pytest.mark.parametrize(
    ("labels", "codes"),
    [
        # The second may not go, so the first, which may, would go for nothing.
        ({"one": {}, "two": KEPT}, ["OtherVictimStays", "DisruptionBudget"]),
        # Each alone may go, and not both.
        ({"one": KEPT, "two": KEPT}, ["OtherVictimStays", "DisruptionBudget"]),
        ({"one": {}, "two": {}}, ["", ""]),
    ],
)
async def test_all_that_make_room_for_one_preemptor_go_or_none(
    labels: dict[str, dict[str, str]], codes: list[str], tmp_path: Path
) -> None:
    async with cluster() as there:
        await there.api.post(BUDGETS, BUDGET)
        victims = [await running_pod(there, name, labels=labels[name]) for name in labels]
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), *victims) as scene:
            await scene.add(evicting(*victims))
            await until(some(scene, 2))
            found = {each.name: each.code for each in outcomes(scene)}
            assert [found[each.name] for each in victims] == codes
            for each in victims:
                seen = await there.api.get(f"{PODS}/{each.name}")
                assert ("deletionTimestamp" in seen["metadata"]) == (not any(codes))
            await until(lambda: bool(scene.fold.state.evicting) == (not any(codes)))
            protected = {each.uid for each in outcomes(scene) if each.code == "DisruptionBudget"}
            assert scene.fold.state.spared.keys() == protected, "the others may go for others"


async def test_a_pod_made_anew_under_the_name_is_left_alone(tmp_path: Path) -> None:
    async with cluster() as there:
        other = await running_pod(there, "low")
        before = changed(other, uid="the-one-before")
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), before) as scene:
            await scene.add(evicting(before))
            await until(some(scene, 1))
            assert [found.code for found in outcomes(scene)] == [""]
            assert "deletionTimestamp" not in (await there.api.get(f"{PODS}/low"))["metadata"]


async def test_a_victim_gets_its_own_grace_but_not_days(tmp_path: Path) -> None:
    """Also one that its owner is deleting slowly: it gets ten minutes from now on."""
    day_s, now_s = 86_400, int(time.time())
    async with cluster() as there:
        short = changed(await running_pod(there, "short"), grace_s=300)
        long = changed(await running_pod(there, "long"), grace_s=day_s)
        slow = await running_pod(there, "slow")
        await there.api.call("DELETE", f"{PODS}/slow", {"gracePeriodSeconds": day_s})
        deadline_ms = (now_s + day_s) * 1000
        slow = changed(slow, deleting=True, grace_s=day_s, deadline_ms=deadline_ms)
        pods = short, long, slow
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), *pods) as scene:
            await scene.add(evicting(*pods))
            await until(some(scene, 3))
        for pod, own_s in ((short, 30), (long, 600), (slow, 600)):
            grace_s = (await there.api.get(f"{PODS}/{pod.name}"))["metadata"][
                "deletionGracePeriodSeconds"
            ]
            assert own_s <= grace_s <= own_s + 60, pod.name


async def test_a_binder_that_starts_anew_settles_what_is_open(tmp_path: Path) -> None:
    log = MemoryLog()
    async with cluster() as there:
        victim = await running_pod(there, "low")
        ended = changed(await running_pod(there, "over"), phase="Succeeded")
        going = changed(await running_pod(there, "going"), deleting=True)
        history = (NAMES, QUEUE, node(), victim, ended, going, evicting(victim, ended, going))
        async with at_work(tmp_path, there, *history, log=log) as scene:
            await until(some(scene, 3))
            codes = {found.name: found.code for found in outcomes(scene)}
            assert codes == {"low": "", "over": "PodEnded", "going": ""}
        for name, is_evicted in (("low", True), ("over", False), ("going", False)):
            seen = await there.api.get(f"{PODS}/{name}")
            assert ("deletionTimestamp" in seen["metadata"]) is is_evicted, name


async def test_a_nomination_is_on_the_pod_and_goes_with_the_eviction_that_is_refused(
    tmp_path: Path,
) -> None:
    async with cluster() as there:
        await there.api.post(BUDGETS, BUDGET)
        victim = await running_pod(there, "low", labels={"app": "kept"})
        waits = await there.pod("top")
        history = (NAMES, QUEUE, node(), victim, waits)

        async def nominated(name: str) -> bool:
            status = (await there.api.get(f"{PODS}/top"))["status"]
            return bool(status.get("nominatedNodeName", "") == name)

        async with at_work(tmp_path, there, *history) as scene:
            who = f"pod:{waits.uid}"
            made = decided(nominations=(Nomination(waits.uid, "default", "top", "n1", who),))
            await scene.add(made)
            scene.binder.gangs.landed(made)
            await comes_to(lambda: nominated("n1"))
            await scene.add(decided(evictions=(eviction(victim, preemptor=who),)))
            await until(some(scene, 1))
            await comes_to(lambda: nominated(""))
            said = (await there.conditions("top"))["PodScheduled"]
            assert said["message"].startswith("DisruptionBudget: pod default/low does not make")


async def carried_out(tmp_path: Path, *answers: Any) -> tuple[Evicted, list[str]]:
    said: list[str] = []
    async with (
        scripted() as script,
        client_of(script, tmp_path, throttle_wait_s_max=0.0) as client,
    ):
        script.then(*answers)
        script.otherwise = reply({}, 201)
        evictions = Evictions(
            client, Notices(client, "b", Readers()), Readers(), lambda _, text: said.append(text)
        )
        victim = Eviction("u", "default", "low", "n1", "reclaim", "default/top")
        (found,) = await evictions.carry_out(ClusterState(), [victim])
        assert not script.answers, "not everything was asked"
        assert script.bodies[0]["deleteOptions"] == {"preconditions": {"uid": "u"}}
        assert (evictions.evicted, evictions.refused) == (not found.code, bool(found.code))
    return found, said


async def test_errors_are_tried_again_and_given_up_with_the_servers_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evictions_module, "RETRY_FIRST_S", 0.001)
    error = refuse(500, "InternalError", "etcd is away")
    found, said = await carried_out(tmp_path, *[error] * evictions_module.TRIES)
    assert (found.code, found.message) == ("APIError", "etcd is away")
    assert len(said) == evictions_module.TRIES
    found, said = await carried_out(tmp_path, error, reply({}, 201))
    assert (found.code, said) == ("", ["etcd is away"])


async def test_a_busy_server_is_no_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictions_module, "RETRY_FIRST_S", 0.001)
    busy = refuse(429, "TooManyRequests", "please try again later", Retry_After="10")
    budget = refuse(429, "TooManyRequests", "it would violate the pod's disruption budget.")
    found, said = await carried_out(tmp_path, busy, budget)
    assert (found.code, len(said)) == ("DisruptionBudget", 1)
    several = "This pod has more than one PodDisruptionBudget, which the eviction subresource does"
    found, said = await carried_out(tmp_path, refuse(500, "InternalError", several))
    assert (found.code, said) == ("DisruptionBudget", [])
    found, _ = await carried_out(tmp_path, refuse(404, "NotFound"))
    assert found.code == ""


async def test_budgets_that_cannot_be_read_evict_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    async with (
        scripted() as script,
        client_of(script, tmp_path, throttle_wait_s_max=0.0) as client,
    ):
        script.then(reply({}, 201), reply({}, 201), refuse(403, "Forbidden", "no rights"))
        notices = Notices(client, "b", Readers())
        evictions = Evictions(client, notices, Readers(), lambda _, text: said.append(text))
        victims = [
            Eviction(uid, "default", uid, "n1", "reclaim", "default/top") for uid in ("a", "b")
        ]
        found = await evictions.carry_out(ClusterState(), victims)
        assert [(each.code, each.message) for each in found] == [("APIError", "no rights")] * 2
        assert said == ["disruption budgets cannot be read: no rights"]
        asked = [(request.method, request.query.get("dryRun")) for request in script.requests]
        assert asked == [("POST", "All"), ("POST", "All"), ("GET", None)]


async def test_a_pod_that_never_preempts_says_so(tmp_path: Path) -> None:
    evicts = policy(scheduler_names=("allotment", "volcano"), actions=("allocate", "preempt"))
    async with cluster() as there:
        waits = await there.pod("calm", preempts=False)
        full = (("InsufficientGPUMemory", 1),)
        refused = decided(refusals=(Refusal(waits.uid, "default", "calm", 1, full),))
        async with at_work(tmp_path, there, evicts, QUEUE, node(), waits, refused):

            async def is_told() -> bool:
                said = (await there.conditions("calm")).get("PodScheduled", {})
                return f"1 InsufficientGPUMemory. {NEVER}" in said.get("message", "")

            await comes_to(is_told)


async def test_a_forged_proposal_evicts_nobody(tmp_path: Path) -> None:
    """Whoever reaches the bus says that the cluster's DNS has to make room: nobody is evicted, the
    next honest proposal is decided, and the binder says what it refused.
    """
    async with cluster() as there:
        victim = await running_pod(there, "dns", priority_class="system-cluster-critical")
        waiting = await there.pod("waits", scheduler="allotment")
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), victim) as scene:
            await scene.add(waiting)
            state = scene.fold.state
            forged = Proposal(
                v=MESSAGE_VERSION,
                cycle="forged",
                basis=state.seq,
                policy=state.policy_seq,
                batch=(),
                placements=(),
                refusals=(),
                evictions=(eviction(victim, preemptor=waiting.uid),),
                nominations=(Nomination(waiting.uid, "default", "waits", "n1", waiting.uid),),
            )
            await scene.send(forged)
            assert (scene.bus.settled[-1].cycle, scene.bus.settled[-1].outcome) == (
                "forged",
                "nothing",
            )
            assert scene.binder.decider.refused()[("eviction",)] == 1
            assert outcomes(scene) == []
            assert state.evicting == {}
            found = Rounds(state).run((waiting.uid,), Board(state))
            await scene.send(
                msgspec.structs.replace(
                    forged,
                    batch=(waiting.uid,),
                    placements=found.placements,
                    evictions=(),
                    nominations=(),
                )
            )
            assert scene.bus.settled[-1].outcome == "decided"
            assert "deletionTimestamp" not in (await there.api.get(f"{PODS}/dns"))["metadata"]
